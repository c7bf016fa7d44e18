"""Bringing up a prepared replica: claim, start, wait, verify, record; and undoing it when it will not serve."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from llmgwctl.launch.claim import Holder, claim
from llmgwctl.launch.logs import CommandLog, fetch_logs, save_logs
from llmgwctl.launch.prepare import Prepared
from llmgwctl.launch.remote import call, plain
from llmgwctl.launch.secrets import hide
from llmgwctl.launch.signatures import Part, named
from llmgwctl.launch.start import start
from llmgwctl.launch.stop import Stopped, Target, stop_replica
from llmgwctl.launch.verify import Proof, short_of, verify_transport
from llmgwctl.launch.wait import Failed, Served, wait_ready, wait_started
from llmgwctl.launch.watch import Death
from llmgwctl.model.errors import ContactLost, LlmgwError, ShardFailed, Unreachable
from llmgwctl.model.fact import fact
from llmgwctl.model.host import Host
from llmgwctl.transport.base import Transport

LAST_LINES = 20
LOGS_S = 90.0
Say = Callable[[str], None]


class PlanChanged(LlmgwError):
    """The chosen hosts are not what the plan was made for any more; nothing was started, and a new plan is needed."""


@fact
class RolledBack:
    """What is left to say when a start was undone: the last words of every rank, and what could not be undone."""

    logs: tuple[CommandLog, ...] = ()
    folder: Path | None = None
    stopped: tuple[Stopped, ...] = ()

    @property
    def unclean(self) -> tuple[Stopped, ...]:
        return tuple(s for s in self.stopped if not s.gone)


class PlaceFailed(ShardFailed):
    """The replica did not come up and was rolled back. `rolled_back` says what was saved and what may be left."""

    def __init__(self, why: str, rolled_back: RolledBack) -> None:
        super().__init__(why)
        self.rolled_back = rolled_back


@fact
class Placed:
    """It serves (or, without waiting, was started)."""

    endpoint: str
    transport: Proof | None = None  # None: one host, nothing to prove
    proved: bool = True
    why: str = ""
    taken_over: tuple[Holder, ...] = ()


@dataclass
class Place:
    """One bring-up: claim, start, serve. Between claim and start the caller looks again at the chosen hosts.

    Cancelled while starting, it rolls back; cancelled while waiting, it leaves running what it started.
    """

    prepared: Sequence[Prepared]
    transport: Transport
    folder: Path
    api_key: str = ""
    secrets: tuple[str, ...] = ()  # values that are taken out of what the ranks said
    timeout_s: float = 1800
    contact_s: float = 60
    silent: str = ""  # why the engine's log says nothing of the transport, when that is known before
    witnesses: tuple[Host, ...] = ()  # hosts that were told of it
    require_transport: bool = False  # another transport than planned is a failure, and so is none that is proved
    say: Say = field(default=lambda _: None)

    @property
    def targets(self) -> list[Target]:
        return [Target.of(p) for p in self.prepared]

    async def claim(self) -> tuple[Holder, ...]:
        """Claim every GPU, or nothing and raise ClaimHeld. Returns whose stale claims were taken over."""
        return await claim(self.prepared, self.transport)

    async def start(self) -> None:
        """Start every shard; when one cannot be started all are undone, also on cancellation."""
        try:
            await start(self.prepared, self.transport)
        except Exception as e:
            raise await self._undone(e) from e
        except BaseException:
            await self.undo()
            raise

    async def begin(self) -> None:
        """Where nobody waits until it serves: until every command has been started. A death undoes it."""
        try:
            await wait_started(self.prepared, self.transport, self.timeout_s, self.contact_s)
        except ContactLost:
            raise
        except Exception as e:
            raise await self._undone(e) from e

    async def serve(self) -> Placed:
        """Wait until it serves and record that on the leader's host. ContactLost: it may live on, nothing is undone.

        Whatever else goes wrong, also a mistake of ours over what some host answered, undoes it.
        """
        try:
            served = await wait_ready(
                self.prepared,
                self.transport,
                self.timeout_s,
                api_key=self.api_key,
                say=self.say,
                contact_s=self.contact_s,
            )
        except ContactLost:
            raise
        except Exception as e:
            raise await self._undone(e) from e
        used = await self._transport_used()
        if used is not None and self.require_transport and (why := short_of(self._spec("tier"), used)):
            raise await self._undone(Failed(f"{self.prepared[0].replica}: --require-transport: {why}"))
        try:
            await self._record(served, used)
        except Unreachable as e:
            raise ContactLost(f"{self.prepared[0].host.name}: it serves, and then contact was lost: {e}") from e
        except Exception as e:
            raise await self._undone(e) from e
        return Placed(served.endpoint, used, served.proved, served.why)

    async def undo(self) -> RolledBack:
        """Save what every rank said, stop all, verify, release."""
        said, folder = await self._last_words()
        stopped = await stop_replica(self.targets, self.transport)
        return RolledBack(said, folder, stopped)

    async def _last_words(self) -> tuple[tuple[CommandLog, ...], Path | None]:
        """Saved where that can be done: nothing that a host says, and no full disk here, keeps a shard from its end."""
        said: tuple[CommandLog, ...] = ()
        try:
            async with asyncio.timeout(LOGS_S):
                logs = await fetch_logs(self.targets, self.transport)
                said = tuple(replace(x, text=hide(x.text, self.secrets)) for x in logs if x.text.strip())
            if said:
                save_logs(said, self.folder)
        except Exception as e:
            self.say(f"the last words could not be saved: {type(e).__name__}: {e}")
            return said, None
        return said, self.folder if said else None

    async def _undone(self, error: Exception) -> PlaceFailed:
        rolled_back = await self.undo()
        return PlaceFailed(_with_last_words(error, rolled_back), rolled_back)

    def _spec(self, key: str) -> str:
        return str(self.prepared[0].spec.get(key, ""))

    async def _transport_used(self) -> Proof | None:
        if len(self.prepared) < 2:
            return None
        return await verify_transport(self.targets, self.transport, world_of(self.prepared[0].spec), self.silent)

    async def _record(self, served: Served, used: Proof | None) -> None:
        await record_ready(self.transport, self.targets[0], served, used)


def world_of(spec: Mapping[str, object]) -> int:
    """How many GPUs a replica has, by the spec of any of its shards (which may come from a host)."""
    shards = spec.get("shards")
    rows = [s.get("gpus") for s in shards if isinstance(s, dict)] if isinstance(shards, list) else []
    return sum(len(gpus) for gpus in rows if isinstance(gpus, list))


async def record_ready(transport: Transport, leader: Target, served: Served, used: Proof | None) -> None:
    """That it has served, and over what, lies on the leader's host: nobody's workstation knows more."""
    told = {"endpoint": served.endpoint, "proved": served.proved, "why": served.why}
    told |= {"transport": used.kind if used else "", "proof": used.text if used else ""}
    data = json.dumps(told).encode() + b"\n"
    await call(transport, leader.host, "shard.sh", "ready", *leader.words, stdin=data)


def _with_last_words(error: Exception, rolled_back: RolledBack) -> str:
    """The failure, and the last lines of the command that died (of the leader when none did)."""
    death = error.death if isinstance(error, Failed) else None
    rank = death.prepared.rank if death else 0
    ours = [log for log in rolled_back.logs if log.rank == rank and log.command != "supervisor"]
    log = next((x for x in ours if death and x.command == death.command), ours[-1] if ours else None)
    lines = log.last(LAST_LINES) if log else ()
    why = str(error) if isinstance(error, LlmgwError) else f"{type(error).__name__}: {error}"
    known = named(Part(x.rank, x.host, x.command, x.text, _ended(x, death)) for x in rolled_back.logs)
    return "\n".join((plain(why), *(f"  {line}" for line in lines), *(f"! {found}" for found in known)))


def _ended(log: CommandLog, death: Death | None) -> float | None:
    """The rank whose death was seen first is where the cause is looked for."""
    return 1.0 if death and (death.prepared.rank, death.prepared.host.name) == (log.rank, log.host) else None
