"""The one seam between us and the hosts: real SSH on one side, a saved bundle on the other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from llmgwctl.model.host import Host
from llmgwctl.probe.base import Output, Section


@dataclass(frozen=True, slots=True)
class Script:
    """A .sh file of llmgwctl/remote, its arguments, and bytes for its standard input (where secrets travel)."""

    name: str  # shard.sh
    args: tuple[str, ...] = ()
    stdin: bytes = b""


class Transport(Protocol):
    """Both sides. Each call raises Unreachable with one named end state; nothing else escapes for a sick host."""

    async def read(self, host: Host, sections: Sequence[Section]) -> dict[str, Output]:
        """The answers of a host, by section name: one connection, one exec. Missing sections are never left out."""
        ...

    async def run(self, host: Host, script: Script, limit_s: float) -> Output:
        """Run a remote script. Raises Unreachable, or NotLive on a bundle. exit_code None: the link died."""
        ...

    async def connect(self, host: Host, address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """TCP to address:port as seen from the host. ConnectionRefusedError when nothing listens,
        ForwardingRefused when sshd does not allow it, Unreachable when the host is gone."""
        ...

    async def close(self) -> None: ...


class ForwardingRefused(Exception):
    """sshd does not forward TCP (AllowTcpForwarding no): ask on the host instead."""
