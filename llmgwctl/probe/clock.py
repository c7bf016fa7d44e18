"""The host's clock against the controller's, bounded by what the way there and back took."""

from __future__ import annotations

import math

from llmgwctl.model.machine import Clock
from llmgwctl.model.reading import Reading, broken, ok
from llmgwctl.probe.base import NOT_SAVED, Output, Probe, Section, failure
from llmgwctl.probe.lines import grouped

SECTIONS = (Section("clock", "sys", 5, script="clock.sh"),)
TIMES = ("begin", "end", "sent", "received")


def parse(outputs: dict[str, Output]) -> Reading[object]:
    """The host said `begin` after we had sent, and `end` before we had received: the offset lies between.

    offset <= begin - sent, and offset >= end - received; a clock that has no fractions is up to a second behind.
    """
    said = outputs.get("clock", NOT_SAVED)
    if (why := failure(said)) is not None:
        return broken(why)
    told = grouped(said.stdout)
    coarse = 0.0
    times = []
    for name in TIMES:
        seconds, whole = _seconds(told.get(name, [""])[0])
        if seconds is None:
            return broken("not measured" if name != "begin" else "the host's `date` does not tell its time")
        coarse = 1.0 if whole and name in ("begin", "end") else coarse
        times.append(seconds)
    begin, end, sent, received = times
    low, high = end - received, begin + coarse - sent
    if high < low:
        return broken("a clock was set while it was measured")
    return ok(Clock(round((low + high) / 2, 6), round((high - low) / 2, 6)))


def _seconds(text: str) -> tuple[float | None, bool]:
    """The number, and whether it has no fractions (a `date` without %N leaves the letters or nothing)."""
    head, _, tail = text.partition(".")
    if not (head.isascii() and head.isdigit() and len(head) < 13):
        return None, False
    if not (tail.isascii() and tail.isdigit()):
        return float(head), True
    value = float(f"{head}.{tail[:9]}")
    return (value, False) if math.isfinite(value) else (None, False)


PROBE = Probe("clock", SECTIONS, parse, fabric_set=False)
