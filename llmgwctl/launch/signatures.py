"""Failure texts that are known from the field, what they mean and what to do about it: finding them in logs."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from importlib.resources import files

from llmgwctl.model.fact import fact


@fact
class Signature:
    """`pattern`: what stands in a line of a log; of two that match a line the first in the table counts."""

    name: str
    pattern: str
    meaning: str
    fix: str
    only_alone: bool = False  # a consequence: named only where nothing else was found

    def found_in(self, line: str) -> bool:
        return re.search(self.pattern, line) is not None


def _table() -> tuple[Signature, ...]:
    text = files(__name__.rpartition(".")[0]).joinpath("signatures.toml").read_text(encoding="utf-8")
    return tuple(Signature(name, **row) for name, row in tomllib.loads(text).items())


SIGNATURES = _table()


@fact
class Found:
    """A signature in the log of a rank. `order`: the earlier, the more likely the cause."""

    signature: Signature
    rank: int
    host: str
    command: str
    line: str

    def __str__(self) -> str:
        s = self.signature
        return f"rank {self.rank} on {self.host} [{s.name}]: {s.meaning}. {s.fix}"


@fact
class Part:
    """A log of one command. `ended_ago_s`: how long ago its rank ended, None while it runs."""

    rank: int
    host: str
    command: str
    text: str
    ended_ago_s: float | None = None


def named(parts: Iterable[Part]) -> tuple[Found, ...]:
    """Every known text once, with the rank that said it first: by the time in the line, else by which ended first."""
    hits: list[tuple[tuple[object, ...], Found]] = []
    for part in parts:
        stamp = ""
        for number, line in enumerate(part.text.split("\n")):
            stamp = moment(line) or stamp
            if (signature := of_line(line)) is not None:
                found = Found(signature, part.rank, part.host, part.command, line.strip()[:300])
                hits.append(((stamp or "~", -(part.ended_ago_s or 0.0), part.rank, number), found))
    hits.sort(key=lambda hit: hit[0])
    first: dict[str, Found] = {}
    for _, found in hits:
        first.setdefault(found.signature.name, found)
    causes = [f for f in first.values() if not f.signature.only_alone]
    return tuple(causes or first.values())


def of_line(line: str) -> Signature | None:
    return next((s for s in SIGNATURES if s.found_in(line)), None)


# What vLLM ("INFO 12-01 06:00:00"), SGLang ("[2026-12-01 06:00:00 TP0]") and others set before a line.
_STAMP = re.compile(r"(?:\d{4}-)?(\d\d-\d\d)[ T](\d\d:\d\d:\d\d)")


def moment(line: str) -> str:
    """When a line was written, as MM-DD HH:MM:SS by its host's clock; empty: it does not say."""
    found = _STAMP.search(line[:200])
    return f"{found[1]} {found[2]}" if found else ""


def dated(text: str) -> bool:
    """Whether any line says when it was written."""
    return any(moment(line) for line in text.split("\n"))


def since(lines: Sequence[str], limit: str) -> tuple[str, ...]:
    """Lines from a moment on; a line without one belongs to that before it. Where none says when, all of them."""
    kept, fresh, dated = [], False, False
    for line in lines:
        if stamp := moment(line):
            fresh, dated = stamp >= limit or (limit[:2], stamp[:2]) == ("12", "01"), True
        if fresh:
            kept.append(line)
    return tuple(kept) if dated else tuple(lines)
