"""`ps`: the replicas as the hosts tell of them, with what the inventory and their GPUs add to it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from llmgwctl.cli.common import Asked, finish, look, note, out, out_json, session
from llmgwctl.cli.life import FAILED, UNKNOWN, find, read_life, tell_unseen, unseen
from llmgwctl.cli.naming import not_there

if TYPE_CHECKING:
    from llmgwctl.cli.common import Session
    from llmgwctl.model.host import HostFacts, Snapshot
    from llmgwctl.model.replica import ReplicaState


WRONG = 2


async def show(asked: Asked, name: str | None, *, check: bool, transport: bool) -> None:
    from llmgwctl.render import life as render

    async with session(asked) as s:
        snapshot = await with_gpus(s, await read_life(s))
        if name and not find(snapshot, [name]):
            _missing(s, snapshot, name, check=check)
        states = tuple(changed(s, r) for r in find(snapshot, [name] if name else None))
        if transport:
            states = tuple([await proved_now(s, snapshot, r) for r in states])
        if asked.json:
            out_json(render.ps_document(states))
        else:
            verbose = asked.verbose or transport
            out(render.ps(states, look(), verbose=verbose, unseen=len(unseen(snapshot))))
        tell_unseen(s, snapshot)
        slower = [r.id for r in states if transport and _weaker(r)]
    none = not states and not unseen(snapshot)  # one may run on a host that could not be read
    bad = check and (none or bool(slower) or any(r.state in ("failed", "starting") for r in states))
    unknown = unseen(snapshot) or (check and any(r.state == "unknown" for r in states))
    finish(FAILED if bad else UNKNOWN if unknown else 0)


def _missing(s: Session, snapshot: Snapshot, name: str, *, check: bool) -> None:
    """A name that nobody bears: it may be a slip, or a replica that is gone, which --check is there to tell."""
    from llmgwctl.render import life as render
    from llmgwctl.render.letters import clean

    tell_unseen(s, snapshot)
    note(clean(f"llmgwctl: {not_there(name, find(snapshot, None))}"))
    if s.asked.json:
        out_json(render.ps_document([]))
    finish(UNKNOWN if unseen(snapshot) else FAILED if check else WRONG)


async def with_gpus(s: Session, snapshot: Snapshot) -> Snapshot:
    """Where a replica runs over NVLink its hosts are asked whether their GPUs are still in the domain."""
    from llmgwctl.model.host import Snapshot
    from llmgwctl.probe import gpus

    wanted = [f.host for f in snapshot.hosts if _over_nvlink(f)]
    if not wanted:
        return snapshot
    fresh = await s.collect(wanted, probes=(gpus.PROBE,), doing="reading GPUs")
    found = {f.host.name: f.gpus for f in fresh.hosts}
    rows = (replace(f, gpus=found.get(f.host.name, f.gpus)) for f in snapshot.hosts)
    return Snapshot(snapshot.taken_at, tuple(rows))


def _over_nvlink(facts: HostFacts) -> bool:
    life = facts.life.value
    return life is not None and any(r.supervisor_alive and r.text("tier") == "nvlink" for r in life.shards)


def changed(s: Session, r: ReplicaState) -> ReplicaState:
    """Whether the inventory's profile would start something else now."""
    from llmgwctl.launch.prepare import fingerprint

    profile = s.inventory.profiles.get(r.profile)
    other = profile is not None and r.fingerprint not in ("", fingerprint(profile))
    return replace(r, changed=True) if other else r


async def proved_now(s: Session, snapshot: Snapshot, r: ReplicaState) -> ReplicaState:
    """The transport by what the log says now: with lazy connections it says more than at readiness."""
    from llmgwctl.launch.judge import transport_of
    from llmgwctl.launch.state import targets_of

    if r.state != "ready" or len(r.shards) < 2:
        return r
    found = await transport_of(snapshot, r, targets_of(snapshot, r), s.transport, silent_of(s, r))
    return replace(r, transport=found.kind, proof=found.text) if found else r


def silent_of(s: Session, r: ReplicaState) -> str:
    from llmgwctl.engines import ENGINES
    from llmgwctl.launch.verify import silence

    profile, engine = s.inventory.profiles.get(r.profile), ENGINES.get(r.engine)
    return silence(profile.env if profile else (), engine is None or engine.uses_nccl)


def _weaker(r: ReplicaState) -> bool:
    """A replica that runs on less than it was planned for is said loudly, whoever asks."""
    from llmgwctl.launch.verify import weaker
    from llmgwctl.render.text import clean

    if not weaker(r.tier, r.transport):
        return False
    note(clean(f"! {r.id}: PLANNED OVER {r.tier.upper()}, AND NCCL USES {r.proof or r.transport}"))
    return True
