"""Every way in which a host is not reached, as exactly one named end state with a sentence that says what to do."""

from __future__ import annotations

import errno
import shlex
import socket
from collections.abc import Sequence

import asyncssh

from llmgwctl.model.errors import Unreachable
from llmgwctl.transport.known_hosts import HostKey
from llmgwctl.transport.ssh_hostkeys import HostKeyCheck
from llmgwctl.transport.target import Target

_NO_ROUTE = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN})
_SAID_BY_JUMP = (  # OpenSSH sends what connect(2) and the resolver said
    (("refused",), "refused"),
    (("timed out",), "connect-timeout"),
    (("no route", "unreachable"), "no-route"),
    (("name or service", "resol"), "dns-failure"),
)
_LOCAL_LIMIT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.EADDRNOTAVAIL})


def cannot_dial(target: Target, e: OSError | UnicodeError) -> Unreachable:
    """No TCP connection came about (the time limit has its own sentence)."""
    if isinstance(e, socket.gaierror | UnicodeError):
        return Unreachable(f"{target.address}: the name cannot be resolved: {e}", "dns-failure")
    if isinstance(e, ConnectionRefusedError):
        return Unreachable(f"{target.where}: connection refused: no sshd listens there", "refused")
    why = e.strerror or str(e)
    if e.errno in _LOCAL_LIMIT:
        return Unreachable(f"{target.where}: a limit of this machine: {why} (ulimit -n?)", "local-limit")
    if e.errno in _NO_ROUTE:
        return Unreachable(f"{target.where}: {why}", "no-route")
    return Unreachable(f"{target.where}: no connection: {why}", "connect-failed")


def cannot_tunnel(target: Target, e: asyncssh.ChannelOpenError) -> Unreachable:
    """The jump host is there and does not take us further."""
    if e.code == asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED:
        return Unreachable(f"{target.where}: the jump host does not forward: {e.reason}", "jump-refused")
    said = e.reason.lower()
    kind = next((kind for words, kind in _SAID_BY_JUMP if any(w in said for w in words)), "connect-failed")
    return Unreachable(f"{target.where}: the jump host does not get there: {e.reason}", kind)


def cannot_log_in(check: HostKeyCheck, e: Exception, hints: Sequence[str]) -> Unreachable:
    """TCP was there and the login did not succeed, for another reason than the host key."""
    where, spoke = check.target.where, check.spoke_ssh
    if isinstance(e, asyncssh.PermissionDenied) or "too many authentication failures" in str(e).lower():
        untried = "".join(f" (not tried: {h})" for h in hints)
        return Unreachable(
            f"{where}: the server takes none of our keys for user {check.target.user}{untried}", "auth-failed"
        )
    if isinstance(e, asyncssh.ChannelOpenError):
        return cannot_tunnel(check.target, e)
    let_go = is_drop(e) and check.lines_said == 1  # sshd above MaxStartups says so in a line
    if (
        not spoke
        and not let_go
        and (check.lines_said or isinstance(e, asyncssh.ProtocolError | asyncssh.ProtocolNotSupported))
    ):
        return Unreachable(f"{where}: what answers there does not speak SSH 2", "not-ssh")
    if isinstance(e, TimeoutError):
        return Unreachable(f"{where}: connected, and then no login within its limit", "login-timeout")
    if isinstance(e, asyncssh.KeyExchangeFailed):
        return Unreachable(f"{where}: no common ground for a key exchange: {e.reason}", "key-exchange-failed")
    if isinstance(e, asyncssh.ConnectionLost | OSError):
        when = "during the login" if spoke else "before it said anything (MaxStartups?)"
        return Unreachable(f"{where}: the server closed the connection {when}", "closed-early")
    return Unreachable(f"{where}: SSH failed: {e}", "protocol-error")


def host_key_refused(check: HostKeyCheck, reason: str) -> Unreachable:
    """The server is not (known to be) the one that it should be."""
    target, key = check.target, check.shown
    if "revoked" in reason.lower() or check.verdict == "revoked":
        return Unreachable(
            f"{target.where} shows a host key that known_hosts says is REVOKED: do not log in", "host-key-revoked"
        )
    if key is None or check.verdict == "known":
        return Unreachable(
            f"{target.where}: its host certificate is not valid here: {reason}", "host-certificate-invalid"
        )
    shown = f"{target.where} shows the host key {key.kind} {check.fingerprint}"
    if check.verdict == "changed":
        why = (
            f"{shown}, but {_file(target)} knows another one: the host was reinstalled, or somebody is in between. "
            f"Only when that fingerprint is right: {_forget(target)}, then accept the new key"
        )
        return Unreachable(why, "host-key-changed")
    why = f"{shown}, which {_file(target)} does not know. When that fingerprint is right: {_accept(target, key)}"
    return Unreachable(why, "host-key-unknown")


def _file(target: Target) -> str:
    return shlex.quote(target.known_hosts[0]) if target.known_hosts else "~/.ssh/known_hosts"


def _accept(target: Target, key: HostKey) -> str:
    """The command that adds the key: ssh-keyscan where it sees the host as we do, else the very line."""
    if target.jump is None and not target.aliased and not target.proxy_command:
        return f"ssh-keyscan -p {target.port} {shlex.quote(target.address)} >> {_file(target)}"
    return f"echo {shlex.quote(f'{target.names.exact[0]} {key.text}')} >> {_file(target)}"


def _forget(target: Target) -> str:
    return " && ".join(f"ssh-keygen -f {_file(target)} -R {shlex.quote(n)}" for n in target.names.exact)


def is_drop(e: Exception) -> bool:
    """Whether the server let go of us without a word, as sshd does above MaxStartups."""
    return isinstance(e, asyncssh.ConnectionLost | ConnectionResetError | BrokenPipeError)
