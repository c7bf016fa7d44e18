"""Asking a server through the SSH connection of its host, and what is heard when that connection ends meanwhile."""

from __future__ import annotations

import asyncio

import pytest
from ssh_servers import Lab

from llmgwctl.launch.ask import Asker, Url


@pytest.fixture
async def lab(tmp_path, monkeypatch):
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    made = Lab(tmp_path)
    yield made
    await made.end()


class Wire:
    """A way to a port of this machine that can be cut."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.cut = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.port)
        pumps = [asyncio.ensure_future(_pump(*ends)) for ends in ((reader, far_writer), (far_reader, writer))]
        await self.cut.wait()
        for pump in pumps:
            pump.cancel()
        writer.transport.abort()
        far_writer.transport.abort()


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(65536):
        sink.write(data)


async def test_a_connection_that_is_lost_while_a_server_is_asked_is_no_answer(lab):
    """As when nothing listens: whoever asks asks again, and whether contact is lost is decided elsewhere."""
    asked = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.readline()
        asked.set()
        await asyncio.sleep(60)

    wire = Wire((await lab.serve()).port)
    there, port = await lab.raw(silent), await lab.raw(wire)
    lab.trust(port)
    url = Url("127.0.0.1", there, "/v1/completions")
    answer = asyncio.ensure_future(Asker(lab.ssh()).http(lab.host(port), url, {"prompt": "1"}, limit_s=30))
    await asyncio.wait_for(asked.wait(), 20)
    wire.cut.set()
    assert await asyncio.wait_for(answer, 20) is None
