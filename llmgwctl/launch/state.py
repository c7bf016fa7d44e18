"""Which replicas there are and how each is, from what the hosts say of claims and shards. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from llmgwctl.launch.stop import Target
from llmgwctl.model.host import HostFacts, Snapshot
from llmgwctl.model.life import SPEC_SCHEMA, Claim, ShardRecord
from llmgwctl.model.replica import ReplicaState, ShardState, State

BAD = ("exited", "gone", "rebooted", "stopping")


@dataclass
class _Launch:
    """All traces of one launch: records and claims with the host that each was found on."""

    replica: str
    launch: str
    records: list[tuple[HostFacts, ShardRecord]] = field(default_factory=list)
    claims: list[tuple[HostFacts, Claim]] = field(default_factory=list)

    @property
    def spec(self) -> ShardRecord | None:
        """The record that tells most: the leader's, else any."""
        return next((r for _, r in sorted(self.records, key=lambda x: x[1].rank) if r.directory), None)


def replicas(snapshot: Snapshot) -> tuple[ReplicaState, ...]:
    """One state for each launch, by the name of its replica. Where two launches bear one name both are shown."""
    found: dict[tuple[str, str], _Launch] = {}
    for facts in snapshot.hosts:
        life = facts.life.value
        for record in life.shards if life else ():
            _launch(found, record.replica, record.launch).records.append((facts, record))
        for claim in life.claims if life else ():
            if claim.launch:
                _launch(found, claim.replica, claim.launch).claims.append((facts, claim))
    by_host = {f.host.name: f for f in snapshot.hosts}
    return tuple(_state(found[key], by_host) for key in sorted(found))


def _launch(found: dict[tuple[str, str], _Launch], replica: str, launch: str) -> _Launch:
    return found.setdefault((replica, launch), _Launch(replica, launch))


def _state(one: _Launch, by_host: dict[str, HostFacts]) -> ReplicaState:
    told = one.spec
    shards = tuple(sorted(_shards(one, by_host), key=lambda s: (s.rank, s.host)))
    leader = next((r for _, r in one.records if r.rank == 0), None)
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
        endpoint=text("endpoint"),
        fabric=text("fabric"),
        tier=text("tier"),
        transport=_text(ready, "transport"),
        pool=text("pool"),
        fingerprint=text("profile_fingerprint"),
        model=text("model"),
        operator=text("operator") or (claim.operator if claim else ""),
        created_at=text("created_at") or (claim.created_at if claim else ""),
        why=why,
    )


def _text(told: dict[str, object] | None, key: str) -> str:
    value = (told or {}).get(key, "")
    return value if isinstance(value, str) else ""


def _verdict(one: _Launch, shards: tuple[ShardState, ...], served: bool) -> tuple[State, str]:
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


def _shards(one: _Launch, by_host: dict[str, HostFacts]) -> Iterable[ShardState]:
    seen = set()
    for facts, record in one.records:
        seen.add((record.rank, facts.host.name))
        yield _of_record(facts, record)
    for facts, claim in one.claims:
        if (claim.rank, facts.host.name) not in seen:
            seen.add((claim.rank, facts.host.name))
            yield _of_claim(facts, claim, one)
    for rank, host, gpus in _expected(one.spec):
        if (rank, host) not in seen:
            yield _missing(rank, host, gpus, by_host.get(host))


def _expected(told: ShardRecord | None) -> Iterable[tuple[int, str, tuple[int, ...]]]:
    """The ranks that a spec names: it comes from a host, so what is not of the right kind is passed over."""
    listed = told.spec.get("shards") if told else None
    for entry in listed if isinstance(listed, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("rank"), int) and isinstance(entry.get("host"), str):
            yield entry["rank"], entry["host"], _indexes(entry.get("gpus"))


def _indexes(value: object) -> tuple[int, ...]:
    return tuple(v for v in value if isinstance(v, int)) if isinstance(value, list) else ()


def _of_record(facts: HostFacts, record: ShardRecord) -> ShardState:
    state, why, code = _how(record)
    running = [p.pid for p in record.processes if p.state == "running"]
    return ShardState(
        rank=record.rank,
        host=facts.host.name,
        state=state,
        pid=running[-1] if running else None,
        gpus=_indexes(record.spec.get("gpus")),
        exit_code=code,
        why=why,
        account=facts.system.value.account if facts.system.value else "",
        known_newer=record.spec.get("schema") != SPEC_SCHEMA,
    )


def _how(record: ShardRecord) -> tuple[str, str, int | None]:
    """(state, why, exit code) of a rank whose directory was read."""
    if not record.boot_matches:
        return "rebooted", "the host was rebooted", None
    if record.stopping:
        return "stopping", "it is being stopped, or a stop was interrupted", None
    if record.ended:
        told = dict(record.ended)
        code = int(told["code"]) if told.get("code", "").isdigit() else None
        return "exited", f"{told.get('name', '?')} exited with code {told.get('code', '?')}", code
    if not record.directory:
        return "gone", "processes run, and their directory is gone", None
    if record.supervisor_alive:
        waiting = not record.processes or any(p.state == "waiting" for p in record.processes)
        return ("starting" if waiting else "running"), "", None
    if record.carried or any(p.pid is not None for p in record.processes):
        left = "and processes of it run on" if record.carried else "and no exit was recorded"
        return "gone", f"its supervisor was killed, {left}", None
    return "claimed", "nothing was started", None


def _foreign(facts: HostFacts, claim: Claim) -> bool:
    system = facts.system.value
    return system is not None and claim.account != system.account


def _of_claim(facts: HostFacts, claim: Claim, one: _Launch) -> ShardState:
    """A rank of which only claims are seen: another account's, or one that was never started."""
    keys = {c.key for f, c in one.claims if f is facts and c.rank == claim.rank}
    report = facts.gpus.value
    gpus = tuple(g.index for g in report.gpus if f"gpu-{g.uuid}" in keys) if report else ()
    foreign = _foreign(facts, claim)
    state = "running" if foreign and claim.alive else "claimed"
    return ShardState(claim.rank, facts.host.name, state, None, gpus, why="nothing was started", account=claim.account)


def _missing(rank: int, host: str, gpus: tuple[int, ...], facts: HostFacts | None) -> ShardState:
    if facts is None:
        return ShardState(rank, host, "unknown", None, gpus, why="its host was not asked")
    if not facts.life.ok:
        why = facts.reachable.why if facts.reachable.broken else facts.life.why
        return ShardState(rank, host, "unknown", None, gpus, why=why or "its host could not be read")
    return ShardState(rank, host, "gone", None, gpus, why="nothing of it is on its host")


# --- what stop and logs need ----------------------------------------------------------------------------------------


def targets_of(snapshot: Snapshot, state: ReplicaState) -> tuple[Target, ...]:
    """Every rank of a launch on a host that answered, with the stop rule of its own spec, or of any rank's."""
    by_host = {f.host.name: f for f in snapshot.hosts}
    specs = {
        (r.rank, f.host.name): r.spec
        for f in snapshot.hosts
        for r in (f.life.value.shards if f.life.value else ())
        if (r.replica, r.launch) == (state.id, state.launch)
    }
    usual = next(iter(specs.values()), {})
    return tuple(
        Target.from_spec(by_host[s.host].host, state.id, s.rank, state.launch, specs.get((s.rank, s.host), usual))
        for s in state.shards
        if s.host in by_host and by_host[s.host].life.ok
    )
