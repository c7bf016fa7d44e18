"""`make fuzz`: mutated outputs through every parser, FUZZ_COUNT in all; what is found is kept in tests/fuzz/found."""

from __future__ import annotations

import hashlib
import os
import random
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from mutate import mutated
from targets import TARGETS, Target

FOUND = Path(__file__).parent / "found"
SLOW_S = 5.0  # for a quarter of a MiB at most, on a machine that has other work too


@dataclass
class Tally:
    inputs: int = 0
    longest_s: float = 0.0
    crashes: dict[str, str] = field(default_factory=dict)  # place -> file


def one(target: Target, data: bytes, tally: Tally) -> None:
    """A crash is kept once for each place that it comes from."""
    began = time.perf_counter()
    try:
        target.check(data)
    except Exception as e:
        where = "".join(traceback.format_tb(e.__traceback__)[-1:]).strip().replace("\n", " ")
        place = f"{type(e).__name__}: {where}"
        if place not in tally.crashes:
            tally.crashes[place] = keep(target, data)
            print(f"{target.name}: {e!r} at {place} -> {tally.crashes[place]}", file=sys.stderr, flush=True)
    took = time.perf_counter() - began
    tally.inputs += 1
    tally.longest_s = max(tally.longest_s, took)
    if took > SLOW_S:
        tally.crashes.setdefault("slow", keep(target, data))


def keep(target: Target, data: bytes) -> str:
    FOUND.mkdir(exist_ok=True)
    file = FOUND / f"{target.name}-{hashlib.sha256(data).hexdigest()[:12]}.bin"
    file.write_bytes(data)
    return file.name


def fuzz(target: Target, count: int, seed: int) -> Tally:
    """The seeds themselves first, then their mutations; the same seed gives the same inputs."""
    rng = random.Random(f"{seed}/{target.name}")
    tally = Tally()
    for data in target.seeds:
        one(target, data, tally)
    while tally.inputs < count:
        one(target, mutated(rng.choice(target.seeds), target.seeds, rng), tally)
    return tally


def main() -> int:
    total = int(os.environ.get("FUZZ_COUNT", "1000000"))
    seed = int(os.environ.get("FUZZ_SEED", "1"))
    wanted = os.environ.get("FUZZ_TARGETS", "").split()
    chosen = [t for t in TARGETS if not wanted or t.name in wanted]
    each = -(-total // len(chosen))
    found = 0
    print(f"{'target':24} {'inputs':>9} {'longest':>9} found   (seed {seed})", flush=True)
    for target in chosen:
        tally = fuzz(target, each, seed)
        found += len(tally.crashes)
        print(f"{target.name:24} {tally.inputs:>9} {tally.longest_s:>8.3f}s {len(tally.crashes):>5}", flush=True)
        total = total - tally.inputs
    print(f"{len(chosen) * each} inputs, {found} found", flush=True)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
