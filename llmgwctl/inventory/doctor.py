"""[[doctor.suppress]] tables -> Suppression: a check that there is, hosts that there are, a reason and a day."""

from __future__ import annotations

from llmgwctl.inventory.context import At, Context
from llmgwctl.inventory.schema import Doctor, Suppress
from llmgwctl.inventory.suggest import nearest
from llmgwctl.model.finding import Suppression


def build(table: Doctor, context: Context) -> tuple[Suppression, ...]:
    """All of them; what names nothing is noted, since a suppression that never bites would go unseen."""
    return tuple(_one(one, ("doctor", "suppress", number), context) for number, one in enumerate(table.suppress))


def _one(one: Suppress, at: At, context: Context) -> Suppression:
    from llmgwctl.doctor import CHECKS

    known = [c.id for c in CHECKS]
    if one.check not in known:
        context.faults.add(
            (*at, "check"), f"no check is named {one.check!r}; {nearest(one.check, known, 'known check')}"
        )
    hosts = context.known_hosts(one.hosts, (*at, "hosts")) if one.hosts is not None else []
    return Suppression(one.check, one.reason, one.until, frozenset(hosts))
