"""What may be the name of a host, a pool or a profile, and what its address: of an inventory and of a bundle alike."""

from __future__ import annotations

import re
from collections.abc import Iterable

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,252}", re.ASCII)
ADDRESS = re.compile(r"[A-Za-z0-9._:%][A-Za-z0-9._:%-]{0,252}", re.ASCII)


def is_name(text: str) -> bool:
    return NAME.fullmatch(text) is not None


def is_address(text: str) -> bool:
    return ADDRESS.fullmatch(text) is not None


def fold(names: Iterable[str]) -> str:
    """As a range: r1-t[01-17]. What is no name is never read as one: a range of a stranger's may have any length."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

    given = list(names)
    odd = [n for n in given if not is_name(n)]
    plain = [n for n in given if is_name(n)]
    folded = [str(NodeSet.fromlist(plain, resolver=RESOLVER_NOGROUP))] if plain else []
    return ",".join((*folded, *odd))
