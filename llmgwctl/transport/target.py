"""Where a host is and how to get there: inventory first, then ~/.ssh/config, then what OpenSSH would do."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path

from llmgwctl.model.errors import InventoryError
from llmgwctl.model.host import Host
from llmgwctl.transport.known_hosts import Names
from llmgwctl.transport.settings import SshSettings
from llmgwctl.transport.ssh_config import Options, SshConfig, local_user

DEFAULT_IDENTITIES = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")
DEFAULT_KNOWN_HOSTS = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2", "/etc/ssh/ssh_known_hosts")
_MAX_JUMPS = 8
_SHELL_WORD = re.compile(r"[A-Za-z0-9._@:,%+/-]+")
_HOP = re.compile(r"(?:ssh://)?(?:(?P<user>[^@]+)@)?(?:\[(?P<v6>[^]]+)\]|(?P<host>[^:@\s]+))(?::(?P<port>\d{1,5}))?/?")


@dataclass(frozen=True, slots=True)
class Identities:
    """Which keys may be offered. `explicit`: named by somebody, so that one that cannot be used is worth a word."""

    files: tuple[str, ...] = ()
    certificates: tuple[str, ...] = ()
    only_these: bool = False
    explicit: bool = False
    agent: str = ""  # path of its socket


@dataclass(frozen=True, slots=True)
class Target:
    """One SSH server, completely resolved; two hosts with equal targets are one server. `jump`: the way leads there."""

    address: str
    port: int
    user: str
    key_names: tuple[str, ...]  # under which its host key may be known
    aliased: bool = False  # HostKeyAlias: one name, without a port
    identities: Identities = Identities()
    known_hosts: tuple[str, ...] = DEFAULT_KNOWN_HOSTS
    jump: Target | None = None
    proxy_command: str = ""

    @property
    def names(self) -> Names:
        return _names(self.key_names, None if self.aliased else self.port)

    @property
    def where(self) -> str:
        shown = self.address if self.port == 22 else f"{self.address}:{self.port}"
        return f"{shown} (through {self.jump.where})" if self.jump else shown

    @property
    def hop(self) -> str:
        """As a ProxyJump names it."""
        return f"{self.user}@{self.address}:{self.port}"


@lru_cache(maxsize=4096)  # asked for several times in each login
def _names(key_names: tuple[str, ...], port: int | None) -> Names:
    return Names(key_names) if port is None else Names.of(key_names, port)


class Resolver:
    """Turns hosts of the inventory into targets; reads the configuration once."""

    def __init__(self, settings: SshSettings) -> None:
        self.settings = settings

    @cached_property
    def config(self) -> SshConfig:
        own, named = Path("~/.ssh/config").expanduser(), self.settings.config_file
        path = own if named is None else Path(named).expanduser()
        own_file = path.resolve() == own.resolve()
        return SshConfig(path if named or (named is None and path.is_file()) else None, own=own_file)

    def target(self, host: Host) -> Target:
        names = tuple(dict.fromkeys(n for n in (host.name, host.address) if n))
        found = self.config.options(names)
        address = host.address or _first(found, "hostname", "%h").replace("%h", host.name)
        user = host.user or self.settings.user or _first(found, "user", local_user())
        port = host.port or _port(found)
        identity = host.identity_file or self.settings.identity_file
        target = self._target(found, _Tokens(address, host.name, port, user), identity)
        return self._routed(target, found, host.proxy_jump, host.name, 0)

    def _target(self, found: Options, expand: _Tokens, identity: str | None) -> Target:
        alias = _first(found, "hostkeyalias", "")
        if alias and not _SHELL_WORD.fullmatch(alias):
            raise InventoryError(f"ssh_config: HostKeyAlias {alias[:80]!r} is no name")
        return Target(
            address=expand.host,
            port=expand.port,
            user=expand.user,
            key_names=(alias,) if alias else tuple(dict.fromkeys((expand.host, expand.original))),
            aliased=bool(alias),
            identities=_identities(found, identity, expand),
            known_hosts=self._known_hosts(found, expand),
        )

    def _known_hosts(self, found: Options, expand: _Tokens) -> tuple[str, ...]:
        if self.settings.known_hosts:
            return tuple(expand(p) for p in self.settings.known_hosts)
        user = found.get("userknownhostsfile", list(DEFAULT_KNOWN_HOSTS[:2]))
        everyone = found.get("globalknownhostsfile", list(DEFAULT_KNOWN_HOSTS[2:]))
        # "none" means that no file knows anybody; it has never meant that anybody is trusted.
        return tuple(expand(p) for p in user + everyone if p.lower() != "none")

    def _routed(self, target: Target, found: Options, wish: str | None, name: str, depth: int) -> Target:
        """The target with the way to it: the hops that are asked for, or a command that makes the connection."""
        expand = _Tokens(target.address, name, target.port, target.user)
        if wish is None and "proxycommand" in found:
            command = found["proxycommand"][0]
            return target if command.lower() == "none" else replace(target, proxy_command=expand.command(command))
        hops = wish if wish is not None else _first(found, "proxyjump", "")
        if not hops or hops.lower() == "none":
            return target
        jump: Target | None = None
        for hop in expand.plain(hops).split(","):
            jump = self._hop(hop.strip(), jump, depth + 1)
        itself = jump is not None and jump.jump is None and (jump.address, jump.port) == (target.address, target.port)
        return target if itself else replace(target, jump=jump)

    def _hop(self, text: str, before: Target | None, depth: int) -> Target:
        parsed = _HOP.fullmatch(text)
        if parsed is None or depth > _MAX_JUMPS:
            raise InventoryError(f"ProxyJump {text!r}: {'more than eight hops' if parsed else 'not a host'}")
        name = parsed["v6"] or parsed["host"]
        found = self.config.options((name,))
        address = _first(found, "hostname", name).replace("%h", name)
        port = int(parsed["port"] or _port(found))
        user = parsed["user"] or _first(found, "user", self.settings.user or local_user())
        identity = None if found.get("identityfile") else self.settings.identity_file
        target = self._target(found, _Tokens(address, name, port, user), identity)
        if before is not None:
            return replace(target, jump=before)
        if text in _first(found, "proxyjump", "").split(","):
            return target  # `Host *` names the jump host also for itself
        return self._routed(target, found, None, name, depth)


@dataclass(frozen=True, slots=True)
class _Tokens:
    """What OpenSSH puts in for %h and the like."""

    host: str
    original: str
    port: int
    user: str

    def __call__(self, path: str) -> str:
        """In a file name: tokens, ${VARIABLES} and ~."""
        named = re.sub(r"\$\{(\w+)\}", lambda m: os.environ.get(m[1], m[0]), self.plain(path))
        return os.path.expanduser(named)

    def command(self, text: str) -> str:
        """In a line that a shell reads: what comes from an inventory must be nothing to it but a word."""
        for value in (self.host, self.original, self.user):
            if not _SHELL_WORD.fullmatch(value) or value.startswith("-"):
                raise InventoryError(f"{value[:80]!r} is not put into a ProxyCommand: a shell would read more in it")
        return self.plain(text)

    def plain(self, text: str) -> str:
        known = {
            "%": "%",
            "h": self.host,
            "n": self.original,
            "p": str(self.port),
            "r": self.user,
            "u": local_user(),
            "d": os.path.expanduser("~"),
            "i": str(os.getuid()),
        }
        return re.sub(r"%(.)", lambda m: known.get(m[1], m[0]), text)


def _identities(found: Options, named: str | None, expand: _Tokens) -> Identities:
    files = [named] if named else found.get("identityfile", [])
    chosen = [f for f in files if f.lower() != "none"]
    only = bool(named) or _first(found, "identitiesonly", "no").lower() == "yes"
    return Identities(
        files=tuple(expand(f) for f in (chosen or ([] if files else DEFAULT_IDENTITIES))),
        certificates=tuple(expand(f) for f in found.get("certificatefile", []) if f.lower() != "none"),
        only_these=only,
        explicit=bool(chosen),
        agent=_agent(_first(found, "identityagent", "SSH_AUTH_SOCK"), expand),
    )


def _agent(named: str, expand: _Tokens) -> str:
    """IdentityAgent: a path, a variable that holds one, or none."""
    if named.lower() == "none":
        return ""
    if named == "SSH_AUTH_SOCK":
        return os.environ.get(named, "")
    return os.environ.get(named[1:], "") if re.fullmatch(r"\$\w+", named) else expand(named)


def _first(found: Options, keyword: str, default: str) -> str:
    return next(iter(found.get(keyword, ())), default)


def _port(found: Options) -> int:
    text = _first(found, "port", "22")
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 65536:
        raise InventoryError(f"ssh_config: Port {text!r} is not a port")
    return int(text)
