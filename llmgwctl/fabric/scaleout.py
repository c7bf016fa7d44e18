"""Scale-out fabrics: which HCAs carry compute traffic, and which hosts reach each other over them."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from llmgwctl.model.fabric import DeclaredFabric, RailPort, ScaleOut
from llmgwctl.model.host import HostFacts
from llmgwctl.model.network import Hca, Network, Port
from llmgwctl.model.product import product_of

BRIDGE_FUNCTIONS = 4  # the NVSwitch bridge of an HGX B200 or B300 is one card with four functions


@dataclass(frozen=True, slots=True)
class HostPorts:
    """A host's ports for compute, and the adapters that were left out, each with why."""

    kept: tuple[tuple[Hca, Port], ...] = ()
    dropped: tuple[tuple[str, str], ...] = ()


def compute_ports(facts: HostFacts, only: tuple[str, ...] = ()) -> HostPorts:
    """FABRIC rules: never NVSwitch management functions, nor what carries the way in; `only`: the operator's list."""
    hcas = facts.hcas.value or ()
    kept: list[tuple[Hca, Port]] = []
    dropped: list[tuple[str, str]] = []
    for hca in hcas:
        why = _not_declared(hca, only) if only else _not_compute(hca, hcas, facts)
        active = [p for p in hca.ports if p.active]
        if why is None and not active:
            states = ", ".join(f"port {p.number} {p.state}" for p in hca.ports) or "no port"
            why = f"not active: {states}"
        if why is None:
            kept += [(hca, p) for p in active]
        else:
            dropped.append((hca.name, why))
    return _majority(kept, dropped) if not only else HostPorts(tuple(kept), tuple(dropped))


def _not_declared(hca: Hca, only: tuple[str, ...]) -> str | None:
    return None if hca.name in only else "not among the declared hcas of its fabric"


def _not_compute(hca: Hca, all_hcas: Sequence[Hca], facts: HostFacts) -> str | None:
    if hca.switch_management:
        return "NVSwitch management function (SW_MNG), carries no data"
    if hca.switch_management is None and _may_be_bridge(hca, all_hcas, facts):
        return "may be an NVSwitch management function: its VPD cannot be read (needs root)"
    if hca.virtual_function and not all(h.virtual_function for h in all_hcas):
        return "virtual function"
    if hca.bonded:
        return "bonded: usually the storage or management pair"
    if hca.bridged:
        return "its network device belongs to a bridge"
    if facts.network.value and set(hca.netdevs) & _way_in(facts.network.value):
        return "carries the default route or the SSH address"
    return None


def _may_be_bridge(hca: Hca, all_hcas: Sequence[Hca], facts: HostFacts) -> bool:
    report = facts.gpus.value
    product = product_of(report.gpus[0].name) if report and report.gpus else None
    if product is None or product.token not in ("B200", "B300") or not hca.system_guid:
        return False
    return sum(h.system_guid == hca.system_guid for h in all_hcas) >= BRIDGE_FUNCTIONS


def _way_in(network: Network) -> set[str]:
    found = {r.interface for r in network.routes if r.to in ("0.0.0.0/0", "::/0")}
    ssh = network.interface_with(network.reached_at)
    return found | ({ssh.name} if ssh else set())


def _majority(kept: list[tuple[Hca, Port]], dropped: list[tuple[str, str]]) -> HostPorts:
    """Of what is left, the link layer and the rate that most ports have."""
    if not kept:
        return HostPorts((), tuple(dropped))
    layer = Counter(p.link_layer for _, p in kept).most_common(1)[0][0]
    of_layer = [(h, p) for h, p in kept if p.link_layer == layer]
    dropped += [(h.name, f"{p.link_layer}, the others are {layer}") for h, p in kept if p.link_layer != layer]
    rates = Counter(p.rate_gbps for _, p in of_layer if p.rate_gbps is not None)
    rate = max(rates.items(), key=lambda kv: (kv[1], kv[0]))[0] if rates else None
    slow = [(h, p) for h, p in of_layer if rate and p.rate_gbps is not None and p.rate_gbps < rate]
    dropped += [(h.name, f"{p.rate_gbps} Gb/s, the others run at {rate}") for h, p in slow]
    return HostPorts(tuple(x for x in of_layer if x not in slow), tuple(dropped))


def rail_of(hca: Hca, port: Port, network: Network | None) -> str:
    """The subnet of a RoCE port's routable GID, as CIDR; "" where it has none or its prefix length is not known."""
    if network is None:
        return ""
    addresses = [str(g.address) for g in port.gids if g.routable and g.kind == "RoCE v2"]
    for interface in network.interfaces:
        for cidr in interface.addresses:
            if interface.name in hca.netdevs and cidr.split("/")[0] in addresses:
                return str(ipaddress.ip_interface(cidr).network)
    return ""


def scale_out(
    hosts: Sequence[HostFacts], declared: Sequence[DeclaredFabric]
) -> tuple[tuple[ScaleOut, ...], dict[str, tuple[tuple[str, str], ...]]]:
    """All fabrics, declared ones first, and per host the adapters left out."""
    by_name = {f.host.name: f for f in hosts if f.reachable.ok}
    dropped: dict[str, tuple[tuple[str, str], ...]] = {}
    fabrics: list[ScaleOut] = []
    spoken_for: set[str] = set()
    for one in declared:
        members = {n: compute_ports(by_name[n], one.hcas) for n in one.hosts if n in by_name}
        dropped.update({n: p.dropped for n, p in members.items()})
        spoken_for |= set(members)
        fabrics += _declared(one, members, by_name)
    rest = {n: compute_ports(f) for n, f in by_name.items() if n not in spoken_for}
    dropped.update({n: p.dropped for n, p in rest.items()})
    fabrics += _infiniband(rest, by_name)
    fabrics += _roce(rest, by_name, dropped)
    return tuple(fabrics), {n: d for n, d in dropped.items() if d}


def _rails(ports: HostPorts, facts: HostFacts, kind: str) -> tuple[RailPort, ...]:
    roce = kind == "Ethernet"
    found = [
        RailPort(h.name, p.number, rail_of(h, p, facts.network.value) if roce else "")
        for h, p in ports.kept
        if p.link_layer == kind
    ]
    return tuple(r for r in found if r.rail or not roce)


def _declared(one: DeclaredFabric, members: dict[str, HostPorts], facts: dict[str, HostFacts]) -> list[ScaleOut]:
    """One fabric per link layer: InfiniBand and Ethernet are never one communicator, whatever is declared."""
    made = []
    kinds: tuple[Literal["InfiniBand", "Ethernet"], ...] = ("InfiniBand", "Ethernet")
    for kind in kinds:
        ports = {n: _rails(p, facts[n], kind) for n, p in members.items()}
        ports = {n: p for n, p in ports.items() if p}
        if ports:
            made.append(ScaleOut(f"declared:{one.name}", kind, "declared", None, ports))
    return made


def _infiniband(rest: dict[str, HostPorts], facts: dict[str, HostFacts]) -> list[ScaleOut]:
    """Same subnet prefix and subnet manager, within one pool: probable, since nearly every fabric says fe80 and 1."""
    groups: dict[tuple[str, str, int], dict[str, tuple[RailPort, ...]]] = {}
    for name, ports in rest.items():
        keys = Counter((p.subnet_prefix, p.sm_lid) for _, p in ports.kept if _ib_usable(p))
        if not keys:
            continue
        prefix, sm_lid = max(keys.items(), key=lambda kv: (kv[1], str(kv[0])))[0]
        mine = tuple(
            RailPort(h.name, p.number)
            for h, p in ports.kept
            if _ib_usable(p) and (p.subnet_prefix, p.sm_lid) == (prefix, sm_lid)
        )
        groups.setdefault((facts[name].host.pool, str(prefix), sm_lid or 0), {})[name] = mine
    return [
        ScaleOut(f"ib:{prefix.replace(':', '')}.{sm_lid}@{pool}", "InfiniBand", "probable", pool, members)
        for (pool, prefix, sm_lid), members in sorted(groups.items())
    ]


def _ib_usable(port: Port) -> bool:
    return port.link_layer == "InfiniBand" and bool(port.sm_lid) and port.subnet_prefix is not None


def _roce(
    rest: dict[str, HostPorts], facts: dict[str, HostFacts], dropped: dict[str, tuple[tuple[str, str], ...]]
) -> list[ScaleOut]:
    """Hosts of one pool that share at least one rail, each rail named by its subnet."""
    groups: list[tuple[str, set[str], dict[str, tuple[RailPort, ...]]]] = []
    for name, ports in rest.items():
        roce = [(h, p) for h, p in ports.kept if p.link_layer == "Ethernet"]
        rails = _rails(ports, facts[name], "Ethernet")
        lost = {h.name for h, _ in roce} - {r.hca for r in rails}
        dropped[name] = (*dropped.get(name, ()), *((n, "no routable RoCE v2 address") for n in sorted(lost)))
        if not rails:
            continue
        pool, mine = facts[name].host.pool, {r.rail for r in rails}
        touching = [g for g in groups if g[0] == pool and g[1] & mine]
        merged: tuple[str, set[str], dict[str, tuple[RailPort, ...]]] = (pool, set(mine), {})
        for g in touching:
            groups.remove(g)
            merged = (pool, merged[1] | g[1], merged[2] | g[2])
        merged[2][name] = rails
        groups.append(merged)
    return [
        ScaleOut(f"roce:{min(rails)}@{pool}", "Ethernet", "probable", pool, members)
        for pool, rails, members in sorted(groups, key=lambda g: (g[0], min(g[1])))
    ]
