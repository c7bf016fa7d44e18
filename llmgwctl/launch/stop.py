"""Ending a replica: in the engine's order, by identity, verified; and taking its traces from the hosts."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from llmgwctl.launch.prepare import Prepared
from llmgwctl.launch.remote import LEFT, call, fields
from llmgwctl.model.errors import Unreachable
from llmgwctl.model.fact import fact
from llmgwctl.model.host import Host
from llmgwctl.transport.base import Transport

DEFAULT_GRACE_S = 30
STOP_S = 200.0  # beside the grace: killing, and the engine's own commands that clean up
_SIGNALS = frozenset(("TERM", "INT", "QUIT", "HUP", "KILL"))


@fact
class Target:
    """One rank of one launch on one host: all that is needed to find what is left of it and to end it."""

    host: Host
    replica: str
    rank: int
    launch: str
    signal: str = "TERM"
    grace_s: int = DEFAULT_GRACE_S
    leader_first: bool = True

    @classmethod
    def of(cls, p: Prepared) -> Target:
        return cls.from_spec(p.host, p.replica, p.rank, p.launch.id, p.spec)

    @classmethod
    def from_spec(cls, host: Host, replica: str, rank: int, launch: str, spec: dict[str, object]) -> Target:
        """A spec comes from a host: what is not one of the words that we know is replaced by what is usual."""
        rule = spec.get("stop")
        told = rule if isinstance(rule, dict) else {}
        name, grace = told.get("signal"), told.get("grace_s")
        return cls(
            host,
            replica,
            rank,
            launch,
            signal=name if isinstance(name, str) and name in _SIGNALS else "TERM",
            grace_s=min(grace, 3600) if isinstance(grace, int) and grace >= 0 else DEFAULT_GRACE_S,
            leader_first=told.get("leader_first") is not False,
        )

    @property
    def words(self) -> tuple[str, str, str]:
        return (self.replica, str(self.rank), self.launch)


@fact
class Stopped:
    """What became of one rank. `gone`: verified; None: its host did not answer. `left`: what would not die.

    `why`: what else there is to say, also of one that is gone: that another account held something up.
    """

    target: Target
    gone: bool | None
    killed: int = 0
    left: tuple[str, ...] = ()
    why: str = ""


class Turns:
    """Replicas are stopped at once, but one after the other on each host: its lock on claims is held to clean up."""

    def __init__(self) -> None:
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    @asynccontextmanager
    async def on_hosts(self, targets: Iterable[Target]) -> AsyncIterator[None]:
        async with AsyncExitStack() as held:
            for name in sorted({t.host.name for t in targets}):  # in one order, so that no two wait for each other
                await held.enter_async_context(self._locks[name])
            yield


async def stop_replica(targets: Sequence[Target], transport: Transport) -> tuple[Stopped, ...]:
    """End every rank, then remove directories and claims where nothing is left. Calling it again does no harm."""
    leaders = [t for t in targets if t.rank == 0 and t.leader_first]
    others = [t for t in targets if t not in leaders]
    ended = [
        *await asyncio.gather(*(_end(t, transport) for t in leaders)),
        *await asyncio.gather(*(_end(t, transport) for t in others)),
    ]
    return tuple(await asyncio.gather(*(_clean(s, transport) for s in ended)))


async def _end(target: Target, transport: Transport) -> Stopped:
    args = ("stop", *target.words, target.signal, str(target.grace_s))
    try:
        said = await call(transport, target.host, "shard.sh", *args, limit_s=target.grace_s + STOP_S, allowed=(LEFT,))
    except Exception as e:  # whatever one host does, the others are stopped
        return _not_done(target, e)
    lines = fields(said)
    left = tuple(" ".join(line[1:]) for line in lines if line[0] == "left")
    blocked = "; ".join(line[1] for line in lines if line[0] == "blocked" and len(line) > 1)
    return Stopped(target, said.exit_code == 0, sum(line[0] == "killed" for line in lines), left[:64], blocked[:400])


async def _clean(stopped: Stopped, transport: Transport) -> Stopped:
    if not stopped.gone:
        return stopped
    try:
        await call(transport, stopped.target.host, "shard.sh", "clean", *stopped.target.words)
    except Exception as e:
        return _not_done(stopped.target, e)
    return stopped


def _not_done(target: Target, error: Exception) -> Stopped:
    return Stopped(target, None if isinstance(error, Unreachable) else False, why=str(error))
