"""Ray for real on two SSH hosts, in the order in which vLLM wants it; the server is a stand-in that asks Ray itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from site_of import Site, until

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("real")]

STAND_IN = Path(__file__).with_name("fake_vllm.py")
MODEL = "models/tiny-llama"


@pytest.fixture
def site(bed, real):
    """A build whose ray is the real one and whose vllm is the stand-in. Afterwards nothing is left."""
    python = real("vllm/bin/python")
    real("vllm/bin/ray")
    build = bed.directory / "fake/bin"
    build.mkdir(parents=True, exist_ok=True)
    (build / "vllm").write_text(f"#!{python}\n" + STAND_IN.read_text())
    (build / "ray").write_text(f'#!/bin/sh\nexec {python.with_name("ray")} "$@"\n')
    for program in build.iterdir():
        program.chmod(0o755)
    profile = {
        "engine": "vllm",
        "nodes": 2,
        "gpus_per_node": 2,
        "tp": 4,
        "model_path": str(real(MODEL)),
        "served_model_name": "real",
        "fabric": "require-rdma",
        "port": "8000-8099",
        "ready_timeout_s": 240,
        "stop_grace_s": 20,
        "env": {"TIED_TO": "nothing"},
    }
    made = Site.make(bed, {"vllm": {"path": f"{build}/", "distributed": "ray"}}, profile)
    yield made
    made.stop()


def seen_by_tasks(site: Site) -> dict[str, dict[str, str]]:
    """node address -> environment, as a Ray task on that node sees it."""
    status, text = site.ask("/tasks", limit_s=120)
    assert status == 200, text
    return json.loads(text)


def test_the_sequence_the_environment_and_a_clean_stop(site: Site):
    """The server starts when all GPUs are there; a Ray task has its own host's environment; stop ends every process."""
    row = site.place(timeout_s=400)
    log = site("logs", "real-0", "--rank", "0", "-n", "2000").out
    assert "with 4 GPUs in the cluster" in log  # what it found when it started

    tasks = seen_by_tasks(site)
    hosts = {site.bed.address(s["host"]): s["host"] for s in row["shards"]}
    assert set(tasks) == set(hosts)
    for address, env in tasks.items():
        assert env["VLLM_HOST_IP"] == address
        assert env["NCCL_SOCKET_IFNAME"] == "=eth0"
        assert env["TIED_TO"] == "nothing"
        assert env["LLMGWCTL_SHARD"].startswith("real-0.r")
        assert "RAY_ADDRESS" not in env or ":" in env["RAY_ADDRESS"]
    assert len({env["LLMGWCTL_SHARD"] for env in tasks.values()}) == 2  # each its own host's shard

    for host in hosts.values():
        # Ray's workers lead groups of their own: a signal to the group of `ray start` would not reach them.
        ours = site.processes(host)
        assert any("raylet" in words for words in ours.values()), ours
        groups = site.bed.inside(host, "ps", "-o", "pgid=", "-p", ",".join(map(str, ours))).out.split()
        assert len(set(groups)) > 1
    site.stop()


def test_a_lost_node_is_a_failed_replica_with_its_rank(site: Site):
    """The worker's raylet is killed: ps says which rank ended; and the stop is clean all the same."""
    row = site.place(timeout_s=400)
    worker = row["shards"][1]["host"]
    site.bed.inside(worker, "kill", "-9", str(site.pid(worker, r"raylet/raylet ")))
    assert f"on {worker}: ray-worker exited" in until(lambda: site.failed(90), 90)


def test_a_worker_that_finds_no_ray_is_refused_before_anything_starts(site: Site):
    """A build without Ray: exit 4, with the hosts, and nothing is claimed."""
    text = site.inventory.read_text()
    bare = site.bed.directory / "bare/bin"
    bare.mkdir(parents=True, exist_ok=True)
    (bare / "vllm").write_text("#!/usr/bin/env python3\n")
    (bare / "vllm").chmod(0o755)
    site.inventory.write_text(text.replace("/fake/bin/", "/bare/bin/"))
    done = site("place", "real")
    assert done.code == 4
    assert "vllm is missing on" in done.err
    site.nothing_left()
