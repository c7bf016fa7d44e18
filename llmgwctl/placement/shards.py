"""From chosen hosts to shards: GPUs, adapters, interface, address and ports of each."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from llmgwctl.model.errors import NoPlacement
from llmgwctl.model.fabric import RailPort, ScaleOut
from llmgwctl.model.gpu import Gpu
from llmgwctl.model.host import HostFacts
from llmgwctl.model.network import Port
from llmgwctl.model.plan import ReplicaPlan, RoceRail, ShardPlan
from llmgwctl.placement.address import Control, control, towards
from llmgwctl.placement.fleet import Fleet
from llmgwctl.placement.neighbours import Near, near, partly_joined, pick, reason
from llmgwctl.placement.tiers import Choice, common_rails

HCA_LIMIT = 32  # NCCL drops what stands behind the 32nd entry, silently
PORT_BASE, PORT_END, PORT_STEP = 21000, 29000, 32  # below the ephemeral range; SGLang uses P to P+20


def build(fleet: Fleet, choice: Choice, replica_id: str, port_names: Sequence[str]) -> ReplicaPlan:
    """The replica, with everything that its environment and commands need. Raises NoPlacement with the reason."""
    profile = fleet.profile
    addresses = _addresses(fleet, choice.hosts)
    shards = tuple(_shard(fleet, choice, rank, name, addresses[name]) for rank, name in enumerate(choice.hosts))
    return ReplicaPlan(
        id=replica_id,
        profile=profile.name,
        engine=profile.engine,
        tier=choice.tier,
        fabric=choice.fabric,
        shards=shards,
        ports=_ports(fleet, choice.hosts, port_names),
        warnings=choice.warnings,
    )


def _addresses(fleet: Fleet, hosts: Sequence[str]) -> dict[str, Control]:
    """The leader by the address from which it reaches rank 1, the others by the one from which they reach it."""
    facts = [fleet.facts[n] for n in hosts]
    found = {hosts[0]: _leader(facts)}
    for one in facts[1:]:
        found[one.host.name] = _refused(one, towards(one, found[hosts[0]].address))
    return found


def _leader(facts: Sequence[HostFacts]) -> Control:
    if len(facts) == 1:
        return _refused(facts[0], control(facts[0]))
    peer = _refused(facts[1], control(facts[1]))
    return _refused(facts[0], towards(facts[0], peer.address))


def _refused(facts: HostFacts, found: Control | None) -> Control:
    if found is None:
        raise NoPlacement(f"{facts.host.name} has no management address: set mgmt_interface or mgmt_address")
    return found


def _shard(fleet: Fleet, choice: Choice, rank: int, name: str, where: Control) -> ShardPlan:
    facts = fleet.facts[name]
    place = near(facts)
    gpus = pick(place, fleet.free(name), fleet.profile.gpus_per_node)
    ports = _rail_ports(choice.scale_out, choice.hosts, name) if len(choice.hosts) > 1 else ()
    return ShardPlan(
        rank=rank,
        host=name,
        gpus=tuple(g.index for g in gpus),
        gpu_uuids=tuple(g.uuid for g in gpus),
        hcas=tuple(p.name for p in ports),
        interface=where.interface,
        address=where.address,
        link_layer=choice.scale_out.kind if choice.scale_out and ports else None,
        roce=_roce(facts, ports) if choice.scale_out and choice.scale_out.kind == "Ethernet" else RoceRail(),
        imex_channel=_channel(fleet, choice) if choice.tier == "nvlink" else None,
        in_domain=any(g.fabric.pair for g in gpus) and fleet.map.verdicts[name].domain is not None,
        numa_nodes=tuple(sorted({place.nodes[g.index] for g in gpus if g.index in place.nodes})),
        gpus_why=reason(place, gpus, len(facts.gpus.value.gpus) if facts.gpus.value else 0),
        notes=(*fleet.map.verdicts[name].notes, *_half_joined(fleet, place, gpus)),
    )


def _half_joined(fleet: Fleet, place: Near, gpus: Sequence[Gpu]) -> tuple[str, ...]:
    if fleet.profile.tp < 2 or not partly_joined(place, gpus):
        return ()
    return ("NVLink does not join all of its GPUs: tensor parallelism takes PCIe between some",)


def _rail_ports(fabric: ScaleOut | None, hosts: Sequence[str], name: str) -> tuple[RailPort, ...]:
    if fabric is None:
        return ()
    ports = fabric.ports[name]
    if fabric.kind == "Ethernet":
        shared = common_rails(fabric, hosts)
        ports = tuple(p for p in ports if p.rail in shared)
    return ports[:HCA_LIMIT]


def _channel(fleet: Fleet, choice: Choice) -> int | None:
    """The lowest IMEX channel that all chosen hosts have: one job must hold one number everywhere."""
    common = frozenset.intersection(*(fleet.view(n).channels for n in choice.hosts))
    return min(common) if common else None


def _roce(facts: HostFacts, ports: Sequence[RailPort]) -> RoceRail:
    """One GID index for all chosen adapters of the host; else a range that holds one address of each."""
    there = {(h.name, p.number): p for h in reversed(facts.hcas.value or ()) for p in h.ports if p.active}
    chosen = [there[p.hca, p.port] for p in ports]
    routable = [{g.index for g in p.gids if g.kind == "RoCE v2" and g.routable} for p in chosen]
    shared = set.intersection(*routable) if routable else set()
    if shared:
        return RoceRail(gid_index=min(shared, key=lambda i: (not _all_v4(chosen, i), i)))
    indexes = tuple((p.name, tuple(sorted(found))) for p, found in zip(ports, routable, strict=True))
    return RoceRail(address_range=_one_range(chosen), indexes=indexes)


def _all_v4(ports: Sequence[Port], index: int) -> bool:
    return all(g.address.version == 4 for p in ports for g in p.gids if g.index == index)


def _one_range(ports: Sequence[Port]) -> str | None:
    """The smallest IPv4 network that holds exactly one routable RoCE v2 address of each port."""
    per_port = [[g.address for g in p.gids if g.kind == "RoCE v2" and g.routable] for p in ports]
    firsts = [next((a for a in found if a.version == 4), None) for found in per_port]
    if not firsts or any(a is None for a in firsts):
        return None
    net = ipaddress.ip_network(f"{firsts[0]}/32")
    while not all(a in net for a in firsts):
        net = net.supernet()
        if net.prefixlen < 8:
            return None
    return str(net) if all(sum(a in net for a in found) == 1 for found in per_port) else None


def _ports(fleet: Fleet, hosts: Sequence[str], names: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """HTTP from the profile's range on the leader, the engine's own from a block that is free on every host."""
    http = fleet.http_port(hosts[0])
    if http is None:
        raise NoPlacement(fleet.port_taken(hosts[0]))
    base = _block({http}.union(*(fleet.ports.get(h, set()) for h in hosts)))
    return (("http", http), *((n, base + i) for i, n in enumerate(names)))


def _block(used: set[int]) -> int:
    for base in range(PORT_BASE, PORT_END, PORT_STEP):
        if not any(base <= p < base + PORT_STEP for p in used):
            return base
    raise NoPlacement(f"no block of {PORT_STEP} free ports between {PORT_BASE} and {PORT_END}")
