"""Bringing up a prepared replica: claim, start, wait, verify, record; and undoing it when it will not serve."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from llmgwctl.launch.claim import Holder, claim
from llmgwctl.launch.logs import CommandLog, fetch_logs, save_logs
from llmgwctl.launch.prepare import Prepared
from llmgwctl.launch.remote import call
from llmgwctl.launch.start import start
from llmgwctl.launch.stop import Stopped, Target, stop_replica
from llmgwctl.launch.verify import verify_transport
from llmgwctl.launch.wait import Failed, Served, wait_ready
from llmgwctl.model.errors import ContactLost, LlmgwError, ShardFailed, Unreachable
from llmgwctl.transport.base import Transport

LAST_LINES = 20
LOGS_S = 90.0
Say = Callable[[str], None]


class PlanChanged(LlmgwError):
    """The chosen hosts are not what the plan was made for any more; nothing was started, and a new plan is needed."""


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Placed:
    """It serves (or, without waiting, was started)."""

    endpoint: str
    transport: str = ""
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
    timeout_s: float = 1800
    contact_s: float = 60
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
                said = tuple(log for log in await fetch_logs(self.targets, self.transport) if log.text.strip())
            if said:
                save_logs(said, self.folder)
        except Exception as e:
            self.say(f"the last words could not be saved: {type(e).__name__}: {e}")
            return said, None
        return said, self.folder if said else None

    async def _undone(self, error: Exception) -> PlaceFailed:
        rolled_back = await self.undo()
        return PlaceFailed(_with_last_words(error, rolled_back), rolled_back)

    async def _transport_used(self) -> str:
        return await verify_transport(self.targets, self.transport) if len(self.prepared) > 1 else ""

    async def _record(self, served: Served, used: str) -> None:
        leader = self.prepared[0]
        told = {"endpoint": served.endpoint, "transport": used, "proved": served.proved, "why": served.why}
        words = (leader.replica, str(leader.rank), leader.launch.id)
        await call(self.transport, leader.host, "shard.sh", "ready", *words, stdin=json.dumps(told).encode() + b"\n")


def _with_last_words(error: Exception, rolled_back: RolledBack) -> str:
    """The failure, and the last lines of the command that died (of the leader when none did)."""
    death = error.death if isinstance(error, Failed) else None
    rank = death.prepared.rank if death else 0
    ours = [log for log in rolled_back.logs if log.rank == rank and log.command != "supervisor"]
    log = next((x for x in ours if death and x.command == death.command), ours[-1] if ours else None)
    lines = log.last(LAST_LINES) if log else ()
    why = str(error) if isinstance(error, LlmgwError) else f"{type(error).__name__}: {error}"
    return "\n".join((why, *(f"  {line}" for line in lines)))
