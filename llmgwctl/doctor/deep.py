"""LG92: what only an active test can show, on request: TCP between hosts, and the all-reduce within one."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from importlib.resources import files

from llmgwctl.doctor.base import AllReduce, Answer, Check, Found, Unknown, View, each, found
from llmgwctl.doctor.names import folded
from llmgwctl.model.gpu import IDLE_MIB, GpuReport
from llmgwctl.model.host import HostFacts
from llmgwctl.model.numbers import real, whole
from llmgwctl.model.product import token_of

# Bus bandwidth in GB/s that an all-reduce of 512 MiB over all GPUs of a host reaches at least, with much to spare.
FLOORS_GBPS = {
    "GB200": 450.0,
    "GB300": 450.0,
    "B200": 450.0,
    "B300": 450.0,
    "H100": 250.0,
    "H200": 250.0,
    "A100": 150.0,
}
_HALF = r" +[\d.]+ +[\d.]+ +([\d.]+) +(\d+|N/A)"  # time, algorithm's bandwidth, the bus's, wrong values
_ROW = re.compile(rf" *\d+ +\d+ +\w+ +\w+ +-?\d+{_HALF}{_HALF}")


def script() -> str:
    return files("llmgwctl.doctor").joinpath("nccl_tests.sh").read_text(encoding="utf-8")


def read(text: str) -> AllReduce:
    """What all_reduce_perf printed: its best bus bandwidth, and whether every result was right."""
    if text.strip() == "absent":
        return AllReduce(why="nccl-tests are not installed (all_reduce_perf)", absent=True)
    rows = [m for line in text.splitlines() if (m := _ROW.match(line))]
    if not rows:
        said = [line.strip() for line in text.splitlines() if line.strip() not in ("", "end")]
        return AllReduce(why=f"all_reduce_perf says: {(said or ['nothing'])[-1][:160]}")
    wrong = sum(whole(w) or 0 for m in rows for w in (m[2], m[4]))
    return AllReduce(max(real(b) or 0.0 for m in rows for b in (m[1], m[3])), wrong)


def busy(facts: HostFacts) -> str:
    """Why no active test may run on a host now; "" when all its GPUs are idle and everything about them is known."""
    report, life = facts.gpus.value, facts.life.value
    if not facts.reachable.ok:
        return "it did not answer"
    if report is None or life is None:
        return f"its GPUs or claims could not be read ({facts.gpus.why or facts.life.why})"
    if life.claims or life.shards:
        return f"{next((c.replica for c in life.claims), 'a shard')} is there"
    return held(report)


def held(report: GpuReport) -> str:
    """Who or what has one of its GPUs, beside claims."""
    for gpu in report.gpus:
        computing = next((p for p in gpu.processes if "C" in p.kind), None)
        if computing is not None:
            return f"GPU {gpu.index} is held by pid {computing.pid}"
        if not gpu.processes_known or (gpu.memory_used_mib or 0) > IDLE_MIB:
            return f"GPU {gpu.index} is in use ({gpu.memory_used_mib} MiB)"
    return "" if report.all_readable else "not all of its GPUs are readable"


def _tcp(view: View) -> Iterator[Answer]:
    """By the host that cannot be reached where nobody reaches it, else by the one that cannot reach others."""
    deep = view.deep
    if deep is None:
        return
    into: dict[str, list[str]] = defaultdict(list)
    for (a, b), why in deep.tcp.items():
        if why:
            into[b].append(a)
    asked = Counter(b for _, b in deep.tcp)
    shut = {b for b, sayers in into.items() if len(sayers) == asked[b]}
    for b in sorted(shut):
        yield Found((b,), (f"{folded(into[b])} cannot connect to its port {deep.ports.get(b, '?')}",))
    out: dict[str, list[str]] = defaultdict(list)
    for b, sayers in into.items():
        for a in sayers if b not in shut else ():
            out[a].append(b)
    for a, peers in out.items():
        yield Found((a,), (f"it cannot connect to {folded(peers)}, which others reach",))
    for name, why in deep.untested.items():
        yield Unknown((name,), f"TCP: {why}")


def _all_reduce(facts: HostFacts, view: View) -> Iterator[Answer]:
    said = view.deep.all_reduce.get(facts.host.name) if view.deep is not None else None
    report = facts.gpus.value
    if said is None or report is None or not report.gpus:
        return
    floor = FLOORS_GBPS.get(token_of(report.gpus[0].name))
    if said.wrong:
        yield found(facts, f"all-reduce gave {said.wrong} wrong values", severity="block")
    elif said.why:
        yield Unknown((facts.host.name,), said.why, right=said.absent)
    elif floor is not None and said.bus_gbps < floor:
        reached = f"all-reduce over {len(report.gpus)} GPUs: {said.bus_gbps:.0f} GB/s"
        yield found(facts, f"{reached}, at least {floor:.0f} is usual")


CHECKS = (
    Check(
        "LG921",
        "A host cannot be connected to over TCP",
        "block",
        _tcp,
        seen="llmgwctl doctor --deep -w HOSTS; nft list ruleset; firewall-cmd --list-all",
        action="open the ports of launches between the hosts: 8000 and up, 21000-29000, and NCCL's ephemeral ones",
        who="host admin",
        scope="replica",
    ),
    Check(
        "LG922",
        "The all-reduce within a host is slow, or wrong",
        "degrade",
        each(_all_reduce),
        seen="all_reduce_perf -b 64M -e 512M -f 2 -g GPUS",
        action="look at NVLink first (LG201 to LG206), then at clocks and power; a wrong value means a sick GPU",
        who="host admin",
        needs=("gpus",),
    ),
)
