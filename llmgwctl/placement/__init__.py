"""Map + profile + what is taken -> a plan, or for every host the reasons why not. Pure: same snapshot, same plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from llmgwctl.model.errors import NoPlacement
from llmgwctl.model.fabric import FabricMap
from llmgwctl.model.host import Snapshot
from llmgwctl.model.plan import LeftOut, Plan, ReplicaPlan, Tier
from llmgwctl.model.profile import Profile
from llmgwctl.placement.fleet import Fleet
from llmgwctl.placement.shards import build
from llmgwctl.placement.tiers import Tried, try_nvlink, try_scale_out, try_single, try_tcp

__all__ = ["plan"]

TRY: dict[Tier, Callable[[Fleet], Tried]] = {
    "nvlink": try_nvlink,
    "scale-out": try_scale_out,
    "tcp": try_tcp,
    "single-host": try_single,
}
TIERS: dict[str, tuple[Tier, ...]] = {
    "prefer-nvlink": ("nvlink", "scale-out"),
    "require-nvlink": ("nvlink",),
    "require-rdma": ("scale-out",),
    "allow-tcp": ("nvlink", "scale-out", "tcp"),
}
NAMES: dict[Tier, str] = {"nvlink": "NVLink", "scale-out": "scale-out", "tcp": "TCP", "single-host": "single-host"}


def plan(
    fmap: FabricMap,
    snapshot: Snapshot,
    profile: Profile,
    port_names: Sequence[str] = (),
    count: int = 1,
    *,
    names: Sequence[str] = (),
    around: Mapping[str, str] | None = None,
) -> Plan:
    """`count` replicas of a profile, all or nothing. `port_names`: the ports that its engine needs besides "http".

    `names`: what the replicas are to be called, where these names are free. `around`: hosts that cannot carry any shard
    for a reason that is not in the snapshot, each with it.
    """
    fleet = Fleet.of(profile, fmap, snapshot, around)
    ids = _free_ids(profile.name, snapshot, names)
    replicas: list[ReplicaPlan] = []
    tried: dict[Tier, Tried] = {}
    first: dict[Tier, Tried] = {}
    why_not = ""
    for _ in range(count):
        tried = {}
        try:
            replica = _one(fleet, next(ids), port_names, tried)
        except NoPlacement as e:
            why_not = _short(str(e), len(replicas), count)
            break
        finally:
            first = first or tried
        fleet.take(replica)
        replicas.append(replica)
    if why_not:
        replicas = []
    return Plan(
        profile=profile.name,
        tier=replicas[0].tier if replicas else None,
        fabric=replicas[0].fabric if replicas else "",
        replicas=tuple(replicas),
        left_out=_left_out(fleet, replicas, tried),
        candidates=tuple(c for t in (tried if why_not else first).values() for c in t.candidates),
        why_not=why_not,
        warnings=tuple(dict.fromkeys(w for r in replicas for w in r.warnings)),
    )


def tiers_of(profile: Profile) -> tuple[Tier, ...]:
    """The tiers that a profile may use, tightest first. A replica without GPUs has no use for NVLink or RDMA."""
    if profile.nodes == 1:
        return ("single-host",)
    return ("tcp",) if profile.gpus_per_node == 0 else TIERS[profile.fabric]


def _one(fleet: Fleet, replica_id: str, port_names: Sequence[str], tried: dict[Tier, Tried]) -> ReplicaPlan:
    """The first tier that holds the whole replica; a looser one is a warning that says why."""
    looser: tuple[str, ...] = ()
    for tier in tiers_of(fleet.profile):
        tried[tier] = TRY[tier](fleet)
        choice = tried[tier].choice
        if choice is not None:
            made = build(fleet, choice, replica_id, port_names)
            return replace(made, warnings=(*looser, *made.warnings))
        looser = (*looser, f"no {NAMES[tier]} placement: {_why(tried[tier], fleet)}")
    raise NoPlacement("; ".join(looser))


def _why(tried: Tried, fleet: Fleet) -> str:
    if tried.candidates:
        return "; ".join(f"{c.fabric}: {c.why}" for c in tried.candidates[:4])
    if not any(not fleet.unfit(n) for n in fleet.facts):
        return "no host fits the profile"
    return next(iter(tried.host_reasons.values()), "too few hosts fit")


def _short(why: str, done: int, count: int) -> str:
    return why if count == 1 else f"{done} of {count} replicas fit; the next one: {why}"


def _left_out(fleet: Fleet, replicas: Sequence[ReplicaPlan], tried: dict[Tier, Tried]) -> tuple[LeftOut, ...]:
    """Every host without a shard, with the reasons in the tiers that were tried; unneeded ones say so."""
    used = {s.host for r in replicas for s in r.shards}
    result = []
    for name in fleet.facts:
        if name not in used:
            reasons = fleet.unfit(name) or tuple(
                dict.fromkeys(t.host_reasons[name] for t in tried.values() if name in t.host_reasons)
            )
            result.append(LeftOut(name, reasons or ("fits, not needed",)))
    return tuple(result)


def _free_ids(profile: str, snapshot: Snapshot, wanted: Sequence[str] = ()) -> Iterator[str]:
    """PROFILE-0, PROFILE-1 ... without those that a claim or a shard on any host has."""
    pattern = re.compile(re.escape(profile) + r"-(\d{1,9})", re.ASCII)  # a claim of a stranger's may have any name
    names = {c.replica for f in snapshot.hosts if f.life.value for c in f.life.value.claims}
    names |= {s.replica for f in snapshot.hosts if f.life.value for s in f.life.value.shards}
    first = [n for n in dict.fromkeys(wanted) if n not in names and pattern.fullmatch(n)]
    yield from first
    used = {int(m.group(1)) for n in (*names, *first) if (m := pattern.fullmatch(n))}
    number = 0
    while True:
        if number not in used:
            yield f"{profile}-{number}"
        number += 1
