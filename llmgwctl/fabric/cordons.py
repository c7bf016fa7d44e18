"""Cordons of the workstation and of the hosts together: either counts, and what has expired does not. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from llmgwctl.model.host import HostFacts, Snapshot
from llmgwctl.model.life import Cordon

Cordons = Mapping[str, Sequence[Cordon]]


def in_force(cordons: Sequence[Cordon], now: float) -> tuple[Cordon, ...]:
    return tuple(c for c in cordons if c.until is None or c.until > now)


def applied(snapshot: Snapshot, local: Cordons) -> Snapshot:
    """The same facts, with the cordons that stand beside the inventory among those that the hosts tell of."""
    return Snapshot(snapshot.taken_at, tuple(_of_host(f, local.get(f.host.name, ()), snapshot) for f in snapshot.hosts))


def _of_host(facts: HostFacts, ours: Sequence[Cordon], snapshot: Snapshot) -> HostFacts:
    life = facts.life.value
    if life is None or not (ours or life.cordons):
        return facts
    both = in_force((*ours, *life.cordons), snapshot.taken_at)
    return replace(facts, life=facts.life.map(lambda value: replace(value, cordons=both)))


def whole_hosts(snapshot: Snapshot, local: Cordons) -> dict[str, str]:
    """Host -> why it is cordoned, for the map; hosts of which only some GPUs are cordoned are not among them."""
    found = {}
    for facts in snapshot.hosts:
        ours = tuple(local.get(facts.host.name, ()))
        told = facts.life.value.cordons if facts.life.value else ()
        whole = [c for c in in_force((*ours, *told), snapshot.taken_at) if not c.gpus]
        if whole:
            found[facts.host.name] = "; ".join(dict.fromkeys(map(words, whole)))
    return found


def words(cordon: Cordon) -> str:
    """A cordon in words: the reason, who, and until when."""
    who = f"by {cordon.by}" if cordon.by else f"by account {cordon.account}" if cordon.account else ""
    more = " ".join(filter(None, (who, _until(cordon.until))))
    return f"{cordon.reason} ({more})" if more else cordon.reason


def _until(seconds: float | None) -> str:
    """Every account of a host may write any number there: what no calendar has is for ever."""
    try:
        return f"until {datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC" if seconds else ""
    except (OverflowError, ValueError, OSError):
        return ""
