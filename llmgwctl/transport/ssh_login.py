"""One SSH connection: TCP and login with a limit each, and one retry for a handshake that the server let go."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import random
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import asyncssh

from llmgwctl.model.errors import Unreachable
from llmgwctl.transport import ssh_errors
from llmgwctl.transport.early import Early
from llmgwctl.transport.known_hosts import KnownHosts, append
from llmgwctl.transport.limits import Turns
from llmgwctl.transport.settings import SshSettings
from llmgwctl.transport.ssh_fast import Connection, Open, Own, Shared, opener
from llmgwctl.transport.ssh_hostkeys import Approach, HostKeyCheck, first_approach, next_approach
from llmgwctl.transport.ssh_keys import KeyRing, Keys
from llmgwctl.transport.target import Target

_MAX_ADDRESSES = 4
_MAX_APPROACHES = 4


@dataclass(slots=True)
class _Tunnel:
    """A jump connection as asyncssh wants it, with the limit of a TCP connection on what it opens."""

    jump: Connection
    limit_s: float

    async def create_connection(self, factory: object, host: str, port: int) -> object:
        try:
            async with asyncio.timeout(self.limit_s):
                return await self.jump.create_connection(factory, host, port)  # type: ignore[arg-type]
        except TimeoutError:
            why = f"{host}:{port}: no answer to the jump host within {self.limit_s:g} s"
            raise Unreachable(why, "connect-timeout") from None


class _Dropped(Exception):
    """The server let go before the login began: worth one more try."""


class Login:
    """What logging in needs, the same for all hosts of a run: limits, keys, and one index for each set of files."""

    def __init__(self, settings: SshSettings, early: Early) -> None:
        self.settings = settings
        self.early = early
        self.keys = Keys()
        self._open: Open = opener()
        self._turns = Turns(settings.handshakes)
        self._indexes: dict[tuple[str, ...], KnownHosts] = {}

    def known_hosts(self, files: tuple[str, ...]) -> KnownHosts:
        try:
            if files not in self._indexes:
                self._indexes[files] = KnownHosts.read(files)
        except OSError as e:
            raise Unreachable(f"{e.filename}: known_hosts cannot be read: {e.strerror}", "known-hosts-failed") from None
        return self._indexes[files]

    async def connect(self, target: Target, jump: Connection | None) -> tuple[Connection, float]:
        """A connection that is logged in, and the seconds that it took without waiting for a turn.

        Raises Unreachable with one named end state.
        """
        ring = await self._ring(target)
        known = self.known_hosts(target.known_hosts)
        accept_new = self.settings.host_key_policy == "accept-new" and bool(target.known_hosts)
        approach = first_approach(target, known)
        spent_s = 0.0
        for _ in range(_MAX_APPROACHES):
            check = HostKeyCheck(target, known, accept_new=accept_new)
            try:
                conn = await self._patiently(check, approach, ring, jump)
            except asyncssh.HostKeyNotVerifiable as e:
                further = next_approach(approach, check, e.reason)
                if further is None:
                    raise ssh_errors.host_key_refused(check, e.reason) from None
                approach = further
                spent_s += check.spent_s
            else:
                check.conn = None  # each would keep the other in memory
                return self._learned(check, conn), spent_s + check.spent_s
        raise ssh_errors.host_key_refused(check, "no key that is known")

    async def _ring(self, target: Target) -> KeyRing:
        ring = await self.keys.ring(target.identities)
        if not ring.pairs:
            why = "; ".join(ring.hints) or "no private key is there, and no agent holds one"
            raise Unreachable(f"{target.where}: no key to log in with: {why}", "no-key")
        return ring

    def _learned(self, check: HostKeyCheck, conn: Connection) -> Connection:
        """Only now is a new key written: before the exchange was signed, anybody could have shown it."""
        if check.shown is None or check.verdict == "known":
            return conn  # or vouched for by an authority
        if check.known.judge(check.target.names, check.shown.blob) != "unknown":
            return conn  # another connection has just written it
        file = check.target.known_hosts[0]
        try:
            append(file, check.target.names, check.shown)
        except OSError as e:
            conn.abort()
            why = f"{check.target.where}: its new host key cannot be written to {file}: {e.strerror}"
            raise Unreachable(why, "known-hosts-failed") from None
        check.known.learn(check.target.names, check.shown)
        return conn

    async def _patiently(
        self, check: HostKeyCheck, approach: Approach, ring: KeyRing, jump: Connection | None
    ) -> Connection:
        try:
            return await self._once(check, approach, ring, jump)
        except _Dropped:
            await asyncio.sleep(random.uniform(0.1, 0.5))  # noqa: S311 - so that not all come back at once
        try:
            return await self._once(check, approach, ring, jump)
        except _Dropped as e:
            raise ssh_errors.cannot_log_in(check, e.args[0], ring.hints) from None

    async def _once(
        self, check: HostKeyCheck, approach: Approach, ring: KeyRing, jump: Connection | None
    ) -> Connection:
        if jump is not None or check.target.proxy_command:
            async with self._turns.login(check.target.jump):
                return await self._log_in(check, approach, ring, None, jump)
        async with self._turns.dial():
            with _clocked(check):
                sock = await dial(check.target, self.settings.connect_timeout_s, self.early.take(check.target))
            try:
                async with self._turns.login(None):
                    return await self._log_in(check, approach, ring, sock, None)
            finally:
                if check.conn is None or check.conn.is_closed():
                    sock.close()

    async def _log_in(
        self,
        check: HostKeyCheck,
        approach: Approach,
        ring: KeyRing,
        sock: socket.socket | None,
        jump: Connection | None,
    ) -> Connection:
        shared = Shared(check.target.user, ring, tuple(approach.algorithms), self.settings.login_timeout_s * 2)
        tunnel = _Tunnel(jump, self.settings.connect_timeout_s) if jump is not None else None
        command = check.target.proxy_command
        proxy = ["/bin/sh", "-c", f"exec {command}"] if command else None
        try:
            with _clocked(check):
                async with asyncio.timeout(self.settings.login_timeout_s):  # shorter than asyncssh's, and has a name
                    return await self._open(shared, Own(check, approach.principal, sock, tunnel, proxy))
        except (asyncssh.HostKeyNotVerifiable, Unreachable):
            raise
        except Exception as e:  # whatever a server makes asyncssh stumble over is that server's row
            if ssh_errors.is_drop(e) and not check.authenticating:
                raise _Dropped(e) from None
            raise ssh_errors.cannot_log_in(check, e, ring.hints) from None


@contextmanager
def _clocked(check: HostKeyCheck) -> Iterator[None]:
    began = time.monotonic()
    try:
        yield
    finally:
        check.spent_s += time.monotonic() - began


async def dial(target: Target, limit_s: float, begun: socket.socket | None = None) -> socket.socket:
    """A TCP connection within its limit, to the first address of the name that answers; one that was begun goes on."""
    try:
        async with asyncio.timeout(limit_s):
            return await _first_that_answers(await _addresses(target), begun)
    except TimeoutError:
        raise Unreachable(
            f"{target.where}: no answer to a TCP connection within {limit_s:g} s", "connect-timeout"
        ) from None
    except (OSError, UnicodeError) as e:
        raise ssh_errors.cannot_dial(target, e) from None


_AddressInfo = tuple[socket.AddressFamily, tuple[Any, ...]]


async def _addresses(target: Target) -> list[_AddressInfo]:
    """A literal address needs no resolver, and no thread."""
    try:
        ip = ipaddress.ip_address(target.address)
    except ValueError:
        found = await asyncio.get_running_loop().getaddrinfo(target.address, target.port, type=socket.SOCK_STREAM)
        return [(family, where) for family, _, _, _, where in found[:_MAX_ADDRESSES]]
    return [(socket.AF_INET if ip.version == 4 else socket.AF_INET6, (target.address, target.port))]


async def _first_that_answers(addresses: list[_AddressInfo], begun: socket.socket | None) -> socket.socket:
    failure: OSError | None = None
    for family, where in addresses:
        sock, begun = begun or socket.socket(family, socket.SOCK_STREAM), None
        try:
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, where)
        except OSError as e:
            if e.errno == errno.EISCONN:
                return sock
            sock.close()
            failure = e
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise failure or OSError("the name has no address")
