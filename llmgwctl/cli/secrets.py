"""Secrets of the profiles of an inventory, taken out of logs before anybody is shown them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from llmgwctl.cli.job import read_api_key
from llmgwctl.inventory import Inventory
from llmgwctl.launch.logs import CommandLog
from llmgwctl.launch.secrets import hide, secrets_of
from llmgwctl.model.errors import InventoryError

Hider = Callable[[Sequence[CommandLog]], tuple[CommandLog, ...]]


def hider(inventory: Inventory) -> Hider:
    """Of all profiles, with their API keys where those can be read here: which of them a replica was made of is a
    host's word, and the profile may have another name by now. The longest first, since one may lie in another's."""
    found: set[str] = set()
    for profile in inventory.profiles.values():
        key = ""
        with suppress(InventoryError):
            key = read_api_key(inventory, profile)
        found |= set(secrets_of(profile, key))
    secrets = sorted(found, key=lambda v: (-len(v), v))
    return lambda logs: tuple(replace(x, text=hide(x.text, secrets)) for x in logs)
