"""The tree that both forms of `nvidia-smi -q` are read into, with the text form's names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

NOTHING = frozenset(
    {
        "",
        "N/A",
        "[N/A]",
        "Not Supported",
        "[Not Supported]",
        "Not Found",
        "Function Not Found",
        "No data",
        "Insufficient Permissions",
        "Invalid Argument",
        "Argument version mismatch",
        "Requested functionality has been deprecated",
    }
)
"""Texts in place of a value that say nothing about the GPU's state: a field it lacks, or that we may not see."""


@dataclass(slots=True)
class Node:
    """A key with its value, or a section with what stands under it; some keys are both.

    Once it is asked, nothing is added to it: reports that print the same section share its node.
    """

    name: str
    value: str | None = None
    children: list[Node] = field(default_factory=list)
    _first: dict[str, Node] | None = field(default=None, init=False, repr=False, compare=False)
    _texts: frozenset[str] | None = field(default=None, init=False, repr=False, compare=False)

    def child(self, *path: str) -> Node | None:
        """The node at a path; the first of a name wins, so that a later line cannot overrule an earlier one."""
        node: Node | None = self
        for name in path:
            if node is None:
                return None
            if node._first is None:
                node._first = {c.name: c for c in reversed(node.children)}
            node = node._first.get(name)
        return node

    def raw(self, *path: str) -> str | None:
        """The text at a path, exactly as printed; None when the key is not there."""
        node = self.child(*path)
        return node.value if node else None

    def text(self, *path: str) -> str | None:
        """The text at a path; None when it is not there or says nothing (N/A and its relatives)."""
        value = self.raw(*path)
        return None if value is None or value in NOTHING else value

    def all(self, name: str) -> list[Node]:
        return [c for c in self.children if c.name == name]

    def values(self, skip: frozenset[str] = frozenset()) -> Iterator[tuple[str, str]]:
        """Every (name, value) below this node, leaving out the direct children named in `skip`."""
        todo = [c for c in reversed(self.children) if c.name not in skip]
        while todo:
            node = todo.pop()
            if node.value is not None:
                yield node.name, node.value
            todo.extend(reversed(node.children))

    def saying(self, texts: frozenset[str], skip: frozenset[str] = frozenset()) -> Iterator[tuple[str, str]]:
        """Those of `values` whose text is one of these. Sections without any are passed over as a whole."""
        for child in self.children:
            if child.name not in skip and not child._said().isdisjoint(texts):
                yield from (pair for pair in ((child.name, child.value or ""), *child.values()) if pair[1] in texts)

    def _said(self) -> frozenset[str]:
        """Every text at this node and below it."""
        if self._texts is None:
            self._texts = frozenset((self.value or "", *(text for _, text in self.values())))
        return self._texts


def number(text: str | None) -> int | None:
    """A plain decimal number; None for anything else."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 20 else None


def mebibytes(text: str | None) -> int | None:
    """The number of `196608 MiB`; None for anything else."""
    amount, _, unit = (text or "").partition(" ")
    return number(amount) if unit == "MiB" else None


def yes_no(text: str | None, yes: str, no: str) -> bool | None:
    """A word of two; None for every other word."""
    return True if text == yes else False if text == no else None
