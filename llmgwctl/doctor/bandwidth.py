"""LG2: NVLink that is joined and slow, or joined and broken."""

from __future__ import annotations

from collections.abc import Iterator

from llmgwctl.doctor.base import Answer, Check, Found, View, each, found, product
from llmgwctl.doctor.verdicts import reasons
from llmgwctl.model.host import HostFacts

SMI = "nvidia-smi -q | grep -A12 Fabric"
RECOVERY = "route recovery in progress"


def _degraded(facts: HostFacts, view: View, texts: tuple[str, ...]) -> Found | None:
    mine = tuple(t for t in texts if RECOVERY not in t or "bandwidth" in t)
    return found(facts, *mine) if mine else None


def _recovering(facts: HostFacts, view: View, texts: tuple[str, ...]) -> Found | None:
    mine = tuple(t for t in texts if RECOVERY in t and "bandwidth" not in t)
    return found(facts, *mine) if mine else None


def _unhealthy(facts: HostFacts, view: View, texts: tuple[str, ...]) -> Found | None:
    mine = tuple(t for t in texts if "incorrect configuration" not in t and "no partition" not in t)
    return found(facts, *mine) if mine else None


def _misconfigured(facts: HostFacts, view: View, texts: tuple[str, ...]) -> Found | None:
    mine = tuple(t for t in texts if "incorrect configuration" in t or "no partition" in t)
    return found(facts, *mine) if mine else None


def _links(facts: HostFacts, view: View) -> Iterator[Answer]:
    """Links that are down or slow, on GPUs behind an NVSwitch alone: cards with bridges have as many as were put in."""
    known, report = product(facts), facts.gpus.value
    if known is None or not known.nvlinks or report is None:
        return
    behind = {g.index for g in report.gpus if g.fabric.state == "Completed" and not g.mig_enabled}
    lines = []
    for gpu in facts.links.value or ():
        if gpu.index not in behind or (gpu.why and not gpu.speeds):
            continue
        slow = [s for s in gpu.speeds if s is not None and s < known.link_floor_gbps]
        if gpu.active < known.nvlinks:
            lines.append(f"GPU {gpu.index}: {gpu.active} of {known.nvlinks} NVLinks are active")
        elif slow:
            lines.append(f"GPU {gpu.index}: {len(slow)} NVLinks below {known.link_floor_gbps:g} GB/s ({min(slow):g})")
    if lines:
        yield found(facts, *lines)


def _matrix(facts: HostFacts, view: View) -> Iterator[Answer]:
    """Pairs that do not reach each other over NVLink on a machine where the others do."""
    topology, report = facts.topology.value, facts.gpus.value
    if topology is None or report is None or not any(g.fabric.state == "Completed" for g in report.gpus):
        return
    over = {pair for pair, way in topology.links.items() if way.startswith("NV")}
    apart = [
        (a, b, way)
        for (a, b), way in sorted(topology.links.items())
        if a < b and not way.startswith("NV") and way != "X"
    ]
    if over and apart:
        values = [f"GPU {a} and GPU {b} reach each other by {way}" for a, b, way in apart[:6]]
        yield found(facts, *values)


CHECKS = (
    Check(
        "LG201",
        "NVLink bandwidth of a GPU is degraded",
        "degrade",
        reasons("degraded", shape=_degraded),
        seen=f"{SMI}; nvidia-smi nvlink -s",
        action="drain, then reseat or replace; meanwhile small shards work, and allow_degraded lets a profile use it",
        who="rack operator",
        disturbs="everything on the host",
        matters=True,
        hides=("LG203", "LG206"),
    ),
    Check(
        "LG202",
        "An NVLink route of a GPU is broken",
        "block",
        reasons("unhealthy", "health-unknown", shape=_unhealthy),
        seen=SMI,
        action="keep the host out and have the link repaired",
        who="rack operator",
        disturbs="everything on the host",
        matters=True,
        hides=("LG203", "LG206"),
    ),
    Check(
        "LG203",
        "NVLinks of a GPU are down or slow",
        "degrade",
        each(_links),
        seen="nvidia-smi nvlink -s",
        action="drain, then reseat or replace; meanwhile small shards work",
        who="rack operator",
        disturbs="everything on the host",
        needs=("gpus", "links"),
        hides=("LG206",),
    ),
    Check(
        "LG204",
        "NVLink routes are being recovered",
        "degrade",
        reasons("degraded", shape=_recovering),
        seen=SMI,
        action="read again in a minute; if it stays, the rack operator looks at the switches",
        who="rack operator",
    ),
    Check(
        "LG205",
        "The NVLink fabric says that a GPU is configured wrongly",
        "block",
        reasons("unhealthy", shape=_misconfigured),
        seen=SMI,
        action="vendor service: board, slot, serials or GPU firmware do not fit the rack",
        who="rack operator",
        matters=True,
    ),
    Check(
        "LG206",
        "GPUs of one host do not reach each other over NVLink",
        "degrade",
        each(_matrix),
        seen="nvidia-smi topo -m; nvidia-smi topo -p2p n",
        action="reset the GPU when the host is drained; if it stays, have the link repaired",
        who="rack operator",
        disturbs="everything on the host",
        needs=("gpus", "topology"),
    ),
)
