"""Asking a port or an HTTP server as seen from a host: through its SSH connection, else with the host's own means."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field

from llmgwctl.launch.http import BadReply, Reply, compose, exchange
from llmgwctl.launch.remote import GONE, RemoteFailed, call
from llmgwctl.model.fact import fact
from llmgwctl.model.host import Host
from llmgwctl.model.numbers import whole
from llmgwctl.transport.base import ForwardingRefused, Transport


class NotProved(Exception):
    """There is no way to ask from here: neither forwarding nor curl. Nobody can say whether it serves."""


@dataclass
class Asker:
    """Remembers which hosts do not forward, so that each is asked only once for what it refuses."""

    transport: Transport
    refused: set[str] = field(default_factory=set)

    async def accepts(self, host: Host, address: str, port: int, owner: Host | None) -> bool:
        """Whether address:port accepts, from `host`. Without forwarding: whether it is listened on, on its `owner`."""
        if host.name not in self.refused:
            try:
                _, writer = await self.transport.connect(host, address, port)
            except ForwardingRefused:
                self.refused.add(host.name)
            except OSError:
                return False
            else:
                writer.close()
                return True
        if owner is None:
            raise NotProved(f"{host.name} does not forward, and {address} is of no host that could be asked")
        said = await call(self.transport, owner, "ask.sh", "listens", address, str(port))
        return said.stdout.rstrip("\n").split("\n")[-1] == "yes"

    async def http(self, host: Host, url: Url, body: object = None, limit_s: float = 30) -> Reply | None:
        """The answer of a server; None when nothing listens or it says no HTTP."""
        if host.name not in self.refused:
            try:
                streams = await self.transport.connect(host, url.address, url.port)
            except ForwardingRefused:
                self.refused.add(host.name)
            except OSError:
                return None
            else:
                with contextlib.suppress(BadReply, OSError, TimeoutError):
                    return await exchange(streams, url.request(body), limit_s)
                return None
        return await self._curl(host, url, body, limit_s)

    async def _curl(self, host: Host, url: Url, body: object, limit_s: float) -> Reply | None:
        args = ("http", str(url), str(int(limit_s)))
        config = url.curl(body).encode()
        try:
            said = await call(
                self.transport, host, "ask.sh", *args, stdin=config, limit_s=limit_s + 10, allowed=(GONE,)
            )
        except RemoteFailed:
            return None  # curl's own codes: refused, timed out, too long
        if said.exit_code == GONE:
            raise NotProved(f"{host.name} does not forward and has no curl")
        text, _, status = f"\n{said.stdout}".partition("\nanswer\n")[2].rstrip("\n").rpartition("\n")
        code = whole(status, 3)
        return Reply(code, text.encode()) if code else None


@fact
class Url:
    """A path of an engine's server, with the key that it wants."""

    address: str
    port: int
    path: str
    api_key: str = field(default="", repr=False)

    def __str__(self) -> str:
        return f"http://{self.host}{self.path}"

    @property
    def host(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"

    def request(self, body: object) -> bytes:
        headers = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        data = b"" if body is None else json.dumps(body).encode()
        return compose("GET" if body is None else "POST", self.path, self.host, headers, data)

    def curl(self, body: object) -> str:
        """The same as a configuration for curl, in its own quoting."""
        lines = [f'header = "Authorization: Bearer {_quoted(self.api_key)}"'] if self.api_key else []
        if body is not None:
            lines += ['header = "Content-Type: application/json"', f'data-raw = "{_quoted(json.dumps(body))}"']
        return "".join(f"{line}\n" for line in lines)


def _quoted(text: str) -> str:
    if "\n" in text or "\r" in text:
        raise ValueError("a line break in an HTTP header")
    return text.replace("\\", "\\\\").replace('"', '\\"')
