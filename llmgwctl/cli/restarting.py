"""`restart`: a replica makes way for another of its profile, and only for one that could start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from llmgwctl.cli.common import Asked, Session, finish, session
from llmgwctl.cli.job import Wanted, job_of
from llmgwctl.cli.life import FAILED, chosen, find, read_life, tell_stopped, tell_unseen
from llmgwctl.cli.naming import not_there
from llmgwctl.cli.placing import bring_up, planned
from llmgwctl.cli.reading import neighbours
from llmgwctl.launch.as_stopped import as_stopped
from llmgwctl.launch.state import targets_of
from llmgwctl.launch.stop import stop_replica
from llmgwctl.launch.witness import forget
from llmgwctl.model.errors import UsageError
from llmgwctl.model.host import Host, Snapshot
from llmgwctl.model.profile import Profile
from llmgwctl.model.replica import ReplicaState
from llmgwctl.probe import processes
from llmgwctl.probe.base import Section


async def restart(asked: Asked, name: str) -> None:
    async with session(asked) as s:
        snapshot = await read_life(s)
        states = chosen(s, snapshot, [name])
        tell_unseen(s, snapshot)
        if not states:
            raise UsageError(not_there(name, find(snapshot, None)))
        states = within_reach(snapshot, states)
        wanted = Wanted(profile_of(states, name), 1, ids=(name,))
        await sure_of_the_next(s, wanted, states)
        for r in states:
            if not await made_way(s, snapshot, r):
                finish(FAILED)
    await bring_up(asked, wanted)


def within_reach(snapshot: Snapshot, states: list[ReplicaState]) -> list[ReplicaState]:
    """Without launches whose hosts are all dark, which nobody can end, where there is another one of that name: that
    has begun beside them. Where there is none, all: whether it may be placed again is not known."""
    return [r for r in states if targets_of(snapshot, r)] or states


def profile_of(states: Sequence[ReplicaState], name: str) -> str:
    return next((r.profile for r in states if r.profile), name.rpartition("-")[0])


async def sure_of_the_next(s: Session, wanted: Wanted, states: Sequence[ReplicaState]) -> None:
    """Ends with the reasons, before anything is stopped, where the next of a replica could not start without it."""
    job = job_of(s, wanted)
    if any(worth_keeping(r) for r in states):
        found = await s.collect(extra=with_owners(job.profile))
        await planned(job, without(found, states), spared=left_alone(*wanted.ids))


async def made_way(s: Session, snapshot: Snapshot, r: ReplicaState) -> bool:
    """Stop a replica, say how, and whether nothing of it is left on the hosts that answer."""
    done = await stop_replica(targets_of(snapshot, r), s.transport)
    tell_stopped(s, r, done)
    gone = bool(done) and all(x.gone for x in done)
    if gone and len(done) == len(r.shards):
        await forget(snapshot, r.id, r.launch, s.transport)
    return gone


def worth_keeping(r: ReplicaState) -> bool:
    """What has failed serves nobody: to stop it costs nothing."""
    return r.state != "failed"


def left_alone(name: str) -> str:
    return f"{name} was not stopped: it is left as it is"


def without(snapshot: Snapshot, states: Sequence[ReplicaState]) -> Snapshot:
    return reduce(as_stopped, states, snapshot)


def with_owners(profile: Profile) -> Callable[[Host], Sequence[Section]]:
    """What a plan needs, and whose the processes on GPUs are: those of another account are not the replica's."""
    near = neighbours(profile)

    def of(host: Host) -> Sequence[Section]:
        return (*near(host), *processes.PROBE.sections)

    return of
