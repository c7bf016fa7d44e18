"""A plan: which shards run where, with which GPUs, adapters, addresses and ports, and why the others do not."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from llmgwctl.model.fact import fact

Tier = Literal["nvlink", "scale-out", "tcp", "single-host"]


@fact
class LeftOut:
    """A host that carries no shard of this plan, with every reason (of the tiers that were tried)."""

    host: str
    reasons: tuple[str, ...]


@fact
class RoceRail:
    """What a RoCE host needs told: one GID index for all its HCAs, or an address range, or neither."""

    gid_index: int | None = None
    address_range: str | None = None
    indexes: tuple[tuple[str, tuple[int, ...]], ...] = ()  # adapter port -> its routable RoCE v2 entries


@fact
class ShardPlan:
    """The part of a replica on one host. `hcas` are "mlx5_0:1" of the chosen fabric; `interface` carries bootstrap."""

    rank: int
    host: str
    gpus: tuple[int, ...]
    gpu_uuids: tuple[str, ...]
    hcas: tuple[str, ...]
    interface: str
    address: str  # own address on that interface
    link_layer: str | None = None  # InfiniBand | Ethernet, of hcas
    roce: RoceRail = RoceRail()
    imex_channel: int | None = None
    in_domain: bool = False  # this host's GPUs are joined to some multi-host domain
    numa_nodes: tuple[int, ...] = ()
    gpus_why: str = field(default="", compare=False)  # what joins them, in words: the same GPUs are the same shard
    notes: tuple[str, ...] = ()


@fact
class ReplicaPlan:
    """One replica, ready to be started. Rank 0 is the leader; `ports` by the names that the engine asked for."""

    id: str
    profile: str
    engine: str
    tier: Tier
    fabric: str  # nvl:<uuid>.<clique>, ib:..., roce:..., declared name, or "" for one host
    shards: tuple[ShardPlan, ...]
    ports: tuple[tuple[str, int], ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def leader(self) -> ShardPlan:
        return self.shards[0]

    def port(self, name: str) -> int:
        """The port of that name; KeyError when the engine did not ask for it."""
        return dict(self.ports)[name]


@fact
class Candidate:
    """A domain or fabric that was looked at, and what became of it."""

    tier: Tier
    fabric: str
    eligible: tuple[str, ...]
    chosen: bool
    why: str


@fact
class Plan:
    """The answer to `plan PROFILE`. No placement: `replicas` is empty and `why_not` says why."""

    profile: str
    tier: Tier | None
    fabric: str
    replicas: tuple[ReplicaPlan, ...]
    left_out: tuple[LeftOut, ...]
    candidates: tuple[Candidate, ...] = ()
    why_not: str = ""
    warnings: tuple[str, ...] = ()
