"""Whose key it is: the same refusals on both ways into asyncssh, direct and behind a jump host, and no other order."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import asyncssh
import pytest
from ssh_servers import HELLO, USER, Lab, hashed, need_sshd

from llmgwctl.model.errors import Unreachable
from llmgwctl.transport import ssh_fast, ssh_login
from llmgwctl.transport.ssh_fast import Quickly, through_the_front


@pytest.fixture(params=["quick", "public"])
async def lab(request, tmp_path, monkeypatch):
    """Every test here holds on both ways."""
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    way = Quickly if request.param == "quick" else lambda: through_the_front
    monkeypatch.setattr(ssh_login, "opener", way)
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


async def said(ssh, host) -> str:
    return (await ssh.read(host, HELLO))["hello"].stdout


async def test_an_unknown_key_is_refused_with_the_way_to_accept_it(lab, port):
    """The fingerprint and the exact command; nobody has logged in."""
    e = await refusal(lab.ssh(), lab.host(port))
    fingerprint = asyncssh.read_public_key(f"{lab.host_key}.pub").get_fingerprint()
    assert e.kind == "host-key-unknown"
    assert fingerprint in str(e)
    assert f"ssh-keyscan -p {port} 127.0.0.1 >> {lab.known_hosts}" in str(e)


async def test_the_printed_command_works(lab):
    """What we tell the operator to type makes the host known."""
    need_sshd()
    port = await lab.sshd()
    command = str(await refusal(lab.ssh(), lab.host(port))).rpartition("is right: ")[2]
    await asyncio.to_thread(subprocess.run, ["sh", "-c", command], check=True, capture_output=True)
    assert (await lab.ssh().read(lab.host(port), HELLO))["hello"].stdout == "hello\n"


async def test_a_changed_key_is_refused(lab, port):
    """Also with accept-new, which then writes nothing."""
    lab.trust(port, lab.key("another"))
    before = lab.known_hosts.read_text()
    for policy in ("strict", "accept-new"):
        e = await refusal(lab.ssh(host_key_policy=policy), lab.host(port))
        assert e.kind == "host-key-changed"
        assert f"-R '[127.0.0.1]:{port}'" in str(e)
    assert lab.known_hosts.read_text() == before


async def test_a_changed_key_of_another_type_is_refused(lab):
    """A host that is known by an RSA key and now has none: changed, not new."""
    server = await lab.serve()
    lab.trust(server.port, lab.key("rsa", "ssh-rsa"))
    e = await refusal(lab.ssh(host_key_policy="accept-new"), lab.host(server.port))
    assert e.kind == "host-key-changed"


@pytest.mark.parametrize("policy", ["strict", "accept-new"])
async def test_a_revoked_key_is_refused(lab, port, policy):
    """Whoever trusts it besides."""
    lab.trust(port)
    lab.trust(port, marker="@revoked")
    e = await refusal(lab.ssh(host_key_policy=policy), lab.host(port))
    assert e.kind == "host-key-revoked"


async def test_hashed_known_hosts(lab, port):
    """HashKnownHosts, the default on Debian and Ubuntu: known, and changed."""
    lab.trust(port)
    hashed(lab.known_hosts)
    assert (await lab.ssh().read(lab.host(port), HELLO))["hello"].exit_code == 0
    lab.known_hosts.unlink()
    lab.trust(port, lab.key("another"))
    hashed(lab.known_hosts)
    assert (await refusal(lab.ssh(), lab.host(port))).kind == "host-key-changed"


@pytest.mark.parametrize("hash_it", [False, True], ids=["plain", "hashed"])
async def test_the_type_that_is_known_is_asked_for(lab, hash_it):
    """A server with several keys shows the one that we know, also where the file hides which one that is."""
    ecdsa, rsa = lab.key("ecdsa", "ecdsa-sha2-nistp256"), lab.key("rsa", "ssh-rsa")
    server = await lab.serve(host_keys=[str(lab.host_key), str(ecdsa), str(rsa)])
    lab.trust(server.port, rsa)
    if hash_it:
        hashed(lab.known_hosts)
    assert (await lab.ssh().read(lab.host(server.port), HELLO))["hello"].exit_code == 0


async def test_accept_new_writes_once(lab, port):
    """Two connections at once, one line; afterwards the host is known to everybody."""
    ssh = lab.ssh(host_key_policy="accept-new")
    await asyncio.gather(ssh.read(lab.host(port), HELLO), ssh.read(lab.host(port, "again"), HELLO))
    await lab.ssh(host_key_policy="accept-new").read(lab.host(port), HELLO)
    assert len(lab.known_hosts.read_text().splitlines()) == 1
    assert lab.known_hosts.stat().st_mode & 0o777 == 0o600
    assert (await lab.ssh().read(lab.host(port), HELLO))["hello"].exit_code == 0


async def test_accept_new_keeps_no_key_of_a_failed_login(lab):
    """Only a server that proved its key and let us in is written down."""
    server = await lab.serve()
    ssh = lab.ssh(host_key_policy="accept-new", identity_file=str(lab.key("stranger")))
    assert (await refusal(ssh, lab.host(server.port))).kind == "auth-failed"
    assert not lab.known_hosts.exists()


async def certified(lab, ca: Path, principals: list[str], **more) -> list[object]:
    """Host keys for a server: one whose certificate that authority signed."""
    authority, key = asyncssh.read_private_key(ca), asyncssh.read_private_key(lab.host_key)
    cert = authority.generate_host_certificate(key, "host", principals=principals, **more)
    cert.write_certificate(f"{lab.host_key}-cert.pub")
    return [(key, cert)]


@pytest.mark.parametrize("principal", ["tray", "127.0.0.1"])
async def test_a_certificate_authority_vouches_for_a_host(lab, principal):
    """@cert-authority: by the name in the inventory or by the address, whichever the certificate bears."""
    ca = lab.key("ca")
    server = await lab.serve(host_keys=await certified(lab, ca, [principal]))
    lab.trust(server.port, ca, marker="@cert-authority")
    assert (await lab.ssh().read(lab.host(server.port), HELLO))["hello"].exit_code == 0


async def test_a_certificate_authority_with_openssh(lab):
    ca = lab.key("ca")
    await certified(lab, ca, ["tray"])
    port = await lab.sshd(f"HostCertificate {lab.host_key}-cert.pub")
    lab.trust(port, ca, marker="@cert-authority")
    assert (await lab.ssh().read(lab.host(port), HELLO))["hello"].exit_code == 0


@pytest.mark.parametrize(
    ("principals", "more"),
    [(["another"], {}), (["tray"], {"valid_before": 1})],
    ids=["for another host", "expired"],
)
async def test_a_certificate_that_is_not_valid_is_refused(lab, principals, more):
    ca = lab.key("ca")
    server = await lab.serve(host_keys=await certified(lab, ca, principals, **more))
    lab.trust(server.port, ca, marker="@cert-authority")
    assert (await refusal(lab.ssh(), lab.host(server.port))).kind == "host-certificate-invalid"


@pytest.mark.parametrize("revoked", ["ca", "host"])
async def test_a_revoked_authority_or_key_voids_a_certificate(lab, revoked):
    ca = lab.key("ca")
    server = await lab.serve(host_keys=await certified(lab, ca, ["tray"]))
    lab.trust(server.port, ca, marker="@cert-authority")
    lab.trust(server.port, lab.root / revoked, marker="@revoked")
    assert (await refusal(lab.ssh(), lab.host(server.port))).kind == "host-key-revoked"


async def test_a_plain_key_beside_an_authority(lab, port):
    """A host without a certificate is known by its own line, whatever authority is there for the others."""
    lab.trust(port, lab.key("ca"), marker="@cert-authority")
    lab.trust(port)
    assert (await lab.ssh().read(lab.host(port), HELLO))["hello"].exit_code == 0


async def test_no_configuration_turns_the_check_off(lab, port):
    """`UserKnownHostsFile none` and `StrictHostKeyChecking no` in ~/.ssh/config: the key is still unknown."""
    config = lab.root / "config"
    config.write_text("Host *\n  StrictHostKeyChecking no\n  UserKnownHostsFile none\n  GlobalKnownHostsFile none\n")
    for policy in ("strict", "accept-new"):
        ssh = lab.ssh(known_hosts=(), config_file=str(config), host_key_policy=policy)
        assert (await refusal(ssh, lab.host(port))).kind == "host-key-unknown"


# --- behind a jump host, and direct -------------------------------------------------------------------------------


@pytest.fixture(params=["direct", "behind a jump host"])
async def route(request, lab) -> dict[str, str]:
    """How a host is reached; the jump host itself is known and lets us in."""
    if request.param == "direct":
        return {}
    jump = await lab.serve(host_keys=[str(lab.key("jump"))])
    lab.trust(jump.port, lab.root / "jump")
    return {"proxy_jump": f"{USER}@127.0.0.1:{jump.port}"}


WRONG = {
    "missing": ((), "host-key-unknown"),
    "another key": ((("another", ""),), "host-key-changed"),
    "the key of another host": ((("other-host", ""),), "host-key-changed"),
    "revoked": ((("host", ""), ("host", "@revoked")), "host-key-revoked"),
    "an authority alone": ((("ca", "@cert-authority"),), "host-key-unknown"),
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("policy", ["strict", "accept-new"])
async def test_a_key_that_is_not_the_hosts_is_refused(lab, route, case, policy):
    """Whichever way; nothing is run there, and the file is as it was. accept-new takes only a key of nobody yet."""
    for name in ("another", "ca"):
        lab.key(name)
    other = await lab.serve(host_keys=[str(lab.key("other-host"))])
    lab.trust(other.port, lab.root / "other-host")
    server = await lab.serve()
    lines, kind = WRONG[case]
    for name, marker in lines:
        lab.trust(server.port, lab.root / name, marker=marker)
    before = lab.known_hosts.read_text()
    ssh, host = lab.ssh(host_key_policy=policy), lab.host(server.port, **route)
    if policy == "accept-new" and kind == "host-key-unknown":
        assert await said(ssh, host) == "hello\n"
        assert len(lab.known_hosts.read_text().splitlines()) == len(before.splitlines()) + 1
        return
    assert (await refusal(ssh, host)).kind == kind
    assert server.counts.logins == 0
    assert lab.known_hosts.read_text() == before


CERTIFICATES = {
    "good": ("ca", ["tray"], {}, ""),
    "for another host": ("ca", ["another"], {}, "host-certificate-invalid"),
    "expired": ("ca", ["tray"], {"valid_before": 1}, "host-certificate-invalid"),
    "of another authority": ("stranger", ["tray"], {}, "host-key-unknown"),
    "of a revoked authority": ("ca", ["tray"], {}, "host-key-revoked"),
}


@pytest.mark.parametrize("case", CERTIFICATES)
async def test_certificates_by_either_route(lab, route, case):
    signer, principals, more, kind = CERTIFICATES[case]
    for name in ("ca", "stranger"):
        lab.key(name)
    keys = await certified(lab, lab.root / signer, principals, **more)
    server = await lab.serve(host_keys=keys)
    lab.trust(server.port, lab.root / "ca", marker="@cert-authority")
    if "revoked" in case:
        lab.trust(server.port, lab.root / "ca", marker="@revoked")
    host = lab.host(server.port, **route)
    if not kind:
        assert await said(lab.ssh(), host) == "hello\n"
    else:
        assert (await refusal(lab.ssh(), host)).kind == kind
        assert server.counts.logins == 0


async def test_a_key_that_the_server_does_not_take_by_either_route(lab, route):
    server = await lab.serve()
    lab.trust(server.port)
    host = lab.host(server.port, identity_file=str(lab.key("stranger")), **route)
    assert (await refusal(lab.ssh(), host)).kind == "auth-failed"


# --- the exchange of keys -------------------------------------------------------------------------------------------


@pytest.fixture
def old_servers(monkeypatch):
    """Servers of before strict key exchange: they neither say the word nor know it."""
    never = property(lambda self: False, lambda self, value: None)
    monkeypatch.setattr(asyncssh.SSHServerConnection, "_strict_kex", never, raising=False)
    monkeypatch.setattr(
        asyncssh.SSHServerConnection, "_get_extra_kex_algs", lambda self: [b"ext-info-s"], raising=False
    )


ORDERS = {
    "aes128-gcm@openssh.com": ("hmac-sha2-256", True),
    "aes256-gcm@openssh.com": ("hmac-sha2-256", True),
    "aes256-ctr": ("hmac-sha2-256", True),
    "aes128-ctr": ("hmac-sha2-256-etm@openssh.com", False),
    "chacha20-poly1305@openssh.com": ("hmac-sha2-256", False),
}


@pytest.mark.parametrize("cipher", ORDERS)
async def test_a_server_without_strict_key_exchange(lab, route, old_servers, cipher):
    """It is taken only with what Terrapin does not reach, and hears no user's name otherwise."""
    mac, taken = ORDERS[cipher]
    server = await lab.serve(encryption_algs=[cipher], mac_algs=[mac])
    lab.trust(server.port)
    host = lab.host(server.port, **route)
    if taken:
        assert await said(lab.ssh(), host) == "hello\n"
        return
    e = await refusal(lab.ssh(), host)
    assert e.kind == "key-exchange-failed"
    assert "strict key exchange" in str(e)
    assert server.counts.logins == 0


@pytest.mark.parametrize("cipher", ORDERS)
async def test_each_cipher_with_strict_key_exchange(lab, cipher):
    """With and without the empty packets between; an answer of many packets comes whole."""
    server = await lab.serve(encryption_algs=[cipher], mac_algs=[ORDERS[cipher][0]])
    lab.trust(server.port)
    assert await said(lab.ssh(), lab.host(server.port)) == "hello\n"


async def test_an_injected_packet_ends_a_strict_key_exchange(lab):
    """Terrapin's first move: a packet in the clear before the exchange, which shifts the numbers of all that follow."""
    server = await lab.serve()
    ignore = bytes([0, 0, 0, 12, 6, 2, 0, 0, 0, 0]) + bytes(6)

    async def meddle(reader, writer):
        back, forth = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(await back.readline() + ignore)

        async def copy(source, sink):
            while data := await source.read(65536):
                sink.write(data)
            sink.close()

        await asyncio.gather(copy(reader, forth), copy(back, writer), return_exceptions=True)

    port = await lab.raw(meddle)
    lab.trust(port)
    e = await refusal(lab.ssh(), lab.host(port))
    assert e.kind == "protocol-error"
    assert "KEXINIT was not the first packet" in str(e)
    assert server.counts.logins == 0


async def test_what_is_negotiated_first(lab):
    """AES-GCM, and ML-KEM with X25519 where both sides have it; never SHA-1."""
    server = await lab.serve()
    lab.trust(server.port)
    ssh = lab.ssh()
    await said(ssh, lab.host(server.port))
    conn = next(iter(ssh._links.values())).task.result()
    assert conn.get_extra_info("send_cipher") == "aes128-gcm@openssh.com"
    offered = [a.decode() for a in conn._kex_algs]
    ahead = offered[: offered.index("curve25519-sha256")]
    assert ("mlkem768x25519-sha256" in ahead) == asyncssh.crypto.mlkem_available
    assert not [a for a in offered if "sha1" in a or a.startswith(("rsa", "gss"))]


# --- which way is taken ----------------------------------------------------------------------------------------------


def test_the_quick_way_is_taken():
    """With the asyncssh that is installed: else each host costs a third more, and nobody sees why."""
    assert ssh_fast.as_known()
    assert isinstance(ssh_fast.opener(), Quickly)


@pytest.mark.parametrize(
    ("where", "name"),
    [("connection", "_connect"), ("SSHClientConnection", "_send"), ("SSHClientConnection", "send_packet")],
)
@pytest.mark.parametrize("now", [None, lambda self, something, else_: None], ids=["gone", "another signature"])
def test_the_public_way_is_taken_when_asyncssh_has_changed(monkeypatch, where, name, now):
    monkeypatch.setattr(getattr(asyncssh, where), name, now)
    assert ssh_fast.opener() is through_the_front


def test_the_public_way_is_taken_when_somebody_reads_the_log(caplog):
    with caplog.at_level("INFO", logger="asyncssh"):
        assert ssh_fast.opener() is through_the_front
