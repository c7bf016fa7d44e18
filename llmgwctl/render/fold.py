"""Say racks in ranges, and say a thing once: hosts that are alike stand on one line."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)


def fold(names: Iterable[str]) -> str:
    """Host names as a range: r1-t[01-17]."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

    return str(NodeSet.fromlist(list(names), resolver=RESOLVER_NOGROUP))


def alike(pairs: Iterable[tuple[str, K]]) -> list[tuple[list[str], K]]:
    """Names grouped by what is said of them; groups and names keep the order in which they come."""
    groups: dict[K, list[str]] = {}
    for name, said in pairs:
        groups.setdefault(said, []).append(name)
    return [(names, said) for said, names in groups.items()]
