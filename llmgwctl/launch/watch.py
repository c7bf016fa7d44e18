"""Watching one shard until something of it ends: a death is reported at once, a lost link is no death."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from llmgwctl.launch.prepare import Prepared
from llmgwctl.launch.remote import GONE, call, plain
from llmgwctl.model.errors import ContactLost, Unreachable
from llmgwctl.transport.base import Transport

POLL_S = 10  # the host answers sooner when something ends
RETRY_S = 2.0


@dataclass(frozen=True, slots=True)
class Death:
    """What ended first in a shard. `code` None: not recorded."""

    prepared: Prepared
    command: str
    code: int | None
    why: str = ""

    def __str__(self) -> str:
        p = self.prepared
        how = self.why or f"{self.command} exited with code {self.code}"
        return f"{p.replica} rank {p.rank} on {p.host.name}: {how}"


async def until_death(p: Prepared, transport: Transport, contact_s: float) -> Death:
    """Returns when the shard has ended. ContactLost after contact_s without any answer from its host."""
    heard = time.monotonic()
    while True:
        try:
            death = await _ask(p, transport)
        except Unreachable as e:
            if time.monotonic() - heard > contact_s:
                silent = f"{p.host.name}: no contact for {contact_s:.0f} s ({e})"
                raise ContactLost(silent) from e
            await asyncio.sleep(RETRY_S)
            continue
        heard = time.monotonic()
        if death is not None:
            return death


async def _ask(p: Prepared, transport: Transport) -> Death | None:
    args = ("status", p.replica, str(p.rank), p.launch.id, str(POLL_S))
    said = await call(transport, p.host, "shard.sh", *args, limit_s=POLL_S + 20.0, allowed=(GONE,))
    if said.exit_code == GONE:
        return Death(p, "", None, "its directory is gone: somebody stopped it")
    lines = said.stdout.split("\n")
    if "stopping" in lines:
        return Death(p, "", None, "somebody is stopping it")
    told = dict(line[5:].split("=", 1) for line in lines if line.startswith("exit ") and "=" in line)
    if told:
        code = told.get("code", "")
        return Death(p, plain(told.get("name", "?")), int(code) if code.isdigit() else None)
    if "supervisor gone" in lines:
        return Death(p, "", None, "its supervisor was killed")
    return None
