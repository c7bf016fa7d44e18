"""What docs/security.md promises, on real OpenSSH hosts: a key that only reads; secrets and modes; no forwarding."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from netns import OPS, Bed
from test_spine import ctl, doc, marked

from llmgwctl.rack import nvl72

RACK = nvl72(2, hgx=0)
EXAMPLE = Path(__file__).parents[2] / "docs/examples/llmgwctl-probe-only"
SECRET = "planted-5e1fab1e-key"


@pytest.fixture
def read_only(bed: Bed) -> Iterator[Bed]:
    """Every host takes the operator's key for reading alone."""
    allowed = ctl(bed, "probe", "--allow-list")
    assert allowed.code == 0, allowed.err
    kept = {}
    for host in bed.hosts:
        folder = bed.home(host) / ".ssh"
        shutil.copy(EXAMPLE, folder / "probe-only")
        (folder / "allowed").write_text(allowed.out)
        keys = bed.home(host) / ".ssh/authorized_keys"
        kept[keys] = keys.read_text()
        keys.write_text(f'restrict,command="/home/ops/.ssh/probe-only /home/ops/.ssh/allowed" {kept[keys]}')
    yield bed
    for keys, text in kept.items():
        keys.write_text(text)


def ssh(bed: Bed, host: str, *words: str, options: tuple[str, ...] = ()):
    return bed.run(
        "ssh", "-F", "none", "-i", str(bed.identity_file), "-o", f"UserKnownHostsFile={bed.known_hosts}",
        "-o", "BatchMode=yes", *options, f"ops@{bed.address(host)}", *words,
    )  # fmt: skip


def test_a_key_that_only_reads_reads_all_and_does_nothing(read_only: Bed):
    """Pages, plans and ps are whole; a place, a cordon, a shell, a copy and a forwarded port are refused."""
    bed = read_only
    for words in (("nvlink",), ("plan", "sim-nvl"), ("ps",), ("hosts", "--check"), ("metrics",), ("probe",)):
        done = ctl(bed, *words)
        assert done.code == 0, (words, done.err)
    done = ctl(bed, "place", "sim-nvl")
    assert done.code in (1, 3), done.out
    assert all(marked(bed, h) == {} for h in bed.hosts)
    for words in (("id",), (), ("cat", "/etc/passwd")):
        said = ssh(bed, "r1-t01", *words)
        assert (said.code, said.out) == (126, ""), words
    evil = "exec timeout -k 5 9 sh -c x llmgwctl 3 '' '$(id)' 9 aa ''"
    assert ssh(bed, "r1-t01", evil).code == 126
    forwarded = ssh(bed, "r1-t01", options=("-N", "-o", "ExitOnForwardFailure=yes", "-W", "127.0.0.1:22"))
    assert forwarded.code != 0


def test_a_planted_secret_is_nowhere_but_in_its_file(bed: Bed):
    """Command lines, logs, documents, errors and pages; on the host it lies in one file that only its owner reads."""
    key = bed.directory / "key"
    key.write_text(SECRET + "\n")
    change = ("[profiles.sim-nvl]\n", f'[profiles.sim-nvl]\napi_key_file = "{key}"\n')
    try:
        texts = [(w, ctl(bed, *w, change=change)) for w in (("plan", "sim-nvl"), ("-v", "place", "sim-nvl"))]
        assert texts[1][1].code == 0, texts[1][1].err
        asks = (("--json", "ps"), ("--json", "logs", "sim-nvl-0"), ("logs", "-v", "sim-nvl-0"), ("env", "sim-nvl"))
        texts += [(words, ctl(bed, *words, change=change)) for words in asks]
        page = bed.directory / "page.html"
        texts.append((("nvlink",), ctl(bed, "nvlink", "--html", str(page), change=change)))
        failing = (change[0], change[1] + 'args = ["--refuse", "x"]\n')
        texts.append((("place",), ctl(bed, "place", "sim-nvl", change=failing)))
        for words, done in texts:
            assert SECRET not in done.out + done.err, words
        assert SECRET not in page.read_text()
        for host in bed.hosts:
            lines = bed.inside(host, "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
            assert SECRET not in lines.out
            found = bed.inside(
                host, "grep", "-rl", SECRET, "/home/ops", "/run", "/tmp", "/var/tmp", "/dev/shm"
            ).out.split()
            assert all(re.fullmatch(r".*/sim-nvl-0\.r0/env", f) for f in found), found
            for file in found:
                assert bed.inside(host, "stat", "-c", "%a %u", file).out.strip() == f"600 {OPS}"
    finally:
        ctl(bed, "stop", "--all")


def test_nothing_of_ours_can_be_written_by_others(bed: Bed):
    """State directories and what is in them; a state directory that others can write is refused."""
    assert ctl(bed, "place", "sim-nvl").code == 0
    try:
        for host in bed.hosts:
            loose = bed.inside(host, "find", "/home/ops/.local/state/llmgwctl", "-perm", "/022")
            assert loose.out == "", host
    finally:
        assert ctl(bed, "stop", "--all").code == 0
    bed.inside("r1-t01", "chmod", "777", "/home/ops/.local/state/llmgwctl")
    done = ctl(bed, "place", "sim-nvl")
    bed.inside("r1-t01", "chmod", "700", "/home/ops/.local/state/llmgwctl")
    assert done.code == 1
    assert "can be written by others" in done.err
    assert doc(ctl(bed, "--json", "ps"))["replicas"] == []


def test_no_agent_reaches_a_host(bed: Bed):
    """Whatever the operator's own configuration asks for."""
    config = bed.directory / "config"
    config.write_text("Host *\n  ForwardAgent yes\n  ForwardX11 yes\n")
    text = re.sub(r"(?m)^config_file = .*$", f'config_file = "{config}"', bed.inventory.read_text())
    assert str(config) in text
    inventory = bed.inventory.with_name("agent.toml")
    inventory.write_text(text)
    agent = bed.run("ssh-agent", "-s")
    socket = re.search(r"SSH_AUTH_SOCK=([^;]+)", agent.out)
    pid = re.search(r"SSH_AGENT_PID=(\d+)", agent.out)
    assert socket
    assert pid
    try:
        argv = (sys.executable, "-m", "llmgwctl", "-i", str(inventory), "--json", "place", "sim-nvl")
        done = bed.run("env", f"SSH_AUTH_SOCK={socket[1]}", *argv)
        assert done.code == 0, done.err
        assert json.loads(done.out)["replicas"]
        for host in bed.hosts:
            for env in marked(bed, host).values():
                assert "SSH_AUTH_SOCK" not in env
                assert "DISPLAY" not in env
    finally:
        bed.run("kill", pid[1])
        ctl(bed, "stop", "--all")
