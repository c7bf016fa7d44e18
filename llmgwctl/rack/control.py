"""How a running rack is told to break and mend: lines over a socket that only its owner can reach."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

from llmgwctl.model.errors import UsageError
from llmgwctl.rack.serve import Rack

_NAME = "control"
_LONGEST = 4096


def order(rack: Rack, words: list[str]) -> None:
    """Do one order: set HOST FAULT, clear HOST [FAULT], kill HOST, boot HOST."""
    match words:
        case ["set", host, fault]:
            rack.set(host, fault)
        case ["clear", host]:
            rack.clear(host)
        case ["clear", host, fault]:
            rack.clear(host, fault)
        case ["kill", host]:
            rack.kill(host)
        case ["boot", host]:
            rack.boot(host)
        case _:
            raise UsageError("a running rack knows: set HOST FAULT, clear HOST [FAULT], kill HOST, boot HOST")


@contextlib.contextmanager
def _address(directory: Path) -> Iterator[str]:
    """The socket by way of an open directory: a path of any length, where addresses of sockets are short."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{_NAME}"
    finally:
        os.close(descriptor)


async def listen(rack: Rack, done: Callable[[list[str]], None]) -> asyncio.Server:
    """Take orders; `done` hears of each that was carried out."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            words = await _words(reader)
            order(rack, words)
        except UsageError as e:
            writer.write(f"{e}\n".encode())
        else:
            writer.write(b"ok\n")
            done(words)
        with contextlib.suppress(OSError):
            await writer.drain()
        writer.close()

    (rack.directory / _NAME).unlink(missing_ok=True)
    with _address(rack.directory) as address:
        return await asyncio.start_unix_server(serve, address, limit=_LONGEST)


async def _words(reader: asyncio.StreamReader) -> list[str]:
    try:
        return (await reader.readline()).decode(errors="replace").split()
    except ValueError:  # asyncio's word for a line over the limit
        raise UsageError(f"an order has {_LONGEST} bytes at most") from None


def send(directory: Path, *words: str) -> None:
    """Give an order to the rack that runs in this directory."""
    with socket.socket(socket.AF_UNIX) as sock:
        try:
            with _address(directory) as address:
                sock.connect(address)
        except OSError:
            raise UsageError(f"no simulated rack runs in {directory}") from None
        sock.sendall((" ".join(words) + "\n").encode())
        answer = sock.makefile().readline().strip()
    if answer != "ok":
        raise UsageError(answer)
