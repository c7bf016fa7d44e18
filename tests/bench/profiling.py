"""`make profile`: where the time goes. What starting imports; then a fan-out of 1,000 light hosts, split two ways.

On the clock, for each host: TCP, login (with TCP), the command. In CPU: by what it is spent for, and the functions that
spend most. The profiler itself makes every call dearer, so the shares count and not the sums.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import functools
import json
import pstats
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from bench import cases, tools
from bench.cases import Bench, said
from bench.measure import Spread
from bench.report import number, table

# Functions that one host passes through once (their time on the clock), and functions that only compute (their CPU).
STAGES = {
    "TCP connection": "llmgwctl.transport.ssh_login:dial",
    "login, TCP included": "llmgwctl.transport.ssh_login:Login.connect",
    "command and answer": "llmgwctl.transport.ssh:execute",
    "frames": "llmgwctl.transport.frames:parse",
    "parse": "llmgwctl.probe:assemble",
    "map": "llmgwctl.fabric:fabric_map",
}
# What a file is for, by its path; the first that fits.
PURPOSES = (
    (r"<frozen|importlib|/linecache|<string>", "imports"),
    (r"/asyncssh/(crypto|kex|mac|encryption|ecdsa|eddsa|public_key)|/cryptography/", "SSH: keys and ciphers"),
    (r"/asyncssh/", "SSH: protocol"),
    (r"/asyncio/|/selectors\.py|/socket\.py", "event loop and sockets"),
    (r"/llmgwctl/transport/", "llmgwctl: transport"),
    (r"/llmgwctl/(probe|collect)", "llmgwctl: parse"),
    (r"/llmgwctl/fabric/", "llmgwctl: map"),
    (r"/llmgwctl/render/|/json/", "llmgwctl: print"),
    (r"/llmgwctl/inventory/|/pydantic|/tomllib/|/ClusterShell/", "llmgwctl: inventory"),
)
_CHILD = "--child"
_TOP = 25


def main() -> None:
    if sys.argv[1:2] == [_CHILD]:
        _child(sys.argv[2], Path(sys.argv[3]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=1000)
    asked = parser.parse_args()
    tools.install_programs()
    tools.compiled()
    with tempfile.TemporaryDirectory(prefix="llmgwctl-bench-") as folder:
        bench = Bench(Path(folder), rounds=1)
        print(start_up(bench))
        print(fan_out(bench, asked.hosts))


# --- start-up -------------------------------------------------------------------------------------------------------


def start_up(bench: Bench) -> str:
    """The imports of the whole command with one host that refuses, by package, in milliseconds of their own."""
    argv = cases.refused(bench).argv[4:]  # without the shell around it
    done = subprocess.run([sys.executable, "-X", "importtime", *argv], capture_output=True, text=True, check=False)
    own, modules = imported(done.stderr)
    rows = [(name, number(ms), str(modules[name])) for name, ms in sorted(own.items(), key=lambda i: -i[1])[:_TOP]]
    total = f"{sum(own.values()):.0f} ms in {sum(modules.values())} modules, measured while each import is timed"
    return f"## Imports of the command without hosts\n\n{total}.\n\n{table(('package', 'ms', 'modules'), rows)}"


def imported(text: str) -> tuple[dict[str, float], dict[str, int]]:
    """Of `python -X importtime`: own milliseconds and number of modules by package (ours by part)."""
    own: dict[str, float] = defaultdict(float)
    modules: dict[str, int] = defaultdict(int)
    for line in re.findall(r"^import time: +(\d+) \| +\d+ \| +(\S+)$", text, re.MULTILINE):
        package = ".".join(line[1].split(".")[: 2 if line[1].startswith("llmgwctl.") else 1])
        own[package] += int(line[0]) / 1000
        modules[package] += 1
    return own, modules


# --- the fan-out ----------------------------------------------------------------------------------------------------


def fan_out(bench: Bench, count: int) -> str:
    with bench.fleet(count) as fleet:
        report = bench.directory / "report.json"
        inventory = str(fleet.directory / "inventory.toml")
        own = (sys.executable, "-m", "bench.profiling", _CHILD, inventory, str(report))
        bench.run(cases.nvlink(fleet), cases.right(fleet))  # as it is without a profiler
        done = subprocess.run(own, stdout=subprocess.PIPE, text=True, check=True)
        tools.check_nvlink(done.stdout, fleet.hosts)
    found = json.loads(report.read_text())
    stages = [(name, *figures) for name, figures in found["stages"].items()]
    total = sum(found["purposes"].values())
    shares = [(n, f"{s / count * 1000:.2f}", f"{s / total:.0%}") for n, s in found["purposes"].items()]
    parts = [
        f"## {count} light hosts\n",
        table(("stage", "times", "a host, ms: median (lowest to highest)", "in all, s"), stages),
        table(("CPU by purpose, under the profiler", "ms a host", "share"), shares),
        table(("function", "calls", "own ms a host"), found["functions"]),
    ]
    return "\n".join(parts)


def _child(inventory: str, report: Path) -> None:
    """The command in this process, with its stages timed and every call counted."""
    from llmgwctl.cli import main as command

    timings: dict[str, list[float]] = {}
    for name, where in STAGES.items():
        _timed(where, timings.setdefault(name, []))
    profiler = cProfile.Profile(builtins=True)
    profiler.enable()
    command(["-i", inventory, "nvlink", "--json"])
    profiler.disable()
    stats = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    count = max(1, len(timings["parse"]))
    stages = {n: (str(len(t)), _spread(t), number(sum(t))) for n, t in timings.items() if t}
    found = {"stages": stages, "purposes": by_purpose(stats), "functions": _functions(stats, count)}
    report.write_text(json.dumps(found))


def _spread(seconds: list[float]) -> str:
    s = Spread.of(seconds).scaled(1000)
    return f"{number(s.median)} ({number(s.low)} to {number(s.high)})"


def _timed(where: str, into: list[float]) -> None:
    """Put a clock around a function, where it lives. One that has gone leaves its row out."""
    module_name, _, path = where.partition(":")
    owner: Any = import_module(module_name)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent, None)
    function = getattr(owner, name, None)
    if function is None:
        said(f"  there is no {where} any more: its stage is left out")
        return
    wrapped = _clock_async(function, into) if asyncio.iscoroutinefunction(function) else _clock(function, into)
    setattr(owner, name, functools.wraps(function)(wrapped))


def _clock(function: Callable[..., Any], into: list[float]) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            into.append(time.perf_counter() - began)

    return timed


def _clock_async(function: Callable[..., Any], into: list[float]) -> Callable[..., Any]:
    async def timed(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            return await function(*args, **kwargs)
        finally:
            into.append(time.perf_counter() - began)

    return timed


# --- what cProfile says ---------------------------------------------------------------------------------------------

Where = tuple[str, int, str]  # file, line, function
Stats = dict[Where, tuple[int, int, float, float, dict[Where, tuple[int, int, float, float]]]]


def by_purpose(stats: Stats) -> dict[str, float]:
    """Own seconds by purpose, the largest first. What is written in C counts for the function that calls it."""
    found: dict[str, float] = defaultdict(float)
    for where, (_, _, own, _, callers) in stats.items():
        if where[0] != "~":
            found[purpose(where[0])] += own
            continue
        for caller, figures in callers.items():
            found[purpose(caller[0])] += figures[2]
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def purpose(file: str) -> str:
    return next((name for pattern, name in PURPOSES if re.search(pattern, file)), "everything else")


def _functions(stats: Stats, hosts: int) -> list[tuple[str, str, str]]:
    dearest: Iterable[Where] = sorted(stats, key=lambda w: -stats[w][2])[:_TOP]
    return [(_named(w), f"{stats[w][1]}", f"{stats[w][2] / hosts * 1000:.3f}") for w in dearest]


def _named(where: Where) -> str:
    file, line, function = where
    if file == "~":
        return function
    return f"{'/'.join(Path(file).parts[-2:])}:{line} {function}"


if __name__ == "__main__":
    main()
