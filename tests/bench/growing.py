"""The work after the answers, for a fleet of 20,000 hosts: map, plan and page, each fleet in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench.cases import Bench, median
from bench.measure import Spread
from bench.report import Bar, Case, number, spread

SCRIPT = Path(__file__).with_name("growth.py")
FLEETS = ("NVL72 racks", "HGX hosts")  # in the order of growth.py


def growth(bench: Bench) -> Case:
    count = bench.size(20_000)
    columns = ("", "map s", "plan s", "doctor s", "page s", "JSON s", "metrics s", "page MB", "memory MiB")
    rows, bars = [], []
    for place, name in enumerate(FLEETS):
        runs = [_measured(count, place) for _ in range(bench.rounds)]
        steps = ("map", "plan", "doctor", "rack page", "JSON", "metrics", "page_mb", "all_mib")
        rows.append((name, *(spread(Spread.of([r[s] for r in runs])) for s in steps)))
        bars.append(Bar(f"map and plan, {name}", 2, median(r["map"] + r["plan"] for r in runs), "s"))
        bars.append(Bar(f"page, {name}", 12, runs[0]["page_mb"], "MB"))
    facts = number(runs[-1]["facts_mib"])
    notes = (f"Simulated facts, CPU time of one process each; the facts of the {FLEETS[-1]} alone hold {facts} MiB.",)
    return Case(f"{count} hosts: what grows with the fleet", columns, rows, bars, notes)


def _measured(count: int, place: int) -> dict[str, float]:
    argv = [sys.executable, str(SCRIPT), str(-count), str(place)]
    found: dict[str, float] = json.loads(subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return found
