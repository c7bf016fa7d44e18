"""NVLink domains out of a snapshot: by (ClusterUUID, CliqueId), and trays that dropped out put where they belong."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from llmgwctl.model.fabric import Domain, DomainHost
from llmgwctl.model.gpu import GpuReport
from llmgwctl.model.host import HostFacts, Snapshot
from llmgwctl.model.product import product_of

Pair = tuple[str, int]


def domains(snapshot: Snapshot) -> tuple[Domain, ...]:
    """All domains, in the order of their first host in the inventory."""
    trays = [f for f in snapshot.hosts if may_span(f)]
    joined: dict[Pair, list[HostFacts]] = defaultdict(list)
    dropped = []
    for facts in trays:
        pair = pair_of(facts)
        if pair:
            joined[pair].append(facts)
        else:
            dropped.append(facts)
    lost = _adopt(joined, dropped)
    of_rack: dict[str, list[HostFacts]] = defaultdict(list)
    for facts in snapshot.hosts:
        of_rack[facts.host.rack or ""].append(facts)
    made = [
        _domain(f"nvl:{uuid}.{clique}", (uuid, clique), members, of_rack) for (uuid, clique), members in joined.items()
    ]
    made += [_domain(key, None, members, of_rack) for key, members in lost.items()]
    seen = {n for d in made for n in (*d.names, *d.missing)}
    made += [_dark(rack, mates) for rack, mates in of_rack.items() if rack and _is_dark(mates, seen)]
    order = {f.host.name: i for i, f in enumerate(snapshot.hosts)}
    made.sort(key=lambda d: min(order[n] for n in d.names or d.missing))
    return _partitions(made)


def may_span(facts: HostFacts) -> bool:
    """A host whose product can be in a multi-host domain (or, for a product not in the table, says that it is)."""
    report = facts.gpus.value
    if report is None or not report.gpus:
        return False
    product = product_of(report.gpus[0].name)
    return product.multi_host_domain if product else pair_of(facts) is not None


def pair_of(facts: HostFacts) -> Pair | None:
    """The pair that most of a host's GPUs are joined to; None when none has joined."""
    report = facts.gpus.value
    pairs = Counter(g.fabric.pair for g in report.gpus if g.fabric.pair) if report else Counter()
    return max(pairs, key=lambda p: (pairs[p], p)) if pairs else None


def chassis_of(facts: HostFacts) -> str | None:
    report = facts.gpus.value
    return next((g.platform.chassis_serial for g in report.gpus if g.platform.chassis_serial), None) if report else None


def _adopt(joined: dict[Pair, list[HostFacts]], dropped: Sequence[HostFacts]) -> dict[str, list[HostFacts]]:
    """Trays without a joined GPU go to the domain of their chassis, else of their rack; else the rack stands alone."""
    homes: dict[tuple[str, str], Pair] = {}
    for pair, members in sorted(joined.items(), key=lambda kv: (len(kv[1]), kv[0])):
        for facts in members:
            homes.update(dict.fromkeys(_places(facts), pair))
    alone: dict[str, list[HostFacts]] = defaultdict(list)
    for facts in dropped:
        places = _places(facts)
        home = next((homes[p] for p in places if p in homes), None)
        if home:
            joined[home].append(facts)
        elif places:
            alone[":".join(places[0])].append(facts)
    return alone


def _places(facts: HostFacts) -> list[tuple[str, str]]:
    chassis, rack = chassis_of(facts), facts.host.rack
    return ([("chassis", chassis)] if chassis else []) + ([("rack", rack)] if rack else [])


def _domain(
    domain_id: str, pair: Pair | None, members: Sequence[HostFacts], of_rack: Mapping[str, list[HostFacts]]
) -> Domain:
    hosts = tuple(tray for _, tray in sorted((_physical(f) for f in members), key=lambda placed: placed[0]))
    racks = Counter(f.host.rack for f in members if f.host.rack)
    chassis = tuple(sorted({c for f in members if (c := chassis_of(f))}))
    here = {h.name for h in hosts}
    mates = [f for rack in racks for f in of_rack[rack]]
    missing = tuple(f.host.name for f in mates if f.host.name not in here and not f.gpus.ok)
    rack = racks.most_common(1)[0][0] if racks else (chassis[0] if chassis else None)
    expected = sum(f.host.expect.domain is not False for f in mates) if racks else None
    uuid, clique = pair or (None, None)
    return Domain(domain_id, uuid, clique, rack, chassis, hosts, missing, expected)


def _is_dark(mates: Sequence[HostFacts], seen: set[str]) -> bool:
    """A rack that the inventory expects to be a domain and of which no tray told anything: it is there all the same."""
    return any(f.host.expect.domain for f in mates) and not any(f.gpus.ok or f.host.name in seen for f in mates)


def _dark(rack: str, mates: Sequence[HostFacts]) -> Domain:
    expected = sum(f.host.expect.domain is not False for f in mates)
    return Domain(f"rack:{rack}", None, None, rack, (), (), tuple(f.host.name for f in mates), expected)


def _tray(facts: HostFacts) -> DomainHost:
    report: GpuReport | None = facts.gpus.value
    gpus = report.gpus if report else ()
    platform = next((g.platform for g in gpus if g.platform.tray is not None or g.platform.slot is not None), None)
    joined = [g.fabric.joined for g in gpus]
    return DomainHost(
        facts.host.name,
        platform.tray if platform else None,
        platform.slot if platform else None,
        all_joined=bool(gpus) and all(joined) and bool(report and report.all_readable),
        any_joined=any(joined),
    )


def _physical(facts: HostFacts) -> tuple[tuple[str, int, int, str], DomainHost]:
    """A tray and where it stands: by Platform Info first, then by its place in the inventory, then by its name."""
    tray = _tray(facts)
    place = tray.tray if tray.tray is not None else tray.slot
    known = place if place is not None else 1 << 16
    return (chassis_of(facts) or "", known, facts.host.order, facts.host.name), tray


def _partitions(made: list[Domain]) -> tuple[Domain, ...]:
    """Several domains in one chassis are partitions of it: the smaller ones say of which domain they were split."""
    owner: dict[str, Domain] = {}
    for d in made:
        for c in d.chassis:
            if c not in owner or len(d.hosts) > len(owner[c].hosts):
                owner[c] = d
    result = []
    for d in made:
        other = next((owner[c] for c in d.chassis if owner[c].id != d.id), None)
        result.append(replace(d, partition_of=other.id) if other else d)
    return tuple(result)
