"""The doctor: what is wrong, why, and what to do. Pure: a snapshot and its map in, a report out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from llmgwctl.doctor import (
    across,
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
    rails,
    rdma,
    upkeep,
)
from llmgwctl.doctor.base import Check, Deep, Launch, View
from llmgwctl.doctor.choose import on_hosts
from llmgwctl.doctor.report import report
from llmgwctl.doctor.run import answers
from llmgwctl.model.fabric import FabricMap
from llmgwctl.model.finding import CheckCard, NotTold, Report
from llmgwctl.model.host import Snapshot

__all__ = ["CHECKS", "before_launch", "diagnose"]

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
    *rails.CHECKS,
    *rdma.CHECKS,
    *host.CHECKS,
    *upkeep.CHECKS,
    *launch.CHECKS,
    *deep.CHECKS,
    *across.CHECKS,
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
SHM = "LG805"


def before_launch(snapshot: Snapshot, fmap: FabricMap, launches: Sequence[Launch]) -> Report:
    """What must keep these placed replicas from starting: findings that block, on their hosts, for their tier; and of
    the checks that block those that could not be told there."""
    hosts = {s.host for one in launches for s in one.replica.shards}
    said = on_hosts(diagnose(_of_pools(snapshot, launches), fmap, launches), hosts.__contains__)
    findings = (f for f in said.findings if f.severity == "block" and _concerns(f.id, launches))
    unknown = (replace(u, checks=_that_block(u, launches)) for u in said.unknown)
    return replace(
        said,
        findings=tuple(replace(f, hosts=tuple(h for h in f.hosts if h in hosts)) for f in findings),
        unknown=tuple(u for u in unknown if u.checks),
    )


def _of_pools(snapshot: Snapshot, launches: Sequence[Launch]) -> Snapshot:
    """A replica never leaves its pool, and nothing of other pools bears on it."""
    pools = {one.profile.pool for one in launches}
    return replace(snapshot, hosts=tuple(f for f in snapshot.hosts if f.host.pool in pools))


def _that_block(told: NotTold, launches: Sequence[Launch]) -> tuple[CheckCard, ...]:
    return tuple(c for c in told.checks if c.severity == "block" and _concerns(c.id, launches))


def _concerns(check_id: str, launches: Sequence[Launch]) -> bool:
    tiers, family = {one.replica.tier for one in launches}, check_id[2]
    if family in NVLINK:
        return "nvlink" in tiers
    if family in RDMA:
        return "scale-out" in tiers
    return check_id != SHM or any(one.shm for one in launches)
