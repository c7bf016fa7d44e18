"""known_hosts: who is known, changed and revoked, as OpenSSH would say it."""

from __future__ import annotations

import base64
import hmac
import os

import asyncssh
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ssh_servers import hashed

from llmgwctl.transport.known_hosts import HostKey, KnownHosts, Names, append, parse_key


def made(kind: str = "ssh-ed25519") -> HostKey:
    key = asyncssh.generate_private_key(kind)
    return HostKey(key.algorithm.decode(), key.public_data)


ONE, OTHER, ECDSA = made(), made(), made("ecdsa-sha2-nistp256")
TRAY = Names.of(("10.0.0.1", "r1-t01"), 22)


def known(*lines: str) -> KnownHosts:
    return KnownHosts(["\n".join(lines)])


@pytest.mark.parametrize(
    ("hosts", "verdict"),
    [
        ("r1-t01", "known"),
        ("R1-T01", "known"),
        ("10.0.0.1", "known"),
        ("other,10.0.0.1", "known"),
        ("r1-*", "known"),
        ("r1-t0?", "known"),
        ("*", "known"),
        ("*,!r1-t02", "known"),
        ("r1-t02", "unknown"),
        ("r1-t01x", "unknown"),
        ("r1-*,!r1-t01", "unknown"),
        ("[r1-t01]:22", "unknown"),
        ("[r1-t01]:2222", "unknown"),
        ("r1.t01", "unknown"),
    ],
)
def test_names_of_a_line(hosts, verdict):
    """Plain names, lists, wildcards and negations; a pattern is not an expression."""
    assert known(f"{hosts} {ONE.text}").judge(TRAY, ONE.blob) == verdict


def test_a_key_that_differs_has_changed():
    """Whatever its type: the host had a key that we know, and shows another one."""
    index = known(f"r1-t01 {ONE.text} a comment")
    assert index.judge(TRAY, OTHER.blob) == "changed"
    assert index.judge(TRAY, ECDSA.blob) == "changed"


def test_one_of_several_keys_is_enough():
    index = known(f"r1-t01 {ONE.text}", f"r1-t01 {OTHER.text}")
    assert index.judge(TRAY, OTHER.blob) == "known"


def test_a_revoked_key_beats_everything():
    """Also where the same key is trusted, by a pattern or by name."""
    index = known(f"r1-t01 {ONE.text}", f"@revoked * {ONE.text}")
    assert index.judge(TRAY, ONE.blob) == "revoked"
    assert [k.blob for k in index.revoked(TRAY)] == [ONE.blob]


def test_an_authority_is_no_host_key():
    """A key that signs host certificates does not itself stand for a host."""
    index = known(f"@cert-authority r1-* {ONE.text}")
    assert index.judge(TRAY, ONE.blob) == "unknown"
    assert [k.blob for k in index.authorities(TRAY)] == [ONE.blob]
    assert index.authorities(Names.of(("r2-t01",), 22)) == []


def test_another_port_is_another_server():
    """A key of [host]:port is for that port; a line without a port may vouch for it, and cannot accuse it."""
    on_port = Names.of(("r1-t01",), 2222)
    assert known(f"[r1-t01]:2222 {ONE.text}").judge(on_port, ONE.blob) == "known"
    assert known(f"[r1-t01]:2222 {ONE.text}").judge(on_port, OTHER.blob) == "changed"
    assert known(f"[r1-t01]:2222 {ONE.text}").judge(TRAY, ONE.blob) == "unknown"
    assert known(f"r1-t01 {ONE.text}").judge(on_port, ONE.blob) == "known"
    assert known(f"r1-t01 {ONE.text}").judge(on_port, OTHER.blob) == "unknown"


def test_hashed_names_are_recognised(tmp_path):
    """ssh-keygen -H: known, changed, revoked and authority, without a readable name in the file."""
    file = tmp_path / "known_hosts"
    file.write_text(f"r1-t01 {ONE.text}\n[r1-t09]:2222 {OTHER.text}\nr1-t02 {ECDSA.text}\n")
    hashed(file)
    assert "r1-t" not in file.read_text()
    index = KnownHosts.read([str(file)])
    assert index.judge(TRAY, ONE.blob) == "known"
    assert index.judge(TRAY, OTHER.blob) == "changed"
    assert index.judge(Names.of(("r1-t09",), 2222), OTHER.blob) == "known"
    assert index.judge(Names.of(("r1-t03",), 22), ONE.blob) == "unknown"
    assert index.kinds(Names.of(("r1-t02",), 22)) == ()
    assert index.kinds(Names.of(("r1-t02",), 22), thorough=True) == ("ecdsa-sha2-nistp256",)
    marked = "".join(f"@revoked {line}\n" for line in file.read_text().splitlines())
    assert KnownHosts([marked]).judge(TRAY, ONE.blob) == "revoked"


@pytest.mark.parametrize(
    "line",
    [
        "r1-t01",
        "r1-t01 ssh-ed25519",
        "r1-t01 ssh-ed25519 not!base64",
        "r1-t01 ssh-rsa " + OTHER.text.split()[1],
        "@unknown r1-t01 " + OTHER.text,
        "@revoked",
        "|1|broken " + OTHER.text,
        "|1|YQ==|!! " + OTHER.text,
        "|2|YQ==|YQ== " + OTHER.text,
        "1024 35 1234567890",
        "# r1-t01 " + OTHER.text,
        "\x00\xff",
    ],
    ids=range(12),
)
def test_a_line_that_makes_no_sense_is_passed_over(line):
    """And costs nobody anything: the good lines around it count, the bad one does not."""
    index = known(line, f"r1-t01 {ONE.text}")
    assert index.judge(TRAY, ONE.blob) == "known"
    assert index.judge(Names.of(("r1-t09",), 22), OTHER.blob) == "unknown"


@given(st.text(max_size=300))
def test_any_text_is_a_file(text):
    """Parsing is total, and nothing in it makes a stranger known."""
    assert KnownHosts([text]).judge(TRAY, ONE.blob) == "unknown"


def test_a_file_that_is_missing_knows_nobody(tmp_path):
    assert KnownHosts.read([str(tmp_path / "none"), "/dev/null"]).judge(TRAY, ONE.blob) == "unknown"


def test_appended_lines_are_whole(tmp_path):
    """A new file is ours alone; a file that ends in the middle of a line is not made worse."""
    file = tmp_path / "ssh" / "known_hosts"
    append(str(file), Names.of(("h",), 2222), ONE)
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_text() == f"[h]:2222 {ONE.text}\n"
    file.write_text("# no newline")
    append(str(file), TRAY, ONE)
    assert file.read_text() == f"# no newline\n10.0.0.1 {ONE.text}\n"


def test_a_key_says_its_own_type():
    kind, text = ONE.text.split()
    assert parse_key(kind, text) == ONE
    assert parse_key("ssh-rsa", text) is None
    assert parse_key(kind, text[:-4] + "!!!!") is None


@pytest.mark.parametrize(
    ("name", "text"),
    [("authorized_keys", ""), ("authorized_keys2", ""), (".bashrc", "export A=b\n"), ("config", "Host *\n  User x")],
)
def test_a_line_is_added_to_no_other_file(tmp_path, name, text):
    """An inventory names the file and the host: `no-pty ssh-ed25519 ...` in authorized_keys would let a stranger in."""
    file = tmp_path / name
    if text:
        file.write_text(text)
    with pytest.raises(OSError, match="no known_hosts file"):
        append(str(file), Names.of(("no-pty",), 22), ONE)
    assert (file.read_text() if file.exists() else "") == text


def test_a_line_is_added_to_a_long_file(tmp_path):
    """With comments, markers, hashes and an old key in it."""
    file = tmp_path / "known_hosts"
    one = f"r1 {ONE.text}"
    file.write_text(
        f"# c\n\n@revoked * {OTHER.text}\n|1|AAAAAAA=|AAAAAAA= {ONE.text}\nold 1024 35 1234\n" + f"{one}\n" * 2000
    )
    append(str(file), TRAY, ONE)
    assert file.read_text().endswith(f"{one}\n10.0.0.1 {ONE.text}\n")


def test_fifteen_thousand_hashed_lines_are_not_gone_through(monkeypatch):
    """For a host that is known only the lines that hold its key are tried, with each of its names."""

    def line(name: str, blob: bytes) -> str:
        salt = os.urandom(20)
        digest = hmac.digest(salt, name.encode(), "sha1")
        words = [base64.b64encode(b).decode() for b in (salt, digest, blob)]
        return f"|1|{words[0]}|{words[1]} ssh-ed25519 {words[2]}"

    blobs = [b"\0\0\0\x0bssh-ed25519\0\0\0\x20" + os.urandom(32) for _ in range(15_000)]
    found = KnownHosts(["\n".join(line(f"tray{i}", blob) for i, blob in enumerate(blobs))])
    real, tried = hmac.digest, []
    monkeypatch.setattr("llmgwctl.transport.known_hosts.hmac.digest", lambda *a: tried.append(a) or real(*a))
    assert found.judge(Names.of(("10.0.0.7", "tray777"), 22), blobs[777]) == "known"
    assert len(tried) <= 2
    assert found.judge(Names.of(("tray778",), 22), blobs[777]) == "changed"
