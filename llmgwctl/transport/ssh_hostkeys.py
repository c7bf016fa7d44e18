"""Host keys: asked for in the order in which we know them, and judged by us and never by nobody."""

from __future__ import annotations

from dataclasses import dataclass, replace

import asyncssh

from llmgwctl.transport.known_hosts import HostKey, KnownHosts, Verdict
from llmgwctl.transport.ssh_fast import lines_before_version, order_is_kept
from llmgwctl.transport.target import Target

_PLAIN = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
)
_SIGNATURES = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}


@dataclass(frozen=True, slots=True)
class Approach:
    """How a server is asked for its key: whose name a certificate must bear, and which types of key come first."""

    principal: str
    certificates: bool
    kinds: tuple[str, ...]

    @property
    def algorithms(self) -> list[str]:
        """All types that we take, the known ones first: a server that has such a key then shows that one."""
        known = {a for k in self.kinds for a in _SIGNATURES.get(k, (k,))}
        plain = sorted(_PLAIN, key=lambda a: a not in known)  # stable
        return [f"{a}-cert-v01@openssh.com" for a in _PLAIN] + plain if self.certificates else plain


def first_approach(target: Target, known: KnownHosts) -> Approach:
    return Approach(target.key_names[0], bool(known.authorities(target.names)), known.kinds(target.names))


def next_approach(last: Approach, check: HostKeyCheck, reason: str) -> Approach | None:
    """Another way to ask, when what was shown may only have been the wrong one of several good keys."""
    names = check.target.key_names
    if "principal mismatch" in reason and last.principal != names[-1]:
        return replace(last, principal=names[names.index(last.principal) + 1])
    if "CA key is not trusted" in reason and last.certificates:
        return replace(last, certificates=False)
    if check.verdict == "changed":  # a hashed file does not say beforehand which types it knows of a host
        kinds = check.known.kinds(check.target.names, thorough=True)
        if kinds != last.kinds:
            return replace(last, kinds=kinds)
    return None


class HostKeyCheck(asyncssh.SSHClient):
    """Answers asyncssh's questions about one server's key, and remembers what was shown and how far the login came."""

    def __init__(self, target: Target, known: KnownHosts, *, accept_new: bool) -> None:
        self.target = target
        self.known = known
        self.accept_new = accept_new
        self.conn: asyncssh.SSHClientConnection | None = None
        self.shown: HostKey | None = None
        self.fingerprint = ""
        self.verdict: Verdict = "known"
        self.authenticating = False
        self.spent_s = 0.0  # on the wire, without waiting for a turn

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        self.conn = conn

    def begin_auth(self, username: str) -> None:
        """The exchange is over, and nothing of ours has been said: the last moment to see that it was a good one."""
        self.authenticating = True
        if self.conn is not None and not order_is_kept(self.conn):
            cipher = self.conn.get_extra_info("recv_cipher")
            why = f"it offers {cipher} without strict key exchange (CVE-2023-48795): update its sshd, or offer AES-GCM"
            raise asyncssh.KeyExchangeFailed(why)

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.shown = HostKey(key.algorithm.decode(), key.public_data)
        self.fingerprint = key.get_fingerprint()
        self.verdict = self.known.judge(self.target.names, key.public_data)
        return self.verdict == "known" or (self.verdict == "unknown" and self.accept_new)

    def validate_host_ca_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        return any(a.blob == key.public_data for a in self.known.authorities(self.target.names))

    def lists(self, host: str, addr: str, port: int | None) -> tuple[list[str], list[str], list[asyncssh.SSHKey]]:
        """What asyncssh takes as known_hosts: nothing that it trusts by itself, and what it must refuse."""
        return [], [], [k for k in map(_imported, self.known.revoked(self.target.names)) if k is not None]

    @property
    def spoke_ssh(self) -> bool:
        return self.conn is not None and bool(self.conn.get_extra_info("server_version"))

    @property
    def lines_said(self) -> int:
        """Before it said that it speaks SSH."""
        return lines_before_version(self.conn)


def _imported(key: HostKey) -> asyncssh.SSHKey | None:
    try:
        return asyncssh.import_public_key(key.text)
    except asyncssh.KeyImportError:
        return None  # of a type that asyncssh does not speak, so no server can show it to us
