"""Metrics in the Prometheus text format: what is not known has no sample, so that nothing unknown looks fine."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from llmgwctl.model.fabric import FabricMap, HostVerdict
from llmgwctl.model.fact import fact
from llmgwctl.model.finding import Suppression
from llmgwctl.model.gpu import Gpu
from llmgwctl.model.host import HostFacts, Snapshot
from llmgwctl.model.replica import BEST_FIRST, ReplicaState
from llmgwctl.render.letters import clean
from llmgwctl.render.peers import NOT_TOLD, own_row

# NVML's own numbers, so that a rule written for DCGM reads the same here.
STATES = {"N/A": 0, "Not Supported": 0, "Not Started": 1, "In Progress": 2, "Completed": 3}
SUMMARIES = {"Healthy": 1, "Unhealthy": 2, "Limited Capacity": 3}
PATHS = ("nvlink", "ib", "tcp")
READINGS = ("system", "gpus", "imex", "hcas", "network", "life")
FACTS_TIME = "llmgw_facts_timestamp_seconds"

GPU = ("host", "gpu", "uuid", "domain")
FAMILIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "llmgw_gpu_nvlink_joined": ("Whether the GPU has joined its multi-host NVLink domain.", GPU),
    "llmgw_gpu_fabric_state": ("State of the fabric: 0 not supported, 1 not started, 2 in progress, 3 completed.", GPU),
    "llmgw_gpu_fabric_health": ("Summary of the fabric's health: 1 healthy, 2 unhealthy, 3 limited.", GPU),
    "llmgw_gpu_nvlink_bandwidth_degraded": ("Whether the GPU's NVLink bandwidth is degraded.", GPU),
    "llmgw_gpus_attached": ("GPUs that nvidia-smi counts on the host.", ("host",)),
    "llmgw_gpus_readable": ("GPUs of the host that nvidia-smi can read.", ("host",)),
    "llmgw_imex_applicable": ("Whether IMEX belongs on the host: its NVLink domain spans hosts.", ("host",)),
    "llmgw_imex_up": ("Whether IMEX answers READY.", ("host", "domain")),
    "llmgw_imex_peers_connected": (
        "Other nodes of its list that IMEX of this host is connected to.",
        ("host", "domain"),
    ),
    "llmgw_imex_peers_expected": ("Other nodes in the node list of IMEX of this host.", ("host", "domain")),
    "llmgw_imex_channel_present": ("Whether there is an IMEX channel device.", ("host",)),
    "llmgw_hca_port_up": ("Whether the port of the adapter is ACTIVE.", ("host", "hca", "port", "link_layer")),
    "llmgw_domain_hosts_expected": ("Hosts that the inventory expects in the domain.", ("domain", "rack")),
    "llmgw_domain_hosts_joined": ("Hosts of which every GPU has joined the domain.", ("domain", "rack")),
    "llmgw_domain_hosts_eligible": ("Hosts of the domain that may carry a shard in it.", ("domain", "rack")),
    "llmgw_host_eligible": ("Whether nothing keeps the host out of its NVLink domain.", ("host", "domain")),
    "llmgw_probe_success": ("Whether the host answered.", ("host",)),
    "llmgw_probe_duration_seconds": ("How long reading the host took.", ("host",)),
    "llmgw_probe_timestamp_seconds": ("When the host was last asked.", ("host",)),
    FACTS_TIME: ("When the host last answered: the age of what is known of it.", ("host",)),
    "llmgw_reading_success": ("Whether this part of the host could be read.", ("host", "reading")),
    "llmgw_replica_ranks_expected": ("Ranks of the replica.", ("replica", "profile")),
    "llmgw_replica_ranks_alive": ("Ranks of the replica whose processes all run.", ("replica", "profile")),
    "llmgw_replica_ready": (
        "Whether the replica serves: every rank runs, and it has answered.",
        ("replica", "profile"),
    ),
    "llmgw_replica_transport": ("The transport that NCCL was seen to use.", ("replica", "profile", "path")),
    "llmgw_doctor_findings": ("Hosts on which the doctor found it.", ("id", "severity")),
    "llmgw_doctor_suppressions_ended": ("Suppressions of the inventory that hold no more.", ("id", "until")),
    "llmgw_snapshot_timestamp_seconds": ("When all of this was read.", ()),
}
Sample = tuple[str, tuple[str, ...], float]


class Finding(Protocol):
    """What the doctor found."""

    @property
    def id(self) -> str: ...
    @property
    def severity(self) -> str: ...
    @property
    def hosts(self) -> Sequence[str]: ...


@fact
class Families:
    """A collector for prometheus_client: all families, also those without a sample, in the order of FAMILIES."""

    samples: tuple[Sample, ...]

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import GaugeMetricFamily

        made = {n: GaugeMetricFamily(n, text, labels=labels) for n, (text, labels) in FAMILIES.items()}
        # One line twice would make a reader refuse the whole file; the first one stands.
        for (name, labels), value in {(n, ls): v for n, ls, v in reversed(self.samples)}.items():
            made[name].add_metric([clean(label) for label in labels], value)
        for family in made.values():
            family.samples.sort(key=lambda s: list(s.labels.values()))
            yield family


def metrics(
    fmap: FabricMap,
    snapshot: Snapshot,
    replicas: Sequence[ReplicaState] = (),
    findings: Iterable[Finding] = (),
    last_seen: Mapping[str, float] | None = None,
    *,
    ended: Iterable[Suppression] = (),
) -> str:
    """The whole exposition. `last_seen`: host -> when it last answered, as the exposition before this one said."""
    from prometheus_client import CollectorRegistry, generate_latest

    found: list[Sample] = [("llmgw_snapshot_timestamp_seconds", (), snapshot.taken_at)]
    for facts in snapshot.hosts:
        found += _host(facts, fmap.verdicts[facts.host.name], snapshot, last_seen or {})
    found += _domains(fmap)
    found += _replicas(replicas)
    found += _findings(findings)
    found += _ended(ended)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Families(tuple(found)))
    return generate_latest(registry).decode()


def seen_before(exposition: str) -> dict[str, float]:
    """Host -> when it last answered, out of an earlier exposition; whatever is no such line is passed over."""
    from prometheus_client.parser import text_string_to_metric_families

    lines = [line for line in exposition.splitlines() if line.startswith(f"{FACTS_TIME}{{")]
    found: dict[str, float] = {}
    for line in lines:
        try:
            families = list(text_string_to_metric_families(f"{line}\n"))
        except (ValueError, KeyError, IndexError):
            continue
        found.update({s.labels["host"]: s.value for f in families for s in f.samples if "host" in s.labels})
    return found


def document(exposition: str) -> dict[str, Any]:
    """The same samples as JSON."""
    from prometheus_client.parser import text_string_to_metric_families

    families = text_string_to_metric_families(exposition)
    samples = [{"name": s.name, "labels": dict(s.labels), "value": s.value} for f in families for s in f.samples]
    return {"schema": "llmgwctl.metrics/v1", "samples": samples}


def _host(
    facts: HostFacts, verdict: HostVerdict, snapshot: Snapshot, last_seen: Mapping[str, float]
) -> Iterator[Sample]:
    name, at = facts.host.name, facts.taken_at or snapshot.taken_at
    alive = facts.reachable.ok
    yield "llmgw_probe_success", (name,), alive
    yield "llmgw_probe_timestamp_seconds", (name,), at
    if alive:
        yield "llmgw_probe_duration_seconds", (name,), facts.reachable.value or 0.0
        yield FACTS_TIME, (name,), at
        for reading in READINGS:
            yield "llmgw_reading_success", (name, reading), not getattr(facts, reading).broken
    elif name in last_seen:
        yield FACTS_TIME, (name,), last_seen[name]
    yield from _gpus(facts, verdict)
    yield from _imex(facts, verdict)
    for hca in facts.hcas.value or ():
        for port in hca.ports:
            yield "llmgw_hca_port_up", (name, hca.name, str(port.number), port.link_layer), port.active


def _gpus(facts: HostFacts, verdict: HostVerdict) -> Iterator[Sample]:
    report, name = facts.gpus.value, facts.host.name
    if report is None:
        return
    yield "llmgw_gpus_attached", (name,), report.attached
    yield "llmgw_gpus_readable", (name,), len(report.gpus)
    if verdict.domain is not None and not verdict.could_not_tell:
        yield "llmgw_host_eligible", (name, verdict.domain), verdict.eligible
    for gpu in report.gpus:
        yield from _gpu(gpu, facts, verdict)


def _gpu(gpu: Gpu, facts: HostFacts, verdict: HostVerdict) -> Iterator[Sample]:
    """Membership only where a domain over hosts is measured or expected: an HGX box joins none, and that is fine."""
    labels = (facts.host.name, str(gpu.index), gpu.uuid, verdict.domain or "")
    fabric, health = gpu.fabric, gpu.fabric.health
    if fabric.joined is not None and (verdict.domain is not None or facts.host.expect.domain):
        yield "llmgw_gpu_nvlink_joined", labels, fabric.joined
    if fabric.state in STATES:
        yield "llmgw_gpu_fabric_state", labels, STATES[fabric.state]
    if health.summary in SUMMARIES:
        yield "llmgw_gpu_fabric_health", labels, SUMMARIES[health.summary]
    if health.bandwidth in ("Full", "Degraded"):
        yield "llmgw_gpu_nvlink_bandwidth_degraded", labels, health.bandwidth == "Degraded"


def _imex(facts: HostFacts, verdict: HostVerdict) -> Iterator[Sample]:
    name, labels = facts.host.name, (facts.host.name, verdict.domain or "")
    if facts.gpus.value is None:
        return
    applicable = verdict.imex != "not-applicable"
    yield "llmgw_imex_applicable", (name,), applicable
    if not applicable:
        return
    if verdict.imex != "unknown":
        yield "llmgw_imex_up", labels, verdict.imex != "down"
    row = own_row(facts)
    others = [p for p in row if not p.local]
    if len(others) < len(row) and all(p.cell != NOT_TOLD for p in others):
        yield "llmgw_imex_peers_connected", labels, sum(p.cell == "C" for p in others)
        yield "llmgw_imex_peers_expected", labels, len(others)
    imex = facts.imex.value
    if imex is not None and not imex.files_why:
        yield "llmgw_imex_channel_present", (name,), bool(imex.channels)


def _domains(fmap: FabricMap) -> Iterator[Sample]:
    for domain in fmap.domains:
        labels = (domain.id, domain.rack or "")
        if domain.expected_hosts is not None:
            yield "llmgw_domain_hosts_expected", labels, domain.expected_hosts
        yield "llmgw_domain_hosts_joined", labels, domain.joined_hosts
        yield "llmgw_domain_hosts_eligible", labels, sum(fmap.verdicts[n].eligible for n in domain.names)


def _replicas(replicas: Sequence[ReplicaState]) -> Iterator[Sample]:
    """A name that two launches bear is one replica: that of the better one."""
    for r in sorted(replicas, key=lambda r: BEST_FIRST.index(r.state)):
        labels = (r.id, r.profile)
        unseen = any(s.state == "unknown" for s in r.shards)
        yield "llmgw_replica_ranks_expected", labels, len({s.rank for s in r.shards})
        if not unseen:
            yield "llmgw_replica_ranks_alive", labels, len({s.rank for s in r.shards if s.state == "running"})
        if r.state != "unknown":
            yield "llmgw_replica_ready", labels, r.state == "ready"
        if r.transport in PATHS:
            for path in PATHS:
                yield "llmgw_replica_transport", (*labels, path), path == r.transport


def _findings(findings: Iterable[Finding]) -> Iterator[Sample]:
    counts: dict[tuple[str, str], int] = {}
    for f in findings:
        counts[f.id, f.severity] = counts.get((f.id, f.severity), 0) + max(1, len(f.hosts))
    for labels, count in counts.items():
        yield "llmgw_doctor_findings", labels, count


def _ended(suppressions: Iterable[Suppression]) -> Iterator[Sample]:
    for labels, count in Counter((s.check, s.until.isoformat()) for s in suppressions).items():
        yield "llmgw_doctor_suppressions_ended", labels, count


def file_sd(replicas: Sequence[ReplicaState], metrics_path: Mapping[str, str]) -> str:
    """For Prometheus' file_sd_configs: where each replica's own metrics are. `metrics_path`: engine -> path."""
    found = {}
    for r in sorted(replicas, key=lambda r: BEST_FIRST.index(r.state)):
        scheme, _, target = r.endpoint.partition("://")
        if target and r.id not in found:
            path = metrics_path.get(r.engine, "/metrics")
            labels = {"replica": r.id, "profile": r.profile, "engine": r.engine, "model": r.model}
            plain = {k: clean(v) for k, v in labels.items() if v}
            found[r.id] = {
                "targets": [target.split("/")[0]],
                "labels": {"__scheme__": scheme, "__metrics_path__": path, **plain},
            }
    return json.dumps([found[k] for k in sorted(found)], indent=2) + "\n"
