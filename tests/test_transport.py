"""SSH for real: servers of asyncssh inside the test, and OpenSSH's sshd beside it."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from pathlib import Path

import asyncssh
import pytest
from ssh_servers import HELLO, USER, Lab, free_port, shell

from llmgwctl.model.errors import Unreachable
from llmgwctl.model.host import Host
from llmgwctl.probe.base import Section
from llmgwctl.transport import ssh as ssh_module
from llmgwctl.transport.base import ForwardingRefused, Script


@pytest.fixture
async def lab(tmp_path, monkeypatch):
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    made = Lab(tmp_path)
    yield made
    await made.end()


@pytest.fixture(params=["asyncssh", "openssh"])
async def port(request, lab) -> int:
    """A server with the lab's host key, of either make."""
    return (await lab.serve()).port if request.param == "asyncssh" else await lab.sshd()


async def refusal(ssh, host, sections=HELLO) -> Unreachable:
    with pytest.raises(Unreachable) as e:
        await ssh.read(host, sections)
    return e.value


# --- reading ------------------------------------------------------------------------------------------------------


async def test_a_host_is_read(lab, port):
    """A known key, our key, one exec: each section's answer."""
    lab.trust(port)
    said = await lab.ssh().read(lab.host(port), HELLO)
    assert {n: (o.stdout, o.exit_code) for n, o in said.items()} == {"hello": ("hello\n", 0), "bye": ("bye\n", 0)}


async def test_one_connection_serves_a_whole_run(lab):
    """Reading twice, at once and again, running and connecting: the host sees one login."""
    server = await lab.serve()
    lab.trust(server.port)
    ssh, host = lab.ssh(), lab.host(server.port)
    await asyncio.gather(ssh.read(host, HELLO), ssh.read(host, HELLO))
    await ssh.read(host, HELLO)
    _, writer = await ssh.connect(host, "127.0.0.1", await lab.raw(echo))
    writer.close()
    assert (server.counts.connections, server.counts.logins) == (1, 1)


async def test_a_connection_that_died_is_made_again(lab):
    """sshd restarts between two readings: the second one logs in anew."""
    first = await lab.serve()
    lab.trust(first.port)
    ssh, host = lab.ssh(), lab.host(first.port)
    await ssh.read(host, HELLO)
    link = next(iter(ssh._links.values()))
    link.task.result().abort()
    await link.task.result().wait_closed()
    assert (await ssh.read(host, HELLO))["hello"].stdout == "hello\n"
    assert first.counts.logins == 2


async def test_nothing_is_left_open(lab):
    """close() ends every connection, and no task of ours is left."""
    server = await lab.serve()
    lab.trust(server.port)
    before = asyncio.all_tasks()
    ssh = lab.ssh()
    await ssh.read(lab.host(server.port), HELLO)
    await ssh.close()
    for _ in range(100):
        if not server.counts.open:
            break
        await asyncio.sleep(0.02)
    assert server.counts.open == 0
    assert {t.get_name() for t in asyncio.all_tasks() - before if t.get_name().startswith("ssh ")} == set()


async def test_a_cancelled_read_leaves_nothing(lab):
    """Ctrl-C while hosts are being reached: close() ends what was on its way."""

    async def silent(reader, writer):
        await reader.read()

    port = await lab.raw(silent)
    ssh = lab.ssh()
    task = asyncio.create_task(ssh.read(lab.host(port), HELLO))
    while not ssh._links:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await ssh.close()
    assert all(t.done() for t in [link.task for link in ssh._links.values()])
    assert not [t for t in asyncio.all_tasks() if t.get_name().startswith("ssh ")]


async def test_banner_and_noise_of_a_login_shell(lab):
    """What rc files print before our script, and what is printed after it, is no answer."""

    async def noisy(process):
        process.stdout.write(b"Welcome to r1-t01\n@ hello 0 0 3 0 ran 0 \nbad")
        await shell(process)

    server = await lab.serve(noisy)
    lab.trust(server.port)
    assert (await lab.ssh().read(lab.host(server.port), HELLO))["hello"].stdout == "hello\n"


async def test_output_that_is_no_utf8(lab, port):
    """It is replaced, not fatal, and the sections around it are whole."""
    lab.trust(port)
    sections = (Section("bytes", "sys", 5, argv=("printf", r"a\377b")), HELLO[0])
    said = await lab.ssh().read(lab.host(port), sections)
    assert said["bytes"].stdout == "a�b"
    assert said["hello"].stdout == "hello\n"


# --- logging in ---------------------------------------------------------------------------------------------------


async def test_a_key_that_the_server_does_not_take(lab, port):
    lab.trust(port)
    e = await refusal(lab.ssh(identity_file=str(lab.key("stranger"))), lab.host(port))
    assert e.kind == "auth-failed"
    assert USER in str(e)


async def test_a_user_that_the_server_does_not_know(lab):
    port = await lab.sshd()
    lab.trust(port)
    assert (await refusal(lab.ssh(user="nobody-at-all"), lab.host(port))).kind == "auth-failed"


def encrypt(key: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-p", "-N", "secret", "-f", str(key)], check=True, capture_output=True)


async def test_a_key_file_that_cannot_be_used(lab):
    """Missing, encrypted, or no key at all: said with the file and the way out, before any host is bothered."""
    server = await lab.serve()
    lab.trust(server.port)
    junk = lab.root / "junk"
    junk.write_text("no key")
    encrypted = lab.key("encrypted")
    encrypt(encrypted)
    for file, words in ((lab.root / "none", "No such file"), (junk, "not a private key"), (encrypted, "ssh-add")):
        e = await refusal(lab.ssh(identity_file=str(file)), lab.host(server.port))
        assert e.kind == "no-key"
        assert str(file) in str(e)
        assert words in str(e)
    assert server.counts.connections == 0


async def test_the_agent_holds_an_encrypted_key(lab, port, monkeypatch):
    """The identity file is encrypted, and the agent has it open."""
    lab.trust(port)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(lab.root / "agent"))
    agent = await asyncio.create_subprocess_exec("ssh-agent", "-D", "-a", str(lab.root / "agent"), stdout=-3)
    try:
        while subprocess.run(["ssh-add", "-q", str(lab.user_key)], capture_output=True, check=False).returncode:
            await asyncio.sleep(0.02)
        encrypt(lab.user_key)
        assert (await lab.ssh().read(lab.host(port), HELLO))["hello"].exit_code == 0
        # and without any file named, what the agent holds is offered
        assert (await lab.ssh(identity_file=None).read(lab.host(port), HELLO))["hello"].exit_code == 0
    finally:
        agent.terminate()
        await agent.wait()


async def test_a_user_certificate(lab):
    """FILE-cert.pub beside the key is used, as ssh does."""
    ca = lab.key("ca")
    newcomer = lab.key("newcomer")
    authority, key = asyncssh.read_private_key(ca), asyncssh.read_public_key(f"{newcomer}.pub")
    authority.generate_user_certificate(key, "me", principals=[USER]).write_certificate(f"{newcomer}-cert.pub")
    port = await lab.sshd(f"TrustedUserCAKeys {ca}.pub")
    lab.trust(port)
    assert (await lab.ssh(identity_file=str(newcomer)).read(lab.host(port), HELLO))["hello"].exit_code == 0


async def test_nobody_listens(lab):
    assert (await refusal(lab.ssh(), lab.host(free_port()))).kind == "refused"


async def test_a_name_that_does_not_resolve(lab, monkeypatch):
    async def fails(*args, **kwargs):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", fails)
    e = await refusal(lab.ssh(), Host("no-such-host", port=22))
    assert e.kind == "dns-failure"
    assert "no-such-host" in str(e)


async def test_no_answer_to_tcp(lab):
    """A listener whose queue is full drops our SYN, as a dead host does."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        fillers = [socket.socket() for _ in range(4)]
        for s in fillers:
            s.setblocking(False)
            s.connect_ex(("127.0.0.1", port))
        e = await refusal(lab.ssh(connect_timeout_s=0.3), lab.host(port))
        for s in fillers:
            s.close()
    assert e.kind == "connect-timeout"


async def silent(reader, writer):
    await reader.read()


async def web_server(reader, writer):
    writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
    await writer.drain()


async def endless_noise(reader, writer):
    while True:
        writer.write(b"\x00\xff" * 5000)
        await writer.drain()


async def chatty(reader, writer):
    writer.write(b"one moment\r\n")
    await reader.read()


async def closes(reader, writer):
    return


async def full(reader, writer):
    """OpenSSH above MaxStartups."""
    writer.write(b"Exceeded MaxStartups\r\n")


async def closes_after_version(reader, writer):
    writer.write(b"SSH-2.0-Strange_1.0\r\n")
    await writer.drain()
    await reader.readline()


async def old_version(reader, writer):
    writer.write(b"SSH-1.5-Old\r\n")
    await reader.read()


async def nonsense_after_version(reader, writer):
    writer.write(b"SSH-2.0-Strange_1.0\r\n" + bytes(range(256)) * 40)
    await reader.read()


@pytest.mark.parametrize(
    ("talk", "kind"),
    [
        (silent, "login-timeout"),
        (web_server, "not-ssh"),
        (endless_noise, "not-ssh"),
        (chatty, "not-ssh"),
        (old_version, "not-ssh"),
        (closes, "closed-early"),
        (full, "closed-early"),
        (closes_after_version, "closed-early"),
    ],
)
async def test_a_server_that_is_none(lab, talk, kind):
    """Each in its one named end state, within the limit of a login."""
    port = await lab.raw(talk)
    e = await refusal(lab.ssh(login_timeout_s=0.5), lab.host(port))
    assert e.kind == kind
    assert f"127.0.0.1:{port}" in str(e)


async def test_nonsense_in_the_handshake(lab):
    """Whatever the bytes, it is the host's row."""
    port = await lab.raw(nonsense_after_version)
    e = await refusal(lab.ssh(login_timeout_s=0.5), lab.host(port))
    assert e.kind in {"protocol-error", "closed-early", "login-timeout", "key-exchange-failed"}


async def test_nothing_in_common(lab):
    server = await lab.serve(encryption_algs=["3des-cbc"])
    lab.trust(server.port)
    assert (await refusal(lab.ssh(), lab.host(server.port))).kind == "key-exchange-failed"


async def test_a_dropped_handshake_is_tried_once_more(lab):
    """sshd above MaxStartups lets go of some: the second try gets in; a host that always lets go is named."""
    server = await lab.serve()
    seen = 0

    async def first_dropped(reader, writer):
        nonlocal seen
        seen += 1
        if seen > 1:
            await relay(reader, writer, server.port)

    port = await lab.raw(first_dropped)
    lab.trust(port)
    assert (await lab.ssh().read(lab.host(port), HELLO))["hello"].exit_code == 0
    assert seen == 2


async def relay(reader, writer, port: int) -> None:
    back, forth = await asyncio.open_connection("127.0.0.1", port)

    async def copy(source, sink):
        while data := await source.read(65536):
            sink.write(data)
        sink.close()

    await asyncio.gather(copy(reader, forth), copy(back, writer), return_exceptions=True)


# --- answers that go wrong ----------------------------------------------------------------------------------------


async def test_a_host_that_dies_in_the_middle(lab):
    """The sections that were whole are kept; the others say that the connection was lost."""

    async def dies(process):
        nonce = next(w for w in process.command.split() if len(w) == 16)
        await process.stdin.read()
        process.stdout.write(
            f"LLMGWCTL-BEGIN {nonce}\n@ hello 0 1 6 0 ran 0 \nhello\n@ bye 0 1 400 0 ran 0 \nby".encode()
        )
        process.channel.get_connection().close()

    server = await lab.serve(dies)
    lab.trust(server.port)
    said = await lab.ssh().read(lab.host(server.port), HELLO)
    assert said["hello"].stdout == "hello\n"
    assert said["bye"].exit_code is None
    assert "connection was lost" in said["bye"].note


async def test_a_host_that_dies_at_once(lab):
    async def dies(process):
        process.channel.get_connection().abort()

    server = await lab.serve(dies)
    lab.trust(server.port)
    assert (await refusal(lab.ssh(), lab.host(server.port))).kind == "connection-lost"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_endless_output_is_cut(lab, stream):
    """Beyond the limit the host is given up, and what it sent is dropped."""

    async def endless(process):
        sink = getattr(process, stream)
        while True:
            sink.write(b"x" * 65536)
            await sink.drain()

    server = await lab.serve(endless)
    lab.trust(server.port)
    e = await refusal(lab.ssh(max_output_bytes=300_000), lab.host(server.port))
    assert e.kind == "too-much-output"


async def test_an_account_that_may_not_run_anything(lab):
    """nologin and the like: said in the host's own words."""

    async def nologin(process):
        process.stdout.write(b"This account is currently not available.\n")
        process.exit(1)

    server = await lab.serve(nologin)
    lab.trust(server.port)
    e = await refusal(lab.ssh(), lab.host(server.port))
    assert e.kind == "no-answer"
    assert "currently not available" in str(e)


async def test_a_host_that_never_ends_its_answer(lab, monkeypatch):
    """The limit of a command is ours too, for hosts whose `timeout` does not come back."""
    monkeypatch.setattr(ssh_module, "_MARGIN_S", 0.2)
    monkeypatch.setattr(ssh_module, "KILL_AFTER_S", -1)

    async def hangs(process):
        await asyncio.sleep(60)

    server = await lab.serve(hangs)
    lab.trust(server.port)
    e = await refusal(lab.ssh(host_deadline_s=1), lab.host(server.port))
    assert e.kind == "command-timeout"


# --- running and connecting -----------------------------------------------------------------------------------------


@pytest.fixture
def script(monkeypatch):
    """A script of ours, written here."""

    def use(text: str) -> None:
        monkeypatch.setattr(ssh_module, "script_bytes", lambda name: text.encode())

    return use


async def test_a_script_runs_with_arguments_and_input(lab, port, script):
    """Arguments of any kind are not touched by any shell; input comes after the script and ends."""
    script('printf "%s|" "$@"; printf err >&2; cat; exit 5\n')
    lab.trust(port)
    args = ("", "a b", "$(id)", "it's", "*", "`x`", "\\")
    out = await lab.ssh().run(lab.host(port), Script("x.sh", args, b"secret\0bytes"), 10)
    assert out.stdout == "|a b|$(id)|it's|*|`x`|\\|secret\0bytes"
    assert (out.stderr, out.exit_code, out.note) == ("err", 5, "")


async def test_a_large_input_arrives_whole(lab, port, script):
    """Also one that does not fit into any window at once."""
    script("cksum\n")
    lab.trust(port)
    data = os.urandom(3_000_000)
    wanted = subprocess.run(["cksum"], input=data, capture_output=True, check=True).stdout.decode()
    assert (await lab.ssh().run(lab.host(port), Script("x.sh", (), data), 20)).stdout == wanted


async def test_the_remote_command_is_ended_at_its_limit(lab, port, script):
    """By the host's own timeout, so that nothing goes on there."""
    script(f"exec sleep 3333.{port}\n")
    lab.trust(port)
    out = await lab.ssh().run(lab.host(port), Script("x.sh"), 1)
    assert out.exit_code == 124
    assert not [p for p in Path("/proc").glob("[0-9]*/cmdline") if f"3333.{port}".encode() in _bytes(p)]


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


async def test_a_lost_link_is_no_exit_code(lab, script):
    async def dies(process):
        await process.stdin.read()
        process.stdout.write(b"begun")
        process.channel.get_connection().close()

    script("true\n")
    server = await lab.serve(dies)
    lab.trust(server.port)
    out = await lab.ssh().run(lab.host(server.port), Script("x.sh"), 5)
    assert (out.stdout, out.exit_code) == ("begun", None)
    assert "connection was lost" in out.note


async def test_many_scripts_on_one_host_at_once(lab, script):
    """More than sshd allows sessions on a connection: they take turns."""
    script("sleep 0.1; echo done\n")
    port = await lab.sshd()
    lab.trust(port)
    ssh, host = lab.ssh(), lab.host(port)
    outs = await asyncio.gather(*(ssh.run(host, Script("x.sh"), 20) for _ in range(25)))
    assert [o.stdout for o in outs] == ["done\n"] * 25


async def echo(reader, writer):
    writer.write((await reader.readline()).upper())
    await writer.drain()


async def test_tcp_from_the_host(lab, port):
    """Lines there and back through the connection that is open anyway."""
    lab.trust(port)
    there = await lab.raw(echo)
    reader, writer = await lab.ssh().connect(lab.host(port), "127.0.0.1", there)
    writer.write(b"hello\n")
    await writer.drain()
    assert await reader.readline() == b"HELLO\n"
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()


async def test_nothing_listens_over_there(lab, port):
    lab.trust(port)
    with pytest.raises(ConnectionRefusedError):
        await lab.ssh().connect(lab.host(port), "127.0.0.1", free_port())


async def test_a_host_that_does_not_forward(lab):
    """sshd with AllowTcpForwarding no: told apart from a port that is closed; the host can still be read."""
    port = await lab.sshd("AllowTcpForwarding no")
    lab.trust(port)
    ssh = lab.ssh()
    with pytest.raises(ForwardingRefused):
        await ssh.connect(lab.host(port), "127.0.0.1", port)
    assert (await ssh.read(lab.host(port), HELLO))["hello"].exit_code == 0


# --- jump hosts -----------------------------------------------------------------------------------------------------


async def test_hosts_behind_a_jump_host_share_one_connection(lab):
    """Five hosts, one login at the jump host; each host's own key is verified."""
    jump = await lab.serve()
    hosts = [await lab.serve() for _ in range(5)]
    for server in (jump, *hosts):
        lab.trust(server.port)
    ssh = lab.ssh()
    through = {"proxy_jump": f"{USER}@127.0.0.1:{jump.port}"}
    said = await asyncio.gather(*(ssh.read(lab.host(s.port, f"t{i}", **through), HELLO) for i, s in enumerate(hosts)))
    assert [s["hello"].stdout for s in said] == ["hello\n"] * 5
    assert jump.counts.logins == 1


async def test_two_jumps_through_openssh(lab):
    first, second, last = await lab.sshd(), await lab.sshd(), await lab.sshd()
    for port in (first, second, last):
        lab.trust(port)
    host = lab.host(last, proxy_jump=f"127.0.0.1:{first},127.0.0.1:{second}")
    assert (await lab.ssh().read(host, HELLO))["hello"].exit_code == 0


async def test_a_jump_host_is_verified_too(lab):
    """And so is the host behind it: with the line to add, since ssh-keyscan does not go through a jump host."""
    jump, behind = await lab.serve(), await lab.serve(host_keys=[str(lab.key("behind"))])
    host = lab.host(behind.port, proxy_jump=f"127.0.0.1:{jump.port}")
    e = await refusal(lab.ssh(), host)
    assert e.kind == "jump-unreachable"
    assert f"ssh-keyscan -p {jump.port}" in str(e)
    lab.trust(jump.port)
    e = await refusal(lab.ssh(), host)
    assert e.kind == "host-key-unknown"
    subprocess.run(["sh", "-c", str(e).rpartition("is right: ")[2]], check=True)
    assert (await lab.ssh().read(host, HELLO))["hello"].exit_code == 0


async def test_what_is_behind_a_jump_host_fails_by_itself(lab):
    """Nobody listens there; it is silent; the jump host does not forward."""
    jump = await lab.sshd()
    lab.trust(jump)
    via = f"127.0.0.1:{jump}"
    ssh = lab.ssh(login_timeout_s=2)
    assert (await refusal(ssh, lab.host(free_port(), proxy_jump=via))).kind == "refused"
    assert (await refusal(ssh, lab.host(await lab.raw(silent), proxy_jump=via))).kind == "login-timeout"
    closed = await lab.sshd("AllowTcpForwarding no")
    lab.trust(closed)
    e = await refusal(lab.ssh(), lab.host(jump, proxy_jump=f"127.0.0.1:{closed}"))
    assert e.kind == "jump-refused"


async def test_more_hosts_than_handshakes_behind_a_jump_host(lab):
    """One handshake at a time, and the jump host needs one itself: nobody waits for ever."""
    jump, server = await lab.serve(), await lab.serve()
    lab.trust(jump.port)
    lab.trust(server.port)
    ssh = lab.ssh(handshakes=1, in_flight=2)
    hosts = [lab.host(server.port, f"t{i}", proxy_jump=f"127.0.0.1:{jump.port}") for i in range(6)]
    async with asyncio.timeout(30):
        assert len(await asyncio.gather(*(ssh.read(h, HELLO) for h in hosts))) == 6


async def test_a_proxy_command(lab, monkeypatch):
    """ProxyCommand of ~/.ssh/config makes the connection; the host's key is verified all the same."""
    server = await lab.serve()
    lab.trust(server.port, name="tray")
    monkeypatch.setenv("HOME", str(lab.root))
    config = lab.root / ".ssh" / "config"
    config.parent.mkdir(exist_ok=True)
    relay_py = "import socket,sys,threading,os\ns=socket.create_connection((sys.argv[1],int(sys.argv[2])))\n"
    relay_py += "def up():\n while (d:=os.read(0,65536)): s.sendall(d)\n"
    relay_py += "threading.Thread(target=up,daemon=True).start()\nwhile (d:=s.recv(65536)): os.write(1,d)\n"
    (lab.root / "relay.py").write_text(relay_py)
    config.write_text(f"Host tray\n  Port {server.port}\n  ProxyCommand python3 {lab.root}/relay.py 127.0.0.1 %p\n")
    ssh = lab.ssh(config_file=str(config))
    assert (await ssh.read(Host("tray", state_dir=str(lab.root)), HELLO))["hello"].exit_code == 0
