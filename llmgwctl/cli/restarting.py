"""`restart`: a replica makes way for another of its profile, and only for one that could start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from llmgwctl.cli.common import Asked, finish, session
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
        profile = next((r.profile for r in states if r.profile), name.rpartition("-")[0])
        wanted = Wanted(profile, 1, ids=(name,))
        job = job_of(s, wanted)
        if any(worth_keeping(r) for r in states):
            found = await s.collect(extra=with_owners(job.profile))
            await planned(job, without(found, states), spared=left_alone(name))
        for r in states:
            done = await stop_replica(targets_of(snapshot, r), s.transport)
            tell_stopped(s, r, done)
            if not done or not all(x.gone for x in done):
                finish(FAILED)
            await forget(snapshot, r.id, r.launch, s.transport)
    await bring_up(asked, wanted)


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
