"""The probes of a host, in the order in which they run, and the facts that their answers add up to."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from llmgwctl.model.gpu import Gpu, GpuReport
from llmgwctl.model.host import Host, HostFacts
from llmgwctl.model.reading import Reading, ok
from llmgwctl.probe import (
    clock,
    engines,
    fabric_manager,
    gpus,
    hcas,
    imex,
    kernel_log,
    life,
    links,
    nccl,
    network,
    numa,
    processes,
    resources,
    system,
    topology,
    versions,
)
from llmgwctl.probe.base import Output, Probe

PROBES: tuple[Probe, ...] = (
    system.PROBE,
    clock.PROBE,
    gpus.PROBE,
    imex.PROBE,
    hcas.PROBE,
    network.PROBE,
    life.PROBE,
    topology.PROBE,
    links.PROBE,
    numa.PROBE,
    fabric_manager.PROBE,
    processes.PROBE,
    nccl.PROBE,
    versions.PROBE,
    engines.PROBE,
    kernel_log.PROBE,
    resources.PROBE,  # last, since a file system may not answer
)
FABRIC_SET: tuple[Probe, ...] = tuple(p for p in PROBES if p.fabric_set)
NEIGHBOURS: tuple[Probe, ...] = (numa.PROBE, topology.PROBE)
"""What a replica that takes a part of a host needs beside the fabric set."""


def assemble(host: Host, outputs: dict[str, Output], taken_at: float, seconds: float) -> HostFacts:
    """All facts of a host that answered: each probe reads its own sections, and one that fails costs itself alone."""
    readings = {p.field: p.read(outputs) for p in PROBES}
    facts = HostFacts(host=host, reachable=ok(seconds), taken_at=taken_at, **readings)  # type: ignore[arg-type]
    return replace(facts, gpus=_joined(facts)) if facts.gpus.ok else facts


def _joined(facts: HostFacts) -> Reading[GpuReport]:
    """The GPUs with what other probes know of them: their NUMA node, and who owns the processes on them."""
    report = cast("GpuReport", facts.gpus.value)
    nodes = facts.numa.value.of_pci if facts.numa.value else {}
    users = {p.pid: p.user for p in facts.processes.value or ()}
    if not nodes and not users:
        return facts.gpus
    return ok(replace(report, gpus=tuple(_placed(g, nodes, users) for g in report.gpus)))


def _placed(gpu: Gpu, nodes: dict[str, int], users: dict[int, str]) -> Gpu:
    owned = tuple(replace(p, user=users.get(p.pid) or None) for p in gpu.processes)
    return replace(gpu, numa_node=nodes.get(gpu.bus_id), processes=owned)
