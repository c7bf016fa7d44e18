"""One host in full, for a terminal and as JSON: its cards, how they reach each other and the adapters, its IMEX."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from llmgwctl.fabric.nearest import nearest, numa_node
from llmgwctl.model.fabric import FabricMap
from llmgwctl.model.gpu import Gpu
from llmgwctl.model.host import HostFacts, Snapshot
from llmgwctl.model.network import Port
from llmgwctl.model.reading import Reading
from llmgwctl.model.topology import GpuLinks
from llmgwctl.render.html_node import HostView, host_view
from llmgwctl.render.json import Document, moment, plain
from llmgwctl.render.peers import ImexPeer, own_row
from llmgwctl.render.text import PLAIN, Look, draw, say, table
from llmgwctl.render.words import bandwidth, out_of_domain

Pair = tuple[str, str]
SHORTER = {"present, its NVLink stays in the machine": "present", "not printed by this driver": "-"}


def text(facts: HostFacts, fmap: FabricMap, snapshot: Snapshot, look: Look = PLAIN) -> str:
    """What the node page says, for a terminal."""
    view = host_view(facts, fmap, snapshot)
    parts: list[RenderableType] = [say(view.name, "bold"), _rows(view.where)]
    if view.reasons:
        parts += [say("Keeps it out of its domain", "bold red"), _rows(("", r) for r in view.reasons)]
    parts += [_head("GPUs"), _gpus(view, facts) if view.gpus else say(f"  {view.gpus_why}")]
    if len(view.gpus) > 1:
        parts += [_head("How each GPU reaches each other"), _matrix(view)]
    parts += [_head("IMEX"), _rows((*view.imex, *_peers(view.peers)))]
    if view.hcas:
        heads = ("  ADAPTER", "STATE", "LINK", "NOT USED")
        parts += [_head("Adapters"), table(heads, ((f"  {h[0]}", *h[1:]) for h in view.hcas))]
    parts += list(_rest(view))
    return draw(parts, look)


def _head(title: str) -> Text:
    return Text(f"\n{title}", style="bold")


def _rows(rows: Iterable[Pair]) -> RenderableType:
    return table(("", ""), ((f"  {label}", value) for label, value in rows))


def _gpus(view: HostView, facts: HostFacts) -> RenderableType:
    near, links = nearest(facts), {one.index: one for one in facts.links.value or ()}
    heads = ("  GPU", "STATE", "HEALTH", "NUMA", "NEAREST ADAPTER", "NVLINKS", "MEMORY", "TAKEN BY")
    rows = (
        (
            f"  {g.index}",
            SHORTER.get(g.words, g.words),
            ", ".join((SHORTER.get(g.health, g.health), *g.says)),
            g.numa,
            near[g.index].words if g.index in near else g.adapter,
            _links(links[g.index]) if g.index in links else g.links,
            g.memory,
            ", ".join(filter(None, (g.claim, *g.processes))) or "-",
        )
        for g in view.gpus
    )
    return table(heads, rows, keep=(0, 3))


def _links(one: GpuLinks) -> str:
    speeds = sorted({s for s in one.speeds if s is not None})
    at = f" at {'/'.join(f'{s:g}' for s in speeds)} GB/s" if speeds else ""
    return one.why or f"{one.active}/{len(one.speeds)}{at}"


def _matrix(view: HostView) -> RenderableType:
    if view.matrix_why:
        return say(f"  {view.matrix_why}")
    heads = ("", *(f"GPU{g.index}" for g in view.gpus))
    return table(heads, ((f"  GPU{g.index}", *g.ways) for g in view.gpus), keep=tuple(range(len(heads))))


def _peers(peers: tuple[ImexPeer, ...]) -> Iterator[Pair]:
    """The many that are connected in one line, each other one in its own."""
    others = [p for p in peers if not p.local]
    if others:
        good = [p for p in others if p.cell == "C"]
        yield "Peers", f"{len(good)} of {len(others)} connected"
        yield from (("", f"{p.host}: {p.words} ({p.status})") for p in others if p.cell != "C")


def _rest(view: HostView) -> Iterator[RenderableType]:
    if view.more:
        yield _head("Host")
        yield _rows(view.more)
    if view.shards:
        yield _head("Shards")
        yield table(("  REPLICA", "RANK", "PROCESSES", "ENGINE"), ((f"  {s[0]}", *s[1:]) for s in view.shards))
    if view.log:
        yield _head("Kernel log, the newest lines")
        yield from (say(f"  {line}") for line in view.log)
    if view.broken:
        yield Text("\nCould not be read", style="bold red")
        yield _rows(view.broken)


# --- JSON -------------------------------------------------------------------------------------------------------


def document(facts: HostFacts, fmap: FabricMap) -> Document:
    """llmgwctl.node/v1: one host with what is derived of it; null is what could not be told."""
    verdict = fmap.verdicts[facts.host.name]
    return {
        "schema": "llmgwctl.node/v1",
        "taken_at": moment(facts.taken_at),
        "name": facts.host.name,
        "address": facts.host.address or facts.host.name,
        "pool": facts.host.pool,
        "rack": facts.host.rack,
        "reachable": facts.reachable.ok,
        "domain": verdict.domain,
        "fabrics": [s.id for s in fmap.scale_out if facts.host.name in s.ports],
        "eligible": verdict.eligible,
        "reasons": list(out_of_domain(verdict)),
        "notes": list(verdict.notes),
        "gpus": _gpu_documents(facts),
        "matrix": _matrix_document(facts),
        "imex": {"state": verdict.imex, "peers": [plain(p) | {"words": p.words} for p in own_row(facts)]},
        "adapters": _adapter_documents(facts, dict(fmap.dropped_hcas.get(facts.host.name, ()))),
        "fabric_manager": _reading(facts.fabric_manager),
        "clock": _reading(facts.clock),
        "broken": {n: r.why for n, r in _broken(facts)},
    }


def _reading(reading: Reading[Any]) -> Document:
    if reading.ok:
        return {"state": "ok", "value": plain(reading.value)}
    return {"state": reading.state, "why": reading.why}


def _broken(facts: HostFacts) -> Iterator[tuple[str, Reading[Any]]]:
    from llmgwctl.model.host import READINGS

    for name in READINGS:
        if (reading := getattr(facts, name)).broken:
            yield name, reading


def _gpu_documents(facts: HostFacts) -> list[Document] | None:
    if facts.gpus.value is None:
        return None
    near, links = nearest(facts), {one.index: one for one in facts.links.value or ()}
    return [
        _gpu_document(g, facts, links.get(g.index)) | {"nearest": plain(near.get(g.index))}
        for g in facts.gpus.value.gpus
    ]


def _gpu_document(gpu: Gpu, facts: HostFacts, links: GpuLinks | None) -> Document:
    topology, fabric = facts.topology.value, gpu.fabric
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "bus_id": gpu.bus_id,
        "name": gpu.name,
        "joined": fabric.joined,
        "healthy": fabric.healthy,
        "bandwidth": bandwidth(gpu),
        "state": fabric.state,
        "status": fabric.status,
        "cluster_uuid": fabric.cluster_uuid,
        "clique_id": fabric.clique_id,
        "health": plain(fabric.health),
        "numa_node": numa_node(gpu, topology),
        "cpus": topology.cpus.get(gpu.index) if topology else None,
        "memory_total_mib": gpu.memory_total_mib,
        "memory_used_mib": gpu.memory_used_mib,
        "links": None if links is None else plain(links) | {"active": links.active},
        "processes": [plain(p) for p in gpu.processes] if gpu.processes_known else None,
    }


def _matrix_document(facts: HostFacts) -> Document | None:
    """Rows and columns by GPU number; "X" on the diagonal, null where nothing is printed."""
    found = facts.topology.value
    if found is None:
        return None
    rows = [["X" if i == j else found.links.get((i, j)) for j in found.gpus] for i in found.gpus]
    return {"gpus": list(found.gpus), "rows": rows}


def _adapter_documents(facts: HostFacts, dropped: dict[str, str]) -> list[Document] | None:
    if facts.hcas.value is None:
        return None
    topology = facts.topology.value
    ways = topology.ways if topology else {}
    return [
        {
            "name": h.name,
            "numa_node": h.numa_node,
            "ports": [_port_document(p) for p in h.ports],
            "ways": {f"GPU{i}": way for (i, name), way in ways.items() if name == h.name},
            "not_used": dropped.get(h.name),
        }
        for h in facts.hcas.value
    ]


def _port_document(port: Port) -> Document:
    keys = ("number", "state", "phys_state", "rate_gbps", "link_layer")
    return {key: getattr(port, key) for key in keys}
