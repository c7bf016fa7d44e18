"""Scale-out fabrics: which HCAs carry compute traffic, and which hosts reach each other over them."""

from __future__ import annotations

import ipaddress
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal

from llmgwctl.fabric.linked import Linked
from llmgwctl.model.fabric import DeclaredFabric, RailPort, ScaleOut
from llmgwctl.model.fact import fact
from llmgwctl.model.host import HostFacts
from llmgwctl.model.network import Hca, Network, Port
from llmgwctl.model.product import product_of

BRIDGE_FUNCTIONS = 4  # the NVSwitch bridge of an HGX B200 or B300 is one card with four functions


@fact
class HostPorts:
    """A host's ports for compute, and the adapters that were left out, each with why."""

    kept: tuple[tuple[Hca, Port], ...] = ()
    dropped: tuple[tuple[str, str], ...] = ()


def compute_ports(facts: HostFacts, only: tuple[str, ...] = ()) -> HostPorts:
    """FABRIC rules: never NVSwitch management functions, nor what carries the way in; `only`: the operator's list."""
    hcas = facts.hcas.value or ()
    others = _Others.of(facts) if hcas and not only else _Others()
    kept: list[tuple[Hca, Port]] = []
    dropped: list[tuple[str, str]] = []
    for hca in hcas:
        why = _not_declared(hca, only) if only else _not_compute(hca, others)
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


@fact
class _Others:
    """What the adapters of a host have in common, counted once: a stranger may tell of very many.

    `bridges`: system GUIDs of cards that may be an NVSwitch bridge; `way_in`: interfaces that are no rail.
    """

    all_virtual: bool = False
    bridges: frozenset[str] = frozenset()
    way_in: frozenset[str] = frozenset()

    @classmethod
    def of(cls, facts: HostFacts) -> _Others:
        hcas, network = facts.hcas.value or (), facts.network.value
        functions = Counter(h.system_guid for h in hcas if h.system_guid) if _has_bridge(facts) else Counter()
        return cls(
            all(h.virtual_function for h in hcas),
            frozenset(guid for guid, count in functions.items() if count >= BRIDGE_FUNCTIONS),
            _way_in(network) if network else frozenset(),
        )


def _not_compute(hca: Hca, others: _Others) -> str | None:
    if hca.switch_management:
        return "NVSwitch management function (SW_MNG), carries no data"
    if hca.switch_management is None and hca.system_guid in others.bridges:
        return "may be an NVSwitch management function: its VPD cannot be read (needs root)"
    if hca.virtual_function and not others.all_virtual:
        return "virtual function"
    if hca.bonded:
        return "bonded: usually the storage or management pair"
    if hca.bridged:
        return "its network device belongs to a bridge"
    if not others.way_in.isdisjoint(hca.netdevs):
        return "carries the default route or the SSH address"
    return None


def _has_bridge(facts: HostFacts) -> bool:
    report = facts.gpus.value
    product = product_of(report.gpus[0].name) if report and report.gpus else None
    return product is not None and product.token in ("B200", "B300")


def _way_in(network: Network) -> frozenset[str]:
    """Interfaces of the default route and of the SSH address."""
    found = frozenset(r.interface for r in network.routes if r.to in ("0.0.0.0/0", "::/0"))
    ssh = network.interface_with(network.reached_at)
    return found | {ssh.name} if ssh else found


def _majority(kept: list[tuple[Hca, Port]], dropped: list[tuple[str, str]]) -> HostPorts:
    """Of what is left, the link layer and the rate that most ports have."""
    if not kept:
        return HostPorts((), tuple(dropped))
    layer = Counter(p.link_layer for _, p in kept).most_common(1)[0][0]
    of_layer = [(h, p) for h, p in kept if p.link_layer == layer]
    dropped += [(h.name, f"{p.link_layer}, the others are {layer}") for h, p in kept if p.link_layer != layer]
    rates = Counter(p.rate_gbps for _, p in of_layer if p.rate_gbps is not None)
    rate = max(rates.items(), key=lambda kv: (kv[1], kv[0]))[0] if rates else None
    slow = [bool(rate) and p.rate_gbps is not None and p.rate_gbps < (rate or 0) for _, p in of_layer]
    for (h, p), is_slow in zip(of_layer, slow, strict=True):
        if is_slow:
            dropped.append((h.name, f"{p.rate_gbps} Gb/s, the others run at {rate}"))
    return HostPorts(tuple(x for x, is_slow in zip(of_layer, slow, strict=True) if not is_slow), tuple(dropped))


Subnets = Mapping[str, Mapping[str, tuple[int, str]]]
"""Address -> interface that has it -> its place among the addresses of the host, and the address as CIDR."""


def _subnets(network: Network | None) -> Subnets:
    found: dict[str, dict[str, tuple[int, str]]] = defaultdict(dict)
    every = ((i.name, cidr) for i in (network.interfaces if network is not None else ()) for cidr in i.addresses)
    for place, (interface, cidr) in enumerate(every):
        found[cidr.split("/")[0]].setdefault(interface, (place, cidr))
    return found


def _rail_of(hca: Hca, port: Port, subnets: Subnets) -> str:
    """The subnet of a RoCE port's routable GID, as CIDR; "" where it has none or its prefix length is not known."""
    addresses = {str(g.address) for g in port.gids if g.routable and g.kind == "RoCE v2"}
    own = [subnets[a] for a in addresses if a in subnets]
    found = [on[name] for on in own for name in set(hca.netdevs).intersection(on)]
    return _network_of(min(found)[1]) if found else ""


def _network_of(cidr: str) -> str:
    """A host may tell of a prefix that no address has (/255): that is no rail, and no other host's trouble."""
    try:
        return str(ipaddress.ip_interface(cidr).network)
    except ValueError:
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
    subnets = _subnets(facts.network.value) if roce and ports.kept else {}
    found = [
        RailPort(h.name, p.number, _rail_of(h, p, subnets) if roce else "")
        for h, p in ports.kept
        if p.link_layer == kind
    ]
    return tuple(r for r in found if r.rail or not roce)


def _declared(one: DeclaredFabric, members: dict[str, HostPorts], facts: dict[str, HostFacts]) -> list[ScaleOut]:
    """One fabric per link layer: InfiniBand and Ethernet are never one communicator, whatever is declared."""
    kinds: tuple[Literal["InfiniBand", "Ethernet"], ...] = ("InfiniBand", "Ethernet")
    every = {kind: {n: r for n, p in members.items() if (r := _rails(p, facts[n], kind))} for kind in kinds}
    made = {kind: ports for kind, ports in every.items() if ports}
    name = f"declared:{one.name}"
    return [ScaleOut(name if len(made) == 1 else f"{name}:{k}", k, "declared", None, p) for k, p in made.items()]


def _infiniband(rest: dict[str, HostPorts], facts: dict[str, HostFacts]) -> list[ScaleOut]:
    """Same subnet prefix and subnet manager, within one pool: probable, since nearly every fabric says fe80 and 1."""
    groups: dict[tuple[str, str, int], dict[str, tuple[RailPort, ...]]] = {}
    for name, ports in rest.items():
        on: dict[tuple[str, int], list[RailPort]] = defaultdict(list)
        for h, p in ports.kept:
            if subnet := _ib_subnet(p):
                on[subnet].append(RailPort(h.name, p.number))
        if on:
            prefix, sm_lid = max(on, key=lambda subnet: (len(on[subnet]), str(subnet)))
            groups.setdefault((facts[name].host.pool, prefix, sm_lid), {})[name] = tuple(on[prefix, sm_lid])
    return [
        ScaleOut(f"ib:{prefix.replace(':', '')}.{sm_lid}@{pool}", "InfiniBand", "probable", pool, members)
        for (pool, prefix, sm_lid), members in sorted(groups.items())
    ]


def _ib_subnet(port: Port) -> tuple[str, int] | None:
    """(subnet prefix, LID of its subnet manager); None where the port has either not."""
    prefix = port.subnet_prefix if port.link_layer == "InfiniBand" and port.sm_lid else None
    return (prefix, port.sm_lid) if prefix is not None and port.sm_lid else None


def _roce(
    rest: dict[str, HostPorts], facts: dict[str, HostFacts], dropped: dict[str, tuple[tuple[str, str], ...]]
) -> list[ScaleOut]:
    """Hosts of one pool that share at least one rail, each rail named by its subnet."""
    rails_of: dict[str, tuple[RailPort, ...]] = {}
    touching = Linked[tuple[str, str]]()
    for name, ports in rest.items():
        roce = [(h, p) for h, p in ports.kept if p.link_layer == "Ethernet"]
        rails = _rails(ports, facts[name], "Ethernet")
        lost = {h.name for h, _ in roce} - {r.hca for r in rails}
        dropped[name] = (*dropped.get(name, ()), *((n, "no routable RoCE v2 address") for n in sorted(lost)))
        if rails:
            rails_of[name] = rails
            touching.join([(facts[name].host.pool, r.rail) for r in rails])
    groups: dict[tuple[str, str], dict[str, tuple[RailPort, ...]]] = defaultdict(dict)
    for name, rails in rails_of.items():
        groups[touching.first((facts[name].host.pool, rails[0].rail))][name] = rails
    return [
        ScaleOut(f"roce:{rail}@{pool}", "Ethernet", "probable", pool, members)
        for (pool, rail), members in sorted(groups.items())
    ]
