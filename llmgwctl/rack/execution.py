"""One exec request on a simulated host: really run, in a session of its own, with binary input and output."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import asyncssh

_CHUNK = 65536


class Execution(asyncssh.SSHServerSession[bytes]):
    """As with sshd: the command outlives the connection, and the channel stays open while anything holds its output."""

    def __init__(self, environment: dict[str, str], home: Path, says: bytes | None = None) -> None:
        self._environment = environment
        self._home = home
        self._says = says  # what this shell prints instead of running anything
        self._argv: tuple[str, ...] = ("/bin/sh",)
        self._child: asyncio.subprocess.Process | None = None
        self._input = bytearray()
        self._fed = asyncio.Event()
        self._ended = False  # no more input comes
        self._writable = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        self._chan = chan
        self._writable.set()

    def shell_requested(self) -> bool:
        return True

    def exec_requested(self, command: str) -> bool:
        self._argv = ("/bin/sh", "-c", command)
        return True

    def session_started(self) -> None:
        if self._says is not None:
            self._chan.write(self._says)
            self._chan.exit(0)
        else:
            self._start(self._run())

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        self._input += data
        self._fed.set()
        if len(self._input) > _CHUNK:
            self._chan.pause_reading()

    def eof_received(self) -> bool:
        self._ended = True
        self._fed.set()
        return True

    def signal_received(self, signal: str) -> None:
        self._kill(signal)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """The pipes break, and that is all that the command learns of it."""
        for task in self._tasks:
            task.cancel()
        transport = getattr(self._child, "_transport", None)  # the only way to close what is read from a process
        for fd in (0, 1, 2):
            pipe = transport.get_pipe_transport(fd) if transport else None
            if pipe is not None:
                pipe.close()

    def _start(self, work: asyncio._CoroutineLike[None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.append(task)
        return task

    async def _run(self) -> None:
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(
            *self._argv, stdin=pipe, stdout=pipe, stderr=pipe,
            env=self._environment, cwd=self._home, start_new_session=True,
        )  # fmt: skip
        self._child = child
        if child.stdin and child.stdout and child.stderr:
            self._start(self._feed(child.stdin))
            outputs = (self._pump(child.stdout, None), self._pump(child.stderr, asyncssh.EXTENDED_DATA_STDERR))
            await asyncio.gather(*(self._start(o) for o in outputs))
        self._exit(await child.wait())

    def _exit(self, code: int) -> None:
        with contextlib.suppress(OSError):
            if code < 0:
                self._chan.exit_with_signal(signal.Signals(-code).name.removeprefix("SIG"))
            else:
                self._chan.exit(code)

    async def _feed(self, stdin: asyncio.StreamWriter) -> None:
        """What the client sends, until it ends; what the command will not read is thrown away."""
        with contextlib.suppress(OSError):
            while self._input or not self._ended:
                await self._fed.wait()
                self._fed.clear()
                stdin.write(bytes(self._taken()))
                await stdin.drain()
            stdin.close()
        self._taken()
        self.data_received = lambda data, datatype: None  # type: ignore[method-assign]

    def _taken(self) -> bytearray:
        data, self._input = self._input, bytearray()
        self._chan.resume_reading()
        return data

    async def _pump(self, source: asyncio.StreamReader, datatype: asyncssh.DataType) -> None:
        while data := await source.read(_CHUNK):
            await self._writable.wait()
            self._chan.write(data, datatype)

    def _kill(self, name: str) -> None:
        number = getattr(signal, f"SIG{name}", None)
        if self._child and self._child.returncode is None and number is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child.pid, number)
