"""What many hosts say in the same words is kept once: ten thousand hosts have to fit into memory."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def same(value: T) -> T:
    """The value, or one that is equal to it and came before. For what is frozen, and equal on most hosts."""
    return _first(value)  # type: ignore[return-value]


@lru_cache(maxsize=4096)
def _first(value: Hashable) -> Hashable:
    return value
