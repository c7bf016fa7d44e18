"""The documents that others build on, as plain data; their keys never change once released."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import Any

from llmgwctl.model.fabric import Domain, FabricMap
from llmgwctl.model.gpu import Gpu
from llmgwctl.model.host import HostFacts, Snapshot
from llmgwctl.model.launch import EnvVar
from llmgwctl.model.plan import Plan, ReplicaPlan, ShardPlan
from llmgwctl.model.reading import Reading
from llmgwctl.render.words import bandwidth

Document = dict[str, Any]
Argv = tuple[str, Sequence[str]]  # a command's name and its words
Launch = tuple[Sequence[EnvVar], Sequence[Argv]]
Launches = Mapping[tuple[str, int], Launch]  # by replica and rank


def moment(seconds: float) -> str:
    """Seconds since the epoch as UTC, ISO 8601."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def nvlink(fmap: FabricMap, snapshot: Snapshot) -> Document:
    facts = {f.host.name: f for f in snapshot.hosts}
    return {
        "schema": "llmgwctl.nvlink/v1",
        "taken_at": moment(snapshot.taken_at),
        "domains": [_domain(d, fmap, facts) for d in fmap.domains],
        "scale_out": [
            {"id": s.id, "kind": s.kind, "strength": s.strength, "pool": s.pool, "hosts": list(s.hosts)}
            for s in fmap.scale_out
        ],
        "outside": [{"name": o.name, "why": o.why, "fabrics": list(o.fabrics)} for o in fmap.outside],
        "unreachable": [{"name": o.name, "why": o.why} for o in fmap.unreachable],
    }


def _domain(domain: Domain, fmap: FabricMap, facts: Mapping[str, HostFacts]) -> Document:
    return {
        "id": domain.id,
        "cluster_uuid": domain.cluster_uuid,
        "clique_id": domain.clique_id,
        "rack": domain.rack,
        "chassis": list(domain.chassis),
        "partition_of": domain.partition_of,
        "expected_hosts": domain.expected_hosts,
        "joined_hosts": domain.joined_hosts,
        "eligible_hosts": sum(fmap.verdicts[n].eligible for n in domain.names),
        "hosts": [_tray(h.name, h.tray, h.slot, fmap, facts[h.name]) for h in domain.hosts],
        "missing": list(domain.missing),
    }


def _tray(name: str, tray: int | None, slot: int | None, fmap: FabricMap, facts: HostFacts) -> Document:
    verdict = fmap.verdicts[name]
    return {
        "name": name,
        "address": facts.host.address or name,
        "tray": tray,
        "slot": slot,
        "eligible": verdict.eligible,
        "reasons": [r.text for r in verdict.reasons],
        "notes": list(verdict.notes),
        "imex": {"state": verdict.imex},
        "gpus": [_gpu(g) for g in (facts.gpus.value.gpus if facts.gpus.value else ())],
    }


def _gpu(gpu: Gpu) -> Document:
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "joined": gpu.fabric.joined,
        "healthy": gpu.fabric.healthy,
        "bandwidth": bandwidth(gpu),
        "state": gpu.fabric.state,
        "status": gpu.fabric.status,
    }


def plan(made: Plan, launches: Launches) -> Document:
    return {
        "schema": "llmgwctl.plan/v1",
        "profile": made.profile,
        "tier": made.tier,
        "fabric": made.fabric,
        "replicas": [_replica(r, launches) for r in made.replicas],
        "left_out": [{"host": o.host, "reasons": list(o.reasons)} for o in made.left_out],
        "candidates": [
            {"tier": c.tier, "fabric": c.fabric, "eligible": list(c.eligible), "chosen": c.chosen, "why": c.why}
            for c in made.candidates
        ],
        "why_not": made.why_not,
        "warnings": list(made.warnings),
    }


def _replica(replica: ReplicaPlan, launches: Launches) -> Document:
    return {
        "id": replica.id,
        "engine": replica.engine,
        "tier": replica.tier,
        "fabric": replica.fabric,
        "ports": dict(replica.ports),
        "warnings": list(replica.warnings),
        "shards": [_shard(s, *launches[replica.id, s.rank]) for s in replica.shards],
    }


def _shard(shard: ShardPlan, env: Sequence[EnvVar], commands: Sequence[Argv]) -> Document:
    return {
        "rank": shard.rank,
        "host": shard.host,
        "address": shard.address,
        "interface": shard.interface,
        "gpus": list(shard.gpus),
        "gpu_uuids": list(shard.gpu_uuids),
        "gpus_why": shard.gpus_why,
        "numa_nodes": list(shard.numa_nodes),
        "hcas": list(shard.hcas),
        "imex_channel": shard.imex_channel,
        "env": {v.name: v.shown for v in env},
        "env_why": {v.name: v.why for v in env},
        "commands": [{"name": name, "argv": list(argv)} for name, argv in commands],
        "notes": list(shard.notes),
    }


def env(profile: str, replica: ReplicaPlan, rank: int, variables: Sequence[EnvVar]) -> Document:
    return {
        "schema": "llmgwctl.env/v1",
        "profile": profile,
        "replica": replica.id,
        "rank": rank,
        "host": replica.shards[rank].host,
        "env": [{"name": v.name, "value": v.shown, "why": v.why, "overrides": v.overrides} for v in variables],
    }


def probe(snapshot: Snapshot) -> Document:
    """Every reading of every host with its state."""
    return {
        "schema": "llmgwctl.probe/v1",
        "taken_at": moment(snapshot.taken_at),
        "hosts": [_facts(f) for f in snapshot.hosts],
    }


def _facts(facts: HostFacts) -> Document:
    readings = [f.name for f in fields(facts) if isinstance(getattr(facts, f.name), Reading)]
    return {
        "name": facts.host.name,
        "address": facts.host.address or facts.host.name,
        "pool": facts.host.pool,
        "rack": facts.host.rack,
        "taken_at": moment(facts.taken_at),
        "readings": {name: _reading(getattr(facts, name)) for name in readings},
    }


def _reading(reading: Reading[Any]) -> Document:
    if reading.ok:
        return {"state": "ok", "value": plain(reading.value)}
    return {"state": reading.state, "why": reading.why}


def plain(value: Any) -> Any:
    """Facts as JSON: dataclasses by field, tuples as lists, keys that are no strings as "0,1"."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {_key(k): plain(v) for k, v in value.items()}
    if isinstance(value, tuple | list | set | frozenset):
        return [plain(v) for v in (sorted(value, key=str) if isinstance(value, set | frozenset) else value)]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _key(key: object) -> str:
    return ",".join(map(str, key)) if isinstance(key, tuple) else str(key)
