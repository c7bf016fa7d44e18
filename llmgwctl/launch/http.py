"""The least HTTP/1.1 that asks an engine whether it serves, over any pair of streams, bounded in size and time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

from llmgwctl.model.fact import fact
from llmgwctl.model.numbers import whole

MAX_BYTES = 1024 * 1024


class BadReply(Exception):
    """What came back is no HTTP answer, or too long a one."""


@fact
class Reply:
    status: int
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")


def compose(method: str, path: str, host: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    """A request after which the server closes. A line break in a header value would begin another header: refused."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close", "Accept: application/json"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a line break in an HTTP header")
    return "\r\n".join((*lines, "", "")).encode() + body


async def exchange(streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], request: bytes, limit_s: float) -> Reply:
    """One request, one answer; the connection is closed whatever happens."""
    reader, writer = streams
    try:
        async with asyncio.timeout(limit_s):
            writer.write(request)
            await writer.drain()
            return await _read(reader)
    except (BadReply, OSError):  # a limit in time is one, too
        raise
    except Exception as e:
        # What ends early or is none; and a lost SSH connection, which its streams say in their own way.
        raise BadReply(f"no HTTP answer: {type(e).__name__}") from e
    finally:
        writer.close()
        with contextlib.suppress(Exception):
            await asyncio.wait_for(writer.wait_closed(), 2)


async def _read(reader: asyncio.StreamReader) -> Reply:
    version, _, rest = (await _line(reader)).partition(" ")
    status = whole(rest[:3])
    if not version.startswith("HTTP/1.") or status is None:
        raise BadReply("no HTTP answer")
    headers = await _headers(reader)
    if "chunked" in headers.get("transfer-encoding", ""):
        return Reply(status, await _chunks(reader))
    length = headers.get("content-length")
    if length is not None:
        return Reply(status, await reader.readexactly(_bounded(int(length))))
    return Reply(status, await _until_closed(reader))


async def _line(reader: asyncio.StreamReader) -> str:
    line = await reader.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    return line.decode("latin-1").strip()


async def _headers(reader: asyncio.StreamReader) -> dict[str, str]:
    found: dict[str, str] = {}
    for _ in range(200):
        line = await _line(reader)
        if not line:
            return found
        name, _, value = line.partition(":")
        found[name.strip().lower()] = value.strip()
    raise BadReply("more than 200 headers")


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int((await _line(reader)).split(";")[0], 16):
        body += await reader.readexactly(_bounded(len(body) + size) - len(body))
        await _line(reader)
    return body


async def _until_closed(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while more := await reader.read(65536):
        body += more
        _bounded(len(body))
    return body


def _bounded(size: int) -> int:
    if not 0 <= size <= MAX_BYTES:
        raise BadReply(f"an answer of {size} bytes")
    return size
