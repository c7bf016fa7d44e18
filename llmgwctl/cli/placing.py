"""`place`: plan, claim, look again, start, wait, verify; a loser of a race reads again before it plans again."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeVar

import typer

from llmgwctl.cli import preflight
from llmgwctl.cli.around import as_json, left_out, planned_around, tell_warnings
from llmgwctl.cli.common import Asked, look, note, out, out_json, progress, session
from llmgwctl.cli.job import Job, Wanted, job_of, plan_for
from llmgwctl.cli.planning import NO_PLACEMENT, document, launched, warned
from llmgwctl.cli.reading import neighbours
from llmgwctl.engines.base import Build
from llmgwctl.launch.claim import ClaimHeld, Holder
from llmgwctl.launch.place import Place, Placed, PlaceFailed, PlanChanged
from llmgwctl.launch.prepare import Launch, prepare
from llmgwctl.launch.remote import settle
from llmgwctl.launch.secrets import secrets_of
from llmgwctl.launch.stop import Turns, stop_replica
from llmgwctl.launch.verify import PLANNED, silence, weaker
from llmgwctl.launch.witness import remember, unsay
from llmgwctl.model.errors import ContactLost, LlmgwError
from llmgwctl.model.host import HostFacts, Snapshot
from llmgwctl.model.plan import Plan, ReplicaPlan
from llmgwctl.render import life as render
from llmgwctl.render import plan as render_plan
from llmgwctl.render.json import Launches
from llmgwctl.render.text import clean

ATTEMPTS = 5
T = TypeVar("T")


class Detached(LlmgwError):
    """Left running without being waited for: how it goes on is not known here."""

    exit_code = 3


async def bring_up(asked: Asked, wanted: Wanted) -> None:
    async with session(asked) as s:
        job = job_of(s, wanted)
        profile = job.profile
        job, made, bringing = await _begun(job)
        rows = await (_served(job, made, bringing) if wanted.wait else begun_rows(job, bringing))
        if asked.json:
            told = {"schema": "llmgwctl.place/v1", "profile": profile.name, "tier": made.tier, "replicas": rows}
            out_json({**told, **as_json(job)})
        else:
            out(render.placed(rows, look()))


# --- plan, claim, start ---------------------------------------------------------------------------------------------


async def _begun(job: Job) -> tuple[Job, Plan, list[Place]]:
    """Everything started, all replicas or none. A lost race, or facts that changed, mean reading and planning again."""
    for attempt in range(1, ATTEMPTS + 1):
        snapshot = await job.session.collect(extra=neighbours(job.profile))
        ready, made, checked = await planned(job, snapshot)
        _tell(ready, made, checked)
        try:
            return ready, made, await start_all(ready, made, snapshot, checked.builds)
        except (ClaimHeld, PlanChanged) as e:
            job.session.note(f"{clean(str(e))}: reading again")
            if attempt == ATTEMPTS:
                raise
    raise AssertionError("unreachable")


async def planned(job: Job, snapshot: Snapshot, *, spared: str = "") -> tuple[Job, Plan, preflight.Checked]:
    """A plan that its hosts can carry, and what they said; else it ends here, with the reasons. `spared`: what is said
    then of what runs already."""
    s = job.session
    job, made, checked = await planned_around(job, snapshot)
    if checked is not None and not checked.refused:
        return job, made, checked
    for words in (*(f"! {clean(x)}" for x in left_out(job)), *([spared] if spared else [])):
        note(words)  # also with -q: it is part of the error
    if s.asked.json:
        refused, launches = (
            (warned(made, checked), _launches(job, made, checked)) if checked is not None else (made, {})
        )
        refused = replace(refused, warnings=(*refused.warnings, *([spared] if spared else [])))
        out_json(document(refused, launches, checked))
    elif checked is None:
        out(render_plan.plan(made, {}, look(), s.hosts))
    if checked is None:
        raise typer.Exit(NO_PLACEMENT)
    checked.refuse()
    raise AssertionError("unreachable")


def _tell(job: Job, made: Plan, checked: preflight.Checked) -> None:
    tell_warnings(job, made, checked)
    if job.session.asked.verbose:
        note(render_plan.plan(made, _launches(job, made, checked), look(), job.session.hosts))


def _launches(job: Job, made: Plan, checked: preflight.Checked) -> Launches:
    return {k: v for r in made.replicas for k, v in launched(r, job.profile, job.engine, checked.builds).items()}


async def start_all(job: Job, made: Plan, snapshot: Snapshot, builds: Mapping[str, Build]) -> list[Place]:
    bringing = [_place(job, r, builds) for r in made.replicas]
    touched: list[Place] = []
    try:
        for p in bringing:
            taken = await _claimed(job, p)
            touched.append(p)
            for holder in taken:
                job.session.note(clean(f"took over a stale claim: {holder}"))
        if job.guard is not None:
            await job.guard({p.prepared[0].launch.id for p in bringing})
        await _recheck(job, made, snapshot, bringing)
        for failed in [e for e in await settle([p.start() for p in bringing]) if isinstance(e, BaseException)]:
            raise failed
    except BaseException as e:
        if isinstance(e, PlaceFailed):
            _tell_rolled_back(job, e)
        await _undo(job, touched)
        raise
    await _remembered(job, snapshot, bringing)
    return bringing


async def _claimed(job: Job, p: Place) -> tuple[Holder, ...]:
    try:
        return await p.claim()
    except BaseException as e:
        for left in getattr(e, "__notes__", ()):
            job.session.note(clean(f"{left}: {_ends([p])}"))
        raise


async def _remembered(job: Job, snapshot: Snapshot, bringing: Sequence[Place]) -> None:
    """Elsewhere too, so that it is unknown and not forgotten when all its hosts are gone."""
    answering = [f.host for f in snapshot.hosts if f.life.ok]

    async def one(p: Place) -> None:
        p.witnesses = await remember(p.prepared[0].spec, answering, job.session.transport)

    await asyncio.gather(*map(one, bringing))


def _place(job: Job, replica: ReplicaPlan, builds: Mapping[str, Build]) -> Place:
    hosts = {h.name: h for h in job.session.inventory.hosts}
    now = datetime.now(UTC)
    launch = Launch(f"{now:%Y%m%dT%H%M%S}-{token_hex(4)}", f"{now:%Y-%m-%dT%H:%M:%SZ}", job.operator)
    prepared = prepare(replica, job.profile, job.engine, hosts, launch, builds=builds, api_key=job.api_key)
    say = job.session.note if job.session.asked.verbose else lambda _: None
    return Place(
        prepared,
        job.session.transport,
        logs_folder(replica.id, launch.id),
        api_key=job.api_key,
        secrets=secrets_of(job.profile, job.api_key),
        timeout_s=job.wanted.timeout_s or job.profile.ready_timeout_s,
        silent=silence(job.profile.env, job.engine.uses_nccl),
        require_transport=job.wanted.require_transport,
        say=say,
    )


def logs_folder(replica: str, launch: str) -> Path:
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local/state")
    return Path(state) / "llmgwctl" / "logs" / f"{replica}.{launch}"


async def _recheck(job: Job, made: Plan, snapshot: Snapshot, bringing: Sequence[Place]) -> None:
    """The chosen hosts once more, after the claim: the same facts give the same plan, so another plan is a change."""
    chosen = {s.host for r in made.replicas for s in r.shards}
    hosts = [f.host for f in snapshot.hosts if f.host.name in chosen]
    found = await job.session.collect(hosts, doing="looking again", extra=neighbours(job.profile))
    fresh = {f.host.name: f for f in found.hosts}
    ours = {p.prepared[0].launch.id for p in bringing}
    rows = tuple(_without(fresh.get(f.host.name, f), ours) for f in snapshot.hosts)
    again = plan_for(job, Snapshot(snapshot.taken_at, rows))
    if [_essence(r) for r in again.replicas] != [_essence(r) for r in made.replicas]:
        why = clean(again.why_not) or "another placement is right now"
        raise PlanChanged(f"the chosen hosts have changed since they were read ({why})")


def _without(facts: HostFacts, launches: set[str]) -> HostFacts:
    """A host as if we had not claimed anything there."""
    life = facts.life.value
    if life is None:
        return facts
    claims = tuple(c for c in life.claims if c.launch not in launches)
    shards = tuple(s for s in life.shards if s.launch not in launches)
    return replace(facts, life=facts.life.map(lambda value: replace(value, claims=claims, shards=shards)))


def _essence(replica: ReplicaPlan) -> tuple[object, ...]:
    return (replica.tier, replica.fabric, replica.ports, replica.shards)


async def _undo(job: Job, touched: Sequence[Place]) -> None:
    turns = Turns()

    async def one(p: Place) -> None:
        async with turns.on_hosts(p.targets):
            stopped = await stop_replica(p.targets, job.session.transport)
        for x in (x for x in stopped if not x.gone):
            where = f"{x.target.replica} rank {x.target.rank} on {x.target.host.name}"
            why = ", ".join(x.left) or x.why
            job.session.note(clean(f"{where} is left: {why}: `llmgwctl stop {x.target.replica}` ends it"))
        if all(x.gone for x in stopped):
            first = p.prepared[0]
            await unsay(p.witnesses, first.replica, first.launch.id, job.session.transport)

    await asyncio.gather(*map(one, touched))


def _names(bringing: Sequence[Place]) -> list[str]:
    return [p.prepared[0].replica for p in bringing]


def _ends(bringing: Sequence[Place]) -> str:
    return f"`llmgwctl stop {' '.join(_names(bringing))}` ends it"


def _may_live_on(bringing: Sequence[Place], e: ContactLost) -> ContactLost:
    follow = f"`llmgwctl ps` tells how {', '.join(_names(bringing))} is, {_ends(bringing)}"
    return ContactLost(f"{e}; it may live on and nothing was stopped: {follow}")


async def begun_rows(job: Job, bringing: Sequence[Place]) -> list[dict[str, object]]:
    """Without waiting until it serves: every command is started, those too that wait for another rank."""
    try:
        await _all_or_none(p.begin() for p in bringing)
    except ContactLost as e:
        raise _may_live_on(bringing, e) from e
    except PlaceFailed as e:
        _tell_rolled_back(job, e)
        await _undo(job, bringing)
        raise
    return [_row(p, None) for p in bringing]


# --- wait -----------------------------------------------------------------------------------------------------------


async def _served(job: Job, made: Plan, bringing: Sequence[Place]) -> list[dict[str, object]]:
    names = ", ".join(_names(bringing))
    try:
        with progress(f"waiting for {names}", len(bringing), quiet=job.session.asked.quiet) as step:
            placed = await _all_serve(bringing, step)
    except asyncio.CancelledError:
        raise Detached(f"{names} is left running: `llmgwctl ps` follows it, {_ends(bringing)}") from None
    except ContactLost as e:
        raise _may_live_on(bringing, e) from e
    except PlaceFailed as e:
        _tell_rolled_back(job, e)
        await _undo(job, bringing)
        raise
    for p, done in zip(bringing, placed, strict=True):
        _tell_doubts(job, p, done, made)
    return [_row(p, done) for p, done in zip(bringing, placed, strict=True)]


async def _all_serve(bringing: Sequence[Place], step: Callable[[str], None]) -> list[Placed]:
    async def one(p: Place) -> Placed:
        placed = await p.serve()
        step(p.prepared[0].replica)
        return placed

    return await _all_or_none(map(one, bringing))


async def _all_or_none(what: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All results; when one fails, or nobody waits any more, the others have ended before that is told."""
    tasks = [asyncio.ensure_future(w) for w in what]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _tell_doubts(job: Job, p: Place, done: Placed, made: Plan) -> None:
    name = p.prepared[0].replica
    if not done.proved:
        job.session.note(f"! {name}: not proved that it serves: {clean(done.why)}")
    if done.transport is None or (made.tier or "") not in PLANNED:
        return
    if done.transport.kind == "not proved":
        job.session.note(f"{name}: transport {done.transport.text}")
    elif weaker(made.tier or "", done.transport.kind):
        note(f"! {name}: PLANNED OVER {(made.tier or '').upper()}, AND NCCL USES {done.transport.text}")
        note(f"! {name}: `llmgwctl logs {name}` names why where NCCL does; --require-transport makes this a failure")


def _tell_rolled_back(job: Job, e: PlaceFailed) -> None:
    """What is left of it is not told here: all of them are stopped once more, and then that is told."""
    if e.rolled_back.folder:
        job.session.note(f"the last words of every rank are in {e.rolled_back.folder}")


def _row(p: Place, done: Placed | None) -> dict[str, object]:
    spec = p.prepared[0].spec
    return {
        "id": p.prepared[0].replica,
        "state": "ready" if done else "starting",
        "endpoint": spec["endpoint"],
        "model": spec["model"],
        "transport": done.transport.kind if done and done.transport else "",
        "proof": done.transport.text if done and done.transport else "",
        "proved": bool(done and done.proved),
        "shards": [{"rank": x.rank, "host": x.host.name, "gpus": list(x.shard.gpus)} for x in p.prepared],
    }
