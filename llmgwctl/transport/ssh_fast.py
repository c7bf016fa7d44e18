"""The way into asyncssh: its public `connect`, or parts that it calls private and that cost a third less for each host.

The quick way prepares options once for all hosts that share them, leaves out what only CBC ciphers need, formats no
log line that nobody reads, and writes once in a turn of the loop. It is taken where the private parts look as they did
in asyncssh 2.24, and nothing else in this program touches them. Keys, host keys and the key exchange are checked by
the same code of asyncssh, with the same options, on both ways.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import logging
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import asyncssh

from llmgwctl.transport.ssh_keys import KeyRing

if TYPE_CHECKING:
    from llmgwctl.transport.ssh_hostkeys import HostKeyCheck

CIPHERS = (  # AES-GCM first: a small packet costs six times less than with ChaCha20
    "aes128-gcm@openssh.com",
    "aes256-gcm@openssh.com",
    "chacha20-poly1305@openssh.com",
    "aes256-ctr",
    "aes128-ctr",
)
# Without the exchanges that rest on SHA-1, on RSA alone or on Kerberos; ML-KEM with X25519 then stands first.
KEX = "-gss-*,*-sha1,rsa*"
_KEEPALIVE_S = 15
_AEAD = frozenset({b"aes128-gcm@openssh.com", b"aes256-gcm@openssh.com", b"chacha20-poly1305@openssh.com"})

Connection = asyncssh.SSHClientConnection


@dataclass(frozen=True, slots=True)
class Shared:
    """What many hosts have in common: with an equal one, the same prepared options serve."""

    user: str
    ring: KeyRing
    algorithms: tuple[str, ...]  # of host keys, in the order in which they are asked for
    login_timeout_s: float

    def options(self) -> dict[str, object]:
        """Every option of weight is said here: nothing is left to a file that asyncssh would read by itself."""
        return {
            "config": None,
            "server_host_key_algs": list(self.algorithms),
            "x509_trusted_certs": None,
            "x509_trusted_cert_paths": [],
            "username": self.user,
            "agent_path": None,
            "agent_forwarding": False,
            "x11_forwarding": False,
            "preferred_auth": "publickey",
            "password_auth": False,
            "kbdint_auth": False,
            "host_based_auth": False,
            "gss_host": None,
            "kex_algs": KEX,
            "encryption_algs": list(CIPHERS),
            "compression_algs": None,
            "connect_timeout": None,
            "login_timeout": self.login_timeout_s,
            "keepalive_interval": _KEEPALIVE_S,
            "encoding": None,
        }


@dataclass(frozen=True, slots=True)
class Own:
    """What one connection has for itself. `check` judges the host's key, on either way."""

    check: HostKeyCheck
    principal: str
    sock: socket.socket | None = None
    tunnel: object = None
    proxy_command: list[str] | None = None

    @property
    def where(self) -> tuple[str, int | tuple[()]]:
        """For asyncssh to go there; nothing for a socket that is there already."""
        target = self.check.target
        return (target.address, target.port) if self.sock is None else ("", ())


Open = Callable[[Shared, Own], Awaitable[Connection]]


async def through_the_front(shared: Shared, own: Own) -> Connection:
    """asyncssh.connect, with all options each time."""
    host, port = own.where
    return await asyncssh.connect(
        host,
        port,
        sock=own.sock,
        tunnel=own.tunnel,
        proxy_command=own.proxy_command,
        client_factory=lambda: own.check,
        known_hosts=own.check.lists,
        host_key_alias=own.principal,
        client_keys=shared.ring.for_one_connection(),
        **shared.options(),
    )


class _Quiet(asyncssh.logging.SSHLogger):
    """Says warnings and errors; the rest is not even put together."""

    def get_child(self, child: str = "", context: str = "") -> _Quiet:
        return self

    def _nothing(self, *_: object, **__: object) -> None:
        return None

    debug1 = debug2 = info = packet = _nothing


_QUIET = _Quiet()


class _Quick(asyncssh.SSHClientConnection):
    """A connection that does less of what costs and nothing less of what protects."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._auth_methods = [b"publickey"]  # the only one that we have: "none" would only ask what else there is
        self._waiting: list[bytes] = []

    @property
    def logger(self) -> asyncssh.logging.SSHLogger:
        return _QUIET

    def log_sent_packet(self, *_: object, **__: object) -> None:
        """Nobody reads it."""

    log_received_packet = log_sent_packet

    def send_packet(self, pkttype: int, *args: bytes, handler: Any = None) -> None:
        """Without the empty packet before each packet: it protects CBC, and an AEAD cipher has no use for it."""
        if pkttype == asyncssh.constants.MSG_IGNORE and self._send_encryption and self._enc_alg_cs in _AEAD:
            return
        super().send_packet(pkttype, *args, handler=handler)

    def _send(self, data: bytes) -> None:
        """What is sent in one turn of the loop goes out in one write."""
        if not self._transport:
            return
        if not self._waiting:
            self._loop.call_soon(self._write, self._transport)
        self._waiting.append(data)

    def _write(self, transport: asyncio.WriteTransport) -> None:
        """Runs before anything that was put off later, such as the end of the transport itself."""
        data, self._waiting = b"".join(self._waiting), []
        try:
            transport.write(data)
        except ConnectionError:
            return  # what reads from the transport hears of it too


@dataclass(slots=True)
class Quickly:
    """Opens connections from options that are prepared once for each distinct Shared."""

    _prepared: dict[Shared, asyncssh.SSHClientConnectionOptions] = field(default_factory=dict)

    async def __call__(self, shared: Shared, own: Own) -> Connection:
        loop = asyncio.get_running_loop()
        options = self._options(shared, own)
        return await asyncssh.connection._connect(
            options, None, loop, 0, own.sock, lambda: _Quick(loop, options, wait="auth"), "Opening SSH connection to"
        )

    def _options(self, shared: Shared, own: Own) -> Any:
        prepared = self._prepared.get(shared)
        if prepared is None:
            prepared = asyncssh.SSHClientConnectionOptions(client_keys=list(shared.ring.pairs), **shared.options())
            self._prepared[shared] = prepared
        options: Any = copy.copy(prepared)
        host, port = own.where
        options.host = options.orig_host = host
        options.port = port or 22
        options.tunnel, options.proxy_command = own.tunnel, own.proxy_command
        options.protocol_factory = lambda: own.check
        options.known_hosts = own.check.lists
        options.host_key_alias = own.principal
        options.client_keys = shared.ring.for_one_connection()
        return options


def as_known() -> bool:
    """Whether asyncssh's private parts are there and take what they took when this was written."""

    def takes(function: object, *names: str) -> bool:
        return callable(function) and tuple(inspect.signature(function).parameters) == names

    conn = asyncssh.SSHClientConnection
    connect = getattr(asyncssh.connection, "_connect", None)
    return (
        takes(connect, "options", "config", "loop", "flags", "sock", "conn_factory", "msg")
        and takes(conn, "loop", "options", "acceptor", "error_handler", "wait")
        and takes(getattr(conn, "send_packet", None), "self", "pkttype", "args", "handler")
        and takes(getattr(conn, "_send", None), "self", "data")
        and isinstance(getattr(conn, "logger", None), property)
    )


def opener() -> Open:
    """The quick way, unless asyncssh has changed inside or somebody reads what it logs."""
    listened_to = logging.getLogger("asyncssh").isEnabledFor(logging.INFO)
    return Quickly() if as_known() and not listened_to else through_the_front


def order_is_kept(conn: Connection) -> bool:
    """Whether nobody on the way could have dropped packets unseen (Terrapin, CVE-2023-48795).

    Strict key exchange sees to it. A server that does not know it is taken with ciphers that the attack does not
    reach: AES-GCM, and AES-CTR with a code over the plain text. A private name that has gone counts as not strict.
    """
    if getattr(conn, "_strict_kex", False):
        return True
    ways = ((conn.get_extra_info(f"{w}_cipher") or "", conn.get_extra_info(f"{w}_mac") or "") for w in ("send", "recv"))
    return all("-gcm" in cipher or ("-ctr" in cipher and "-etm" not in mac) for cipher, mac in ways)


def let_go(conn: Connection) -> None:
    """A connection that is closed, and that nobody will ask again: it refers to itself in these places, and would stay
    in memory until the next look for garbage, with all others of its age."""
    for name in ("_recv_handler", "_owner", "_options"):
        if hasattr(conn, name):
            setattr(conn, name, None)
    extra = getattr(conn, "_extra", None)
    if isinstance(extra, dict):
        extra.clear()


def lines_before_version(conn: Connection | None) -> int:
    """How many lines it sent that are no SSH version. Only for the wording: without the name it is less exact."""
    return int(getattr(conn, "_banner_lines", 0))
