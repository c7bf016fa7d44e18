"""Hosts that are folders on this machine: the real scripts run in them with sh, without SSH. A seam for tests."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from llmgwctl.engines.base import Command, Engine, Stop, Wait
from llmgwctl.launch.prepare import Launch, Prepared, prepare
from llmgwctl.model.errors import Unreachable
from llmgwctl.model.host import Host
from llmgwctl.model.launch import Operator
from llmgwctl.model.life import HostLife, ShardRecord
from llmgwctl.model.plan import ReplicaPlan, ShardPlan, Tier
from llmgwctl.model.profile import Profile
from llmgwctl.probe.base import Output, Section
from llmgwctl.probe.life import PROBE
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
    return [
        "timeout",
        "-k",
        "5",
        "120",
        SHELL,
        "-c",
        BOOT,
        "llmgwctl",
        str(len(text)),
        *script.args,
    ], text + script.stdin


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
        words = (SHELL, "-c", section.body(), section.name, host.root_prefix, host.state_dir)
        return await _exec(["timeout", "60", *words], b"")

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
    try:
        out, err = await process.communicate(data)
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)  # `timeout` leads a group of its own; supervisors are not in it
        await process.wait()
        raise
    return Output(out.decode(errors="replace"), err.decode(errors="replace"), process.returncode)


# --- replicas on such hosts -----------------------------------------------------------------------------------------


def engine(*commands: Command, stop: Stop | None = None, files: dict[str, str] | None = None) -> Engine:
    """An engine that runs these commands on every rank."""
    return Engine(
        name="fake",
        validate=lambda profile, gpus: (),
        commands=lambda ctx: commands,
        ports=lambda profile: (),
        env=lambda ctx: (),
        serves_http=lambda rank: rank == 0,
        files=lambda ctx: files or {},
        stop=stop or Stop(),
        uses_nccl=False,
        needs_build=False,
    )


def replica_plan(
    hosts: Sequence[Host], replica: str, gpus: int = 1, tier: Tier = "tcp", http: int = 18000
) -> ReplicaPlan:
    """One shard a host, with invented GPUs; addresses are 127.0.0.2, 127.0.0.3 ..."""
    shards = tuple(
        ShardPlan(
            rank=i,
            host=h.name,
            gpus=tuple(range(gpus)),
            gpu_uuids=tuple(f"GPU-{h.name}-{n}" for n in range(gpus)),
            hcas=(),
            interface="eth0",
            address=f"127.0.0.{i + 2}",
        )
        for i, h in enumerate(hosts)
    )
    kind: Tier = "single-host" if len(shards) == 1 else tier
    return ReplicaPlan(replica, "p", "fake", kind, "", shards, (("http", http), ("peer", http + 1)))


def prepared(
    hosts: Sequence[Host],
    *commands: Command,
    replica: str = "p-0",
    profile: Profile | None = None,
    using: Engine | None = None,
    operator: str = "ann",
    **kwargs: Any,
) -> tuple[Prepared, ...]:
    """A replica of these commands, ready to start, with a launch of its own."""
    launch = Launch(f"t-{uuid4().hex[:12]}", "2026-12-01T06:00:00Z", Operator(operator, "desk"))
    p = profile or Profile("p", "fake", nodes=len(hosts), stop_grace_s=5)
    extra = {k: kwargs.pop(k) for k in ("builds", "api_key", "log_bytes") if k in kwargs}
    plan = replica_plan(hosts, replica, **kwargs)
    return prepare(plan, p, using or engine(*commands), {h.name: h for h in hosts}, launch, **extra)


def claim_words(p: Prepared) -> tuple[str, ...]:
    who = p.launch.operator
    return (p.replica, str(p.rank), p.launch.id, who.name, who.workstation, p.launch.created_at, *p.keys)


def words(p: Prepared) -> tuple[str, ...]:
    return (p.replica, str(p.rank), p.launch.id)


def claim_and_start(p: Prepared, env: dict[str, str] | None = None) -> Output:
    claimed = run_script(p.host, "claims.sh", "claim", *claim_words(p))
    assert claimed.exit_code == 0, claimed
    return run_script(p.host, "shard.sh", "start", *words(p), *p.keys, stdin=p.payload, env=env)


def directory(p: Prepared) -> Path:
    return Path(p.host.state_dir, p.host.name, f"{p.replica}.r{p.rank}")


def life(host: Host) -> HostLife:
    """What the probe reads of a host."""
    section = PROBE.sections[0]
    argv = [SHELL, "-c", section.body(), section.name, host.root_prefix, host.state_dir]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    reading = PROBE.read({"life": Output(done.stdout, done.stderr, done.returncode)})
    assert isinstance(reading.value, HostLife), reading
    return reading.value


def started(host: Host, *commands: Command, env: dict[str, str] | None = None, **kwargs: Any) -> Prepared:
    p = prepared([host], *commands, **kwargs)[0]
    said = claim_and_start(p, env)
    assert said.exit_code == 0, said
    return p


def status(p: Prepared, wait: int = 0) -> Output:
    return run_script(p.host, "shard.sh", "status", *words(p), str(wait))


def stop(p: Prepared, signal: str = "TERM", grace: int = 5) -> Output:
    return run_script(p.host, "shard.sh", "stop", *words(p), signal, str(grace))


def clean(p: Prepared) -> Output:
    return run_script(p.host, "shard.sh", "clean", *words(p))


def ended(p: Prepared) -> dict[str, str]:
    """What the shard recorded of its end; waits for it."""
    path = directory(p) / "exit"
    until(path.exists)
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


def record(host: Host) -> ShardRecord:
    (found,) = life(host).shards
    return found


def environ(pid: int) -> dict[str, str]:
    return dict(x.split("=", 1) for x in Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0") if "=" in x)


def sh(name: str, text: str, *waits: Wait) -> Command:
    return Command(name, ("sh", "-c", text), waits=waits)


def until(what: Callable[[], object], limit_s: float = 10) -> None:
    """Wait for something to become true."""
    deadline = time.monotonic() + limit_s
    while not what():
        assert time.monotonic() < deadline, "it did not become true"
        time.sleep(0.02)


def of_tree(base: Path) -> list[int]:
    """Processes that belong to hosts below a folder: by their environment or their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                said = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
                if f"{base}/".encode() in said and (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
                    found.append(int(entry.name))
    return found


def kill_tree(base: Path) -> None:
    for _ in range(20):
        left = of_tree(base)
        if not left:
            return
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, 9)
        time.sleep(0.05)
