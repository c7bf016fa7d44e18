"""What is free on each host, and what a profile as such does not accept: the ground on which tiers are tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from llmgwctl.fabric.cordons import words
from llmgwctl.fabric.imex import ImexView, view
from llmgwctl.model.fabric import FabricMap
from llmgwctl.model.gpu import IDLE_MIB, Gpu
from llmgwctl.model.host import HostFacts, Snapshot
from llmgwctl.model.life import Claim
from llmgwctl.model.plan import ReplicaPlan, Tier
from llmgwctl.model.profile import Profile
from llmgwctl.placement.address import Control, control, no_control

GPU_CODES = frozenset({"no-gpus", "gpus-unread", "gpu-lost", "mig", "recovery", "not-joined", "refused"})


@dataclass(slots=True)
class Fleet:
    """The hosts as one plan sees them. Replicas planned so far are taken off; nothing outside sees it change."""

    profile: Profile
    map: FabricMap
    facts: dict[str, HostFacts]
    taken: dict[str, set[str]] = field(default_factory=dict)  # host -> GPU uuids planned in this run
    ports: dict[str, set[int]] = field(default_factory=dict)  # host -> ports of shards there
    around: Mapping[str, str] = field(default_factory=dict)  # hosts that are left out beforehand, with why
    _views: dict[str, ImexView] = field(default_factory=dict)
    _unfit: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @staticmethod
    def of(profile: Profile, fmap: FabricMap, snapshot: Snapshot, around: Mapping[str, str] | None = None) -> Fleet:
        fleet = Fleet(profile, fmap, {f.host.name: f for f in snapshot.hosts}, around=around or {})
        for name, facts in fleet.facts.items():
            fleet.ports[name] = ports_in_use(facts)
        return fleet

    def unfit(self, name: str) -> tuple[str, ...]:
        """Why a host cannot carry any shard of this profile now, in whatever tier; empty: it can."""
        if name not in self._unfit:
            self._unfit[name] = tuple(_unfit(self, self.facts[name]))
        return self._unfit[name]

    def fits(self, name: str, tier: Tier) -> bool:
        return not self.unfit(name) and not self.kept_out(name, tier)

    def kept_out(self, name: str, tier: Tier) -> tuple[str, ...]:
        """The verdict's own reasons for that tier (for a shard without GPUs, only those that are not of GPUs)."""
        verdict = self.map.verdicts[name]
        if self.profile.gpus_per_node == 0:
            return tuple(r.text for r in verdict.reasons if r.scope == "any" and r.code not in GPU_CODES)
        return verdict.keeps_out(tier, self.profile.allow_degraded)

    def free(self, name: str) -> tuple[Gpu, ...]:
        """Free GPUs of a host by index."""
        mine = self.taken.get(name, set())
        return tuple(g for g in free_gpus(self.facts[name]) if g.uuid not in mine)

    def view(self, name: str) -> ImexView:
        if name not in self._views:
            self._views[name] = view(self.facts[name])
        return self._views[name]

    def control(self, name: str) -> Control | None:
        return control(self.facts[name])

    def driver(self, name: str) -> str:
        report = self.facts[name].gpus.value
        return (report.driver if report else None) or "?"

    def token(self, name: str) -> str:
        return self.map.verdicts[name].token or ""

    def http_port(self, name: str) -> int | None:
        """The first port of the profile's range that is free on a host."""
        used = self.ports.get(name, set())
        return next((p for p in range(self.profile.port_min, self.profile.port_max + 1) if p not in used), None)

    def port_taken(self, name: str) -> str:
        low, high = self.profile.port_min, self.profile.port_max
        wanted = str(low) if low == high else f"{low}-{high}"
        return f"port {wanted} is taken on {name}: give the profile a range, port = '{low}-{low + 15}'"

    def take(self, replica: ReplicaPlan) -> None:
        """Book a planned replica, so that the next one of this run goes elsewhere."""
        for shard in replica.shards:
            self.taken.setdefault(shard.host, set()).update(shard.gpu_uuids)
            self.ports.setdefault(shard.host, set()).update(p for _, p in replica.ports)
            self._unfit.pop(shard.host, None)


def _unfit(fleet: Fleet, facts: HostFacts) -> list[str]:
    profile, name = fleet.profile, facts.host.name
    if facts.host.pool != profile.pool:
        return [f"in pool {facts.host.pool}, the profile asks for {profile.pool}"]
    hard = [*fleet.kept_out(name, "single-host"), *([fleet.around[name]] if name in fleet.around else [])]
    if hard:
        return hard
    if facts.life.broken:
        return [f"claims on its GPUs could not be read: {facts.life.why}"]
    found = _wrong_gpus(fleet, facts) if profile.gpus_per_node else []
    if not found and fleet.control(name) is None:
        found = [no_control(facts)]
    return found


def _by_holder(busy: Mapping[int, str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for index, why in sorted(busy.items()):
        found.setdefault(why, []).append(index)
    return found


def _gpus(indexes: Sequence[int]) -> str:
    return f"GPU{'s' if len(indexes) > 1 else ''} {', '.join(map(str, indexes))}"


def _wrong_gpus(fleet: Fleet, facts: HostFacts) -> list[str]:
    profile, name = fleet.profile, facts.host.name
    token = fleet.token(name)
    if not token:
        return ["its GPUs are of different models"]
    if profile.gpu_class and token != profile.gpu_class:
        return [f"has {token}, the profile asks for {profile.gpu_class}"]
    free = fleet.free(name)
    if len(free) >= profile.gpus_per_node:
        return []
    report = facts.gpus.value
    total = len(report.gpus) if report else 0
    busy = [f"{_gpus(held)}: {why}" for why, held in _by_holder(busy_gpus(facts)).items()]
    planned = len(fleet.taken.get(name, set()))
    busy += [f"{planned} planned for another replica of this run"] if planned else []
    detail = f" ({'; '.join(busy[:4])})" if busy else ""
    return [f"{len(free)} of {total} GPUs free, {profile.gpus_per_node} needed{detail}"]


def free_gpus(facts: HostFacts) -> tuple[Gpu, ...]:
    busy = busy_gpus(facts)
    report = facts.gpus.value
    return tuple(g for g in report.gpus if g.index not in busy) if report else ()


def busy_gpus(facts: HostFacts) -> dict[int, str]:
    """GPU index -> who has it: a claim, a compute process, or memory in use that no process explains."""
    report = facts.gpus.value
    claims = {c.key.removeprefix("gpu-"): c for c in claims_of(facts)}
    cordoned = {g: words(c) for c in facts.life.value.cordons for g in c.gpus} if facts.life.value else {}
    found = {}
    for gpu in report.gpus if report else ():
        if why := _busy(gpu, claims) or (f"cordoned: {cordoned[gpu.index]}" if gpu.index in cordoned else ""):
            found[gpu.index] = why
    return found


def _busy(gpu: Gpu, claims: dict[str, Claim]) -> str:
    if claim := claims.get(gpu.uuid):
        return f"claimed by {claim.replica} ({claim.operator or claim.account or 'unknown'})"
    if compute := next((p for p in gpu.processes if "C" in p.kind), None):
        owner = f" of {compute.user}" if compute.user else ""
        return f"{compute.name} (pid {compute.pid}{owner})"
    if not gpu.processes and (gpu.memory_used_mib or 0) > IDLE_MIB:
        return f"{gpu.memory_used_mib} MiB in use, no process named"
    return "its processes could not be read" if not gpu.processes_known else ""


def claims_of(facts: HostFacts) -> tuple[Claim, ...]:
    return tuple(c for c in facts.life.value.claims if not c.stale) if facts.life.value else ()


def ports_in_use(facts: HostFacts) -> set[int]:
    """Ports that shards of ours hold on a host (by their specs) and ports that something listens on."""
    used: set[int] = set(facts.network.value.listening or ()) if facts.network.value else set()
    for shard in facts.life.value.shards if facts.life.value else ():
        ports = shard.spec.get("ports")
        if isinstance(ports, dict):
            used |= {p for p in ports.values() if isinstance(p, int)}
    return used
