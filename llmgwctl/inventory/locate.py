"""On which line of a TOML text each key stands: tomllib reads values and forgets where they were."""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left
from contextlib import suppress

Path = tuple[str | int, ...]
_KEY = re.compile(r"""[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'""")
_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}(?!")' + r"|'''.*?'{3,5}(?!')" + r'|"(?:[^"\\\n]|\\.)*"' + r"|'[^'\n]*'",
    re.DOTALL,
)
_BARE = re.compile(r"[^,\]}\n#]*")


def locate(text: str) -> dict[Path, int]:
    """Line by path: ("hosts", 0, "name"). For text that tomllib accepts; on any other, what was found until then."""
    scanner = _Scanner(text.replace("\r\n", "\n"))
    with suppress(_Lost, RecursionError):
        scanner.document()
    return scanner.lines


def line_of(lines: dict[Path, int], path: Path) -> int:
    """The line of the longest part of a path that stands in the text."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


class _Lost(Exception):
    """The scanner met something that is no TOML."""


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.breaks = [m.start() for m in re.finditer("\n", text)]
        self.lines: dict[Path, int] = {}
        self.counts: dict[Path, int] = {}  # elements of each array of tables so far

    def document(self) -> None:
        table: Path = ()
        while self.space() < len(self.text):
            table = self.header() if self.text[self.at] == "[" else self.pair(table, table)

    def header(self) -> Path:
        start, double = self.at, self.text.startswith("[[", self.at)
        self.at += 2 if double else 1
        *above, last = self.keys()
        self.expect("]]" if double else "]")
        path = self.descend(above)
        if double:
            path = (*path, last)
            self.note(path, start)
            self.counts[path] = self.counts.get(path, 0) + 1
            path = (*path, self.counts[path] - 1)
        else:
            path = self.descend((last,), path)
        self.note(path, start)
        return path

    def descend(self, keys: list[str] | tuple[str, ...], path: Path = ()) -> Path:
        """The path of a header: an array of tables on the way stands for its last element."""
        for key in keys:
            path = (*path, key)
            self.note(path, self.at)
            if path in self.counts:
                path = (*path, self.counts[path] - 1)
        return path

    def pair(self, table: Path, then: Path) -> Path:
        """One `a.b = value`; gives back `then`, the table that goes on after it."""
        start = self.at
        path = table
        for key in self.keys():
            path = (*path, key)
            self.note(path, start)
        self.expect("=")
        self.value(path)
        return then

    def value(self, path: Path) -> None:
        self.space()
        opening = self.text[self.at : self.at + 1]
        if opening == "[":
            self.array(path)
        elif opening == "{":
            self.inline(path)
        else:
            self.scalar()

    def array(self, path: Path) -> None:
        self.expect("[")
        index = 0
        while not self.closes("]"):
            self.note((*path, index), self.at)
            self.value((*path, index))
            index += 1

    def inline(self, path: Path) -> None:
        self.expect("{")
        while not self.closes("}"):
            self.pair(path, path)

    def closes(self, bracket: str) -> bool:
        """Whether the array or inline table ends here; a comma before it is passed over."""
        self.space()
        if self.text.startswith(",", self.at):
            self.at += 1
            self.space()
        if not self.text.startswith(bracket, self.at):
            return False
        self.at += 1
        return True

    def scalar(self) -> None:
        found = _STRING.match(self.text, self.at) or _BARE.match(self.text, self.at)
        if not found or found.end() == self.at:
            raise _Lost
        self.at = found.end()

    def keys(self) -> list[str]:
        names = [self.key()]
        while self.text.startswith(".", self.blank()):
            self.at += 1
            names.append(self.key())
        return names

    def key(self) -> str:
        found = _KEY.match(self.text, self.blank())
        if not found:
            raise _Lost
        self.at = found.end()
        raw = found.group()
        return str(tomllib.loads(f"k = {raw}")["k"]) if raw[0] in "\"'" else raw

    def expect(self, sign: str) -> None:
        if not self.text.startswith(sign, self.blank()):
            raise _Lost
        self.at += len(sign)

    def blank(self) -> int:
        while self.text[self.at : self.at + 1] in (" ", "\t"):
            self.at += 1
        return self.at

    def space(self) -> int:
        found = _SPACE.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return self.at

    def note(self, path: Path, at: int) -> None:
        self.lines.setdefault(path, bisect_left(self.breaks, at) + 1)
