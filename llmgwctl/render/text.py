"""Tables and drawings for a terminal as strings; what hosts say is shown, never obeyed."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from llmgwctl.model.fact import fact
from llmgwctl.render.letters import MAX_CELL, clean, escaped, hidden

__all__ = ["MAX_CELL", "PLAIN", "Look", "Rows", "clean", "draw", "escaped", "hidden", "say", "table"]
GAP = 2  # columns between columns
INDENT = (0, 0, 0, 2)


@fact
class Look:
    """How the terminal is: its columns, whether colours are wanted, and whether it shows more than ASCII."""

    width: int = 80
    color: bool = False
    unicode: bool = True


PLAIN = Look()


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


Cell = str | RenderableType
ENOUGH = 16  # columns in which any word may be broken


class Rows:
    """A table without lines. Where it is wider than there is room, each row stands below the other, cell by cell:
    columns that are squeezed to a letter, or left out, are worse than lines."""

    def __init__(self, heads: Sequence[str], rows: Iterable[Sequence[Cell]], keep: Sequence[int]) -> None:
        self.heads, self.keep = tuple(heads), frozenset(keep)
        self.rows = [[Text(clean(c)) if isinstance(c, str) else c for c in row] for row in rows]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._needed(console, options) <= options.max_width:
            yield self._table()
        else:
            for row in self.rows:
                yield from self._stacked(row)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self._table())

    def _needed(self, console: Console, options: ConsoleOptions) -> int:
        return sum(self._width(i, console, options) + GAP for i in range(len(self.heads))) - GAP

    def _width(self, column: int, console: Console, options: ConsoleOptions) -> int:
        """The least that a column can do with."""
        found = [Measurement.get(console, options, row[column]) for row in self.rows if column < len(row)]
        if column in self.keep:
            return max([len(self.heads[column]), *(m.maximum for m in found)])
        return min(ENOUGH, max([len(self.heads[column]), *(m.minimum for m in found)]))

    def _table(self) -> Table:
        shown = bool(any(self.heads))
        made = Table(box=None, pad_edge=False, show_header=shown, header_style="bold", padding=(0, GAP, 0, 0))
        for i, head in enumerate(self.heads):
            made.add_column(head, no_wrap=i in self.keep, overflow="fold")
        for row in self.rows:
            made.add_row(*row)
        return made

    def _stacked(self, row: Sequence[RenderableType]) -> Iterable[RenderableType]:
        first, *rest = row
        yield first
        for head, cell in zip(self.heads[1:], rest, strict=False):
            if isinstance(cell, Text) and not cell.plain.strip():
                continue
            yield Padding(
                Text.assemble((head, "bold"), "  ", cell) if head and isinstance(cell, Text) else cell, INDENT
            )


def table(heads: Sequence[str], rows: Iterable[Sequence[Cell]], *, keep: Sequence[int] = (0,)) -> Rows:
    """Columns in `keep` are never wrapped; the rest wraps to the width."""
    return Rows(heads, rows, keep)


def say(text: str, style: str = "") -> Text:
    """A cleaned piece of text."""
    return Text(clean(text), style=style)
