"""Which replicas there are and how each is, from what the hosts say of claims and shards. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from llmgwctl.launch.belonging import Traces, endpoint, expected, indexes, launches
from llmgwctl.launch.stop import Target
from llmgwctl.launch.witness import remembered
from llmgwctl.model.host import HostFacts, Snapshot
from llmgwctl.model.life import SPEC_SCHEMA, Claim, ShardRecord
from llmgwctl.model.numbers import whole
from llmgwctl.model.replica import ReplicaState, ShardState, State

STOPPING = "it is being stopped, or a stop was interrupted"
BAD = ("exited", "gone", "rebooted", "stopping", "dropped")


def replicas(snapshot: Snapshot) -> tuple[ReplicaState, ...]:
    """One state for each launch, by the name of its replica. Where two launches bear one name both are shown."""
    by_host = {f.host.name: f for f in snapshot.hosts}
    states = (_state(one, by_host) for one in launches(snapshot, remembered))
    return tuple(s for s in states if s is not None)


def _state(one: Traces, by_host: dict[str, HostFacts]) -> ReplicaState | None:
    told = one.spec
    shards = tuple(sorted(_shards(one, by_host), key=lambda s: (s.rank, s.host)))
    if not one.records and not one.claims and all(s.state != "unknown" for s in shards):
        return None  # it is remembered, and every host of it says that nothing is there
    leader = one.leader
    ready = leader.ready if leader else None
    state, why = _verdict(one, shards, ready is not None)
    claim = one.claims[0][1] if one.claims else None
    text = told.text if told else lambda _key: ""
    return ReplicaState(
        id=one.replica,
        launch=one.launch,
        state=state,
        shards=shards,
        profile=text("profile"),
        engine=text("engine"),
        endpoint=endpoint(leader.text("endpoint")) if leader else "",
        fabric=text("fabric"),
        tier=text("tier"),
        transport=_text(ready, "transport"),
        pool=text("pool"),
        fingerprint=text("profile_fingerprint"),
        model=text("model"),
        operator=text("operator") or (claim.operator if claim else ""),
        created_at=text("created_at") or (claim.created_at if claim else ""),
        why=why,
        proof=_text(ready, "proof"),
        for_s=_how_long(state, shards, one),
        served=ready is not None,
    )


def _how_long(state: State, shards: tuple[ShardState, ...], one: Traces) -> float | None:
    """A failed replica since its first end, an unknown one since it was last seen, another since its last start."""
    if state == "unknown":
        return one.unseen_s
    if state == "failed":
        return max((s.for_s for s in shards if s.state in BAD and s.for_s is not None), default=None)
    return min((s.for_s for s in shards if s.for_s is not None), default=None)


def _text(told: dict[str, object] | None, key: str) -> str:
    value = (told or {}).get(key, "")
    return value if isinstance(value, str) else ""


def _verdict(one: Traces, shards: tuple[ShardState, ...], served: bool) -> tuple[State, str]:
    """One dead rank is a failed replica; one that cannot be seen leaves it unknown, never failed."""
    bad = [s for s in shards if s.state in BAD]
    if bad:
        return "failed", "; ".join(f"rank {s.rank} on {s.host}: {s.why}" for s in bad)
    unseen = [s for s in shards if s.state == "unknown"]
    if unseen:
        return "unknown", "; ".join(f"rank {s.rank} on {s.host}: {s.why}" for s in unseen)
    if one.claims and not one.records and all(_foreign(f, c) for f, c in one.claims):
        return "unknown", f"of account {one.claims[0][1].account}: only its claims can be seen"
    if any(s.state == "claimed" for s in shards):
        return "starting", "claimed, and nothing was started"
    if served and all(s.state == "running" for s in shards):
        return "ready", ""
    return "starting", ""


# --- ranks ----------------------------------------------------------------------------------------------------------


def _shards(one: Traces, by_host: dict[str, HostFacts]) -> Iterable[ShardState]:
    seen = set()
    for facts, record in one.records:
        seen.add((record.rank, facts.host.name))
        yield _of_record(facts, record)
    for facts, claim in one.claims:
        if (claim.rank, facts.host.name) not in seen:
            seen.add((claim.rank, facts.host.name))
            yield _of_claim(facts, claim, one)
    for rank, host, gpus in expected(one.spec):
        if (rank, host) not in seen:
            yield _missing(rank, host, gpus, by_host.get(host))


def _of_record(facts: HostFacts, record: ShardRecord) -> ShardState:
    state, why, code = _how(facts, record)
    running = [p.pid for p in record.processes if p.state == "running"]
    return ShardState(
        rank=record.rank,
        host=facts.host.name,
        state=state,
        pid=running[-1] if running else None,
        gpus=indexes(record.spec.get("gpus")),
        exit_code=code,
        why=why,
        account=facts.system.value.account if facts.system.value else "",
        known_newer=record.spec.get("schema") != SPEC_SCHEMA,
        for_s=_since(facts, record, state),
    )


def _since(facts: HostFacts, record: ShardRecord, state: str) -> float | None:
    if state == "rebooted":
        return facts.life.value.uptime_s if facts.life.value else None
    return record.ended_ago_s if state == "exited" else record.age_s


def _how(facts: HostFacts, record: ShardRecord) -> tuple[str, str, int | None]:
    """(state, why, exit code) of a rank whose directory was read."""
    if not record.boot_matches:
        return "rebooted", "the host was rebooted, and what ran there is gone", None
    if record.stopping:
        return "stopping", STOPPING, None
    if record.ended:
        told = dict(record.ended)
        code = whole(told.get("code"), 9)
        return "exited", f"{told.get('name', '?')[:100]} exited with code {'?' if code is None else code}", code
    if not record.directory:
        return "gone", "processes run, and their directory is gone", None
    if record.supervisor_alive:
        if why := _dropped(facts, record):
            return "dropped", why, None
        waiting = not record.processes or any(p.state == "waiting" for p in record.processes)
        return ("starting" if waiting else "running"), "", None
    if record.carried or any(p.pid is not None for p in record.processes):
        left = "and processes of it run on" if record.carried else "and no exit was recorded"
        return "gone", f"its supervisor was killed, {left}", None
    return "claimed", "nothing was started", None


def _dropped(facts: HostFacts, record: ShardRecord) -> str:
    """A GPU that has left the domain its replica was planned over; empty where none has, or it was not read."""
    report = facts.gpus.value
    if report is None or record.text("tier") != "nvlink":
        return ""
    uuids = record.spec.get("gpu_uuids")
    ours = set(map(str, uuids)) if isinstance(uuids, list) else set()
    for gpu in report.gpus:
        if gpu.uuid in ours and gpu.fabric.state is not None:
            pair = gpu.fabric.pair
            now = f"nvl:{pair[0]}.{pair[1]}" if pair else f"State {gpu.fabric.state}"
            if now != record.text("fabric"):
                return f"GPU {gpu.index} has left the NVLink domain {record.text('fabric')}: now {now}"
    return ""


def _foreign(facts: HostFacts, claim: Claim) -> bool:
    system = facts.system.value
    return system is not None and claim.account != system.account


def _of_claim(facts: HostFacts, claim: Claim, one: Traces) -> ShardState:
    """A rank of which only claims are seen: another account's, or one that was never started, or is stopped by now."""
    mine = [c for f, c in one.claims if f is facts and c.rank == claim.rank]
    keys = {c.key for c in mine}
    report = facts.gpus.value
    gpus = tuple(g.index for g in report.gpus if f"gpu-{g.uuid}" in keys) if report else ()
    foreign = _foreign(facts, claim)
    account = claim.account if not one.records else ""  # whose it is say its records, where there are any
    state, why = "claimed", "nothing was started"
    if foreign:
        state = "running" if claim.alive else state
        why = "of another account: only its claims can be seen"
    elif any(c.stopping and not _foreign(facts, c) for c in mine):
        state, why = "stopping", STOPPING
    life = facts.life.value
    age = max(0.0, life.uptime_s - claim.uptime_s) if life and claim.boot_id == life.boot_id else None
    return ShardState(claim.rank, facts.host.name, state, None, gpus, why=why, account=account, for_s=age)


def _missing(rank: int, host: str, gpus: tuple[int, ...], facts: HostFacts | None) -> ShardState:
    if facts is None:
        return ShardState(rank, host, "unknown", None, gpus, why="its host was not asked")
    if not facts.life.ok:
        why = facts.reachable.why if facts.reachable.broken else facts.life.why
        return ShardState(rank, host, "unknown", None, gpus, why=why or "its host could not be read")
    return ShardState(rank, host, "gone", None, gpus, why="nothing of it is on its host", absent=True)


# --- what stop and logs need ----------------------------------------------------------------------------------------


def targets_of(snapshot: Snapshot, state: ReplicaState) -> tuple[Target, ...]:
    """Every rank of a launch on a host that answered, with the stop rule of its own spec, or of any rank's.

    A rank that another launch of the same name and id has on that host is that one's: two lists of shards differ.
    """
    by_host = {f.host.name: f for f in snapshot.hosts}
    specs = {
        (r.rank, f.host.name): r.spec
        for f in snapshot.hosts
        for r in (f.life.value.shards if f.life.value else ())
        if (r.replica, r.launch) == (state.id, state.launch)
    }
    others = _of_others(snapshot, state)
    usual = next(iter(specs.values()), {})
    return tuple(
        Target.from_spec(by_host[s.host].host, state.id, s.rank, state.launch, specs.get((s.rank, s.host), usual))
        for s in state.shards
        if s.host in by_host and by_host[s.host].life.ok and (s.rank, s.host) not in others
    )


def _of_others(snapshot: Snapshot, state: ReplicaState) -> set[tuple[int, str]]:
    own = {(s.rank, s.host) for s in state.shards}
    same = [t for t in launches(snapshot, remembered) if (t.replica, t.launch) == (state.id, state.launch)]
    mine = [t for t in same if not t.places or t.places == own]
    others = {(r.rank, f.host.name) for t in same if t not in mine for f, r in t.records}
    return {p for p in others if not any(t.recorded(p) for t in mine)}
