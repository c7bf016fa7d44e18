"""Secrets of the profiles of an inventory, taken out of logs before anybody is shown them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from llmgwctl.cli.common import Session
from llmgwctl.cli.job import read_api_key
from llmgwctl.launch.logs import CommandLog
from llmgwctl.launch.secrets import hide, secrets_of
from llmgwctl.model.errors import InventoryError
from llmgwctl.model.replica import ReplicaState

Hider = Callable[[Sequence[CommandLog]], tuple[CommandLog, ...]]


def hider(s: Session, states: Iterable[ReplicaState]) -> Hider:
    """Of the replicas' profiles that this inventory knows, with their API keys where those can be read here."""
    names = {r.profile for r in states}
    found: list[str] = []
    for profile in (p for name, p in s.inventory.profiles.items() if name in names):
        key = ""
        with suppress(InventoryError):
            key = read_api_key(s.inventory, profile)
        found += secrets_of(profile, key)
    return lambda logs: tuple(replace(x, text=hide(x.text, found)) for x in logs)
