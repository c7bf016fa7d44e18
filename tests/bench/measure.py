"""What a command costs: CPU of its whole process tree, time on the clock, and memory while it ran."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_SAMPLE_S = 0.05
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Run:
    """One run. `cpu_s`: user and system of the tree; `peak_mib`: the largest sum of the tree's resident memory."""

    cpu_s: float
    wall_s: float
    peak_mib: float
    code: int
    stdout: Path
    stderr: Path


def measured(argv: Sequence[str], stdout: Path, env: Mapping[str, str] | None = None, limit_s: float = 300) -> Run:
    """Run a command with its outputs in files. The tree is waited for by its members, so that the kernel counts it."""
    stderr = stdout.with_suffix(".err")
    with stdout.open("wb") as out, stderr.open("wb") as err:
        began = time.monotonic()
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=env, start_new_session=True
        )
        watch = _Memory(process.pid)
        watch.start()
        over = threading.Timer(limit_s, os.killpg, (process.pid, signal.SIGKILL))
        over.start()
        _, status, used = os.wait4(process.pid, 0)
        wall = time.monotonic() - began
        over.cancel()
        watch.stop()
    process.returncode = os.waitstatus_to_exitcode(status)
    return Run(used.ru_utime + used.ru_stime, wall, watch.peak / 2**20, process.returncode, stdout, stderr)


class _Memory(threading.Thread):
    """Samples the tree. `ru_maxrss` would not do: it is of one process, and a child begins with its parent's."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.peak = 0
        self._pid = pid
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(_SAMPLE_S):
            self.peak = max(self.peak, sum(map(_resident, _tree(self._pid))))

    def stop(self) -> None:
        self._over.set()
        self.join()


def _tree(pid: int) -> Iterator[int]:
    yield pid
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return
    for task in tasks:
        try:
            children = Path(f"/proc/{pid}/task/{task}/children").read_text().split()
        except OSError:
            continue
        for child in children:
            yield from _tree(int(child))


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except OSError:
        return 0


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure of several runs."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, figures: Sequence[float]) -> Spread:
        return cls(statistics.median(figures), min(figures), max(figures))

    def scaled(self, factor: float) -> Spread:
        return Spread(self.median * factor, self.low * factor, self.high * factor)


def ratio(one: Sequence[float], other: Sequence[float]) -> Spread:
    """Of two tools that ran in turn: round by round, so that what slowed a whole round slows neither alone."""
    return Spread.of([a / b for a, b in zip(one, other, strict=True)])
