"""The probes of a host, in the order of the report, and the facts that their answers add up to."""

from __future__ import annotations

from llmgwctl.model.host import Host, HostFacts
from llmgwctl.model.reading import ok
from llmgwctl.probe import gpus, hcas, imex, life, network, system
from llmgwctl.probe.base import Output, Probe

PROBES: tuple[Probe, ...] = (system.PROBE, gpus.PROBE, imex.PROBE, hcas.PROBE, network.PROBE, life.PROBE)
FABRIC_SET: tuple[Probe, ...] = tuple(p for p in PROBES if p.fabric_set)


def assemble(host: Host, outputs: dict[str, Output], taken_at: float, seconds: float) -> HostFacts:
    """All facts of a host that answered: each probe reads its own sections, and one that fails costs itself alone."""
    readings = {p.field: p.read(outputs) for p in PROBES}
    return HostFacts(host=host, reachable=ok(seconds), taken_at=taken_at, **readings)  # type: ignore[arg-type]
