"""What watch remembers: the last that was known of each host, GPU and replica, also of those that do not answer now."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field, fields, replace
from typing import Any

from llmgwctl.model.fabric import FabricMap, HostVerdict
from llmgwctl.model.fact import fact
from llmgwctl.model.gpu import Gpu
from llmgwctl.model.host import HostFacts, Snapshot
from llmgwctl.model.replica import BEST_FIRST, ReplicaState

SCHEMA = "llmgwctl.watch/v1"


class BadState(ValueError):
    """A state file that is none of ours, or not whole, or of a newer llmgwctl."""


@fact
class GpuSeen:
    """`home`: the domain that it is joined to, or was last. None: never known."""

    index: int
    joined: bool | None = None
    home: str = ""
    degraded: bool | None = None
    unhealthy: bool | None = None
    lost: bool = False


@fact
class HostSeen:
    """`read`: its GPUs could be read this time; else `gpus` are those of the last time. `imex` is "" until known."""

    reachable: bool
    read: bool
    why: str = ""
    rack: str = ""
    imex: str = ""
    gpus: dict[str, GpuSeen] = field(default_factory=dict)


@fact
class ReplicaSeen:
    """`hosts`: where its ranks are, so that a host that is not read does not make it vanish."""

    state: str
    hosts: tuple[str, ...] = ()
    why: str = ""


@fact
class Seen:
    """One look. `marks`: subject -> when it changed lately; `flapping`: subject -> when it last changed."""

    taken_at: float
    hosts: dict[str, HostSeen] = field(default_factory=dict)
    replicas: dict[str, ReplicaSeen] = field(default_factory=dict)
    marks: dict[str, tuple[float, ...]] = field(default_factory=dict)
    flapping: dict[str, float] = field(default_factory=dict)


GPU_KEYS = tuple(f.name for f in fields(GpuSeen))
HOST_KEYS = tuple(f.name for f in fields(HostSeen) if f.name != "gpus")


def look(fmap: FabricMap, snapshot: Snapshot, replicas: Sequence[ReplicaState], before: Seen | None) -> Seen:
    """What is known now; what cannot be told now stays as it was."""
    old = before or Seen(0.0)
    hosts = {f.host.name: _host(f, fmap.verdicts[f.host.name], old.hosts.get(f.host.name)) for f in snapshot.hosts}
    lives = {f.host.name for f in snapshot.hosts if f.life.ok}
    return Seen(snapshot.taken_at, hosts, _replicas(replicas, old.replicas, lives), old.marks, old.flapping)


def _host(facts: HostFacts, verdict: HostVerdict, old: HostSeen | None) -> HostSeen:
    report = facts.gpus.value
    known = old.gpus if old else {}
    told = verdict.imex if verdict.imex in ("up", "down", "degraded") else ""
    return HostSeen(
        reachable=facts.reachable.ok,
        read=facts.reachable.ok and not facts.gpus.broken,
        why=(facts.reachable.why or facts.gpus.why) if facts.gpus.broken else "",
        rack=facts.host.rack or "",
        imex=told or (old.imex if old else ""),
        gpus=_gpus(report.gpus, report.all_readable, known) if report else _no_report(facts, known),
    )


def _no_report(facts: HostFacts, known: dict[str, GpuSeen]) -> dict[str, GpuSeen]:
    """What could not be read stays; cards of a host that has no driver, or no card, any more are lost."""
    return known if facts.gpus.broken else {u: replace(g, lost=True, joined=False) for u, g in known.items()}


def _gpus(gpus: Sequence[Gpu], all_readable: bool, known: Mapping[str, GpuSeen]) -> dict[str, GpuSeen]:
    """A card that is missing is lost while some cards cannot be read; when all can, it was taken out."""
    found = {g.uuid: _gpu(g, known.get(g.uuid)) for g in gpus}
    lost = {} if all_readable else {u: replace(g, lost=True, joined=False) for u, g in known.items() if u not in found}
    return found | lost


def _gpu(gpu: Gpu, old: GpuSeen | None) -> GpuSeen:
    was = old or GpuSeen(gpu.index)
    fabric, pair = gpu.fabric, gpu.fabric.pair
    told = fabric.health.told and fabric.joined is True
    unhealthy = fabric.healthy is False and not fabric.health.degraded_only
    return GpuSeen(
        index=gpu.index,
        joined=was.joined if fabric.joined is None else fabric.joined,
        home=f"nvl:{pair[0]}.{pair[1]}" if pair else was.home,
        degraded=fabric.health.bandwidth == "Degraded" if told and fabric.health.bandwidth else was.degraded,
        unhealthy=unhealthy if told and (unhealthy or not fabric.health.unread) else was.unhealthy,
    )


def _replicas(
    replicas: Sequence[ReplicaState], known: Mapping[str, ReplicaSeen], lives: set[str]
) -> dict[str, ReplicaSeen]:
    """A name that two launches bear is one replica. One that is not told of stays while a host of it is not read."""
    found: dict[str, ReplicaSeen] = {}
    for r in sorted(replicas, key=lambda r: BEST_FIRST.index(r.state)):
        hosts = tuple(sorted({s.host for s in r.shards}))
        found.setdefault(r.id, ReplicaSeen(r.state, hosts, r.why))
    kept = {i: r for i, r in known.items() if i not in found and r.hosts and not set(r.hosts) <= lives}
    return found | kept


def rehomed(seen: Seen, names: Mapping[str, str]) -> Seen:
    """Cards of a domain that has another name now are of that one, also those that are out or could not be read."""
    if not names:
        return seen
    hosts = {
        n: replace(h, gpus={u: replace(g, home=names.get(g.home, g.home)) for u, g in h.gpus.items()})
        for n, h in seen.hosts.items()
    }
    return replace(seen, hosts=hosts)


def dumps(seen: Seen) -> str:
    """A card is a list: there may be 72,000 of them, written every minute."""
    hosts = {
        n: {
            **{k: getattr(h, k) for k in HOST_KEYS},
            "gpus": {u: [getattr(g, k) for k in GPU_KEYS] for u, g in h.gpus.items()},
        }
        for n, h in seen.hosts.items()
    }
    replicas = {i: {"state": r.state, "hosts": r.hosts, "why": r.why} for i, r in seen.replicas.items()}
    told = {"taken_at": seen.taken_at, "marks": seen.marks, "flapping": seen.flapping}
    return json.dumps({"schema": SCHEMA, **told, "hosts": hosts, "replicas": replicas}, separators=(",", ":"))


def loads(text: str) -> Seen:
    try:
        told = json.loads(text)
        if told["schema"] != SCHEMA:
            raise BadState(f"its schema is {str(told['schema'])[:60]}, and {SCHEMA} is known here")
        return Seen(
            taken_at=float(told["taken_at"]),
            hosts={n: _host_of(h) for n, h in told["hosts"].items()},
            replicas={i: ReplicaSeen(r["state"], tuple(r["hosts"]), r["why"]) for i, r in told["replicas"].items()},
            marks={s: tuple(map(float, at)) for s, at in told["marks"].items()},
            flapping={s: float(at) for s, at in told["flapping"].items()},
        )
    except BadState:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise BadState("it is not whole, or not written by llmgwctl watch") from e


def _host_of(told: dict[str, Any]) -> HostSeen:
    gpus = {u: GpuSeen(*g) for u, g in told["gpus"].items()}
    return HostSeen(**{k: told[k] for k in HOST_KEYS}, gpus=gpus)
