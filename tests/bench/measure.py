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
    """One run. `cpu_s`: user and system of the tree; `peak_mib`: the most memory that the tree held."""

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
    """Samples the tree. `ru_maxrss` would not do: it is of one process, and a child begins with its parent's.

    Resident memory, and a page that processes share counts in each of them: what a tool has for itself alone cannot be
    told where the machine runs other programs of the same libraries. Looking takes a twentieth of the time at most.
    """

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.peak = 0
        self._pid = pid
        self._over = threading.Event()

    def run(self) -> None:
        wait = _SAMPLE_S
        while not self._over.wait(wait):
            began = time.monotonic()
            self.peak = max(self.peak, sum(map(_memory, _tree(self._pid, ""))))
            wait = max(_SAMPLE_S, 20 * (time.monotonic() - began))

    def stop(self) -> None:
        self._over.set()
        self.join()


def _tree(pid: int, parents_size: str) -> Iterator[int]:
    """A process and those that it started. One that was born this moment is still its parent, with its memory."""
    size = _read(f"/proc/{pid}/statm")
    if size and size == parents_size:
        return
    yield pid
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return
    for task in tasks:
        for child in _read(f"/proc/{pid}/task/{task}/children").split():
            yield from _tree(int(child), size)


def _memory(pid: int) -> int:
    fields = _read(f"/proc/{pid}/statm").split()
    return int(fields[1]) * _PAGE if fields else 0


def _read(path: str) -> str:
    """Empty for a process that has ended meanwhile."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""


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
