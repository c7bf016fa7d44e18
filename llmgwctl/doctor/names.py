"""Hosts, GPUs, counts and ages in as few words as say it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

from llmgwctl.model.host import HostFacts
from llmgwctl.model.machine import KernelLine
from llmgwctl.model.names import fold as folded

__all__ = ["ago", "few", "folded", "odd_ones"]

K = TypeVar("K", bound=Hashable)


def few(things: Iterable[str], most: int = 4) -> str:
    """The first of them, and how many more."""
    listed = list(things)
    more = len(listed) - most
    return ", ".join(listed[:most]) + (f" and {more} more" if more > 0 else "")


def ago(facts: HostFacts, line: KernelLine) -> str:
    """How long before this reading a line of the kernel log was written: ", 5 min ago"; "" where that is not told."""
    system = facts.system.value
    if line.at_s is None or system is None or not system.uptime_s or system.uptime_s < line.at_s:
        return ""
    minutes = (system.uptime_s - line.at_s) / 60
    return f", {minutes:.0f} min ago" if minutes < 120 else f", {minutes / 60:.0f} h ago"


def odd_ones(said: Mapping[str, K]) -> tuple[K | None, dict[str, K]]:
    """What most hosts say, and the hosts that say something else; None and all of them where no answer leads."""
    counts = Counter(said.values()).most_common(2)
    if len(counts) < 2:
        return (counts[0][0] if counts else None), {}
    if counts[0][1] == counts[1][1]:
        return None, dict(said)
    leader = counts[0][0]
    return leader, {n: k for n, k in said.items() if k != leader}
