"""The tree that both forms of `nvidia-smi -q` are read into, with the text form's names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import TypeVar

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


GONE = frozenset({"GPU is lost", "GPU requires reset", "GPU access blocked by the operating system"})
FAILED = GONE | {
    "ERR!",
    "Unknown Error",
    "Uninitialized",
    "Driver Not Loaded",
    "Timeout",
    "Interrupt Request Issue",
    "System is not in ready state",
}
"""Error text in place of a value. Inside Fabric only GONE counts: there a failed call is a fact about the fabric."""
CORRUPT = frozenset({"Corrupted infoROM"})
ALARMING = FAILED | CORRUPT

T = TypeVar("T")
_NAME = attrgetter("name")


class Node:
    """A key with its value, or a section with what stands under it; some keys are both.

    Once it is asked, nothing is added to it: reports that print the same section share its node. A section that came
    as text is taken apart by `read` when somebody asks for what stands under it, which is seldom: most of a report
    nobody needs, and a fleet prints megabytes of it. `quiet`: whoever made it has seen that nothing of it is ALARMING.
    """

    __slots__ = ("_below", "_done", "_first", "_read", "_unread", "name", "quiet", "value")

    def __init__(self, name: str, value: str | None = None, children: list[Node] | None = None) -> None:
        self._read: Callable[[str], list[Node]]
        self.name, self.value, self.quiet = name, value, False
        self._below, self._unread = children, ""
        self._first: dict[str, Node] | None = None
        self._done: dict[object, object] | None = None

    @classmethod
    def unread(cls, name: str, value: str | None, text: str, read: Callable[[str], list[Node]]) -> Node:
        node = cls(name, value)
        node._unread, node._read = text, read
        return node

    @property
    def children(self) -> list[Node]:
        if self._below is None:
            self._below = self._read(self._unread) if self._unread else []
            self._unread = ""
        return self._below

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Node):
            return NotImplemented
        return (self.name, self.value, self.children) == (other.name, other.value, other.children)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Node({self.name!r}, {self.value!r}, {self.children!r})"

    def child(self, *path: str) -> Node | None:
        """The node at a path; the first of a name wins, so that a later line cannot overrule an earlier one."""
        node: Node | None = self
        for name in path:
            if node is None:
                return None
            node = (node._first or node._indexed()).get(name)
        return node

    def _indexed(self) -> dict[str, Node]:
        last_first = self.children[::-1]
        self._first = dict(zip(map(_NAME, last_first), last_first, strict=True))
        return self._first

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

    def once(self, reads: Callable[[Node], T]) -> T:
        """What `reads` makes of this node, made once: for the nodes that many reports share."""
        if self._done is None:
            self._done = {}
        if reads not in self._done:
            self._done[reads] = reads(self)
        return self._done[reads]  # type: ignore[return-value]

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
            if child.name not in skip and not child.once(_said).isdisjoint(texts):
                yield from (pair for pair in ((child.name, child.value or ""), *child.values()) if pair[1] in texts)


def _said(node: Node) -> frozenset[str]:
    """Every text at this node and below it."""
    return frozenset((node.value or "", *(text for _, text in node.values())))


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
