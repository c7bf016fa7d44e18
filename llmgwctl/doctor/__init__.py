"""The doctor: what is wrong, why, and what to do. Pure: a snapshot and its map in, a report out."""

from __future__ import annotations

from collections.abc import Sequence

from llmgwctl.doctor import adapters, bandwidth, channel, driver, fleet, gpus, host, imex, joining, launch, manager
from llmgwctl.doctor.base import Check, Launch, View
from llmgwctl.doctor.report import report
from llmgwctl.doctor.run import answers
from llmgwctl.model.fabric import FabricMap
from llmgwctl.model.finding import Report
from llmgwctl.model.host import Snapshot

__all__ = ["CHECKS", "diagnose"]

CHECKS: tuple[Check, ...] = (
    *fleet.CHECKS,
    *joining.CHECKS,
    *bandwidth.CHECKS,
    *imex.CHECKS,
    *channel.CHECKS,
    *gpus.CHECKS,
    *driver.CHECKS,
    *manager.CHECKS,
    *adapters.CHECKS,
    *host.CHECKS,
    *launch.CHECKS,
)


def diagnose(
    snapshot: Snapshot, fmap: FabricMap, replica: Launch | None = None, checks: Sequence[Check] = CHECKS
) -> Report:
    """All checks over one snapshot. `fmap` is the map of the same snapshot: what keeps a host out is its word."""
    view = View.of(snapshot, fmap, replica)
    cordoned = {n: r.text for n, v in fmap.verdicts.items() for r in v.reasons if r.code == "cordoned"}
    names = [f.host.name for f in snapshot.hosts]
    return report(answers(checks, view), names, len(checks), cordoned)
