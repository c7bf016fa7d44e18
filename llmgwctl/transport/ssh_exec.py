"""One command on an open connection: bytes in, bytes out, bounded in size and time."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import asyncssh

from llmgwctl.model.errors import Unreachable
from llmgwctl.transport.limits import Held
from llmgwctl.transport.ssh_fast import Connection

_OPEN_S = 30  # for sshd to start a session; nothing of ours has run before


@dataclass(frozen=True, slots=True)
class Finished:
    """How a command ended. `exit_code` None: it is not known, `why` says what happened and `kind` names it.

    `sent_at`, `received_at`: our clock before its input went out and after its last output came, since the epoch.
    """

    stdout: bytes
    stderr: bytes
    exit_code: int | None
    ms: int
    why: str = ""
    kind: str = ""
    sent_at: float = 0.0
    received_at: float = 0.0


class _Sink(asyncssh.SSHClientSession[bytes]):
    """Takes what arrives, up to a limit: beyond it the channel is cut, and the host's output is worth nothing."""

    def __init__(self, max_bytes: int, held: Held) -> None:
        self.out, self.err = bytearray(), bytearray()
        self.overflow = False
        self.closed: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self._max_bytes, self._held = max_bytes, held
        self._channel: asyncssh.SSHClientChannel[bytes] | None = None

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        self._channel = chan

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        if self.overflow:
            return
        so_far = len(self.out) + len(self.err)
        if so_far + len(data) > self._max_bytes or not self._held.takes(len(data), so_far):
            self.overflow = True
            self.release()
            if self._channel is not None:
                self._channel.abort()
            return
        (self.err if datatype else self.out).extend(data)

    def release(self) -> None:
        """Nothing of it is in memory any more, or somebody else has it."""
        self._held.gives_back(len(self.out) + len(self.err))
        self.out, self.err = bytearray(), bytearray()

    def connection_lost(self, exc: Exception | None) -> None:
        self._channel = None  # each refers to the other
        if not self.closed.done():
            self.closed.set_result(exc)


async def execute(
    conn: Connection, command: str, stdin: bytes, *, limit_s: float, max_bytes: int, held: Held, where: str
) -> Finished:
    """Run it. Raises Unreachable when it could not be started, or said more than max_bytes.

    `limit_s`: from now on, so that what opening a session takes is a part of it.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + limit_s
    channel, sink = await _start(conn, command, lambda: _Sink(max_bytes, held), where)
    began, sent_at = loop.time(), time.time()
    try:
        with suppress(BrokenPipeError):  # it has ended already, and its answer lies here
            channel.write(stdin)
            channel.write_eof()  # without it a remote `cat` waits for ever
        async with asyncio.timeout_at(until):
            lost = await sink.closed
    except TimeoutError:
        why = f"no end of the answer within {limit_s:g} s"
        return Finished(bytes(sink.out), bytes(sink.err), None, _ms(loop.time() - began), why, "command-timeout")
    else:
        if sink.overflow:
            raise Unreachable(f"{where}: more output than fits into {_shown(max_bytes)}", "too-much-output")
        out, err, ms, (why, kind) = bytes(sink.out), bytes(sink.err), _ms(loop.time() - began), _how_lost(channel, lost)
        return Finished(out, err, _exit_code(channel), ms, why, kind, sent_at, time.time())
    finally:
        sink.release()
        channel.abort()


async def _start(
    conn: Connection, command: str, sink_of: Callable[[], _Sink], where: str
) -> tuple[asyncssh.SSHClientChannel[bytes], _Sink]:
    try:
        async with asyncio.timeout(_OPEN_S):
            channel, sink = await conn.create_session(sink_of, command, encoding=None, request_pty=False)
    except TimeoutError:
        conn.abort()  # it is in an unknown state, and a later try gets a new one
        raise Unreachable(f"{where}: sshd does not start a session within {_OPEN_S} s", "command-timeout") from None
    except (asyncssh.Error, OSError) as e:
        kind = "connection-lost" if conn.is_closed() else "session-refused"
        raise Unreachable(f"{where}: sshd does not start a session: {e}", kind) from None
    except asyncio.CancelledError:
        conn.abort()
        raise
    return channel, sink  # type: ignore[return-value]


def _how_lost(channel: asyncssh.SSHClientChannel[bytes], lost: Exception | None) -> tuple[str, str]:
    """An end without an exit status is a lost link, however politely it came."""
    if channel.get_exit_status() is not None:
        return "", ""
    return f"the connection was lost before the end of the answer{f': {lost}' if lost else ''}", "connection-lost"


def _exit_code(channel: asyncssh.SSHClientChannel[bytes]) -> int | None:
    """As a shell would say it: 128 and the signal, for a process that a signal ended."""
    ended = channel.get_exit_signal()
    if ended is None:
        return channel.get_exit_status()
    return 128 + getattr(signal, f"SIG{ended[0]}", 0)


def _shown(size: int) -> str:
    return f"{size // 2**20} MiB" if size >= 2**20 else f"{size} bytes"


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
