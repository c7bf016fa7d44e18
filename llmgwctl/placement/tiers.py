"""The tiers, tightest first: each says which hosts would carry the replica, or for every candidate why not."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from llmgwctl.fabric.imex import apart
from llmgwctl.model.fabric import ScaleOut
from llmgwctl.model.fact import fact
from llmgwctl.model.plan import Candidate, Tier
from llmgwctl.placement.fleet import Fleet
from llmgwctl.placement.neighbours import apart as not_joined

SEARCH_STEPS = 20_000  # a domain whose IMEX pairs are broken at random; a whole one is found at once
RDMA_MEMLOCK_BYTES = 1 << 30  # below a GiB ibv_reg_mr fails at once on any real model


@fact
class Choice:
    """The hosts of one replica in rank order, and the fabric that joins them (None: one host, or plain TCP)."""

    tier: Tier
    fabric: str
    hosts: tuple[str, ...]
    scale_out: ScaleOut | None = None
    warnings: tuple[str, ...] = ()


@fact
class Tried:
    """What became of a tier: a choice or none, each candidate with its reason, and words for single hosts."""

    choice: Choice | None
    candidates: tuple[Candidate, ...]
    host_reasons: dict[str, str]


def try_nvlink(fleet: Fleet) -> Tried:
    """One domain holds the whole replica: the fullest that still fits, hosts in tray order."""
    need = fleet.profile.nodes
    found: list[tuple[int, Choice]] = []
    eligible_of: dict[str, tuple[str, ...]] = {}
    why: dict[str, str] = {}
    for domain in fleet.map.domains:
        eligible = tuple(n for n in domain.names if fleet.fits(n, "nvlink"))
        eligible_of[domain.id] = eligible
        spare = len(eligible) - need >= fleet.profile.spare_trays
        if spare and (hosts := _connected_hosts(fleet, eligible, need)):
            found.append((len(eligible), Choice("nvlink", domain.id, hosts, shared_fabric(fleet, hosts))))
        else:
            why[domain.id] = _why_not_domain(fleet, eligible, need)
    best = min(found, key=lambda f: f[0])[1] if found else None
    candidates = tuple(_candidate("nvlink", d, e, best, why) for d, e in eligible_of.items())
    words = {n: f"NVLink tier: {why[d]}" for d, e in eligible_of.items() for n in e if d in why}
    words |= {n: f"NVLink tier: {', '.join(w)}" for n in fleet.facts if (w := fleet.kept_out(n, "nvlink"))}
    return Tried(best, candidates, words)


def _candidate(tier: Tier, fabric: str, eligible: Sequence[str], best: Choice | None, why: dict[str, str]) -> Candidate:
    chosen = best is not None and best.fabric == fabric
    text = why.get(fabric) or ("chosen" if chosen else "would fit; a fuller one was chosen")
    return Candidate(tier, fabric, tuple(eligible), chosen, text)


def _why_not_domain(fleet: Fleet, eligible: Sequence[str], need: int) -> str:
    if len(eligible) < need:
        return f"{len(eligible)} eligible host{'s' * (len(eligible) != 1)}, {need} needed"
    if len(eligible) - need < fleet.profile.spare_trays:
        return f"{len(eligible)} eligible hosts: {need} needed and spare_trays = {fleet.profile.spare_trays} kept free"
    troubles = _pair_troubles(fleet, eligible)
    if troubles:
        return f"no {need} hosts that are connected with each other: {troubles[0]}"
    return f"no {need} hosts with equal GPU model, driver and IMEX channel"


def _pair_troubles(fleet: Fleet, names: Sequence[str]) -> list[str]:
    first = names[0]
    return [w for n in names[1:] if (w := apart(fleet.view(first), fleet.view(n), first, n))]


def _connected_hosts(fleet: Fleet, eligible: Sequence[str], need: int) -> tuple[str, ...]:
    """The first `need` hosts in tray order with equal model and driver, one channel, and IMEX connected pairwise."""
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for n in eligible:
        groups[(fleet.token(n), fleet.driver(n))].append(n)
    for names in groups.values():
        if len(names) >= need and (hosts := _clique(fleet, names, need)):
            return hosts
    return ()


def _clique(fleet: Fleet, names: Sequence[str], need: int) -> tuple[str, ...]:
    steps = SEARCH_STEPS

    def grow(chosen: tuple[str, ...], start: int, channels: frozenset[int] | None) -> tuple[str, ...]:
        nonlocal steps
        if len(chosen) == need:
            return chosen
        for i in range(start, len(names) - (need - len(chosen)) + 1):
            steps -= 1
            if steps < 0:
                return ()
            one = fleet.view(names[i])
            common = one.channels if channels is None else one.channels & channels
            if not common or any(apart(fleet.view(c), one, c, names[i]) for c in chosen):
                continue
            if deeper := grow((*chosen, names[i]), i + 1, common):
                return deeper
        return ()

    return grow((), 0, None)


def shared_fabric(fleet: Fleet, hosts: Sequence[str]) -> ScaleOut | None:
    """The scale-out fabric in which all these hosts are (with a rail in common on RoCE); declared ones first."""
    for fabric in fleet.map.scale_out:
        if all(h in fabric.ports for h in hosts) and (fabric.kind == "InfiniBand" or common_rails(fabric, hosts)):
            return fabric
    return None


def common_rails(fabric: ScaleOut, hosts: Iterable[str]) -> frozenset[str]:
    """RoCE: the rails that all hosts have."""
    sets = [frozenset(p.rail for p in fabric.ports[h]) for h in hosts]
    return frozenset.intersection(*sets) if sets else frozenset()


def try_scale_out(fleet: Fleet) -> Tried:
    """One InfiniBand or RoCE fabric: declared before probable, the fullest that fits, racks kept free."""
    found: list[tuple[tuple[bool, int], Choice]] = []
    eligible_of: dict[str, tuple[str, ...]] = {}
    why: dict[str, str] = {}
    words = _scale_out_words(fleet)
    for fabric in fleet.map.scale_out:
        eligible = tuple(n for n in fabric.hosts if fleet.fits(n, "scale-out") and n not in words)
        eligible_of[fabric.id] = eligible
        if fleet.profile.require_declared_fabric and fabric.strength != "declared":
            why[fabric.id] = "only probable, and the profile requires a declared fabric"
        elif hosts := _of_fabric(fleet, fabric, eligible):
            choice = Choice("scale-out", fabric.id, hosts, fabric, _fabric_warnings(fleet, fabric, hosts))
            found.append(((fabric.strength != "declared", len(eligible)), choice))
        else:
            why[fabric.id] = f"{len(eligible)} eligible, {fleet.profile.nodes} of one GPU model needed"
    best = min(found, key=lambda f: f[0])[1] if found else None
    candidates = tuple(_candidate("scale-out", f, e, best, why) for f, e in eligible_of.items())
    words |= {n: f"scale-out tier: {why[f]}" for f, e in eligible_of.items() for n in e if f in why}
    return Tried(best, candidates, words)


def _scale_out_words(fleet: Fleet) -> dict[str, str]:
    inside = {n for f in fleet.map.scale_out for n in f.hosts}
    words = {}
    for name, facts in fleet.facts.items():
        if name not in inside:
            words[name] = f"scale-out tier: {_no_fabric(fleet, name, facts.hcas.broken, facts.hcas.why)}"
        elif low := _low_memlock(fleet, name):
            words[name] = f"scale-out tier: {low}"
    return words


def _no_fabric(fleet: Fleet, name: str, broken: bool, why: str) -> str:
    if broken:
        return f"its adapters could not be read: {why}"
    dropped = fleet.map.dropped_hcas.get(name, ())
    shown = "; ".join(f"{hca}: {reason}" for hca, reason in dropped[:3])
    return f"no adapter for compute ({shown})" if shown else "no RDMA adapter"


def _low_memlock(fleet: Fleet, name: str) -> str:
    """An account that is not root cannot lock memory beyond its hard limit, and RDMA registers all buffers."""
    system = fleet.facts[name].system.value
    if system is None or system.account == "root" or system.memlock_hard_bytes is None:
        return ""
    if system.memlock_hard_bytes >= RDMA_MEMLOCK_BYTES:
        return ""
    kib = system.memlock_hard_bytes // 1024
    return f"hard memlock limit of {kib} KiB for {system.account}: RDMA needs unlimited (limits.d, LimitMEMLOCK)"


def _of_fabric(fleet: Fleet, fabric: ScaleOut, eligible: Sequence[str]) -> tuple[str, ...]:
    """Hosts of one GPU model; outside multi-host domains first, then of the most common driver, then in order."""
    need = fleet.profile.nodes
    by_token: dict[str, list[str]] = defaultdict(list)
    for n in eligible:
        by_token[fleet.token(n)].append(n)
    options = []
    for names in by_token.values():
        drivers = Counter(map(fleet.driver, names))
        names.sort(key=lambda n: (_in_domain(fleet, n), -drivers[fleet.driver(n)], fleet.driver(n)))
        hosts = _sharing_rails(fabric, names, need)
        if hosts:
            options.append(hosts)
    if not options:
        return ()
    inside = [sum(_in_domain(fleet, n) for n in hosts) for hosts in options]
    return options[inside.index(min(inside))]


def _sharing_rails(fabric: ScaleOut, names: Sequence[str], need: int) -> tuple[str, ...]:
    """On RoCE, the first hosts that have a rail in common: on the rail whose first hosts have most rails in common."""
    if fabric.kind == "InfiniBand":
        return tuple(names[:need]) if len(names) >= need else ()
    on_rail: dict[str, list[str]] = defaultdict(list)
    for n in names:
        for rail in sorted({p.rail for p in fabric.ports[n]}):
            on_rail[rail].append(n)
    enough = [
        (len(common_rails(fabric, hosts[:need])), hosts[:need]) for hosts in on_rail.values() if len(hosts) >= need
    ]
    return tuple(max(enough, key=lambda e: e[0])[1]) if enough else ()


def _in_domain(fleet: Fleet, name: str) -> bool:
    return fleet.map.verdicts[name].domain is not None


def _fabric_warnings(fleet: Fleet, fabric: ScaleOut, hosts: Sequence[str]) -> tuple[str, ...]:
    found = []
    profile = fleet.profile
    if profile.gpus_per_node and profile.tp > profile.gpus_per_node:
        way_out = f"tp = {profile.gpus_per_node}, pp = {profile.nodes} keeps it inside each host"
        found.append(f"tensor parallelism (tp = {profile.tp}) crosses {fabric.kind}: slow at every layer; {way_out}")
    if fabric.strength == "probable":
        found.append(f"{fabric.id} is only probable (same subnet and manager): declare it under [fabrics.NAME]")
    if len({fleet.driver(n) for n in hosts}) > 1:
        found.append("drivers differ: " + ", ".join(f"{n} {fleet.driver(n)}" for n in hosts))
    return tuple(found)


def try_tcp(fleet: Fleet) -> Tried:
    """The management network, only where the profile allows it."""
    need = fleet.profile.nodes
    by_token: dict[str, list[str]] = defaultdict(list)
    for n in fleet.facts:
        if fleet.fits(n, "tcp"):
            by_token[fleet.token(n) if fleet.profile.gpus_per_node else ""].append(n)
    enough = [names for names in by_token.values() if len(names) >= need]
    if not enough:
        return Tried(None, (), {})
    tightest: list[str] = min(enough, key=len)
    names = sorted(tightest, key=lambda n: _in_domain(fleet, n))
    warning = "over TCP on the management network: slow, for tests and emergencies"
    warnings = (warning,) if fleet.profile.gpus_per_node else ()
    return Tried(Choice("tcp", "", tuple(names[:need]), None, warnings), (), {})


def try_single(fleet: Fleet) -> Tried:
    """One host: outside multi-host domains, then trays that the NVLink tier cannot use, then the fullest domain; of
    these one that still has NVLink neighbours, and of these the fullest."""
    able = [n for n in fleet.facts if fleet.fits(n, "single-host")]
    fitting = [n for n in able if fleet.http_port(n) is not None]
    words = {n: fleet.port_taken(n) for n in able if n not in fitting}
    eligible_in: dict[str, int] = defaultdict(int)
    for n, verdict in fleet.map.verdicts.items():
        if verdict.domain and verdict.eligible and fleet.free(n):
            eligible_in[verdict.domain] += 1

    def rank(name: str) -> tuple[int, int]:
        verdict = fleet.map.verdicts[name]
        kind = 0 if verdict.domain is None else 1 if verdict.reasons else 2
        crowd = eligible_in[verdict.domain] if verdict.domain and kind == 2 else 0
        return (kind, crowd)

    ranks = {n: rank(n) for n in fitting}
    first = min(ranks.values(), default=None)
    best = min((n for n in fitting if ranks[n] == first), key=lambda n: _looseness(fleet, n), default=None)
    return Tried(Choice("single-host", "", (best,)) if best else None, (), words)


def _looseness(fleet: Fleet, name: str) -> tuple[int, int]:
    free = fleet.free(name)
    return not_joined(fleet.facts[name], free, fleet.profile.gpus_per_node), len(free)
