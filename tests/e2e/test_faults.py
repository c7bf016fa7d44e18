"""Faults on real OpenSSH hosts, one a test: the states and exit codes that follow, and what is left afterwards."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from netns import Bed, Done, command
from test_spine import AS_ROOT, commands, ctl, doc, marked

from llmgwctl.rack import nvl72

RACK = nvl72(4, hgx=0)
ARGS = "[profiles.sim-nvl]"


def with_args(*words: str) -> tuple[str, str]:
    """The inventory with arguments for sim-nvl's engine."""
    return (f"{ARGS}\n", f"{ARGS}\nargs = {json.dumps(list(words))}\n")


@pytest.fixture(autouse=True)
def nothing_left(bed: Bed) -> Iterator[None]:
    """Whatever a test breaks: mended, one `stop --all` leaves no process and no claim, and a new place works."""
    yield
    bed.restore()
    done = ctl(bed, "stop", "--all")
    assert done.code == 0, done.err
    assert ctl(bed, "stop", "--all", change=AS_ROOT).code == 0
    for host in bed.hosts:
        assert marked(bed, host) == {}
        listing = bed.inside(host, "sh", "-c", "ls /run/lock/llmgwctl /dev/shm/llmgwctl; ls /home/*/.local/state/*/*/")
        assert not re.search(r"gpu-|slot-|\.r\d", listing.out), host


def ps(bed: Bed, *words: str) -> dict:
    rows = doc(ctl(bed, "--json", "ps", *words))["replicas"]
    assert len(rows) == 1, rows
    return rows[0]


def placed(bed: Bed, *words: str, change: tuple[str, str] | None = None) -> dict:
    done = ctl(bed, "place", "sim-nvl", *words, change=change)
    assert done.code == 0, done.err
    return ps(bed)


def begun(bed: Bed, *words: str, change: tuple[str, str] | None = None) -> subprocess.Popen[str]:
    """A `place` that is under way, once both ranks run."""
    inventory = bed.inventory
    if change:
        inventory = bed.inventory.with_name("begun.toml")
        inventory.write_text(bed.inventory.read_text().replace(*change))
    process = bed.popen(sys.executable, "-m", "llmgwctl", "-i", str(inventory), "place", "sim-nvl", *words)
    until(lambda: all(commands(bed, h) for h in ("r1-t01", "r1-t02")), 60)
    return process


def until(what: Callable[[], object], limit_s: float = 60) -> None:
    deadline = time.monotonic() + limit_s
    while not what():
        assert time.monotonic() < deadline, "it did not become true"
        time.sleep(0.2)


def shards(row: dict) -> list[tuple[str, str]]:
    return [(s["host"], s["state"]) for s in row["shards"]]


# --- before readiness -----------------------------------------------------------------------------------------------


def test_a_shard_that_exits_fails_its_replica_at_once_and_is_rolled_back(bed: Bed):
    """Exit 1: which rank, its code, its last words, the folder of the logs; nothing is claimed."""
    done = ctl(bed, "place", "sim-nvl", change=with_args("--never-ready", "--die-after", "0.2", "--die-rank", "1"))
    assert done.code == 1
    assert "rank 1 on r1-t02: sim exited with code 1" in done.err
    assert "the last words of every rank are in" in done.err
    assert doc(ctl(bed, "--json", "ps"))["replicas"] == []


def test_shards_that_hang_and_a_leader_that_is_never_ready_end_at_the_time_limit(bed: Bed):
    for flag in ("--hang-at-start", "--never-ready"):
        done = ctl(bed, "place", "sim-nvl", "--timeout", "4", change=with_args(flag))
        assert done.code == 1, done.err
        assert "not ready within 4 s" in done.err
        assert doc(ctl(bed, "--json", "ps"))["replicas"] == []


def test_a_host_that_is_switched_off_while_it_starts_is_named_and_kept(bed: Bed):
    """Losing contact is no death: exit 3 after the contact limit, or the peer notices first: exit 1. Either way its

    entry is there until it can be cleaned."""
    process = begun(bed, change=with_args("--never-ready"))
    bed.kill("r1-t02")
    _, err = process.communicate(timeout=150)
    assert process.returncode in (1, 3), err
    assert "r1-t02" in err
    rows = doc(ctl(bed, "--json", "ps"))["replicas"]
    assert all(r["state"] in ("unknown", "failed") for r in rows)
    bed.boot("r1-t02")
    ctl(bed, "stop", "--all")
    assert doc(ctl(bed, "--json", "ps"))["replicas"] == []


def test_a_link_that_is_cut_for_five_seconds_costs_nothing(bed: Bed):
    """While it starts and after: contact comes back, and so does the replica."""
    process = begun(bed, "--timeout", "60", change=with_args("--never-ready"))
    bed.cut("r1-t02")
    time.sleep(5)
    bed.heal("r1-t02")
    time.sleep(6)
    assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 3, err
    row = ps(bed)
    assert (row["state"], {s for _, s in shards(row)}) == ("starting", {"running"})


def test_an_sshd_that_is_killed_while_it_starts_leaves_the_shard_to_itself(bed: Bed):
    """The sessions go, the shard stays; the daemon still answers, so the wait goes on to its own limit."""
    process = begun(bed, "--timeout", "25", change=with_args("--never-ready"))
    bed.inside("r1-t02", "sh", "-c", "pkill -KILL -f 'sshd: ops' || pkill -KILL -f sshd-session; true")
    assert commands(bed, "r1-t02")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1, err
    assert "not ready within 25 s" in err
    assert doc(ctl(bed, "--json", "ps"))["replicas"] == []


@contextmanager
def full_disk(bed: Bed, host: str) -> Iterator[None]:
    """Where the state directory lies there is no room for a byte."""
    where = "/home/ops/.local"
    small = f"mkdir -p {where} && mount -t tmpfs -o size=64k,mode=700,uid=2000,gid=2000 tmpfs {where} && "
    fill = f"dd if=/dev/zero of={where}/full bs=1k count=200 2>/dev/null; true"
    assert bed.inside(host, "sh", "-c", small + fill).code == 0
    try:
        yield
    finally:
        assert bed.inside(host, "umount", where).code == 0


UNASKED = '[[doctor.suppress]]\ncheck = "LG804"\nreason = "it fills up later"\nuntil = 2099-01-01\n\n'


def test_a_host_with_a_full_disk_is_gone_around(bed: Bed):
    """Where it is seen in time the replica is placed on other hosts, and that host is named with its folder."""
    with full_disk(bed, "r1-t02"):
        done = ctl(bed, "place", "sim-nvl")
        assert done.code == 0, done.err
        assert "r1-t02 is left out: LG804" in done.err
        assert "/home/ops/.local" in done.err
        assert "r1-t02" not in dict(shards(ps(bed)))
        assert commands(bed, "r1-t02") == []
    assert ctl(bed, "stop", "--all").code == 0


def test_a_disk_that_is_full_at_the_start_is_said_and_rolled_back(bed: Bed):
    """Exit code 1, with host and folder, and nothing runs anywhere."""
    with full_disk(bed, "r1-t02"):
        done = ctl(bed, "place", "sim-nvl", change=("[profiles.sim-nvl]\n", UNASKED + "[profiles.sim-nvl]\n"))
        assert done.code == 1, done.err
        assert "r1-t02" in done.err
        assert "/home/ops/.local" in done.err
        assert doc(ctl(bed, "--json", "ps"))["replicas"] == []
        assert commands(bed, "r1-t01") == []


def test_where_sshd_does_not_forward_the_hosts_own_curl_asks(bed: Bed):
    """It serves, and is proved to, without any forwarding."""
    config = [bed.directory / h / "etc/llmgw-e2e/sshd_config" for h in ("r1-t01", "r1-t02")]
    kept = [c.read_text() for c in config]
    try:
        for host, c in zip(("r1-t01", "r1-t02"), config, strict=True):
            c.write_text(c.read_text() + "AllowTcpForwarding no\n")
            bed.boot(host)
        assert placed(bed)["state"] == "ready"
    finally:
        for host, c, text in zip(("r1-t01", "r1-t02"), config, kept, strict=True):
            c.write_text(text)
            bed.boot(host)


# --- after readiness ------------------------------------------------------------------------------------------------


def test_a_rank_that_dies_later_fails_the_replica_and_ensure_replaces_it(bed: Bed):
    """ps names the rank and its code; --check is 1; ensure stops what is left and places it again, under its name."""
    before = placed(bed)
    for pid in [p for p, env in marked(bed, "r1-t02").items() if "LLMGWCTL_SHARD" in env]:
        bed.inside("r1-t02", "kill", "-KILL", str(pid))
    until(lambda: ps(bed)["state"] == "failed")
    row = ps(bed)
    assert dict(shards(row))["r1-t02"] == "exited"
    assert "code 137" in row["why"] or "code 1" in row["why"]
    assert ctl(bed, "ps", "--check", "sim-nvl-0").code == 1
    done = ctl(bed, "--json", "ensure", "sim-nvl")
    (one,) = doc(done)["profiles"]
    assert [a["do"] for a in one["actions"]] == ["stop", "place"], done.err
    until(lambda: ctl(bed, "ensure", "sim-nvl").code == 0 and ps(bed)["state"] == "ready")
    assert ps(bed)["launch"] != before["launch"]


def test_a_rank_that_ignores_term_is_killed_after_its_grace(bed: Bed):
    placed(bed, change=with_args("--ignore-term"))
    done = ctl(bed, "stop", "sim-nvl-0")
    assert done.code == 0
    assert "had to be killed" in done.err
    assert "nothing of it is left on 2 hosts" in done.out


def test_a_host_that_is_off_leaves_the_replica_unknown_and_undoubled(bed: Bed):
    """ps 3, ensure 3 and nothing placed, stop 3 naming the host; booted again it is `rebooted`, and stop cleans it."""
    placed(bed)
    bed.cut("r1-t02")
    row = ps(bed)
    assert row["state"] in ("unknown", "failed")
    bed.kill("r1-t02")
    assert ctl(bed, "ps").code == 3
    done = ctl(bed, "--json", "ensure", "sim-nvl", "--dry-run")
    if ps(bed)["state"] == "unknown":
        assert done.code == 3
        assert [a["do"] for a in doc(done)["profiles"][0]["actions"]] == ["leave"]
    stopped = ctl(bed, "stop", "sim-nvl-0")
    assert stopped.code == 3
    assert "r1-t02" in stopped.err
    bed.heal("r1-t02")
    bed.boot("r1-t02")
    row = ps(bed)
    assert row["state"] == "failed"
    assert dict(shards(row))["r1-t02"] == "rebooted"
    assert ctl(bed, "stop", "sim-nvl-0").code == 0
    assert doc(ctl(bed, "--json", "ps"))["replicas"] == []


def test_a_gpu_that_drops_out_of_its_domain_is_seen_from_the_hosts(bed: Bed):
    placed(bed)
    bed.set("r1-t01", "gpu-not-joined:2")
    row = ps(bed)
    assert (row["state"], dict(shards(row))["r1-t01"]) == ("failed", "dropped")
    assert "GPU 2 has left the NVLink domain" in row["why"]
    assert ctl(bed, "ps", "--check", "sim-nvl-0").code == 1


def test_a_clock_that_is_wrong_by_an_hour_changes_nothing(bed: Bed):
    """Ages are by uptime, never by the wall clock: an hour ahead on the controller, nothing is stale or late."""
    placed(bed)
    ahead = "import time; now = time.time; time.time = lambda: now() + 3600; from llmgwctl.cli import main; main()"
    done = bed.run(sys.executable, "-c", ahead, "-i", str(bed.inventory), "--json", "ensure", "sim-nvl")
    assert done.code == 0, done.err
    (one,) = doc(done)["profiles"]
    assert (one["ready"], one["actions"]) == (1, [])
    assert 0 <= ps(bed)["for_s"] < 3000
    assert ctl(bed, "plan", "sim-nvl", "--replicas", "2").code == 4  # their claims are held, whatever the time is


def test_processes_that_a_logout_would_take_stay_known(bed: Bed):
    """Somebody sends KILL to all of an account: every rank is seen to be gone, and stop cleans."""
    placed(bed)
    for host in ("r1-t01", "r1-t02"):
        bed.inside(host, "pkill", "-KILL", "-u", "ops")
    row = ps(bed)
    assert row["state"] == "failed"
    assert {s for _, s in shards(row)} <= {"gone", "exited"}
    assert ctl(bed, "stop", "sim-nvl-0").code == 0


def test_a_home_on_one_tree_for_all_hosts_keeps_them_apart(bed: Bed):
    """All of them write to one folder: each has its own below it, and each replica is stopped where it runs."""
    shared = bed.directory / "nfs"
    shared.mkdir(exist_ok=True)
    shared.chmod(0o777)
    mounted = []
    try:
        for host in bed.hosts:
            script = f"mkdir -p /home/ops/.local && mount --bind {shared} /home/ops/.local"
            assert bed.inside(host, "sh", "-c", script).code == 0
            mounted.append(host)
        assert placed(bed)["state"] == "ready"
        second = ctl(bed, "place", "sim-nvl")
        assert second.code == 0, second.err
        rows = doc(ctl(bed, "--json", "ps"))["replicas"]
        assert [(r["id"], r["state"]) for r in rows] == [("sim-nvl-0", "ready"), ("sim-nvl-1", "ready")]
        assert ctl(bed, "stop", "sim-nvl-0").code == 0
        (left,) = doc(ctl(bed, "--json", "ps"))["replicas"]
        assert (left["id"], left["state"]) == ("sim-nvl-1", "ready")
        assert ctl(bed, "stop", "--all").code == 0
    finally:
        for host in mounted:
            bed.inside(host, "umount", "-l", "/home/ops/.local")


def test_another_accounts_replicas_are_seen_and_never_touched(bed: Bed):
    """Root's replica: ops sees its claims, plans around them, and `stop --all` leaves it."""
    done = ctl(bed, "place", "sim-nvl", change=AS_ROOT)
    assert done.code == 0, done.err
    row = ps(bed)
    assert (row["state"], {s["account"] for s in row["shards"]}) == ("unknown", {"root"})
    assert ctl(bed, "stop", "sim-nvl-0").code == 2
    assert ctl(bed, "stop", "--all").code == 0
    done = ctl(bed, "place", "sim-nvl")
    assert done.code == 0, done.err
    rows = doc(ctl(bed, "--json", "ps"))["replicas"]
    used = [{s["host"] for s in r["shards"]} for r in rows]
    assert len(used) == 2
    assert not used[0] & used[1]
    assert (ctl(bed, "ps", change=AS_ROOT).code, len(commands(bed, "r1-t01")) > 0) == (0, True)


def test_a_killed_controller_leaves_what_ps_names_and_stop_ends(bed: Bed):
    process = begun(bed, change=with_args("--never-ready"))
    inner = [int(p) for p in command("pgrep", "-f", "begun.toml place").split()]
    for pid in inner:
        os.kill(pid, signal.SIGKILL)
    process.wait(timeout=30)
    assert ps(bed)["state"] == "starting"
    assert ctl(bed, "stop", "sim-nvl-0").code == 0
    assert doc(ctl(bed, "--json", "ps"))["replicas"] == []


def test_cordoned_by_one_operator_left_out_by_all(bed: Bed):
    """The host's own file counts for another workstation, and for another account."""
    done: Done = ctl(bed, "hosts", "cordon", "r1-t[01-02]", "--reason", "PSU")
    assert done.code == 0, done.err
    (bed.inventory.with_name("cordons.toml")).unlink()
    for change in (None, AS_ROOT):
        (replica,) = doc(ctl(bed, "--json", "plan", "sim-nvl", change=change))["replicas"]
        assert [s["host"] for s in replica["shards"]] == ["r1-t03", "r1-t04"]
    assert ctl(bed, "hosts", "uncordon", "r1-t[01-02]").code == 0
    (replica,) = doc(ctl(bed, "--json", "plan", "sim-nvl"))["replicas"]
    assert [s["host"] for s in replica["shards"]] == ["r1-t01", "r1-t02"]
