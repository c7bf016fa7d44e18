"""SSH servers for tests: asyncssh inside the test, a real OpenSSH sshd beside it, and servers that misbehave."""

from __future__ import annotations

import asyncio
import getpass
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import asyncssh
import pytest

from llmgwctl.model.host import Host
from llmgwctl.probe.base import Section
from llmgwctl.transport.settings import SshSettings
from llmgwctl.transport.ssh import Ssh

SSHD = "/usr/sbin/sshd"
USER = getpass.getuser()
HELLO = (Section("hello", "sys", 5, argv=("echo", "hello")), Section("bye", "sys", 5, argv=("echo", "bye")))

Handler = Callable[[asyncssh.SSHServerProcess[bytes]], Awaitable[None]]


def need_sshd() -> None:
    """On a machine of ours that is not the test runner an sshd may be missing; there it may not."""
    if not Path(SSHD).exists():
        if os.environ.get("CI"):
            pytest.fail(f"{SSHD} is missing")
        pytest.skip(f"{SSHD} is not here")


async def shell(process: asyncssh.SSHServerProcess[bytes]) -> None:
    """What a host does with a command: its login shell runs it."""
    child = await asyncio.create_subprocess_exec(
        "sh",
        "-c",
        process.command or "",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stdin is not None
    try:
        out, err = await child.communicate(await process.stdin.read())
        process.stdout.write(out)
        process.stderr.write(err)
        process.exit(child.returncode or 0)
    except (asyncio.CancelledError, BrokenPipeError):
        os.killpg(child.pid, signal.SIGKILL)
        raise


@dataclass
class Counts:
    """What a server saw."""

    connections: int = 0
    logins: int = 0
    open: int = 0


@dataclass
class Lab:
    """Keys, a known_hosts file, and whatever was started; everything ends with the test."""

    root: Path
    stack: list[Callable[[], Awaitable[None]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.user_key = self.key("user")
        self.host_key = self.key("host")
        self.known_hosts = self.root / "known_hosts"

    def key(self, name: str, kind: str = "ssh-ed25519", **more) -> Path:
        """A new key pair in a file."""
        key = asyncssh.generate_private_key(kind)
        file = self.root / name
        key.write_private_key(file, **more)
        file.chmod(0o600)
        key.write_public_key(f"{file}.pub")
        return file

    def trust(self, port: int, key: Path | None = None, name: str = "127.0.0.1", marker: str = "") -> None:
        public = Path(f"{key or self.host_key}.pub").read_text().strip()
        with self.known_hosts.open("a") as f:
            f.write(f"{marker} [{name}]:{port} {public}\n".lstrip())

    def ssh(self, **settings) -> Ssh:
        plain = SshSettings(
            user=USER,
            identity_file=str(self.user_key),
            known_hosts=(str(self.known_hosts),),
            config_file="",
            connect_timeout_s=5,
            login_timeout_s=10,
        )
        made = Ssh(replace(plain, **settings))
        self.stack.append(made.close)
        return made

    def host(self, port: int, name: str = "tray", **more) -> Host:
        return Host(name, address="127.0.0.1", port=port, state_dir=str(self.root), **more)

    async def serve(
        self, handler: Handler = shell, host_keys: list[object] | None = None, port: int = 0, **options
    ) -> Server:
        """An asyncssh server that takes the lab's user key, on every address of this machine."""
        counts = Counts()

        class Watch(asyncssh.SSHServer):
            def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
                counts.connections += 1
                counts.open += 1

            def connection_lost(self, exc: Exception | None) -> None:
                counts.open -= 1

            def auth_completed(self) -> None:
                counts.logins += 1

            def connection_requested(self, *_: object) -> bool:
                return True

        accepted = await asyncssh.listen(
            "0.0.0.0",
            port,
            reuse_address=True,
            backlog=1000,
            server_factory=Watch,
            process_factory=handler,
            server_host_keys=host_keys or [str(self.host_key)],
            authorized_client_keys=f"{self.user_key}.pub",
            encoding=None,
            **options,
        )

        async def stop() -> None:
            accepted.close()
            await accepted.wait_closed()

        self.stack.append(stop)
        return Server(accepted.get_port(), counts, stop)

    async def raw(self, talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> int:
        """A server that is no SSH server, or only says so."""

        async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await talk(reader, writer)
            except (ConnectionError, asyncio.CancelledError):
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(guarded, "127.0.0.1", 0)

        async def stop() -> None:
            server.close()

        self.stack.append(stop)
        return int(server.sockets[0].getsockname()[1])

    async def sshd(self, *config: str, host_keys: tuple[Path, ...] = (), address: str = "127.0.0.1") -> int:
        """A real OpenSSH server on a free port, for the account that runs the test."""
        need_sshd()
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        port = free_port()
        authorized = self.root / "authorized_keys"
        authorized.write_text(Path(f"{self.user_key}.pub").read_text())
        lines = (
            f"ListenAddress {address}:{port}",
            *(f"HostKey {k}" for k in host_keys or (self.host_key,)),
            f"AuthorizedKeysFile {authorized}",
            "PidFile none",
            "StrictModes no",
            "UsePAM no",
            "PasswordAuthentication no",
            *config,
        )
        file = self.root / f"sshd_config.{port}"
        file.write_text("\n".join(lines) + "\n")
        with (self.root / f"sshd.{port}.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(SSHD, "-D", "-e", "-f", str(file), stderr=log)

        async def stop() -> None:
            process.terminate()
            await process.wait()

        self.stack.append(stop)
        await _listening(port)
        return port

    async def end(self) -> None:
        for stop in reversed(self.stack):
            await stop()


@dataclass
class Server:
    port: int
    counts: Counts
    end: Callable[[], Awaitable[None]]


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


async def _listening(port: int) -> None:
    for _ in range(200):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return
    raise AssertionError(f"nothing listens at {port}")


def hashed(file: Path) -> None:
    """As HashKnownHosts leaves the file."""
    assert shutil.which("ssh-keygen")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(file)], check=True, capture_output=True)
    Path(f"{file}.old").unlink()
