"""Watching one shard until something of it ends: a death is reported at once, a lost link is no death."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence

from llmgwctl.launch.prepare import Prepared
from llmgwctl.launch.remote import GONE, call, plain
from llmgwctl.model.errors import ContactLost, LlmgwError, Unreachable
from llmgwctl.model.fact import fact
from llmgwctl.model.numbers import real, whole
from llmgwctl.transport.base import Transport

POLL_S = 10  # the host answers sooner when something ends
RETRY_S = 2.0
ASK_S = 5.0


@fact
class Death:
    """What ended first in a shard. `code` None: not recorded. `ago_s`: by its own host's clock, when it was asked."""

    prepared: Prepared
    command: str
    code: int | None
    why: str = ""
    ago_s: float = 0.0

    def __str__(self) -> str:
        p = self.prepared
        how = self.why or f"{self.command} exited with code {self.code}"
        return f"{p.replica} rank {p.rank} on {p.host.name}: {how}"


async def until_death(p: Prepared, transport: Transport, contact_s: float) -> Death:
    """Returns when the shard has ended. ContactLost after contact_s without any answer from its host."""
    heard = time.monotonic()
    while True:
        try:
            death = await look(p, transport, POLL_S)
        except Unreachable as e:
            if time.monotonic() - heard > contact_s:
                silent = f"{p.host.name}: no contact for {contact_s:.0f} s ({e})"
                raise ContactLost(silent) from e
            await asyncio.sleep(RETRY_S)
            continue
        heard = time.monotonic()
        if death is not None:
            return death


async def all_deaths(prepared: Sequence[Prepared], transport: Transport, first: Death) -> tuple[Death, ...]:
    """What else has ended by now, the earliest first: the death that is seen first may be the consequence of another.

    Hosts' clocks are not compared, only how long ago each says that it was.
    """

    async def one(p: Prepared) -> Death | None:
        with contextlib.suppress(LlmgwError, TimeoutError):
            async with asyncio.timeout(ASK_S):
                return await look(p, transport, 0)
        return None

    found = await asyncio.gather(*map(one, prepared))
    deaths = [d for d in found if d is not None] or [first]
    return tuple(sorted(deaths, key=lambda d: -d.ago_s))


async def look(p: Prepared, transport: Transport, wait_s: int) -> Death | None:
    """One question; the host answers when something has ended, or after wait_s."""
    args = ("status", p.replica, str(p.rank), p.launch.id, str(wait_s))
    said = await call(transport, p.host, "shard.sh", *args, limit_s=wait_s + 20.0, allowed=(GONE,))
    if said.exit_code == GONE:
        return Death(p, "", None, "its directory is gone: somebody stopped it")
    lines = said.stdout.split("\n")
    if "stopping" in lines:
        return Death(p, "", None, "somebody is stopping it")
    told = dict(line[5:].split("=", 1) for line in lines if line.startswith("exit ") and "=" in line)
    if told:
        code = told.get("code", "")
        now = next((real(line[6:]) or 0.0 for line in lines if line.startswith("clock ")), 0.0)
        ago = now - (real(told.get("clock", "")) or 0.0)
        return Death(p, plain(told.get("name", "?"))[:100], whole(code, 9), ago_s=ago)
    if "supervisor gone" in lines:
        return Death(p, "", None, "its supervisor was killed")
    return None
