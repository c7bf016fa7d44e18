"""TCP connections that are begun while the SSH library is still being loaded: sshd greets in the meantime."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice

from llmgwctl.model.errors import LlmgwError
from llmgwctl.model.host import Host
from llmgwctl.transport.settings import SshSettings
from llmgwctl.transport.target import Resolver, Target

_ON_ITS_WAY = (0, errno.EINPROGRESS)


class Early:
    """Sockets that are not waited for, by where they lead. Whoever logs in there takes one; the rest must be closed.

    Only hosts that are reached directly, by a literal address; as many as may log in at once. What goes wrong here is
    nobody's trouble: who takes no socket dials, and who takes a bad one hears why from it.
    """

    def __init__(self, settings: SshSettings) -> None:
        self.resolver = Resolver(settings)
        self._most = settings.handshakes
        self._begun: dict[tuple[str, int], socket.socket] = {}

    def begin(self, hosts: Iterable[Host]) -> None:
        for target in self._direct(islice(hosts, self._most)):
            where = target.address, target.port
            with suppress(OSError):
                if where not in self._begun and (sock := _begun(where)) is not None:
                    self._begun[where] = sock

    def take(self, target: Target) -> socket.socket | None:
        return self._begun.pop((target.address, target.port), None)

    def close(self) -> None:
        while self._begun:
            self._begun.popitem()[1].close()

    def _direct(self, hosts: Iterable[Host]) -> Iterator[Target]:
        """Where ssh itself has to be asked about a host, that takes longer than it saves."""
        with suppress(LlmgwError):  # it is said of each host when it is its turn
            if self.resolver.config.needs_referee:
                return
            for target in map(self.resolver.target, hosts):
                if target.jump is None and not target.proxy_command:
                    yield target


def _begun(where: tuple[str, int]) -> socket.socket | None:
    """None: there is no way, or it is a name, which would have to be looked up first."""
    try:
        version = ipaddress.ip_address(where[0]).version
    except ValueError:
        return None
    sock = socket.socket(socket.AF_INET if version == 4 else socket.AF_INET6, socket.SOCK_STREAM)
    sock.setblocking(False)
    if sock.connect_ex(where) in _ON_ITS_WAY:
        return sock
    sock.close()
    return None
