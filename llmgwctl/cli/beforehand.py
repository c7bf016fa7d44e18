"""The doctor's word on replicas that are about to start: what its blocking checks need is read with the last look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from llmgwctl.cli.common import Session
from llmgwctl.cli.doctor import day_of
from llmgwctl.doctor import CHECKS, before_launch
from llmgwctl.doctor.base import Launch
from llmgwctl.doctor.choose import suppress
from llmgwctl.model.errors import Unreachable
from llmgwctl.model.finding import Report
from llmgwctl.model.host import HostFacts, Snapshot
from llmgwctl.model.reading import Reading, broken
from llmgwctl.probe import PROBES
from llmgwctl.probe.base import NOT_SAVED, Output, Probe, Section

Outputs = Mapping[str, Output]


def probes() -> tuple[Probe, ...]:
    """Of the readings that a check that blocks needs those that are not in the set from which a plan is made."""
    needed = {need for c in CHECKS if c.severity == "block" for need in c.needs}
    return tuple(p for p in PROBES if p.field in needed and not p.fabric_set)


def sections() -> tuple[Section, ...]:
    return tuple(s for p in probes() for s in p.sections)


def with_readings(snapshot: Snapshot, said: Mapping[str, Outputs | Unreachable]) -> Snapshot:
    """The snapshot of the plan with what the hosts of the plan said since, by host."""
    return replace(snapshot, hosts=tuple(_with(f, said.get(f.host.name)) for f in snapshot.hosts))


def _with(facts: HostFacts, said: Outputs | Unreachable | None) -> HostFacts:
    if said is None:
        return facts
    if isinstance(said, Unreachable):
        unread: Reading[object] = broken(str(said))
        return replace(facts, **{p.field: unread for p in probes()})  # type: ignore[arg-type]
    found = {p.field: p.read({s.name: said.get(s.name, NOT_SAVED) for s in p.sections}) for p in probes()}
    return replace(facts, **found)  # type: ignore[arg-type]


def judged(s: Session, snapshot: Snapshot, launches: Sequence[Launch]) -> Report:
    """What keeps these replicas from starting, and what could not be told; what the operator has set aside is apart."""
    report = before_launch(snapshot, s.map(snapshot), launches)
    return suppress(report, s.inventory.suppressions, day_of(snapshot))
