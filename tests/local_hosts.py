"""Hosts that are folders on this machine: the real scripts run in them with sh, without SSH. A seam for tests."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from llmgwctl.model.errors import Unreachable
from llmgwctl.model.host import Host
from llmgwctl.probe.base import Output, Section
from llmgwctl.remote import script_text
from llmgwctl.transport.base import ForwardingRefused, Script

BOOT = 'n=$1; shift; eval "$(head -c "$n")"'
SHELL = os.environ.get("LLMGWCTL_TEST_SHELL", "sh")


def make_host(base: Path, name: str, order: int = 0, uptime_s: int = 5000, boot_id: str = "b-1") -> Host:
    """A tree with what the scripts read of a system, and a home for the account."""
    root = base / name
    for folder in ("proc/sys/kernel/random", "run/lock", "dev/shm", "home", "sys/class/net/lo", "sys/class/net/eth0"):
        (root / folder).mkdir(parents=True)
    (root / "proc/sys/kernel/hostname").write_text(f"{name}\n")
    set_uptime(root, uptime_s)
    set_boot(root, boot_id)
    return Host(name, state_dir=str(root / "home/state"), root_prefix=str(root), order=order)


def set_uptime(root: Path | str, seconds: int) -> None:
    Path(root, "proc/uptime").write_text(f"{seconds}.00 1.00\n")


def set_boot(root: Path | str, boot_id: str) -> None:
    Path(root, "proc/sys/kernel/random/boot_id").write_text(f"{boot_id}\n")


def command(script: Script) -> tuple[list[str], bytes]:
    """What the transport would run, and its standard input."""
    text = script_text(script.name).encode()
    return ["timeout", "-k", "5", "120", SHELL, "-c", BOOT, "llmgwctl", str(len(text)), *script.args], text + script.stdin


def run_script(host: Host, name: str, *args: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> Output:
    argv, data = command(Script(name, (host.root_prefix, host.state_dir, *args), stdin))
    done = subprocess.run(argv, input=data, capture_output=True, check=False, env={**os.environ, **(env or {})})
    return Output(done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"), done.returncode)


class Local:
    """The transport of those folders. `gone`: hosts that do not answer; `no_forwarding`: hosts that do not forward."""

    def __init__(self) -> None:
        self.gone: set[str] = set()
        self.no_forwarding: set[str] = set()
        self.calls: list[tuple[str, str, str]] = []

    def _reach(self, host: Host) -> None:
        if host.name in self.gone:
            raise Unreachable("no answer", "timeout")

    async def read(self, host: Host, sections: Sequence[Section]) -> dict[str, Output]:
        self._reach(host)
        return {s.name: await self._section(host, s) for s in sections if s.script}

    async def _section(self, host: Host, section: Section) -> Output:
        return await _exec([SHELL, "-c", section.body(), section.name, host.root_prefix, host.state_dir], b"")

    async def run(self, host: Host, script: Script, limit_s: float) -> Output:
        self._reach(host)
        self.calls.append((host.name, script.name, script.args[2]))
        argv, data = command(script)
        return await _exec(argv, data)

    async def connect(self, host: Host, address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self._reach(host)
        if host.name in self.no_forwarding:
            raise ForwardingRefused
        return await asyncio.open_connection(address, port)

    async def close(self) -> None:
        return None


async def _exec(argv: list[str], data: bytes) -> Output:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe, stderr=pipe)
    out, err = await process.communicate(data)
    return Output(out.decode(errors="replace"), err.decode(errors="replace"), process.returncode)
