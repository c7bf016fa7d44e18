"""What the bench found, as tables of Markdown: docs/benchmarks.md, and the same on the terminal. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench.measure import Spread


@dataclass(frozen=True, slots=True)
class Bar:
    """One thing that was to be reached. `limit` and `figure` are in `unit`; lower is better unless `at_least`."""

    text: str
    limit: float
    figure: float
    unit: str = ""
    at_least: bool = False

    @property
    def reached(self) -> bool:
        return self.figure >= self.limit if self.at_least else self.figure <= self.limit

    def row(self) -> tuple[str, ...]:
        word = "at least" if self.at_least else "at most"
        unit = f" {self.unit}" if self.unit else ""
        return (
            self.text,
            f"{word} {number(self.limit)}{unit}",
            f"{number(self.figure)}{unit}",
            "reached" if self.reached else "**not reached**",
        )


@dataclass(frozen=True, slots=True)
class Case:
    """The result of one case. `rows` under `columns`; `notes` are sentences below the table."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    bars: Sequence[Bar] = ()
    notes: Sequence[str] = field(default_factory=tuple)


def number(value: float) -> str:
    """Three digits that mean something, and no more."""
    if value == 0 or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def spread(s: Spread) -> str:
    """The median, and what lies around it: `2.31 (2.20 to 2.60)`."""
    return number(s.median) if s.low == s.high else f"{number(s.median)} ({number(s.low)} to {number(s.high)})"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown. A bar in a cell would end the cell."""
    lines = [columns, ["---"] * len(columns), *rows]
    assert all(len(line) == len(columns) for line in lines), "a row that does not fit its table"
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def case(found: Case) -> str:
    parts = [f"## {found.title}\n", table(found.columns, found.rows)]
    if found.bars:
        parts.append(table(("to reach", "bar", "measured", ""), [b.row() for b in found.bars]))
    parts += [f"{note}\n" for note in found.notes]
    return "\n".join(parts)


def document(cases: Sequence[Case], machine: str, versions: Mapping[str, str], rounds: int, when: str) -> str:
    bars = [(c.title, b) for c in cases for b in c.bars]
    missed = sum(not b.reached for _, b in bars)
    summary = table(("work", "to reach", "bar", "measured", ""), [(title, *bar.row()) for title, bar in bars])
    named = ", ".join(f"{name} {number}" for name, number in versions.items())
    reached = "All of them are reached." if not missed else f"{missed} of {len(bars)} are not reached."
    head = _HEAD.format(when=when, machine=machine, versions=named, rounds=rounds, reached=reached)
    return "\n".join([head, summary, *(case(c) for c in cases)])


_HEAD = """# Benchmarks

Written by `make bench` on {when}: do not edit. Machine: {machine}. Versions: {versions}.

The hosts and the tools share this one machine, so the servers' work is part of every time on the clock. **CPU** is
user and system time of a tool's whole process tree, start-up included, divided by the number of hosts: that is the
figure to compare. **Memory** is the most that the tree held at once (resident; a page that processes share counts in
each). Tools run in turn on the same hosts, {rounds} rounds; a figure is the median, with the lowest and the highest in
brackets; a ratio is of two runs of one round. All use the same key exchange (curve25519) and cipher (aes128-gcm).

llmgwctl is the whole command (`nvlink --json`): it checks host keys, reads all sections of the fabric set (76 KB a
host), parses, maps and prints. The peers fetch `nvidia-smi -q` (50 KB) and print it. Every answer of every run is
compared with what the host said; one that is wrong or missing stops the bench.

`make bench CASE=light-1000 HOSTS=100 ROUNDS=1` tries one case at a small size; `make profile` shows where the time
goes.

## What is to be reached

{reached}
"""
