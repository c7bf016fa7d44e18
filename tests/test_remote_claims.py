"""Claims, with the real script: exclusive, all or none, stale only without doubt, never through a link."""

from __future__ import annotations

import getpass
import os
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from local_hosts import (
    claim_and_start,
    claim_words,
    command,
    kill_tree,
    life,
    make_host,
    of_tree,
    prepared,
    run_script,
    set_boot,
    set_uptime,
    sh,
    until,
    words,
)

from llmgwctl.transport.base import Script

HELD, ALIVE, REFUSED, GONE = 10, 12, 13, 14


@pytest.fixture
def host(tmp_path):
    yield make_host(tmp_path, "n1")
    kill_tree(tmp_path)


def shard(host, replica="p-0", gpus=2, **kwargs):
    return prepared([host], sh("main", "exec sleep 300"), replica=replica, gpus=gpus, **kwargs)[0]


def claim(p):
    return run_script(p.host, "claims.sh", "claim", *claim_words(p))


def claims_dir(host) -> Path:
    return Path(host.root_prefix, "run/lock/llmgwctl")


def test_claims_are_taken_and_tell_who(host):
    """Every GPU has a file that names replica, rank, operator, workstation and account."""
    p = shard(host)
    assert claim(p).exit_code == 0
    found = life(host).claims
    assert {c.key for c in found} == {"gpu-GPU-n1-0", "gpu-GPU-n1-1"}
    assert {(c.replica, c.rank, c.operator, c.workstation, c.launch) for c in found} == {
        ("p-0", 0, "ann", "desk", p.launch.id)
    }
    assert found[0].account == getpass.getuser()
    assert claims_dir(host).stat().st_mode & 0o7777 == 0o1777


def test_a_held_key_refuses_the_whole_request(host):
    """One GPU of two held by another: neither is taken, and the holder is named."""
    assert claim(shard(host, "a-0", gpus=1)).exit_code == 0
    said = claim(shard(host, "b-0", gpus=2, operator="bob"))
    assert said.exit_code == HELD
    assert said.stdout.split("\t")[:5] == ["held", "gpu-GPU-n1-0", "a-0", "0", "ann"]
    assert [c.key for c in life(host).claims] == ["gpu-GPU-n1-0"]


def test_claiming_again_for_the_same_launch_is_no_conflict(host):
    """A call that is repeated because its answer was lost succeeds."""
    p = shard(host)
    assert claim(p).exit_code == claim(p).exit_code == 0
    assert len(life(host).claims) == 2


def test_of_many_contenders_exactly_one_wins(host):
    """Twelve at once, each for all GPUs: one has them all, eleven are told who."""
    contenders = [shard(host, f"c-{i}", gpus=4) for i in range(12)]
    with ThreadPoolExecutor(12) as pool:
        said = list(pool.map(claim, contenders))
    assert sorted(o.exit_code for o in said) == [0] + [HELD] * 11
    winner = contenders[[o.exit_code for o in said].index(0)]
    assert {c.replica for c in life(host).claims} == {winner.replica}
    assert all(winner.replica in o.stdout for o in said if o.exit_code == HELD)
    assert len(life(host).claims) == 4


def test_release_gives_back_its_own_and_nothing_else(host):
    """Another launch's claims stay."""
    a, b = shard(host, "a-0", gpus=1), replace(shard(host, "b-0"), keys=("gpu-other",))
    claim(a), claim(b)
    assert run_script(host, "claims.sh", "release", *words(a)).exit_code == 0
    assert [c.replica for c in life(host).claims] == ["b-0"]


def test_release_refuses_while_processes_live(host):
    """A GPU is never given back under a running process."""
    p = shard(host)
    assert claim_and_start(p).exit_code == 0
    until(lambda: life(host).claims[0].alive)
    assert run_script(host, "claims.sh", "release", *words(p)).exit_code == ALIVE
    assert len(life(host).claims) == 2


@pytest.mark.parametrize(("uptime", "stale"), [(5599, False), (5600, True)])
def test_a_claim_without_a_process_is_stale_after_ten_minutes_of_uptime(host, uptime, stale):
    """599 s: held. 600 s: taken over, and whose it was is said. Probe and script agree."""
    claim(shard(host, "old-0"))
    set_uptime(host.root_prefix, uptime)
    assert all(c.stale is stale for c in life(host).claims)
    said = claim(shard(host, "new-0"))
    assert (said.exit_code == 0) is stale
    assert ("took-over\tgpu-GPU-n1-0\told-0" in said.stdout) is stale
    assert {c.replica for c in life(host).claims} == {"new-0" if stale else "old-0"}


def test_a_claim_of_another_boot_is_stale_at_once(host):
    """Whatever it was for is gone with the boot."""
    claim(shard(host, "old-0"))
    set_boot(host.root_prefix, "b-2")
    assert all(c.stale for c in life(host).claims)
    assert claim(shard(host, "new-0")).exit_code == 0


def test_a_claim_with_a_live_process_is_never_stale(host):
    """However long ago it was made."""
    p = shard(host)
    claim_and_start(p)
    until(lambda: life(host).claims[0].alive)
    set_uptime(host.root_prefix, 9_000_000)
    assert not any(c.stale for c in life(host).claims)
    assert claim(shard(host, "new-0")).exit_code == HELD


def test_a_claim_stays_alive_by_its_marker_when_its_supervisor_was_killed(host, tmp_path):
    """The engine still holds the GPU: a killed supervisor frees nothing."""
    p = shard(host)
    claim_and_start(p)
    until(lambda: len(Path(host.state_dir, "n1/p-0.r0/pids").read_text().splitlines()) == 2)
    lines = Path(host.state_dir, "n1/p-0.r0/pids").read_text().splitlines()
    os.kill(int(lines[0].split()[1]), 9)
    for path in claims_dir(host).glob("gpu-*"):  # even if the recorded processes told nothing
        path.write_text("".join(x for x in path.read_text().splitlines(True) if not x.startswith("proc=")))
    set_uptime(host.root_prefix, 9_000_000)
    assert claim(shard(host, "new-0")).exit_code == HELD
    assert all(c.alive and not c.stale for c in life(host).claims)
    assert of_tree(tmp_path)


def test_a_taken_over_launch_cannot_start_any_more(host, tmp_path):
    """Its start came too late: nothing runs, and the new holder is named."""
    late, new = shard(host, "late-0"), shard(host, "new-0")
    claim(late)
    set_uptime(host.root_prefix, 5700)
    assert claim(new).exit_code == 0
    said = run_script(host, "shard.sh", "start", *words(late), *late.keys, stdin=late.payload)
    assert said.exit_code == GONE
    assert "taken over by new-0" in said.stderr
    assert not of_tree(tmp_path)
    assert not list(Path(host.state_dir, "n1").iterdir())


@pytest.mark.parametrize("kind", ["link", "directory", "garbage", "empty"])
def test_what_is_no_claim_blocks_its_gpu_and_is_never_followed(host, kind, tmp_path):
    """A stranger may put anything there: the GPU counts as taken, the entry is named, its target is untouched."""
    assert claim(replace(shard(host, "x-0"), keys=("gpu-z",))).exit_code == 0
    target = tmp_path / "target"
    target.write_text("precious")
    path = claims_dir(host) / "gpu-GPU-n1-0"
    if kind == "link":
        path.symlink_to(target)
    elif kind == "directory":
        path.mkdir()
    else:
        path.write_text("" if kind == "empty" else "replica=\x00\x1b[2J\nlaunch\n" * 500)
    said = claim(shard(host))
    assert said.exit_code == HELD
    assert target.read_text() == "precious"
    assert any("gpu-GPU-n1-0" in odd for odd in life(host).unreadable)
    assert "gpu-GPU-n1-0" in {c.key for c in life(host).claims}


def test_a_file_cannot_forge_lines_of_the_probe(host):
    """What a stranger writes into a claim is shown as its content, and makes no other claim or shard."""
    claim(replace(shard(host, "x-0"), keys=("gpu-z",)))
    path = claims_dir(host) / "gpu-evil"
    body = "replica=r\nrank=0\nlaunch=l\nboot_id=b-1\nuptime_s=1\n"
    path.write_text(body + "claim gpu-forged owner=root\nshard /x boot=b-1\n\x0bclaim gpu-forged2 owner=root\n")
    (claims_dir(host) / "gpu-\nclaim gpu-forged3 owner=root").write_text(body)
    found = life(host)
    assert {c.key for c in found.claims} == {"gpu-z", "gpu-evil"}
    assert found.shards == ()
    assert len(found.unreadable) == 1


@pytest.mark.parametrize("mode", [0o777, 0o755])
def test_a_claim_directory_that_is_not_sticky_is_refused(host, mode):
    """Without the sticky bit anybody could remove another account's claims."""
    claims_dir(host).mkdir()
    claims_dir(host).chmod(mode)
    assert claim(shard(host)).exit_code == REFUSED


def test_a_linked_claim_directory_is_refused(host, tmp_path):
    """Claims do not go where a stranger points."""
    (tmp_path / "elsewhere").mkdir()
    claims_dir(host).symlink_to(tmp_path / "elsewhere")
    assert claim(shard(host)).exit_code == REFUSED
    assert not list((tmp_path / "elsewhere").iterdir())


def test_dev_shm_is_used_where_run_lock_cannot_be(host):
    """Hosts without a writable /run/lock keep claims in /dev/shm."""
    Path(host.root_prefix, "run/lock").rmdir()
    assert claim(shard(host)).exit_code == 0
    assert len(list(Path(host.root_prefix, "dev/shm/llmgwctl").glob("gpu-*"))) == 2
    assert len(life(host).claims) == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second account")
def test_a_second_account_sees_claims_and_takes_over_only_stale_ones():
    """It cannot remove a stale claim in a sticky directory: its own then stands beside it, and counts."""
    with tempfile.TemporaryDirectory() as base:
        Path(base).chmod(0o711)
        host = make_host(Path(base), "n1")
        Path(host.root_prefix, "run/lock").chmod(0o1777)
        claim(shard(host, "roots-0"))
        p = shard(host, "nobodys-0", operator="bob")
        refused = claim_as_nobody(p)
        assert refused.returncode == HELD
        assert b"roots-0" in refused.stdout
        set_uptime(host.root_prefix, 5700)
        assert claim_as_nobody(p).returncode == 0
        live = [c for c in life(host).claims if not c.stale]
        assert {(c.replica, c.account) for c in live} == {("nobodys-0", "nobody")}
        assert claim(shard(host, "third-0")).exit_code == HELD


def claim_as_nobody(p):
    argv, data = command(Script("claims.sh", (p.host.root_prefix, p.host.state_dir, "claim", *claim_words(p))))
    other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    return subprocess.run([*other, *argv], input=data, capture_output=True, check=False)
