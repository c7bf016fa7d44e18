"""Transitions, not states: what has changed between two looks at the fleet, said once and by what it means. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from llmgwctl.model.fabric import FabricMap
from llmgwctl.model.host import Snapshot
from llmgwctl.model.replica import ReplicaState
from llmgwctl.watch.changes import changes
from llmgwctl.watch.flaps import damped
from llmgwctl.watch.seen import BadState, Seen, dumps, loads, look, rehomed
from llmgwctl.watch.tell import Transition, renamed, tell

__all__ = ["BadState", "Seen", "Transition", "dumps", "loads", "step"]


def step(
    before: Seen | None, fmap: FabricMap, snapshot: Snapshot, replicas: Sequence[ReplicaState] = ()
) -> tuple[Seen, tuple[Transition, ...]]:
    """What is seen now, and what has changed since. The first look has nothing to compare with and is quiet."""
    after = look(fmap, snapshot, replicas, before)
    if before is None:
        return after, ()
    found = changes(before, after)
    after, kept, flaps = damped(before, after, found)
    told = (*tell(before, after, kept), *flaps)
    return rehomed(after, renamed(before, after)), told
