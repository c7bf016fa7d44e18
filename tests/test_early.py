"""Connections that are begun before the SSH library is there: taken by who logs in, and nobody's trouble."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from llmgwctl.model.errors import Unreachable
from llmgwctl.model.host import Host
from llmgwctl.transport import lean, target
from llmgwctl.transport.early import Early
from llmgwctl.transport.settings import SshSettings
from llmgwctl.transport.ssh_login import dial

SETTINGS = SshSettings(user="ops", config_file="", handshakes=3)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        found.settimeout(10)
        yield found


def port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


def begun(*hosts: Host) -> tuple[Early, list[target.Target]]:
    early = Early(SETTINGS)
    early.begin(hosts)
    return early, [early.resolver.target(h) for h in hosts]


async def test_a_connection_that_was_begun_is_the_one_that_is_used(listener):
    early, (there,) = begun(Host("n1", "127.0.0.1", port=port_of(listener)))
    accepted, came_from = await asyncio.to_thread(listener.accept)
    with await dial(there, 5, early.take(there)) as sock, accepted:
        assert sock.getsockname() == came_from
        assert early.take(there) is None


async def test_a_port_that_refuses_is_told_as_ever(listener):
    """Who takes the socket hears it, in the words of a host that was dialled then."""
    port = port_of(listener)
    listener.close()
    early, (there,) = begun(Host("n1", "127.0.0.1", port=port))
    with pytest.raises(Unreachable) as first:
        await dial(there, 5, early.take(there))
    with pytest.raises(Unreachable) as second:
        await dial(there, 5)
    assert (first.value.kind, str(first.value)) == (second.value.kind, str(second.value))
    assert first.value.kind == "refused"


def test_only_what_is_reached_directly_and_by_its_address_is_begun(listener):
    """Not a name, not a host behind another, and of the first three no more, as many as may log in at once."""
    port = port_of(listener)
    hosts = [
        Host("localhost", "localhost", port=port),
        Host("n1", "127.0.0.3", port=port, proxy_jump="ops@10.0.0.1"),
        Host("n2", "127.0.0.1", port=port),
        Host("n3", "127.0.0.2", port=port),
    ]
    early, targets = begun(*hosts)
    found = [early.take(t) for t in targets]
    assert [s is not None for s in found] == [False, False, True, False]
    for sock in found:
        if sock is not None:
            sock.close()


def test_what_nobody_took_is_closed(listener):
    early, _ = begun(Host("n1", "127.0.0.1", port=port_of(listener)))
    early.close()
    accepted, _ = listener.accept()
    with accepted:
        accepted.settimeout(10)
        assert accepted.recv(1) == b""


def test_the_command_dials_before_it_loads_the_library(listener, tmp_path, monkeypatch):
    """When asyncssh begins to be loaded, the host already has the connection."""
    from llmgwctl.cli import main

    inventory = tmp_path / "inventory.toml"
    inventory.write_text(
        f'[ssh]\nuser = "ops"\nconfig_file = ""\nlogin_timeout_s = 1\n[[hosts]]\nname = "n1"\n'
        f'address = "127.0.0.1"\nport = {port_of(listener)}\n'
    )
    seen: list[bool] = []
    load = lean.load

    def watched() -> None:
        connection, _ = listener.accept()
        seen.append(True)
        connection.close()
        load()

    monkeypatch.setattr(lean, "load", watched)
    assert main(["-i", str(inventory), "nvlink", "--json"]) == 3
    assert seen == [True]
