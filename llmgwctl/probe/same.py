"""What many hosts say in the same words is kept once: ten thousand hosts have to fit into memory."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from typing import TypeVar

T = TypeVar("T", bound=Hashable)
MOST_KEPT = 4096
LONGEST, HEAVIEST = 256, 2**14  # of a string, of a tuple: a host that says something new and large each time fills none


def same(value: T) -> T:
    """The value, or one that is equal to it and came before. For what is frozen, and equal on most hosts.

    A fact has to be small by how it is made. Strings and tuples may be of any size, and large ones are not kept.
    """
    return _first(value) if _small(value) else value  # type: ignore[return-value]


def _small(value: object) -> bool:
    if type(value) is str:
        return len(value) <= LONGEST
    return type(value) is not tuple or _weight(value) <= HEAVIEST


def _weight(values: tuple[object, ...]) -> int:
    """About its bytes. No more is looked at than could be kept."""
    found = 64 * len(values)
    for value in values if found <= HEAVIEST else ():
        if type(value) is str:
            found += len(value)
        elif type(value) is tuple:
            found += _weight(value)
    return found


@lru_cache(maxsize=MOST_KEPT)
def _first(value: Hashable) -> Hashable:
    return value
