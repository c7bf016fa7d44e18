"""The fleet as it would be without a replica: what its end would give back, and nothing that is another's. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from llmgwctl.launch.state import targets_of
from llmgwctl.model.gpu import Gpu, GpuProcess, GpuReport
from llmgwctl.model.host import HostFacts, Snapshot
from llmgwctl.model.life import Claim, ShardRecord
from llmgwctl.model.network import Network
from llmgwctl.model.replica import ReplicaState

GPU_PREFIX = "gpu-"  # of a claim's key; the rest is the GPU's uuid


def as_stopped(snapshot: Snapshot, state: ReplicaState) -> Snapshot:
    """Without what `stop` would end of this launch: its claims and shards, the ports that its leader holds, and what is
    used of the GPUs on which it lives. A host that did not answer is none that `stop` reaches: it stays as it is."""
    ranks: dict[str, set[int]] = {}
    for target in targets_of(snapshot, state):
        ranks.setdefault(target.host.name, set()).add(target.rank)
    return replace(snapshot, hosts=tuple(_host(f, state, ranks.get(f.host.name, set())) for f in snapshot.hosts))


def _host(facts: HostFacts, state: ReplicaState, ranks: Collection[int]) -> HostFacts:
    life = facts.life.value
    if life is None or not ranks:
        return facts
    account = facts.system.value.account if facts.system.value else ""

    def own(x: Claim | ShardRecord) -> bool:
        same = (x.replica, x.launch) == (state.id, state.launch) and x.rank in ranks
        return same and (not isinstance(x, Claim) or x.account == account)

    shards, claims = [s for s in life.shards if own(s)], [c for c in life.claims if own(c)]
    living = [s for s in shards if _lives(s)]
    gpus = {u for s in living for u in _uuids(s)} | {c.key.removeprefix(GPU_PREFIX) for c in claims if c.alive}
    ports = {p for s in living if s.rank == 0 for p in _ports(s)}
    left = replace(
        life,
        claims=tuple(c for c in life.claims if c not in claims),
        shards=tuple(s for s in life.shards if s not in shards),
    )
    return replace(
        facts,
        life=facts.life.map(lambda _: left),
        gpus=facts.gpus.map(lambda report: _report(report, gpus, account)),
        network=facts.network.map(lambda network: _network(network, ports)),
    )


def _lives(shard: ShardRecord) -> bool:
    return shard.supervisor_alive or shard.carried or any(p.state == "running" for p in shard.processes)


def _uuids(shard: ShardRecord) -> set[str]:
    """A spec comes from a host: what is no list of words names no GPU."""
    told = shard.spec.get("gpu_uuids")
    return {u for u in told if isinstance(u, str)} if isinstance(told, list) else set()


def _ports(shard: ShardRecord) -> set[int]:
    told = shard.spec.get("ports")
    return {p for p in told.values() if isinstance(p, int)} if isinstance(told, dict) else set()


def _network(network: Network, ports: set[int]) -> Network:
    if network.listening is None:
        return network
    return replace(network, listening=tuple(p for p in network.listening if p not in ports))


def _report(report: GpuReport, uuids: set[str], account: str) -> GpuReport:
    return replace(report, gpus=tuple(_freed(g, account) if g.uuid in uuids else g for g in report.gpus))


def _freed(gpu: Gpu, account: str) -> Gpu:
    """A GPU that a living shard has. What no stranger's process holds there is the shard's, also where a driver names
    no process, or not how much one uses; beside a stranger only what is named goes."""
    strangers = tuple(p for p in gpu.processes if _strange(p, account))
    used = gpu.memory_used_mib
    if used is not None:
        used = max(0, used - _used(p for p in gpu.processes if p not in strangers)) if strangers else 0
    return replace(gpu, processes=strangers, memory_used_mib=used)


def _strange(process: GpuProcess, account: str) -> bool:
    """Of another account, as far as that is known. A container's processes run as root."""
    return process.user not in (None, account, "root") or "C" not in process.kind


def _used(processes: Iterable[GpuProcess]) -> int:
    return sum(p.used_mib or 0 for p in processes)
