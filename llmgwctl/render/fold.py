"""Say racks in ranges, and say a thing once: hosts that are alike stand on one line."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

from llmgwctl.model.names import fold

__all__ = ["alike", "fold"]

K = TypeVar("K", bound=Hashable)


def alike(pairs: Iterable[tuple[str, K]]) -> list[tuple[list[str], K]]:
    """Names grouped by what is said of them; groups and names keep the order in which they come."""
    groups: dict[K, list[str]] = {}
    for name, said in pairs:
        groups.setdefault(said, []).append(name)
    return [(names, said) for said, names in groups.items()]
