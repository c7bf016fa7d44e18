"""What a node page says of one host, as rows of words; what was not read says so."""

from __future__ import annotations

from collections.abc import Mapping

from llmgwctl.fabric.nearest import nearest
from llmgwctl.model.fabric import FabricMap, HostVerdict
from llmgwctl.model.fact import fact
from llmgwctl.model.gpu import Gpu, GpuProcess, GpuReport
from llmgwctl.model.host import READINGS, HostFacts, Snapshot
from llmgwctl.model.imex import Imex, ImexTable
from llmgwctl.model.life import ShardRecord
from llmgwctl.model.network import Hca
from llmgwctl.model.reading import Reading
from llmgwctl.model.topology import GpuLinks, Nearest, Topology
from llmgwctl.render.html_view import CHIPS, age, chip_state, claimed, span
from llmgwctl.render.peers import ImexPeer, own_row
from llmgwctl.render.words import bandwidth, out_of_domain

NOT_READ = "not read"
LOG_LINES = 20
Row = tuple[str, str]


@fact
class GpuView:
    """One card. `letter` and `words` are those of its chip."""

    index: int
    letter: str
    words: str
    name: str
    uuid: str
    bus_id: str
    fabric: str
    domain: str
    health: str
    bandwidth: str
    memory: str
    numa: str
    adapter: str
    links: str
    ways: tuple[str, ...]
    claim: str
    processes: tuple[str, ...]
    says: tuple[str, ...] = ()


@fact
class HostView:
    """One host in full. `facts`: label and value; `broken`: readings that could not be made, and why."""

    name: str
    where: tuple[Row, ...]
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    gpus: tuple[GpuView, ...]
    gpus_why: str
    imex: tuple[Row, ...]
    peers: tuple[ImexPeer, ...]
    matrix: ImexTable | None
    hcas: tuple[tuple[str, str, str, str], ...]
    shards: tuple[tuple[str, str, str, str], ...]
    broken: tuple[Row, ...]
    matrix_why: str  # why the GPU-by-GPU matrix is not there
    more: tuple[Row, ...]
    log: tuple[str, ...]
    read: str
    older: str


def host_view(facts: HostFacts, fmap: FabricMap, snapshot: Snapshot) -> HostView:
    verdict = fmap.verdicts[facts.host.name]
    report, imex = facts.gpus.value, facts.imex.value
    read, older = age(facts, snapshot)
    table = imex.table if imex else None
    return HostView(
        name=facts.host.name,
        where=_where(facts, verdict, fmap),
        reasons=out_of_domain(verdict),
        notes=verdict.notes,
        gpus=_gpus(report, facts) if report else (),
        gpus_why="" if report else facts.gpus.why or "no NVIDIA GPU here",
        imex=_imex(facts.imex, verdict),
        peers=own_row(facts),
        matrix=table,
        hcas=_hcas(facts.hcas, dict(fmap.dropped_hcas.get(facts.host.name, ()))),
        shards=tuple(_shard(r) for r in facts.life.value.shards) if facts.life.value else (),
        broken=_broken(facts),
        matrix_why="" if facts.topology.ok else facts.topology.why or "not there",
        more=_more(facts),
        log=tuple(line.text for line in facts.kernel_log.value.lines[-LOG_LINES:]) if facts.kernel_log.value else (),
        read=read,
        older=older,
    )


def _where(facts: HostFacts, verdict: HostVerdict, fmap: FabricMap) -> tuple[Row, ...]:
    host, system, report = facts.host, facts.system.value, facts.gpus.value
    fabrics = [f"{s.id} ({s.kind}, {s.strength})" for s in fmap.scale_out if host.name in s.ports]
    rows = [
        ("Address", host.address or host.name),
        ("Pool", host.pool),
        ("Rack", host.rack or ""),
        ("NVLink domain", verdict.domain or "none"),
        ("Scale-out fabric", ", ".join(fabrics) or "none"),
        ("GPUs", f"{len(report.gpus)} of {report.attached} readable, {_names(report)}" if report else ""),
        ("Driver", (report.driver or "?") + (f", CUDA {report.cuda}" if report.cuda else "") if report else ""),
        ("Kernel", system.kernel if system else ""),
        ("Up for", span(system.uptime_s) if system else ""),
        ("Scheduler", (system.scheduler or "none seen") if system else ""),
        ("Account", system.account if system else ""),
    ]
    return tuple(r for r in rows if r[1])


def _names(report: GpuReport) -> str:
    return ", ".join(dict.fromkeys(g.name for g in report.gpus))


def _gpus(report: GpuReport, facts: HostFacts) -> tuple[GpuView, ...]:
    claims = claimed(facts)
    links = {one.index: one for one in facts.links.value or ()}
    near = nearest(facts)
    return tuple(_gpu(g, facts, claims, links.get(g.index), near) for g in report.gpus)


def _gpu(
    gpu: Gpu, facts: HostFacts, claims: Mapping[str, str], links: GpuLinks | None, near: Mapping[int, Nearest]
) -> GpuView:
    letter, words = CHIPS[chip_state(gpu)]
    fabric, topology = gpu.fabric, facts.topology.value
    return GpuView(
        index=gpu.index,
        letter=letter,
        words=words,
        name=gpu.name,
        uuid=gpu.uuid,
        bus_id=gpu.bus_id,
        fabric=" / ".join(filter(None, (fabric.state, fabric.status))) or "not printed by this driver",
        domain=f"{fabric.cluster_uuid}.{fabric.clique_id}" if fabric.pair else "",
        health=_health(gpu),
        bandwidth=bandwidth(gpu),
        memory=_memory(gpu),
        numa=_numa(gpu, topology),
        adapter=_nearest(gpu, facts, near),
        links=_links(links),
        ways=tuple(_way(gpu, other, topology) for other in facts.gpus.value.gpus) if facts.gpus.value else (),
        claim=claims.get(gpu.uuid, ""),
        processes=tuple(_process(p) for p in gpu.processes),
        says=_says(gpu),
    )


def _health(gpu: Gpu) -> str:
    health = gpu.fabric.health
    said = (*health.problems(), *(f"not known: {row}" for row in health.unread))
    return ", ".join(said) or ("healthy" if health.told else "not printed by this driver")


def _memory(gpu: Gpu) -> str:
    if gpu.memory_total_mib is None:
        return ""
    used = "?" if gpu.memory_used_mib is None else f"{gpu.memory_used_mib / 1024:.1f}"
    return f"{used} of {gpu.memory_total_mib / 1024:.0f} GiB"


def _numa(gpu: Gpu, topology: Topology | None) -> str:
    if gpu.numa_node is not None:
        return str(gpu.numa_node)
    return topology.numa.get(gpu.index, "none") if topology else NOT_READ


def _nearest(gpu: Gpu, facts: HostFacts, near: Mapping[int, Nearest]) -> str:
    """The adapters on the shortest way from a card."""
    if gpu.index in near:
        return near[gpu.index].words
    return "none" if facts.topology.ok else NOT_READ


def _links(links: GpuLinks | None) -> str:
    if links is None:
        return NOT_READ
    if links.why:
        return links.why
    speeds = sorted({s for s in links.speeds if s is not None})
    at = f", {'/'.join(f'{s:g}' for s in speeds)} GB/s each" if speeds else ""
    return f"{links.active} of {len(links.speeds)} active{at}"


def _way(a: Gpu, b: Gpu, topology: Topology | None) -> str:
    if a.index == b.index:
        return "self"
    return topology.links.get((a.index, b.index), "?") if topology else NOT_READ


def _process(p: GpuProcess) -> str:
    memory = "" if p.used_mib is None else f", {p.used_mib / 1024:.1f} GiB"
    return f"{p.name} (pid {p.pid}, {p.kind}{memory}{f', {p.user}' if p.user else ''})"


def _more(facts: HostFacts) -> tuple[Row, ...]:
    """What the full set reads beside it; a line that nothing is known of is left out."""
    manager, versions, clock = facts.fabric_manager.value, facts.versions.value, facts.clock.value
    rows = [
        ("Fabric manager", " ".join(filter(None, (manager.unit_active, manager.version))) if manager else ""),
        ("Driver loaded", versions.driver_loaded if versions else ""),
        ("IMEX version", versions.imex if versions else ""),
        ("System", versions.os if versions else ""),
        ("Clock", f"{clock.offset_s:+.1f} s against this workstation (±{clock.bound_s:.1f} s)" if clock else ""),
    ]
    return tuple(r for r in rows if r[1])


def _says(gpu: Gpu) -> tuple[str, ...]:
    """What else a card complains of."""
    said = (
        (f"recovery action pending: {gpu.recovery_action}", gpu.recovery_action),
        ("MIG is on", gpu.mig_enabled),
        (f"{gpu.ecc_uncorrected} uncorrected ECC errors", gpu.ecc_uncorrected),
        ("row remapping pending", gpu.remap_pending),
        ("row remapping failed", gpu.remap_failed),
    )
    return tuple(text for text, true in said if true)


def _imex(reading: Reading[Imex], verdict: HostVerdict) -> tuple[Row, ...]:
    imex = reading.value
    if imex is None:
        return (("State", f"{verdict.imex}{f': {reading.why}' if reading.why else ''}"),)
    channels = ", ".join(f"channel{c.number}{'' if c.writable else ' (not writable)'}" for c in imex.channels)
    rows = [
        ("State", f"{verdict.imex}, says {imex.state or imex.why}"),
        ("Unit", " ".join(filter(None, (imex.unit_active, imex.unit_file)))),
        ("Domain", imex.table.domain_state if imex.table else imex.table_why),
        ("Channels", channels or imex.files_why or "none"),
    ]
    return tuple(r for r in rows if r[1])


def _hcas(reading: Reading[tuple[Hca, ...]], dropped: Mapping[str, str]) -> tuple[tuple[str, str, str, str], ...]:
    return tuple(
        (
            f"{h.name}:{p.number}",
            f"{p.state}, {p.phys_state}",
            _speed(p.rate_gbps, p.link_layer),
            dropped.get(h.name, ""),
        )
        for h in reading.value or ()
        for p in h.ports
    )


def _speed(rate_gbps: int | None, layer: str) -> str:
    return f"{layer}, {rate_gbps} Gb/s" if rate_gbps is not None else layer


def _shard(record: ShardRecord) -> tuple[str, str, str, str]:
    """Replica, rank, processes and the engine that it is of; nothing of its environment."""
    processes = ", ".join(
        f"{p.name} {p.state}" + (f" ({p.exit_code})" if p.exit_code is not None else "") for p in record.processes
    )
    return record.replica, str(record.rank), processes or "no process", record.text("engine")


NAMES = {"system": "System", "gpus": "GPUs", "imex": "IMEX", "hcas": "Adapters", "network": "Network", "life": "Shards"}


def _broken(facts: HostFacts) -> tuple[Row, ...]:
    """Readings that were to be made and could not; what this run never asked for is not among them."""
    full = [r for r in READINGS if r not in NAMES and getattr(facts, r).broken and not unasked(getattr(facts, r))]
    names = [n for n in NAMES if getattr(facts, n).broken] + full
    return tuple((NAMES.get(n, n.replace("_", " ")), getattr(facts, n).why) for n in names)


def unasked(reading: Reading[object]) -> bool:
    return reading.why == NOT_READ or "not asked" in reading.why or "not saved" in reading.why
