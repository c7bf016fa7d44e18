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
    """A key with its value, or a section with what stands under it; some keys are both."""

    name: str
    value: str | None = None
    children: list[Node] = field(default_factory=list)

    def child(self, *path: str) -> Node | None:
        """The node at a path; the first of a name wins, so that a later line cannot overrule an earlier one."""
        node: Node | None = self
        for name in path:
            node = next((c for c in node.children if c.name == name), None) if node else None
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
