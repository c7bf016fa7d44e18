"""The main job against real OpenSSH hosts: from an inventory to a running replica that has what it was promised."""

from __future__ import annotations

import json
import re
import sys

import pytest
from netns import Bed, Done

from llmgwctl.engines.env import FAMILIES
from llmgwctl.rack import nvl72

RACK = nvl72(4, hgx=2)
ALWAYS = {"LLMGWCTL_SHARD", "SPT_NOENV"}


def ctl(bed: Bed, *words: str, change: tuple[str, str] | None = None) -> Done:
    """The command line as the controller; `change`: with one text of the inventory replaced by another."""
    inventory = bed.inventory
    if change:
        text = bed.inventory.read_text()
        assert change[0] in text
        inventory = bed.inventory.with_name("changed.toml")
        inventory.write_text(text.replace(*change))
    return bed.run(sys.executable, "-m", "llmgwctl", "-i", str(inventory), *words)


AS_ROOT = ('user = "ops"', 'user = "root"')  # RDMA needs memory to be locked, which this machine may not let others do


def doc(done: Done) -> dict:
    assert done.out, done.err
    return json.loads(done.out)


@pytest.fixture(autouse=True)
def nothing_left(bed: Bed):
    """Whatever a test does, `stop --all` afterwards leaves no process, no claim and no shard directory."""
    yield
    assert ctl(bed, "stop", "--all").code == ctl(bed, "stop", "--all", change=AS_ROOT).code == 0
    for host in bed.hosts:
        assert marked(bed, host) == {}
        listing = bed.inside(
            host, "sh", "-c", "ls /run/lock/llmgwctl /root/.local/state/llmgwctl/*/ /home/ops/.local/state/llmgwctl/*/"
        )
        assert not re.search(r"gpu-|slot-|\.r\d", listing.out)


def marked(bed: Bed, host: str) -> dict[int, dict[str, str]]:
    """pid -> environment of every process on a host that carries our marker, as its kernel tells it."""
    script = """grep -lz "^LLMGWCTL_S" /proc/[0-9]*/environ 2>/dev/null |
        while read f; do echo "@ $f"; tr "\\0" "\\n" <$f; done"""
    found: dict[int, dict[str, str]] = {}
    for line in bed.inside(host, "sh", "-c", script).out.splitlines():
        if line.startswith("@ "):
            current = found.setdefault(int(line.split("/")[2]), {})
        else:
            name, _, value = line.partition("=")
            current[name] = value
    return found


def commands(bed: Bed, host: str) -> list[dict[str, str]]:
    """Environments of the commands of shards (not of their supervisors)."""
    return [env for env in marked(bed, host).values() if "LLMGWCTL_SHARD" in env]


def of_families(env: dict[str, str]) -> dict[str, str]:
    return {n: v for n, v in env.items() if any(n.startswith(f) if f.endswith("_") else n == f for f in FAMILIES)}


def test_the_whole_life_inside_a_domain(bed: Bed):
    """plan, place, serve, ps, logs, stop; and every shard has exactly the variables that the plan printed."""
    planned = doc(ctl(bed, "--json", "plan", "sim-nvl"))
    assert planned["tier"] == "nvlink"
    (replica,) = planned["replicas"]
    assert [s["host"] for s in replica["shards"]] == ["r1-t01", "r1-t02"]

    placed = ctl(bed, "--json", "place", "sim-nvl")
    assert placed.code == 0, placed.err
    for shard in replica["shards"]:
        promised = {n: v["value"] if isinstance(v, dict) else v for n, v in shard["env"].items()}
        running = commands(bed, shard["host"])
        assert running
        for env in running:
            assert {n: env.get(n) for n in promised} == promised
            assert of_families(env) == of_families(promised)
        assert promised["NCCL_MNNVL_ENABLE"] == promised["NCCL_CUMEM_ENABLE"] == "1"
        assert (promised["NCCL_SOCKET_IFNAME"], promised["GLOO_SOCKET_IFNAME"]) == ("=eth0", "eth0")
        assert promised["NCCL_IB_HCA"] == "=mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1"
    assert commands(bed, "r1-t03") == []

    (row,) = doc(ctl(bed, "--json", "ps"))["replicas"]
    assert (row["id"], row["state"], [s["state"] for s in row["shards"]]) == ("sim-nvl-0", "ready", ["running"] * 2)
    body = json.dumps({"model": "sim-nvl", "messages": [{"role": "user", "content": "well?"}]})
    url = f"{row['endpoint']}/v1/chat/completions"
    answer = bed.run("curl", "-sS", "-H", "Content-Type: application/json", "-d", body, url)
    assert json.loads(answer.out)["choices"][0]["message"]["content"]
    logs = ctl(bed, "logs", "sim-nvl-0")
    assert logs.code == 0
    assert re.search(r"^r0 \S+ \| \S", logs.out, re.M)
    assert re.search(r"^r1 \S+ \| \S", logs.out, re.M)

    assert ctl(bed, "stop", "sim-nvl-0").code == 0
    assert doc(ctl(bed, "--json", "ps"))["replicas"] == []
    assert ctl(bed, "stop", "sim-nvl-0").code in (0, 2)


def test_inherited_variables_of_the_families_do_not_reach_a_shard(bed: Bed):
    """What a login shell's files set would silently change where NCCL goes: it is removed, and what is ours is set."""
    for host in ("r1-t01", "r1-t02"):
        path = bed.home(host) / ".ssh" / "environment"
        path.write_text("NCCL_IB_DISABLE=1\nNCCL_P2P_DISABLE=1\nNCCL_HOSTID=same\nCUDA_VISIBLE_DEVICES=7\n")
    try:
        done = ctl(bed, "--json", "place", "sim-nvl")
        assert done.code == 0, done.err
        envs = [env for host in ("r1-t01", "r1-t02") for env in commands(bed, host)]
        assert envs
        for env in envs:
            assert {"NCCL_P2P_DISABLE", "NCCL_HOSTID"} & set(env) == set()
            assert (env["NCCL_IB_DISABLE"], env["CUDA_VISIBLE_DEVICES"]) == ("0", "0,1,2,3")
    finally:
        for host in ("r1-t01", "r1-t02"):
            (bed.home(host) / ".ssh" / "environment").unlink()


def test_imex_down_is_no_shard_in_the_nvlink_tier_and_a_gpu_outside_none_at_all(bed: Bed):
    """Both stand in the plan with what keeps them out; the tray with IMEX down may still serve alone."""
    bed.set("r1-t01", "imex-down")
    bed.set("r1-t02", "gpu-not-joined:1")
    placed = ctl(bed, "--json", "place", "sim-nvl")
    assert placed.code == 0, placed.err
    (row,) = doc(ctl(bed, "--json", "ps"))["replicas"]
    assert [s["host"] for s in row["shards"]] == ["r1-t03", "r1-t04"]
    plan = doc(ctl(bed, "--json", "plan", "sim-small", "--replicas", "8"))
    hosts = {s["host"] for r in plan["replicas"] for s in r["shards"]}
    assert "r1-t02" not in hosts
    reasons = {x["host"]: " ".join(x["reasons"]) for x in plan["left_out"]}
    assert "GPU 1 has not joined" in reasons["r1-t02"]


def test_no_domain_left_goes_to_infiniband_without_mnnvl_and_says_why(bed: Bed):
    """The trays over their own InfiniBand with MNNVL off; HGX hosts, which are in no domain, without a word of it."""
    for tray in ("r1-t01", "r1-t02", "r1-t03"):
        bed.set(tray, "imex-down")
    placed = ctl(bed, "--json", "place", "sim-any", change=AS_ROOT)
    assert placed.code == 0, placed.err
    assert "no NVLink placement" in placed.err
    assert doc(placed)["tier"] == "scale-out"
    (row,) = doc(ctl(bed, "--json", "ps", change=AS_ROOT))["replicas"]
    for shard in row["shards"]:
        for env in commands(bed, shard["host"]):
            assert env["NCCL_NET"] == "IB"
            assert env["NCCL_MNNVL_ENABLE"] == "0"  # trays: NCCL must not try the domain
            assert "NCCL_CUMEM_ENABLE" not in env
    assert ctl(bed, "stop", "--all", change=AS_ROOT).code == 0

    placed = ctl(bed, "--json", "place", "sim-rdma", change=AS_ROOT)
    assert placed.code == 0, placed.err
    (row,) = doc(ctl(bed, "--json", "ps", change=AS_ROOT))["replicas"]
    assert [s["host"] for s in row["shards"]] == ["h100-01", "h100-02"]
    for shard in row["shards"]:
        for env in commands(bed, shard["host"]):
            assert not {"NCCL_MNNVL_ENABLE", "NCCL_CUMEM_ENABLE"} & set(env)
            assert env["NCCL_IB_HCA"] == "=" + ",".join(f"mlx5_{i}:1" for i in range(8))


def test_nothing_left_is_exit_4_with_a_reason_for_every_host(bed: Bed):
    for tray in ("r1-t01", "r1-t02", "r1-t03"):
        bed.set(tray, "gpu-not-joined:0")
    done = ctl(bed, "--json", "plan", "sim-any")
    assert done.code == 4
    document = doc(done)
    assert document["replicas"] == []
    assert {x["host"] for x in document["left_out"]} == set(bed.hosts)
    assert all(x["reasons"] for x in document["left_out"])
    told = ctl(bed, "place", "sim-any")
    assert told.code == 4
    assert all(host in told.out for host in ("r1-t04", "GPU 0 has not joined"))
    assert doc(ctl(bed, "--json", "ps"))["replicas"] == []


def test_a_shard_that_dies_at_start_is_rolled_back_with_its_last_words(bed: Bed):
    """An argument that the engine refuses: exit 1, rank, host, code and the engine's own words, and nothing is left."""
    bad = ("[profiles.sim-nvl]", '[profiles.sim-nvl]\nargs = ["--no-such-flag"]')
    done = ctl(bed, "place", "sim-nvl", change=bad)
    assert done.code == 1
    assert re.search(r"rank [01]", done.err)
    assert re.search(r"r1-t0[12]", done.err)
    assert "--no-such-flag" in done.err
    assert doc(ctl(bed, "--json", "ps"))["replicas"] == []


def test_one_that_never_gets_ready_is_rolled_back_at_its_time_limit(bed: Bed):
    slow = ("[profiles.sim-nvl]", '[profiles.sim-nvl]\nargs = ["--never-ready"]')
    done = ctl(bed, "place", "sim-nvl", "--timeout", "5", change=slow)
    assert done.code == 1
    assert "not ready within 5 s" in done.err
    assert doc(ctl(bed, "--json", "ps"))["replicas"] == []


def test_two_operators_one_rack(bed: Bed):
    """Two `place` at the same moment on four trays: both get two of their own; a third gets exit 4 and is told who."""
    words = (sys.executable, "-m", "llmgwctl", "-i", str(bed.inventory), "--json", "place", "sim-nvl")
    first, second = bed.popen(*words), bed.popen(*words)
    outs = [p.communicate(timeout=120) for p in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], outs
    rows = doc(ctl(bed, "--json", "ps"))["replicas"]
    hosts = [s["host"] for r in rows for s in r["shards"]]
    assert sorted(hosts) == ["r1-t01", "r1-t02", "r1-t03", "r1-t04"]
    third = ctl(bed, "place", "sim-nvl")
    assert third.code == 4
    assert "claimed by sim-nvl-" in third.out
