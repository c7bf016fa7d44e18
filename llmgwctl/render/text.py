"""Tables and drawings for a terminal as strings; what hosts say is shown, never obeyed."""

from __future__ import annotations

import io
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
MAX_CELL = 2000


@dataclass(frozen=True, slots=True)
class Look:
    """How the terminal is: its columns, whether colours are wanted, and whether it shows more than ASCII."""

    width: int = 80
    color: bool = False
    unicode: bool = True


PLAIN = Look()


def clean(text: str) -> str:
    """One line of a host's text: control characters, direction marks and stray bytes as escapes, and bounded."""
    if len(text) > MAX_CELL:
        text = text[:MAX_CELL] + "..."
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if unicodedata.category(c) not in _HIDDEN else _escaped(c) for c in text)


def _escaped(c: str) -> str:
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
    code = ord(c)
    return named.get(c) or (
        f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    )


def draw(things: Iterable[RenderableType], look: Look = PLAIN) -> str:
    """Rich's things as one string without trailing blanks; with colours only where they are wanted."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=look.width,
        force_terminal=look.color,
        color_system="standard" if look.color else None,
        legacy_windows=False,
        highlight=False,
        emoji=False,
        markup=False,
        soft_wrap=False,
        _environ={},
    )
    for thing in things:
        console.print(thing)
    text = "\n".join(line.rstrip() for line in out.getvalue().split("\n"))
    return text if look.unicode else text.translate(_ASCII)


_ASCII = str.maketrans("┌┐└┘├┤─│═■□▣✕·…×", "++++++-|=#o~x.~x")


def table(heads: Sequence[str], rows: Iterable[Sequence[str | Text]], *, keep: Sequence[int] = (0,)) -> Table:
    """A table without lines. Columns in `keep` are never wrapped; the rest wraps to the width."""
    made = Table(box=None, pad_edge=False, show_header=bool(any(heads)), header_style="bold", padding=(0, 2, 0, 0))
    for i, head in enumerate(heads):
        made.add_column(head, no_wrap=i in keep, overflow="fold")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(clean(cell)) for cell in row))
    return made


def say(text: str, style: str = "") -> Text:
    """A cleaned piece of text."""
    return Text(clean(text), style=style)
