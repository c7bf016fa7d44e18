"""Snapshot -> map: domains, scale-out fabrics, and one verdict a host. Pure: no SSH, no clock, no file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from llmgwctl.fabric.domains import domains
from llmgwctl.fabric.imex import ImexView, apart, view
from llmgwctl.fabric.scaleout import scale_out
from llmgwctl.fabric.verdict import verdict
from llmgwctl.model.fabric import DeclaredFabric, Domain, FabricMap, HostVerdict, Outside, Reason, ScaleOut
from llmgwctl.model.host import HostFacts, Snapshot

__all__ = ["fabric_map"]

SHOWN = 3


def fabric_map(
    snapshot: Snapshot, declared: Sequence[DeclaredFabric] = (), cordons: Mapping[str, str] | None = None
) -> FabricMap:
    """The whole map of a snapshot. `cordons`: host -> reason; cordoned hosts are drawn and never chosen."""
    cordons = cordons or {}
    facts = {f.host.name: f for f in snapshot.hosts}
    found = domains(snapshot)
    verdicts = {n: verdict(f, cordons.get(n, "")) for n, f in facts.items()}
    for domain in found:
        verdicts.update(_in_domain(domain, facts, verdicts))
    fabrics, dropped = scale_out(snapshot.hosts, declared)
    inside = {name for d in found for name in d.names}
    outside = [f for n, f in facts.items() if f.reachable.ok and n not in inside]
    return FabricMap(
        domains=found,
        scale_out=fabrics,
        outside=tuple(_outside(f, verdicts[f.host.name], fabrics) for f in outside),
        unreachable=tuple(Outside(n, f.reachable.why) for n, f in facts.items() if not f.reachable.ok),
        verdicts=verdicts,
        dropped_hcas=dropped,
    )


def _in_domain(
    domain: Domain, facts: Mapping[str, HostFacts], verdicts: Mapping[str, HostVerdict]
) -> dict[str, HostVerdict]:
    """Verdicts of a domain's hosts with what only the neighbours show: being alone, IMEX that is not mutual."""
    result = {n: replace(verdicts[n], domain=domain.id) for n in domain.names}
    if domain.cluster_uuid is not None and not domain.multi_host:
        alone = Reason("alone", "the only host of its NVLink domain that was read", "nvlink")
        for h in domain.hosts:
            if h.any_joined:
                result[h.name] = replace(result[h.name], reasons=(*result[h.name].reasons, alone))
    ready = [n for n in domain.names if result[n].eligible]
    views = {n: view(facts[n]) for n in ready}
    complaints = {n: _complaints(n, ready, views) for n in ready}
    for n, why in complaints.items():
        if why:
            result[n] = replace(result[n], imex="degraded", notes=(*result[n].notes, *why))
    return result


def _complaints(name: str, ready: Sequence[str], views: Mapping[str, ImexView]) -> tuple[str, ...]:
    """IMEX troubles of a host with the other eligible hosts: the first few, and how many there are beside them.

    One whose own row cannot be told (it is not in its own node list) has that trouble itself, and its neighbours none.
    """
    others = [n for n in ready if n != name and (views[name].why_unknown or not views[n].why_unknown)]
    found = [w for other in others if (w := apart(views[name], views[other], name, other))]
    unlike = tuple(dict.fromkeys(found))
    more = len(unlike) - SHOWN
    return (*unlike[:SHOWN], f"IMEX: troubles with {more} more hosts") if more > 0 else unlike


def _outside(facts: HostFacts, v: HostVerdict, fabrics: Sequence[ScaleOut]) -> Outside:
    why = next((r.text for r in v.reasons if r.scope == "any"), None)
    why = why or next((r.text for r in v.reasons), "in no NVLink domain")
    return Outside(facts.host.name, why, tuple(s.id for s in fabrics if facts.host.name in s.ports))
