"""The fleet as if a replica were stopped: what is its own does not count, and what is another's does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_life_state import READY, claim, dead, facts, only, record, seen, spec

from llmgwctl.launch.as_stopped import as_stopped
from llmgwctl.launch.state import replicas
from llmgwctl.model.gpu import Gpu, GpuProcess, GpuReport
from llmgwctl.model.network import Network
from llmgwctl.model.reading import absent, ok

OURS = GpuProcess(4711, "C", "VLLM::Worker", 180_000, "ops")
PORTS = {"http": 8000, "master": 21000}


def gpu(index, *processes, used=180_300, **more):
    return Gpu(index, f"u{index}", "0", "NVIDIA GB200", memory_used_mib=used, processes=processes, **more)


def host(name="n0", rank=0, gpus=(), listening=(), **more):
    """A host with one living rank of p-0 on its GPU u0."""
    told = spec(rank, gpu_uuids=["u0"], ports=PORTS)
    made = record(rank, ready=READY, spec=told, **more)
    one = replace(claim(rank, alive=True), key="gpu-u0")
    return with_gpus(facts(name, [made], [one]), *gpus, listening=listening)


def with_gpus(f, *gpus, listening=()):
    return replace(f, gpus=ok(GpuReport("580", "13", len(gpus), gpus)), network=ok(Network((), listening=listening)))


def gone(*hosts):
    """The snapshot as if p-0 of launch L were stopped."""
    snapshot = seen(*hosts)
    state = next(r for r in replicas(snapshot) if (r.id, r.launch, r.shards[0].host) == ("p-0", "L", "n0"))
    return as_stopped(snapshot, state).hosts


def test_nothing_of_it_is_left():
    """Neither claim nor shard, nor its ports on the leader, nor a process or a MiB on its GPU."""
    first, second = gone(host(gpus=[gpu(0, OURS)], listening=(22, 8000, 21000)), host("n1", 1, [gpu(0, OURS)]))
    for f in (first, second):
        assert f.life.value.claims == f.life.value.shards == ()
        assert (f.gpus.value.gpus[0].processes, f.gpus.value.gpus[0].memory_used_mib) == ((), 0)
    assert first.network.value.listening == (22,)
    assert replicas(seen(first, second)) == ()


def test_another_launch_of_that_name_stays():
    """Its claims and shards on the same hosts, and those of other replicas."""
    other = record(0, spec=spec(0, launch="M", gpu_uuids=["u1"]))
    claims = [replace(claim(), key="gpu-u0"), replace(claim(), key="gpu-u1", launch="M")]
    one = with_gpus(facts("n0", [record(0), other], claims), gpu(0, OURS), gpu(1, OURS))
    left, _ = gone(one, facts("n1", [record(1)]))
    assert [s.launch for s in left.life.value.shards] == ["M"]
    assert [c.key for c in left.life.value.claims] == ["gpu-u1"]
    assert left.gpus.value.gpus[1] == gpu(1, OURS)


def test_another_accounts_claim_in_its_name_stays():
    """`stop` cannot take it away."""
    alien = replace(claim(account="bob"), key="gpu-u0")
    f = facts("n0", [record(0)], [replace(claim(), key="gpu-u1"), alien])
    left, _ = gone(f, facts("n1", [record(1)]))
    assert left.life.value.claims == (alien,)


def test_a_host_that_did_not_answer_stays_as_it_is():
    first, second = gone(host(gpus=[gpu(0, OURS)]), dead("n1"))
    assert first.life.value.shards == ()
    assert second == dead("n1")


def test_a_host_that_the_launch_does_not_name_stays_as_it_is():
    """What some other host says of it is not what `stop` ends."""
    alien = facts("n9", [record(1)], [claim(1)])
    *_, left = gone(facts("n0", [record(0)]), facts("n1", [record(1)]), alien)
    assert left == alien


@pytest.mark.parametrize(
    ("stranger", "used", "left"),
    [
        (replace(OURS, pid=1, user="bob", used_mib=300), 180_300, 300),
        (replace(OURS, pid=1, user="bob", used_mib=None), 180_300, 300),
        (replace(OURS, pid=1, kind="G", used_mib=40), 180_300, 300),
        (replace(OURS, pid=1, user="bob"), None, None),
        (replace(OURS, pid=1, user="bob"), 100, 0),
    ],
)
def test_a_strangers_process_on_its_gpu_stays(stranger, used, left):
    """With what is used there beside what the replica's processes are said to use."""
    found = gone(host(gpus=[gpu(0, OURS, stranger, used=used)]), facts("n1", [record(1)]))[0].gpus.value.gpus[0]
    assert (found.processes, found.memory_used_mib) == ((stranger,), left)


@pytest.mark.parametrize(
    "own", [(), (replace(OURS, user=None),), (replace(OURS, user="root"),), (replace(OURS, used_mib=None),)]
)
def test_what_no_stranger_holds_is_its_own(own):
    """Where the driver names no process, or not how much it uses; a container's processes run as root."""
    found = gone(host(gpus=[gpu(0, *own)]), facts("n1", [record(1)]))[0].gpus.value.gpus[0]
    assert (found.processes, found.memory_used_mib) == ((), 0)


def test_a_gpu_that_is_not_its_own_stays_as_it_is():
    """Also beside its own, and whoever's process is there."""
    other = gpu(1, OURS)
    assert gone(host(gpus=[gpu(0, OURS), other]), facts("n1", [record(1)]))[0].gpus.value.gpus[1] == other


def test_a_rank_that_does_not_live_holds_nothing():
    """Memory and ports are then somebody else's, though its claim and its shard would go."""
    how = {"alive": False, "boot_matches": False, "state": "gone"}
    f = host(gpus=[gpu(0, OURS)], listening=(8000,), **how)
    f = replace(f, life=f.life.map(lambda v: replace(v, claims=(replace(v.claims[0], alive=False),))))
    left = gone(f, facts("n1", [record(1)]))[0]
    assert left.life.value.shards == left.life.value.claims == ()
    assert (left.gpus, left.network) == (f.gpus, f.network)


def test_only_the_leader_holds_the_ports():
    """The others have them in their specs; what listens there is not theirs."""
    _, second = gone(host(), host("n1", 1, listening=(8000,)))
    assert second.network.value.listening == (8000,)


def test_what_was_not_read_stays_so():
    """GPUs that are absent, ports that the host does not show, a spec whose words are of the wrong kind."""
    odd = facts("n0", [record(0, spec=spec(0, gpu_uuids="u0", ports=[8000]))])
    f = replace(odd, gpus=absent("no driver"), network=ok(Network(())))
    left = gone(f, facts("n1", [record(1)]))[0]
    assert (left.gpus, left.network) == (f.gpus, f.network)
    assert only(facts("n0", [record(0)]), facts("n1", [record(1)])).launch == "L"
