"""What our own scripts print: one fact a line, `KIND REST`; a line of another kind is passed over."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

LIMIT_LINES = 20_000


def facts(text: str) -> Iterator[tuple[str, str]]:
    """(kind, rest) of each line, in order."""
    for line in islice(text.replace("\r", "").split("\n"), LIMIT_LINES):
        kind, space, rest = line.partition(" ")
        if space:
            yield kind, rest.strip()


def grouped(text: str) -> dict[str, list[str]]:
    """What was said, by kind."""
    found: dict[str, list[str]] = {}
    for kind, rest in facts(text):
        found.setdefault(kind, []).append(rest)
    return found


def pairs(rests: list[str], by: str = "=") -> dict[str, str]:
    """KEY=VALUE (or KEY VALUE) by key; the first of a key wins."""
    found: dict[str, str] = {}
    for rest in rests:
        key, separator, value = rest.partition(by)
        if separator:
            found.setdefault(key, value.strip())
    return found
