"""A plan that its hosts can carry: those that cannot are left out, and it is planned again with the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from llmgwctl.cli import preflight
from llmgwctl.cli.common import note
from llmgwctl.cli.job import Job, plan_for
from llmgwctl.model.host import Snapshot
from llmgwctl.model.plan import Plan
from llmgwctl.render.text import clean

ROUNDS = 3


async def planned_around(job: Job, snapshot: Snapshot) -> tuple[Job, Plan, preflight.Checked | None]:
    """The job with the hosts that were left out, its plan, and what the hosts of the plan said (None: no placement).

    Where nothing fits without the hosts that refuse, or they have refused too often, the last plan stands, refused.
    """
    made = plan_for(job, snapshot)
    if not made.replicas:
        return job, made, None
    checked = await _checked(job, made, snapshot)
    for _ in range(ROUNDS):
        without = replace(job, around={**job.around, **checked.by_host()})
        other = plan_for(without, snapshot) if without.around != job.around else None
        if other is None or not other.replicas:
            break
        job, made = without, other
        checked = await _checked(job, made, snapshot)
    return job, replace(made, warnings=(*left_out(job), *made.warnings)), checked


async def _checked(job: Job, made: Plan, snapshot: Snapshot) -> preflight.Checked:
    return await preflight.check(job.session, made, job.profile, job.engine, snapshot)


def tell_warnings(job: Job, made: Plan, checked: preflight.Checked) -> None:
    """Hosts that were left out are said with -q too: something is wrong with each, and nobody may look again."""
    loud = left_out(job)
    for words in (*made.warnings, *checked.notes):
        (note if words in loud else job.session.note)(f"! {clean(words)}")


def left_out(job: Job) -> tuple[str, ...]:
    return tuple(f"{host} is left out: {why}" for host, why in job.around.items())


def as_json(job: Job) -> dict[str, Any]:
    return {"left_out": [{"host": host, "reasons": [why]} for host, why in job.around.items()]}
