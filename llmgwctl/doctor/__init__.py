"""The doctor: what is wrong, why, and what to do. Pure: a snapshot and its map in, a report out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from llmgwctl.doctor import (
    adapters,
    bandwidth,
    channel,
    deep,
    driver,
    fleet,
    gpu_log,
    gpu_work,
    gpus,
    host,
    imex,
    joining,
    launch,
    manager,
    upkeep,
)
from llmgwctl.doctor.base import Check, Deep, Launch, View
from llmgwctl.doctor.report import report
from llmgwctl.doctor.run import answers
from llmgwctl.model.fabric import FabricMap
from llmgwctl.model.finding import Finding, Report
from llmgwctl.model.host import Snapshot
from llmgwctl.model.plan import Tier

__all__ = ["CHECKS", "diagnose", "refusals"]

CHECKS: tuple[Check, ...] = (
    *fleet.CHECKS,
    *joining.CHECKS,
    *bandwidth.CHECKS,
    *imex.CHECKS,
    *channel.CHECKS,
    *gpus.CHECKS,
    *gpu_log.CHECKS,
    *gpu_work.CHECKS,
    *driver.CHECKS,
    *manager.CHECKS,
    *adapters.CHECKS,
    *host.CHECKS,
    *upkeep.CHECKS,
    *launch.CHECKS,
    *deep.CHECKS,
)


def diagnose(
    snapshot: Snapshot,
    fmap: FabricMap,
    launches: Sequence[Launch] = (),
    checks: Sequence[Check] = CHECKS,
    tests: Deep | None = None,
) -> Report:
    """All checks over one snapshot. `fmap` is the map of the same snapshot: what keeps a host out is its word."""
    view = View.of(snapshot, fmap, launches, tests)
    cordoned = {n: r.text for n, v in fmap.verdicts.items() for r in v.reasons if r.code == "cordoned"}
    names = [f.host.name for f in snapshot.hosts]
    return report(answers(checks, view), names, len(checks), cordoned)


NVLINK, RDMA = "1234", "7"  # families that concern only replicas of that tier


def refusals(snapshot: Snapshot, fmap: FabricMap, launches: Sequence[Launch]) -> tuple[Finding, ...]:
    """What must keep these placed replicas from starting: findings that block, on their hosts, for their tier.

    Readings that the snapshot has not are no refusal; the whole report names them.
    """
    hosts = {s.host for one in launches for s in one.replica.shards}
    tiers = {one.replica.tier for one in launches}
    report = diagnose(snapshot, fmap, launches)
    return tuple(
        replace(f, hosts=tuple(h for h in f.hosts if h in hosts))
        for f in report.findings
        if f.severity == "block" and hosts & set(f.hosts) and _concerns(f.id, tiers)
    )


def _concerns(check_id: str, tiers: set[Tier]) -> bool:
    family = check_id[2]
    if family in NVLINK:
        return "nvlink" in tiers
    return "scale-out" in tiers if family in RDMA else True
