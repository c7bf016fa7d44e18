"""How many hosts at once: what this machine lets a program open, and who may log in now."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from llmgwctl.transport.target import Target

KEPT = 512  # connections that nobody uses at the moment and that may be wanted again
_OURS = 64  # files that are no connection to a host: of Python, of the agent, of jump hosts, of what is written
_JUMP_HANDSHAKES = 10  # through one jump host at a time: as many as a default MaxStartups never drops


@dataclass(frozen=True, slots=True)
class Room:
    """What fits into the limit of open files: hosts at work, and connections that are kept beside them."""

    files: int
    in_flight: int
    kept: int

    @classmethod
    def of(cls, files: int, wanted: int) -> Room:
        left = max(2, files - _OURS)
        kept = min(KEPT, left // 4)
        return cls(files, min(wanted, left - kept), kept)


def make_room(wanted: int) -> Room:
    """Raises the limit of open files as far as is needed and allowed: 1024 is usual, and far less than the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = wanted + KEPT + _OURS
    if soft != resource.RLIM_INFINITY and soft < enough:
        soft = enough if hard == resource.RLIM_INFINITY else min(enough, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return Room.of(enough if soft == resource.RLIM_INFINITY else soft, wanted)


class Held:
    """Bytes of answers that are in memory now. What one host may send is much; all of them together may not send that.

    Where there is too much, hosts give up their answer that hold more than `fair`, which no sound answer does.
    """

    def __init__(self, limit: int, fair: int) -> None:
        self._limit, self._fair, self._now = limit, fair, 0

    def takes(self, more: int, of_host: int) -> bool:
        """Whether there is room for more bytes of a host that has `of_host` already; then they are counted."""
        if self._now + more > self._limit and of_host + more > self._fair:
            return False
        self._now += more
        return True

    def gives_back(self, count: int) -> None:
        self._now -= count


class Turns:
    """Who may log in now. A name that is dialled and does not answer keeps nobody from a login."""

    def __init__(self, handshakes: int) -> None:
        self._dials = asyncio.Semaphore(4 * handshakes)
        self._logins = asyncio.Semaphore(handshakes)
        self._behind: dict[Target, asyncio.Semaphore] = {}

    def dial(self) -> asyncio.Semaphore:
        return self._dials

    @asynccontextmanager
    async def login(self, jump: Target | None) -> AsyncIterator[None]:
        """First the narrow gate: who waits at the one of his jump host holds up nobody else."""
        if jump is None:
            async with self._logins:
                yield
        else:
            async with self._behind.setdefault(jump, asyncio.Semaphore(_JUMP_HANDSHAKES)), self._logins:
                yield
