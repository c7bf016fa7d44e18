"""A simulated host's SSH: a real server on its own loopback address that really runs what it is asked to."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from functools import partial
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path

import asyncssh

from llmgwctl.model.fact import fact
from llmgwctl.rack.execution import Execution
from llmgwctl.rack.machine import Machine

USER = "ops"
_BACKLOG = 128
_GARBAGE = b"\x00\xffMOTD\r\n*** this is not the output that you expect ***\r\n\x1b[2J" * 20
_NO_SSH = b"HTTP/1.1 400 Bad Request\r\nServer: appliance\r\nContent-Length: 0\r\n\r\n" * 4


@fact
class Keys:
    """What the servers need: the client's public key, a host key for each host, and a wrong one for `other-key`."""

    client: asyncssh.SSHKey
    hosts: dict[str, asyncssh.SSHKey]
    wrong: asyncssh.SSHKey


class HostServer:
    """One host: its listening socket, the connections that it has, and how it behaves now."""

    def __init__(self, machine: Machine, port: int, tree: Path, keys: Keys) -> None:
        self.machine = machine
        self.port = port
        self.tree = tree
        self._keys = keys
        self._listener: socket.socket | None = None
        self._kept: list[socket.socket] = []  # sockets that must stay open and silent
        self._connections: set[asyncssh.SSHServerConnection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._options: dict[str, asyncssh.SSHServerConnectionOptions] = {}

    @property
    def behaviour(self) -> str:
        return self.machine.ssh if self.machine.powered else "dead"

    def open(self) -> None:
        """Listen as the behaviour asks for; what was open before is closed."""
        self.close()
        if self.behaviour == "refused":
            return
        self._listener = _listening(self.machine.address, self.port, 0 if self.behaviour == "dead" else _BACKLOG)
        if self.behaviour == "dead":
            self._kept = _fill(self._listener)
        else:
            asyncio.get_running_loop().add_reader(self._listener, self._accept, self._listener)

    def become(self, machine: Machine) -> None:
        """Take over a changed machine. Losing or regaining the network also ends what is connected."""
        before, self.machine = self.behaviour, machine
        if before != self.behaviour:
            self.open()

    def close(self) -> None:
        """Stop listening and cut every connection, without a word to the other side."""
        if self._listener:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        for connection in tuple(self._connections):
            connection.abort()
        for sock in self._kept:
            sock.close()
        self._kept = []

    def _accept(self, listener: socket.socket) -> None:
        try:
            sock, _ = listener.accept()
        except OSError:
            return
        sock.setblocking(False)
        if self.behaviour == "silent":
            self._kept.append(sock)
        elif self.behaviour == "banner":
            with contextlib.suppress(OSError):
                sock.send(_NO_SSH)
            sock.close()
        else:
            task = asyncio.get_running_loop().create_task(self._serve(sock))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, sock: socket.socket) -> None:
        with contextlib.suppress(asyncssh.Error, OSError, TimeoutError):
            await asyncssh.run_server(sock, options=self._ssh_options())

    def _ssh_options(self) -> asyncssh.SSHServerConnectionOptions:
        kind = "wrong" if self.behaviour == "other-key" else "own"
        if kind not in self._options:
            key = self._keys.wrong if kind == "wrong" else self._keys.hosts[self.machine.name]
            self._options[kind] = asyncssh.SSHServerConnectionOptions(
                server_factory=partial(_Session, self, self._connections, self._keys.client),
                server_host_keys=[key],
                encoding=None,
                password_auth=False,
                kbdint_auth=False,
                gss_host=None,
                server_version="OpenSSH_simulated",
                compression_algs=None,
            )
        return self._options[kind]

    def execution(self, peer: tuple[str, int], own: tuple[str, int]) -> Execution:
        """What a non-interactive exec of OpenSSH has, with this host's home and programs."""
        environment = {
            "HOME": f"{self.tree}/home/{USER}",
            "PATH": f"{self.tree}/usr/bin:/usr/bin:/bin",
            "USER": USER,
            "LOGNAME": USER,
            "SHELL": "/bin/sh",
            "SSH_CLIENT": f"{peer[0]} {peer[1]} {own[1]}",
            "SSH_CONNECTION": f"{peer[0]} {peer[1]} {own[0]} {own[1]}",
        }
        return Execution(environment, self.tree / "home" / USER, _GARBAGE if self.behaviour == "garbage" else None)


class _Session(asyncssh.SSHServer):
    """Authentication with the one key, and forwarding to loopback addresses alone."""

    def __init__(self, host: HostServer, connections: set[asyncssh.SSHServerConnection], key: asyncssh.SSHKey) -> None:
        self._host = host
        self._connections = connections
        self._key = key
        self._connection: asyncssh.SSHServerConnection | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._connections.add(conn)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._connection:
            self._connections.discard(self._connection)

    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return self._host.behaviour != "denied" and username == USER and key == self._key

    def session_requested(self) -> tuple[asyncssh.SSHServerChannel[bytes], Execution] | bool:
        if self._connection is None:
            return False
        peer, own = (self._connection.get_extra_info(name) for name in ("peername", "sockname"))
        return self._connection.create_server_channel(encoding=None), self._host.execution(peer, own)

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        if self._host.behaviour == "no-forwarding" or not _loopback(dest_host):
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, "administratively prohibited")
        return True


def _loopback(host: str) -> bool:
    try:
        return host == "localhost" or IPv4Address(host).is_loopback
    except AddressValueError:
        return False


def _listening(address: str, port: int, backlog: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((address, port))
        sock.listen(backlog)
    except OSError:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


def _fill(listener: socket.socket) -> list[socket.socket]:
    """Make the address unanswering: with its queue of connections full, the kernel drops every further attempt."""
    waiting = []
    for _ in range(4):
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            sock.connect(listener.getsockname())
        waiting.append(sock)
    return waiting


def generate_key() -> asyncssh.SSHKey:
    return asyncssh.generate_private_key("ssh-ed25519")


def client_key(directory: Path) -> asyncssh.SSHKey:
    """The key pair of the one client, made once for a directory."""
    path = directory / "id_ed25519"
    if not path.exists():
        key = generate_key()
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as f:
            f.write(key.export_private_key())
        path.with_suffix(".pub").write_bytes(key.export_public_key())
    return asyncssh.read_private_key(path)
