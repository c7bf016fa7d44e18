"""The map: NVLink domains, scale-out fabrics, and for each host what keeps it out."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from llmgwctl.model.fact import fact
from llmgwctl.model.plan import Tier

ImexState = Literal["up", "down", "degraded", "not-applicable", "unknown"]


@fact
class DeclaredFabric:
    """[fabrics.NAME] of the inventory: the operator's word for who reaches whom. `hcas` empty: all compute HCAs."""

    name: str
    hosts: tuple[str, ...]
    hcas: tuple[str, ...] = ()


@fact
class Reason:
    """Why a host may not carry a shard. `scope` any: no shard at all; nvlink: none in the NVLink tier.

    `code` is a stable slug; `text` plain words with the value read; `unknown`: it could not be told.
    """

    code: str
    text: str
    scope: Literal["any", "nvlink"] = "any"
    unknown: bool = False


@fact
class HostVerdict:
    """The one answer about a host that the page, the plan and the doctor share."""

    host: str
    reasons: tuple[Reason, ...] = ()
    notes: tuple[str, ...] = ()
    imex: ImexState = "not-applicable"
    token: str | None = None  # product token of its GPUs, when they are all of one product
    domain: str | None = None

    def keeps_out(self, tier: Tier, allow_degraded: bool = False) -> tuple[str, ...]:
        """What keeps the host out of that tier, in words; empty: eligible."""
        return tuple(
            r.text
            for r in self.reasons
            if (r.scope == "any" or tier == "nvlink") and not (allow_degraded and r.code == "degraded")
        )

    @property
    def eligible(self) -> bool:
        """For the NVLink tier."""
        return not self.reasons

    @property
    def could_not_tell(self) -> tuple[str, ...]:
        return tuple(r.text for r in self.reasons if r.unknown)


@fact
class DomainHost:
    """A host as it stands in a domain. `tray` and `slot` from Platform Info, None where not printed."""

    name: str
    tray: int | None = None
    slot: int | None = None
    all_joined: bool = False
    any_joined: bool = False


@fact
class Domain:
    """GPUs that share (ClusterUUID, CliqueId). Without a joined tray: `cluster_uuid` and `clique_id` are None."""

    id: str
    cluster_uuid: str | None
    clique_id: int | None
    rack: str | None
    chassis: tuple[str, ...]
    hosts: tuple[DomainHost, ...]  # physical order
    missing: tuple[str, ...] = ()  # inventory hosts of its rack of which nothing is known
    expected_hosts: int | None = None
    partition_of: str | None = None  # another domain in the same chassis

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(h.name for h in self.hosts)

    @property
    def joined_hosts(self) -> int:
        return sum(h.all_joined for h in self.hosts)

    @property
    def multi_host(self) -> bool:
        return sum(h.any_joined for h in self.hosts) > 1


@fact
class RailPort:
    """A port that carries compute traffic. `rail`: the subnet of its routable GIDs on RoCE; "" on InfiniBand."""

    hca: str
    port: int
    rail: str = ""

    @property
    def name(self) -> str:
        return f"{self.hca}:{self.port}"


@fact
class ScaleOut:
    """Hosts whose HCAs reach each other. `strength` declared (the operator says so) or probable."""

    id: str
    kind: Literal["InfiniBand", "Ethernet"]
    strength: Literal["declared", "probable"]
    pool: str | None  # None: declared, over pools
    ports: dict[str, tuple[RailPort, ...]]  # host -> its ports there

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(self.ports)


@fact
class Outside:
    """A host in no domain, with the plain reason, and the scale-out fabrics that it is in."""

    name: str
    why: str
    fabrics: tuple[str, ...] = ()


@fact
class FabricMap:
    """What one snapshot says of the whole fleet. `dropped_hcas`: host -> adapters left out, each with why."""

    domains: tuple[Domain, ...]
    scale_out: tuple[ScaleOut, ...]
    outside: tuple[Outside, ...]
    unreachable: tuple[Outside, ...]
    verdicts: dict[str, HostVerdict] = field(default_factory=dict)
    dropped_hcas: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)

    def domain(self, domain_id: str) -> Domain:
        """KeyError when there is none."""
        found = next((d for d in self.domains if d.id == domain_id), None)
        if found is None:
            raise KeyError(domain_id)
        return found

    @property
    def could_not_tell(self) -> dict[str, tuple[str, ...]]:
        """Host -> what could not be told about it; cordoned hosts are not in it."""
        told: dict[str, tuple[str, ...]] = {o.name: (o.why,) for o in self.unreachable if not self._cordoned(o.name)}
        for name, verdict in self.verdicts.items():
            if verdict.could_not_tell and name not in told and not self._cordoned(name):
                told[name] = verdict.could_not_tell
        return told

    def _cordoned(self, name: str) -> bool:
        verdict = self.verdicts.get(name)
        return verdict is not None and any(r.code == "cordoned" for r in verdict.reasons)
