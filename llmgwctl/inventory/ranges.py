"""Host ranges in the syntax of Slurm and clush, expanded in the order in which they are written, and bounded."""

from __future__ import annotations

import re
from itertools import product
from math import prod

MAX_HOSTS = 50_000
_PART = re.compile(r"(\d{1,18})(?:-(\d{1,18})(?:/(\d{1,18}))?)?")
_PIECE = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_OPERATORS = re.compile(r"[,!&^\s]+(?![^\[]*\])")


class BadRange(ValueError):
    """A range that cannot be expanded; the text says why."""


def expand(text: str) -> list[str]:
    """All names of a range, in order and with repetitions. A NodeSet is a sorted set: names would lose their pairs."""
    names: list[str] = []
    for piece in split(text):
        groups = _groups(piece)
        _check(len(names) + prod(sum(map(_count, g)) for g in groups if not isinstance(g, str)), text)
        names += ("".join(parts) for parts in product(*map(_values, groups)))
    return names


def chosen(text: str) -> set[str]:
    """The names of a NodeSet with its operators (a[1-4]!a2), as -w takes it. Group lookups (@, *) are off."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

    pieces = [p for p in _OPERATORS.split(text.strip()) if p]
    if not pieces:
        raise BadRange("names no host")
    _check(sum(prod(sum(map(_count, g)) for g in _groups(p) if not isinstance(g, str)) for p in pieces), text)
    try:
        return set(NodeSet(text, resolver=RESOLVER_NOGROUP))
    except NodeSetException as e:
        raise BadRange(f"bad range {text!r}: {e}") from None


def split(text: str) -> list[str]:
    """The pieces between the commas that stand outside brackets."""
    if not text.strip():
        raise BadRange("names no host")
    pieces = _PIECE.findall(text)
    if ",".join(pieces) != text:
        raise BadRange(f"bad range {text!r}: brackets or commas do not pair")
    return [p.strip() for p in pieces]


def _groups(piece: str) -> list[str | list[str]]:
    """Literal text and bracket groups in turn: "r1-t[01-03,7]" -> ["r1-t", ["01-03", "7"], ""]."""
    halves = re.split(r"\[([^\[\]]*)\]", piece)
    groups = [h if i % 2 == 0 else h.split(",") for i, h in enumerate(halves)]
    if any(c in g for g in groups if isinstance(g, str) for c in "[]"):
        raise BadRange(f"bad range {piece!r}: brackets do not pair")
    return groups


def _count(part: str) -> int:
    """How many numbers a part like "01-18" or "1-9/2" names, told without making them."""
    found = _PART.fullmatch(part)
    if not found:
        raise BadRange(f"bad range [{part}]: write it as [01-18] or [1,3,7]")
    first, last, step = found.groups()
    if step is not None and int(step) == 0:
        raise BadRange(f"bad range [{part}]: a step of 0")
    span = int(last or first) - int(first)
    if span < 0:
        raise BadRange(f"bad range [{part}]: it runs backwards")
    return span // int(step or 1) + 1


def _values(group: str | list[str]) -> list[str]:
    if isinstance(group, str):
        return [group]
    from ClusterShell.RangeSet import RangeSet, RangeSetException

    try:
        return [n for part in group for n in RangeSet(part)]
    except RangeSetException as e:
        raise BadRange(f"bad range [{','.join(group)}]: {e}") from None


def _check(count: int, text: str) -> None:
    if count > MAX_HOSTS:
        raise BadRange(f"range {text[:60]!r} names {count:,} hosts; {MAX_HOSTS:,} is the most that one inventory holds")
