"""Races on real OpenSSH hosts: several operators on one rack, and a controller that is killed at any moment.

Ten rounds each here; `make soak` makes the full counts (LLMGW_SOAK_ROUNDS, default 200 and 100).
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from netns import Bed
from test_spine import commands, ctl, doc, marked

from llmgwctl.rack import nvl72

RACK = nvl72(4, hgx=0)
SEED = int(os.environ.get("LLMGW_SOAK_SEED", "5"))
SOAK = int(os.environ.get("LLMGW_SOAK_ROUNDS", "0"))


@pytest.fixture(autouse=True)
def nothing_left(bed: Bed) -> Iterator[None]:
    yield
    ctl(bed, "stop", "--all")
    clean(bed)


def words(bed: Bed, *more: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "llmgwctl", "-i", str(bed.inventory), *more)


def clean(bed: Bed) -> None:
    """No process, no claim, no shard directory, no half of either."""
    for host in bed.hosts:
        assert marked(bed, host) == {}, host
        listing = bed.inside(host, "sh", "-c", "ls -A /run/lock/llmgwctl; ls -A /home/ops/.local/state/llmgwctl/*/")
        assert not re.search(r"gpu-|slot-|\.new\.|\.r\d", listing.out), (host, listing.out)


def gpus_by_launch(bed: Bed) -> list[tuple[str, str, str]]:
    """(host, GPU, marker) of every process of a shard, as the kernel tells it."""
    return [
        (host, gpu, env["LLMGWCTL_SHARD"])
        for host in bed.hosts
        for env in commands(bed, host)
        for gpu in env.get("CUDA_VISIBLE_DEVICES", "").split(",")
        if gpu
    ]


def contest(bed: Bed, rng: random.Random) -> None:
    """Two to four `place` at nearly the same time on a rack for two: two win, and the others are told by whom."""
    runs = []
    for _ in range(rng.randint(2, 4)):
        runs.append(bed.popen(*words(bed, "place", "sim-nvl")))
        time.sleep(rng.random() * 0.5)
    done = [(p.communicate(timeout=300), p.returncode) for p in runs]
    won = [d for d in done if d[1] == 0]
    assert len(won) == 2, done
    for (out, err), code in done:
        assert code in (0, 4), (out, err)
        if code == 4:
            assert "sim-nvl-" in out + err, (out, err)  # who has them
    seen: dict[tuple[str, str], str] = {}
    for host, gpu, marker in gpus_by_launch(bed):
        assert seen.setdefault((host, gpu), marker) == marker, "a GPU runs two shards"
    rows = doc(ctl(bed, "--json", "ps"))["replicas"]
    assert sorted(r["state"] for r in rows) == ["ready", "ready"]
    assert len({r["id"] for r in rows}) == 2
    assert ctl(bed, "stop", "--all").code == 0
    clean(bed)


def killed_somewhere(bed: Bed, rng: random.Random) -> None:
    """SIGKILL at a random moment: `ps` names what runs, `stop --all` leaves nothing, a new place works."""
    what = rng.choice(("place", "stop", "ensure"))
    if what == "stop":
        assert ctl(bed, "place", "sim-nvl").code == 0
    more = ("stop", "--all") if what == "stop" else (what, "sim-nvl")
    process = bed.popen(*words(bed, *more))
    time.sleep(rng.random() * 5)
    kill_tree(process)
    running = {env["LLMGWCTL_SHARD"].rpartition(".r")[0] for h in bed.hosts for env in commands(bed, h)}
    shown = {r["id"] for r in doc(ctl(bed, "--json", "ps"))["replicas"]}
    assert running <= shown, (what, running, shown)
    stopped = ctl(bed, "stop", "--all")
    assert stopped.code == 0, stopped.err
    clean(bed)


def kill_tree(process: subprocess.Popen[str]) -> None:
    """`ip netns exec` becomes the command itself: one process."""
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)


def test_ten_contests_for_one_rack(bed: Bed):
    rng = random.Random(SEED)
    for _ in range(10):
        contest(bed, rng)


def test_ten_controllers_killed_at_random_moments(bed: Bed):
    """After all of them the rack is as usable as before."""
    rng = random.Random(SEED)
    for _ in range(10):
        killed_somewhere(bed, rng)
    assert ctl(bed, "place", "sim-nvl").code == 0


@pytest.mark.soak
def test_two_hundred_contests(bed: Bed):
    rng = random.Random(SEED)
    for _ in range(SOAK or 200):
        contest(bed, rng)


@pytest.mark.soak
def test_a_hundred_controllers_killed(bed: Bed):
    rng = random.Random(SEED)
    for _ in range(SOAK or 100):
        killed_somewhere(bed, rng)
    assert ctl(bed, "place", "sim-nvl").code == 0
