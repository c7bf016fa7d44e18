"""vLLM for real on the CPUs of two SSH hosts, with a tiny model: native tensor and data parallel, and under Ray."""

from __future__ import annotations

import time
from typing import Any

import pytest
from site_of import Site, until

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("real")]

ENV = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "VLLM_NO_USAGE_STATS": "1",
}
ARGS = ["--enforce-eager", "--max-model-len", "512", "--max-num-seqs", "4", "--dtype", "bfloat16"]
READY_S = 900


@pytest.fixture
def site(bed, real):
    """site(build, profile): a replica over both hosts; whatever a test does, afterwards nothing is left."""
    path = str(real("vllm/bin/vllm"))
    model = str(real("models/tiny-llama/config.json").parent)
    made: list[Site] = []

    def make(build: dict[str, Any], plugin: str = "none", **profile: Any) -> Site:
        usual = {
            "engine": "vllm",
            "nodes": 2,
            "gpus_per_node": 1,
            "model_path": model,
            "served_model_name": "real",
            "fabric": "require-rdma",
            "port": "8000-8099",
            "ready_timeout_s": READY_S,
            "stop_grace_s": 30,
            "args": ARGS,
            "env": ENV | {"VLLM_PLUGINS": plugin},
        }
        made.append(Site.make(bed, {"vllm": {"path": path, **build}}, usual | profile))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def test_native_tensor_parallel(site):
    """A completion through both hosts; a killed worker is a failed replica though /health stays 200; a clean stop."""
    tp = site({}, tp=2)
    assert "vllm 0." in tp("engines").out
    row = tp.place(timeout_s=READY_S + 60)
    assert tp.complete("hello world") is not None
    worker = row["shards"][1]["host"]
    tp.bed.inside(worker, "kill", "-9", str(tp.pid(worker, "VLLM::Worker")))
    # A headless node exits 0 when its worker was killed: an exit is a failure, whatever its code.
    assert f"rank 1 on {worker}: vllm exited with code 0" in tp.failed(90)
    assert tp.ask("/health")[0] == 200  # the leader does not know
    tp.stop()


def test_native_data_parallel(site):
    """Two engines behind one endpoint; the other host's engine killed is seen, while the leader goes on answering."""
    dp = site({}, dp=2)
    row = dp.place(timeout_s=READY_S + 60)
    for _ in range(4):
        dp.complete("hello world")
    text = dp.ask("/metrics")[1]
    assert 'engine="0"' in text
    assert 'engine="1"' in text
    worker = row["shards"][1]["host"]
    dp.bed.inside(worker, "kill", "-9", str(dp.pid(worker, "VLLM::EngineCore")))
    assert f"rank 1 on {worker}" in dp.failed(90)
    dp.stop()


def test_under_ray(site):
    """The server on Ray's head, one actor on the other host; its raylet killed is a failed replica; a clean stop."""
    ray = site({"distributed": "ray"}, plugin="cpuray", tp=2)
    row = ray.place(timeout_s=READY_S + 60)
    assert ray.complete("hello world") is not None
    worker = row["shards"][1]["host"]
    actor = until(lambda: [w for w in ray.processes(worker).values() if "RayWorkerProc" in w], 30)
    assert len(actor) == 1
    ray.bed.inside(worker, "kill", "-9", str(ray.pid(worker, "raylet/raylet ")))
    assert f"rank 1 on {worker}" in ray.failed(90)
    ray.stop()


def test_a_leader_that_is_healthy_and_cannot_generate(site):
    """On CPUs pipeline parallel vLLM 0.32 gets healthy and dies of its first request: place asks, and rolls back."""
    pp = site({}, pp=2)
    done = pp("place", "real", "-v", timeout_s=READY_S + 60)
    assert done.code == 1
    assert "vllm exited with code" in done.err
    assert "does not answer yet" in done.err
    pp.nothing_left()


def test_processes_that_outlive_their_parent(site):
    """The API server killed, its engine and worker would keep the GPUs for ever: nothing of them is left."""
    one = site({}, nodes=1, tp=1)
    row = one.place(timeout_s=READY_S + 60)
    host = row["shards"][0]["host"]
    assert any("VLLM::EngineCore" in words for words in one.processes(host).values())
    one.bed.inside(host, "kill", "-9", str(one.pid(host, r"bin/vllm serve")))
    assert "vllm exited with code 137" in one.failed(60)
    one.stop()


def test_a_flag_that_it_refuses_is_told_as_soon_as_it_says_so(site):
    """Rank, host, exit code and vLLM's own words; the other rank, which would wait ten minutes, is rolled back."""
    bad = site({}, tp=2, args=[*ARGS, "--no-such-flag"])
    began = time.monotonic()
    done = bad("place", "real", timeout_s=300)
    assert done.code == 1
    assert "vllm exited with code 2" in done.err
    assert "unrecognized arguments: --no-such-flag" in done.err
    assert time.monotonic() - began < 240  # importing vLLM takes most of it
    bad.nothing_left()
