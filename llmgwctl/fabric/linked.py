"""Groups of what touches: keys joined two by two or more, each group known by its smallest key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

K = TypeVar("K", str, tuple[str, str])


class Linked(Generic[K]):
    """Disjoint sets with path halving: joining n keys costs about n, however the groups grow together."""

    def __init__(self) -> None:
        self._towards: dict[K, K] = {}

    def join(self, keys: Sequence[K]) -> None:
        """All these keys, and whatever was joined to any of them, are one group."""
        roots = {self.first(key) for key in keys}
        smallest = min(roots)
        self._towards.update(dict.fromkeys(roots, smallest))

    def first(self, key: K) -> K:
        """The smallest key of the group; a key never joined is its own group."""
        towards = self._towards
        while (above := towards.setdefault(key, key)) != key:
            towards[key] = towards[above]
            key = above
        return key
