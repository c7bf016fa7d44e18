"""The racks that the tests of pages and metrics look at: one with every kind of fault, by facts alone."""

from __future__ import annotations

from dataclasses import replace

from facts import IN_PROGRESS, UUID, hgx, joined, rack, snapshot, unreachable, with_gpu, with_imex

from llmgwctl.model.gpu import Fabric, FabricHealth
from llmgwctl.model.life import Claim, HostLife, Process, ShardRecord
from llmgwctl.model.reading import ok

DEGRADED = FabricHealth("Limited Capacity", "Degraded", False, False, False, "None", None)
UNHEALTHY = FabricHealth("Unhealthy", "Full", False, True, False, "None", None)


def with_shard(facts, replica: str, rank: int, ranks: dict[int, str], gpus=(0, 1, 2, 3), **record):
    """The same host with a shard that runs on some of its GPUs."""
    report = facts.gpus.value
    claims = tuple(Claim(f"gpu-{report.gpus[g].uuid}", replica, rank, "l1", "ops", alive=True) for g in gpus)
    spec = {
        "schema": "llmgwctl.shard/v1",
        "replica": replica,
        "rank": rank,
        "launch": "l1",
        "profile": replica.rpartition("-")[0],
        "engine": "vllm",
        "model": "deepseek-r1",
        "tier": "nvlink",
        "endpoint": "http://10.1.0.1:8000",
        "gpus": list(gpus),
        "shards": [{"rank": r, "host": h, "gpus": list(gpus)} for r, h in ranks.items()],
    }
    told = {"ready": {"transport": "nvlink"}, "supervisor_alive": True} | record
    shard = ShardRecord("d", spec, (Process("vllm", 4711, "running"),), **told)
    return replace(facts, life=ok(HostLife(claims, (shard,))))


def whole():
    """A rack with nothing wrong, and a replica over two of its trays."""
    hosts = rack(18)
    ranks = {0: "r1-t01", 1: "r1-t02"}
    return hosts | {h: with_shard(hosts[h], "deepseek-r1-0", r, ranks) for r, h in ranks.items()}


def seven_faults():
    """One rack: a GPU not joined, IMEX down, degraded, unhealthy, a tray gone, a GPU lost, unknown; and a partition."""
    h = whole()
    lost = h["r1-t12"].gpus.value
    h["r1-t03"] = with_gpu(h["r1-t03"], 1, fabric=IN_PROGRESS)
    h["r1-t05"] = with_imex(h["r1-t05"], state="DOWN", unit_active="failed")
    h["r1-t07"] = with_gpu(h["r1-t07"], 3, fabric=joined(health=DEGRADED))
    h["r1-t09"] = with_gpu(h["r1-t09"], 0, fabric=joined(health=UNHEALTHY))
    h["r1-t10"] = unreachable(h["r1-t10"], "refused: 10.1.0.10: connection refused")
    h["r1-t12"] = replace(h["r1-t12"], gpus=ok(replace(lost, gpus=lost.gpus[:3], lost=("GPU is lost",))))
    h["r1-t16"] = with_imex(h["r1-t16"], channels=())
    h["r1-t17"] = with_gpu(h["r1-t17"], 2, fabric=Fabric())
    for name in ("r1-t14", "r1-t15"):
        for g in range(4):
            h[name] = with_gpu(h[name], g, fabric=joined(UUID, 2))
    return h


def outside():
    """HGX hosts beside it: one fine, one with a GPU that waits, one that does not answer."""
    hosts = hgx(3)
    hosts["h100-002"] = with_gpu(hosts["h100-002"], 5, fabric=IN_PROGRESS)
    hosts["h100-003"] = unreachable(hosts["h100-003"], "timeout: h100-003: no answer within 10 s")
    return hosts


def fleet():
    return snapshot(seven_faults(), outside())


def dropped():
    """A rack after a fabric manager restart: every card waits."""
    hosts = rack(18)
    for name in hosts:
        for g in range(4):
            hosts[name] = with_gpu(hosts[name], g, fabric=IN_PROGRESS)
    return hosts
