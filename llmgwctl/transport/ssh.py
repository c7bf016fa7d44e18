"""Real SSH: one connection a host kept open for the whole run, one exec a read, every wait with a limit."""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import cast

import asyncssh

from llmgwctl.model.errors import LlmgwError, Unreachable
from llmgwctl.model.host import Host
from llmgwctl.probe.base import Output, Section
from llmgwctl.transport import frames
from llmgwctl.transport.base import ForwardingRefused, Script
from llmgwctl.transport.command import KILL_AFTER_S, boot, script_bytes
from llmgwctl.transport.early import Early
from llmgwctl.transport.limits import Held, make_room
from llmgwctl.transport.packed import unpack
from llmgwctl.transport.settings import SshSettings
from llmgwctl.transport.ssh_exec import Finished, execute
from llmgwctl.transport.ssh_fast import Connection, let_go
from llmgwctl.transport.ssh_login import Login
from llmgwctl.transport.target import Target

# OpenSSH's MaxSessions is 10 a connection; forwarded TCP connections do not count.
_SESSIONS = 8
_WAY_BACK_S = 3
# From the framer's own end of time to ours: a section that had to be killed, and the way back.
_MARGIN_S = KILL_AFTER_S + _WAY_BACK_S
# Of all hosts together, at one time; and of one host where that is not enough.
_ALL_ANSWERS = 512 * 2**20
_FAIR_ANSWER = 2**20


@dataclass(slots=True)
class _Link:
    """The connection to one server. The task outlives whoever asked first, since others may wait for it too."""

    task: asyncio.Task[Connection] | None = None
    connect_s: float = 0.0  # what TCP and login took; waiting for a turn is not counted
    packs: bool = False  # answers come packed on it
    users: int = 0
    pinned: bool = False  # others go through it, or streams that outlive who opened them
    sessions: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_SESSIONS))

    @property
    def usable(self) -> bool:
        """Open, or on its way."""
        if self.task is None or not self.task.done():
            return self.task is not None
        return self.opened is not None

    @property
    def opened(self) -> Connection | None:
        if self.task is None or not self.task.done() or self.task.cancelled() or self.task.exception() is not None:
            return None
        return None if self.task.result().is_closed() else self.task.result()


class Ssh:
    """The live side of the seam. Must be closed; its connections and their tasks end with it."""

    def __init__(self, settings: SshSettings, early: Early | None = None) -> None:
        """`early`: connections that were begun before this module was loaded."""
        self._settings = settings
        self._early = early or Early(settings)
        self._resolver = self._early.resolver
        self._login = Login(settings, self._early)
        self._links: dict[Target, _Link] = {}
        self.room = make_room(settings.in_flight)
        self._in_flight = asyncio.Semaphore(self.room.in_flight)
        self._held = Held(_ALL_ANSWERS, _FAIR_ANSWER)
        self._idle: dict[Target, _Link] = {}  # the longest unused first
        self._closing: set[asyncio.Task[None]] = set()

    async def read(self, host: Host, sections: Sequence[Section]) -> dict[str, Output]:
        """One exec of the framer. An answer that breaks off gives what was whole; one that never began is an error."""
        nonce = secrets.token_hex(8)
        async with self._link(host) as (link, conn):
            budget, wait_s = _limits(self._settings.host_deadline_s - link.connect_s)
            args = (host.root_prefix, host.state_dir, str(budget), nonce, "sudo" if host.sudo else "")
            packing = ("gzip",) if link.packs else ()
            script = Script("probe.sh", args + packing, frames.payload(sections))
            done = await self._execute(host, link, conn, script, budget + KILL_AFTER_S, wait_s=wait_s)
        said = unpack(done.stdout, nonce, self._settings.max_output_bytes)
        if said is None:
            raise Unreachable(f"{host.name}: its packed answer is larger than is taken", "too-much-output")
        answer = frames.parse(said, nonce)
        if answer.outputs:
            outputs = frames.clocked(answer.outputs, done.sent_at, done.received_at, answer.ended_at)
            return replace(answer, outputs=outputs).complete(sections, done.why or frames.LOST)
        raise _no_answer(host, done, begun=answer.begun)

    async def run(self, host: Host, script: Script, limit_s: float) -> Output:
        """One exec of a script. exit_code None: it was started, and how it ended is not known (`note` says why)."""
        async with self._link(host) as (link, conn):
            done = await self._execute(host, link, conn, script, limit_s, wait_s=limit_s + _MARGIN_S)
        return Output(
            stdout=done.stdout.decode("utf-8", "replace"),
            stderr=done.stderr.decode("utf-8", "replace"),
            exit_code=done.exit_code,
            ms=done.ms,
            note=done.why,
        )

    async def connect(self, host: Host, address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """TCP from the host, inside the SSH connection. The pair is asyncssh's, which has the same methods."""
        async with self._link(host) as (link, conn):
            link.pinned = True
            try:
                async with asyncio.timeout(self._settings.connect_timeout_s):
                    pair = await conn.open_connection(address, port, encoding=None)
            except TimeoutError:
                raise ConnectionRefusedError(f"{address}:{port} does not answer {host.name}") from None
            except (asyncssh.Error, OSError) as e:
                raise _not_forwarded(host, conn, address, port, e) from None
        return cast("tuple[asyncio.StreamReader, asyncio.StreamWriter]", pair)

    async def close(self) -> None:
        """End every connection, those that are still being made included."""
        self._early.close()
        links, self._links, self._idle = list(self._links.values()), {}, {}
        tasks = [link.task for link in links if link.task is not None]
        for task in tasks:
            if not task.done():
                task.cancel()
        opened = [r for r in await asyncio.gather(*tasks, return_exceptions=True) if isinstance(r, Connection)]
        for conn in opened:
            conn.abort()
        ends = [conn.wait_closed() for conn in opened]
        await asyncio.gather(*ends, *self._closing, return_exceptions=True)
        await self._login.keys.close()

    # --- connections --------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _link(self, host: Host) -> AsyncIterator[tuple[_Link, Connection]]:
        """The open connection to a host, for one of the hosts at work."""
        async with self._in_flight:
            target = await self._target(host)
            link = self._link_to(target)
            link.users += 1
            self._idle.pop(target, None)
            try:
                yield link, await self._connection(target)
            finally:
                link.users -= 1
                self._rest(target, link)

    def _link_to(self, target: Target) -> _Link:
        if target not in self._links:
            wish = self._settings.compress
            self._links[target] = _Link(packs=wish == "yes" or (wish == "auto" and target.jump is not None))
        return self._links[target]

    def _rest(self, target: Target, link: _Link) -> None:
        """A connection that nobody uses is kept for who comes next; of too many the longest unused one is closed."""
        if link.users or link.pinned or link.opened is None or self._links.get(target) is not link:
            return
        self._idle[target] = link
        while len(self._idle) > self.room.kept:
            oldest = next(iter(self._idle))
            self._end(self._idle.pop(oldest))
            del self._links[oldest]

    def _pinned(self, target: Target) -> None:
        self._link_to(target).pinned = True
        self._idle.pop(target, None)

    def _end(self, link: _Link) -> None:
        if link.opened is not None:
            link.opened.close()
            task = asyncio.create_task(_ended(link.opened))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _target(self, host: Host) -> Target:
        try:
            if self._resolver.config.needs_referee:
                return await asyncio.to_thread(self._resolver.target, host)
            return self._resolver.target(host)
        except LlmgwError as e:
            raise Unreachable(f"{host.name}: {e}", "ssh-config") from None

    async def _connection(self, target: Target) -> Connection:
        link = self._link_to(target)
        if not link.usable:
            link.task = asyncio.create_task(self._open(link, target), name=f"ssh {target.where}")
            link.task.add_done_callback(_looked_at)
        assert link.task is not None  # noqa: S101 - usable says so
        return await asyncio.shield(link.task)

    async def _open(self, link: _Link, target: Target) -> Connection:
        """First the way, then the login: a host that had a turn while it waits for its jump host could block it."""
        jump = None
        if target.jump is not None:
            self._pinned(target.jump)
            try:
                jump = await self._connection(target.jump)
            except Unreachable as e:
                raise Unreachable(f"{target.address}: the jump host is not reached: {e}", "jump-unreachable") from None
        conn, link.connect_s = await self._login.connect(target, jump)
        return conn

    async def _execute(
        self, host: Host, link: _Link, conn: Connection, script: Script, limit_s: float, *, wait_s: float
    ) -> Finished:
        """`limit_s`: when the host ends it; `wait_s`: when we stop waiting for what it says."""
        body = script_bytes(script.name)
        async with link.sessions:
            return await execute(
                conn,
                boot(body, script.args, limit_s),
                body + script.stdin,
                limit_s=wait_s,
                max_bytes=self._settings.max_output_bytes,
                held=self._held,
                where=host.name,
            )


def _limits(left_s: float) -> tuple[int, float]:
    """Of what is left of a host's deadline: when the framer ends by itself, and how long it is waited for.

    A host that hangs costs its deadline and no more; one whose deadline is a few seconds still gets the way back.
    """
    budget = max(1, math.floor(left_s - _MARGIN_S))
    return budget, max(left_s, float(budget + _WAY_BACK_S))


async def _ended(conn: Connection) -> None:
    await conn.wait_closed()
    let_go(conn)


def _looked_at(task: asyncio.Task[Connection]) -> None:
    """A failed connection whose askers have all gone is nobody's surprise."""
    if not task.cancelled():
        task.exception()


def _no_answer(host: Host, done: Finished, *, begun: bool) -> Unreachable:
    """The framer said nothing whole: the login shell does something else, or the host went away."""
    if done.why:
        return Unreachable(f"{host.name}: {done.why}", done.kind or "connection-lost")
    said = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()
    words = f": {said[-1][:200]}" if said else ""
    what = "its answer broke off at once" if begun else "its login shell does not run our script"
    return Unreachable(f"{host.name}: {what} (exit code {done.exit_code}){words}", "no-answer")


def _not_forwarded(host: Host, conn: Connection, address: str, port: int, e: Exception) -> Exception:
    if isinstance(e, asyncssh.ChannelOpenError) and not conn.is_closed():
        if e.code == asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED:
            return ForwardingRefused(f"{host.name}: sshd does not forward TCP: {e.reason}")
        return ConnectionRefusedError(f"{address}:{port} as seen from {host.name}: {e.reason}")
    return Unreachable(f"{host.name}: the connection was lost: {e}", "connection-lost")
