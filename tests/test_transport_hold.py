"""Large fleets and hosts that go wrong: right answers or named end states, nothing waits for ever, nothing is lost."""

from __future__ import annotations

import asyncio
import gc
import gzip
import os
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import asyncssh
import pytest
from ssh_servers import HELLO, USER, Lab, shell

from llmgwctl.model.errors import Unreachable
from llmgwctl.model.host import Host
from llmgwctl.probe.base import Output, Section
from llmgwctl.transport import limits
from llmgwctl.transport import ssh as ssh_module
from llmgwctl.transport.base import Script
from llmgwctl.transport.limits import Held, Room
from llmgwctl.transport.ssh import Ssh, _limits
from llmgwctl.transport.ssh_exec import execute
from llmgwctl.transport.ssh_fast import Connection

# connect-failed: reset while it was dialled, which a server that ends may do to those that wait for it.
NAMED = {"refused", "closed-early", "connection-lost", "connect-failed", "connect-timeout", "login-timeout"} | {
    "session-refused"
}


@pytest.fixture
async def lab(tmp_path, monkeypatch):
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    made = Lab(tmp_path)
    yield made
    await made.end()


def nonce_of(process: asyncssh.SSHServerProcess[bytes]) -> str:
    """The word that frames the answer: the one of sixteen letters on the command line."""
    return next(w for w in (process.command or "").split() if len(w) == 16)


def framed(nonce: str, **sections: bytes) -> bytes:
    """What probe.sh would say."""
    frames = (b"@ %s 0 1 %d 0 ran 0 \n%s" % (name.encode(), len(said), said) for name, said in sections.items())
    return b"LLMGWCTL-BEGIN %s\n%bLLMGWCTL-END %s 1.0\n" % (nonce.encode(), b"".join(frames), nonce.encode())


async def answers_at_once(process: asyncssh.SSHServerProcess[bytes]) -> None:
    """A host that is quick and costs this machine nothing."""
    process.stdout.write(framed(nonce_of(process), hello=b"hello\n", bye=b"bye\n"))
    process.exit(0)


def fleet(lab: Lab, port: int, count: int, **more) -> list[Host]:
    """Hosts with an address each, which are all one server."""
    return [Host(f"t{i}", address=f"127.77.{i // 250}.{i % 250 + 1}", port=port, **more) for i in range(count)]


async def states(ssh: Ssh, hosts: list[Host]) -> dict[str, str]:
    """Host -> its one end state: "ok", or the kind of what went wrong."""

    async def one(host: Host) -> str:
        try:
            said = await ssh.read(host, HELLO)
        except Unreachable as e:
            return e.kind
        return "ok" if said["hello"].stdout == "hello\n" else said["hello"].note

    async with asyncio.timeout(120):
        return dict(zip((h.name for h in hosts), await asyncio.gather(*map(one, hosts)), strict=True))


# --- answers that are large, slow or endless ------------------------------------------------------------------------


async def test_ten_megabytes_from_one_host(lab):
    """They come whole, and the hosts beside it are not concerned."""
    big = b"x" * 3_500_000

    async def talkative(process):
        process.stdout.write(framed(nonce_of(process), hello=big, bye=big, more=big))
        process.exit(0)

    sections = (*HELLO, Section("more", "sys", 5, argv=("true",)))
    loud, quiet = await lab.serve(talkative), await lab.serve(answers_at_once)
    lab.trust(loud.port)
    lab.trust(quiet.port)
    ssh = lab.ssh()
    said, other = await asyncio.gather(
        ssh.read(lab.host(loud.port, "loud"), sections), ssh.read(lab.host(quiet.port), HELLO)
    )
    assert [len(o.stdout) for o in said.values()] == [len(big)] * 3
    assert other["bye"].stdout == "bye\n"


async def test_a_byte_now_and_then_keeps_nobody_waiting(lab, monkeypatch):
    """Its own limit ends such a host; all others have been read before, and what it had said whole is kept."""
    monkeypatch.setattr(ssh_module, "_MARGIN_S", 0.2)
    monkeypatch.setattr(ssh_module, "KILL_AFTER_S", -1)

    async def drips(process):
        nonce = nonce_of(process)
        process.stdout.write(
            f"LLMGWCTL-BEGIN {nonce}\n@ hello 0 1 6 0 ran 0 \nhello\n@ bye 0 1 99999 0 ran 0 \n".encode()
        )
        while True:
            process.stdout.write(b"x")
            await asyncio.sleep(0.05)

    slow, quick = await lab.serve(drips), await lab.serve(answers_at_once)
    for server in (slow, quick):
        lab.trust(server.port, name="*")
    ssh, order = lab.ssh(host_deadline_s=2), []

    async def one(host: Host) -> dict[str, Output]:
        said = await ssh.read(host, HELLO)
        order.append(host.name)
        return said

    said, *_ = await asyncio.gather(one(lab.host(slow.port, "slow")), *map(one, fleet(lab, quick.port, 20)))
    assert order[-1] == "slow"
    assert said["hello"].stdout == "hello\n"
    assert (said["bye"].exit_code, said["bye"].stdout) == (None, "")
    assert "no end of the answer within" in said["bye"].note


@pytest.mark.parametrize(("left_s", "budget", "wait_s"), [(120, 112, 120), (14.5, 6, 14.5), (9, 1, 9), (2, 1, 4)])
def test_a_host_is_not_waited_for_beyond_its_deadline(left_s, budget, wait_s):
    """The framer is over well before; only a deadline that leaves no time for that is stretched."""
    assert _limits(left_s) == (budget, wait_s)


async def test_a_login_byte_by_byte(lab):
    async def drips(reader, writer):
        for byte in b"SSH-2.0-Slow_" + b"1" * 200:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.05)

    port = await lab.raw(drips)
    assert (await states(lab.ssh(login_timeout_s=0.5), [lab.host(port)])) == {"tray": "login-timeout"}


async def test_endless_answers_share_what_memory_there_is(lab, monkeypatch):
    """All hosts together stay below one limit, though each of them is below its own; small answers come anyway."""
    monkeypatch.setattr(ssh_module, "_ALL_ANSWERS", 3_000_000)
    monkeypatch.setattr(ssh_module, "_FAIR_ANSWER", 200_000)
    most = 0
    takes = Held.takes

    def watched(self: Held, more: int, of_host: int) -> bool:
        nonlocal most
        taken = takes(self, more, of_host)
        most = max(most, self._now)
        return taken

    monkeypatch.setattr(Held, "takes", watched)

    async def endless(process):
        while True:
            process.stdout.write(b"x" * 30_000)
            await process.stdout.drain()

    loud, quiet = await lab.serve(endless), await lab.serve(answers_at_once)
    for server in (loud, quiet):
        lab.trust(server.port, name="*")
    ssh = lab.ssh()
    hosts = [*fleet(lab, loud.port, 12), *fleet(lab, quiet.port, 30)]
    hosts = [Host(f"h{i}", address=h.address, port=h.port) for i, h in enumerate(hosts)]
    found = list((await states(ssh, hosts)).values())
    assert found == ["too-much-output"] * 12 + ["ok"] * 30
    assert most < 3_000_000 + 42 * 200_000
    assert ssh._held._now == 0


def test_only_who_holds_much_gives_up():
    held = Held(100, 10)
    assert held.takes(95, 0)
    assert held.takes(8, 0)  # beyond the limit, and fair
    assert not held.takes(3, 8)
    held.gives_back(95)
    assert held.takes(50, 40)


# --- hosts that go away ----------------------------------------------------------------------------------------------


async def test_sshd_restarts_while_hosts_are_read(lab):
    """Each host is in exactly one named state, none hangs; those that were in the gap are read the next time."""
    server = await lab.serve(answers_at_once)
    lab.trust(server.port, name="*")
    hosts = fleet(lab, server.port, 60)
    ssh = lab.ssh(handshakes=4)
    reading = asyncio.create_task(states(ssh, hosts))
    while server.counts.logins < 10:
        await asyncio.sleep(0.01)
    await server.end()
    found = await reading
    assert set(found) == {h.name for h in hosts}
    assert set(found.values()) <= {"ok", *NAMED}
    assert "ok" in found.values()
    assert "refused" in found.values()
    await lab.serve(answers_at_once, port=server.port)
    assert set((await states(ssh, hosts)).values()) == {"ok"}


async def test_a_read_leaves_nothing_behind_when_its_time_is_over(lab):
    """The framer and what it runs are ended on the host by the host; the answer says so, section by section."""
    port = await lab.sshd()
    lab.trust(port)
    sections = (*HELLO, Section("slow", "imex", 600, argv=("sleep", f"4444.{port}")))
    said = await lab.ssh(host_deadline_s=11).read(lab.host(port), sections)
    assert said["hello"].stdout == "hello\n"
    assert said["slow"].exit_code == 124
    assert not [p for p in Path("/proc").glob("[0-9]*/cmdline") if f"4444.{port}".encode() in _bytes(p)]


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


# --- what stays open --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "wanted", "in_flight", "kept"),
    [
        (256, 4096, 144, 48),
        (1024, 4096, 720, 240),
        (1_048_576, 4096, 4096, 512),
        (4672, 4096, 4096, 512),
        (10, 50, 2, 0),
    ],
)
def test_what_fits_into_a_limit_of_files(files, wanted, in_flight, kept):
    """Hosts at work and connections that are kept never come to more than there is."""
    room = Room.of(files, wanted)
    assert (room.in_flight, room.kept) == (in_flight, kept)
    assert room.in_flight + room.kept <= max(files, 2)


def test_the_limit_of_files_is_raised_only_as_far_as_allowed(monkeypatch):
    asked = []
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: asked.append(limits))
    for soft, hard, wanted in ((1024, 4096, 4096), (1024, resource.RLIM_INFINITY, 100), (65536, 65536, 4096)):
        monkeypatch.setattr(resource, "getrlimit", lambda which, now=(soft, hard): now)
        limits.make_room(wanted)
    assert asked == [(4096, 4096)]  # 1024 is enough for a hundred hosts


@pytest.fixture
def small(monkeypatch):
    """Room for two connections that nobody uses."""
    monkeypatch.setattr(ssh_module, "make_room", lambda wanted: Room(100, 20, 2))


async def test_a_connection_that_was_closed_is_gone_at_once(lab, small):
    """And not when garbage is looked for: of ten thousand hosts those would be a hundred megabytes."""
    server = await lab.serve(answers_at_once)
    lab.trust(server.port, name="*")
    ssh = lab.ssh()
    gc.collect()
    gc.disable()
    try:
        for host in fleet(lab, server.port, 6):
            await ssh.read(host, HELLO)
        for _ in range(100):
            alive = sum(isinstance(o, Connection) and o.is_client() for o in gc.get_objects())
            if alive == 2:
                break
            await asyncio.sleep(0.05)
    finally:
        gc.enable()
    assert alive == 2


async def test_the_longest_unused_connections_are_closed(lab, small):
    """Two stay open; the third host costs the first one its connection, and that one is logged in again when wanted."""
    server = await lab.serve(answers_at_once)
    lab.trust(server.port, name="*")
    ssh, hosts = lab.ssh(), fleet(lab, server.port, 3)
    for host in hosts:
        await ssh.read(host, HELLO)
    await settled(server, 2)
    await ssh.read(hosts[1], HELLO)
    await ssh.read(hosts[2], HELLO)
    assert server.counts.logins == 3
    await ssh.read(hosts[0], HELLO)
    assert server.counts.logins == 4
    await settled(server, 2)
    assert len(ssh._links) == 2


async def settled(server, count: int) -> None:
    for _ in range(200):
        if server.counts.open == count:
            return
        await asyncio.sleep(0.02)
    assert server.counts.open == count


async def test_what_others_go_through_stays_open(lab, small):
    """A jump host, and a host with a stream of ours: in use, whoever was read since."""

    async def echo(reader, writer):
        writer.write(await reader.readline())
        await writer.drain()

    jump, server = await lab.serve(answers_at_once), await lab.serve(answers_at_once)
    for port in (jump.port, server.port):
        lab.trust(port, name="*")
    ssh, there = lab.ssh(), await lab.raw(echo)
    first, *hosts = fleet(lab, server.port, 8, proxy_jump=f"{USER}@127.0.0.1:{jump.port}")
    reader, writer = await ssh.connect(first, "127.0.0.1", there)
    for host in hosts:
        await ssh.read(host, HELLO)
    writer.write(b"still there\n")
    assert await reader.readline() == b"still there\n"
    assert jump.counts.logins == 1
    writer.close()


async def test_five_hundred_hosts_with_256_files(lab, tmp_path):
    """The whole program under a hard limit: all are read, fewer at once, and that is said once."""
    server = await lab.serve(answers_at_once)
    lab.trust(server.port, name="*")
    (tmp_path / "inventory.toml").write_text(
        f'[ssh]\nuser = "{USER}"\nidentity_file = "{lab.user_key}"\nknown_hosts = "{lab.known_hosts}"\n'
        f'config_file = ""\n[[hosts]]\nname = "t[001-500]"\naddress = "127.77.[1-2].[1-250]"\nport = {server.port}\n'
    )
    command = ('ulimit -n 256; exec "$@"', "sh", sys.executable, "-m", "llmgwctl", "hosts", "--check", "--json")
    child = await asyncio.create_subprocess_exec(
        "sh", "-c", *command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ}
    )
    _, err = await child.communicate()
    assert server.counts.logins == 500, err.decode()
    assert err.decode().count("256 files") == 1
    assert "Traceback" not in err.decode()
    assert child.returncode == 0


# --- jump hosts ----------------------------------------------------------------------------------------------------


async def test_a_hundred_hosts_behind_one_openssh_jump_host(lab, monkeypatch):
    """With its default MaxStartups: one login there, ten handshakes behind it at a time, and no host is lost."""
    port, server = await lab.sshd(), await lab.serve(answers_at_once)
    lab.trust(port)
    lab.trust(server.port, name="*")
    ssh, most = lab.ssh(), 0
    login, now = ssh._login._log_in, 0

    async def counted(check, *rest):
        nonlocal most, now
        behind = check.target.jump is not None
        now += behind
        most = max(most, now)
        try:
            return await login(check, *rest)
        finally:
            now -= behind

    monkeypatch.setattr(ssh._login, "_log_in", counted)
    hosts = fleet(lab, server.port, 100, proxy_jump=f"{USER}@127.0.0.1:{port}")
    assert set((await states(ssh, hosts)).values()) == {"ok"}
    assert server.counts.logins == 100
    assert 1 < most <= 10
    accepted = (lab.root / f"sshd.{port}.log").read_text().count("Accepted publickey")
    assert accepted == 1


@pytest.mark.soak
async def test_a_hundred_hosts_on_one_openssh_behind_another(lab, monkeypatch):
    """Both with the default MaxStartups 10:30:100, which drops from the eleventh on that has not logged in yet."""
    monkeypatch.setattr(ssh_module, "script_bytes", lambda name: b"echo hello\n")
    jump, port = await lab.sshd(), await lab.sshd(address="0.0.0.0")
    lab.trust(jump)
    lab.trust(port, name="*")
    ssh = lab.ssh()
    hosts = fleet(lab, port, 100, proxy_jump=f"{USER}@127.0.0.1:{jump}")
    said = await asyncio.gather(*(ssh.run(h, Script("x.sh"), 60) for h in hosts))
    assert [o.stdout for o in said] == ["hello\n"] * 100
    log = (lab.root / f"sshd.{port}.log").read_text()
    assert log.count("Accepted publickey") == 100
    assert "MaxStartups" not in log


# --- packed answers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wish", ["auto", "yes", "no"])
async def test_answers_are_packed_where_the_way_is_slow(lab, wish):
    """Behind a jump host, unless the inventory says otherwise; real scripts, real gzip, the same answer."""
    asked = {}

    async def watched(process):
        asked[process.channel.get_connection().get_extra_info("sockname")[0]] = "gzip" in (process.command or "")
        await shell(process)

    jump, server = await lab.serve(), await lab.serve(watched)
    for port in (jump.port, server.port):
        lab.trust(port, name="*")
    direct, behind = fleet(lab, server.port, 2)
    behind = replace(behind, proxy_jump=f"{USER}@127.0.0.1:{jump.port}")
    ssh = lab.ssh(compress=wish)
    for host in (direct, behind):
        said = await ssh.read(replace(host, state_dir=str(lab.root)), HELLO)
        assert [o.stdout for o in said.values()] == ["hello\n", "bye\n"]
    assert [asked[h.address] for h in (direct, behind)] == {
        "auto": [False, True], "yes": [True, True], "no": [False, False]
    }[wish]  # fmt: skip


async def test_a_packed_answer_that_is_a_bomb(lab):
    async def bomb(process):
        process.stdout.write(b"LLMGWCTL-GZIP %s\n" % nonce_of(process).encode() + gzip.compress(bytes(2**26), 9))
        process.exit(0)

    server = await lab.serve(bomb)
    lab.trust(server.port)
    ssh = lab.ssh(compress="yes", max_output_bytes=2**20)
    assert await states(ssh, [lab.host(server.port)]) == {"tray": "too-much-output"}


class _SlowToOpen:
    """A connection whose sshd takes its time to start a session; then the command answers soon."""

    def __init__(self, opens_s: float, answers_s: float) -> None:
        self.opens_s, self.answers_s = opens_s, answers_s

    async def create_session(self, sink_of, *_, **__):
        await asyncio.sleep(self.opens_s)
        sink = sink_of()
        asyncio.get_running_loop().call_later(self.answers_s, sink.connection_lost, None)
        return Mock(get_exit_status=lambda: 0, get_exit_signal=lambda: None), sink


async def test_opening_a_session_is_a_part_of_the_limit():
    """Else a host that hangs would cost its limit and the time of every session that was opened before its own."""
    for limit_s, kind in ((0.3, "command-timeout"), (60.0, "")):
        conn = _SlowToOpen(0.3, 0.2)
        done = await execute(conn, "x", b"", limit_s=limit_s, max_bytes=9, held=Held(9, 9), where="n1")
        assert done.kind == kind
