"""Names of replicas as people type them: what is not there is said with what is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from llmgwctl.model.errors import UsageError

if TYPE_CHECKING:
    from llmgwctl.model.replica import ReplicaState

LISTED = 12


def not_there(name: str, states: Sequence[ReplicaState]) -> str:
    """What to say of a replica that is not on the hosts that answered."""
    near = _near(name, states)
    if near:
        return f"there is no replica {name}: did you mean {near}?"
    running = sorted({r.id for r in states})
    more = f" and {len(running) - LISTED} more" if len(running) > LISTED else ""
    told = f"running: {', '.join(running[:LISTED])}{more}" if running else "no replica runs"
    return f"there is no replica {name} on the hosts that answered; {told}"


def refuse_slips(names: Iterable[str], states: Sequence[ReplicaState], profiles: Collection[str]) -> None:
    """Stopping what is gone does no harm; a name that nothing could bear, beside one that is nearly it, is a slip."""
    running = {r.id for r in states}
    known = {*profiles, *(r.profile for r in states)}
    for name in names:
        if name not in running and not _could_be(name, known) and _near(name, states):
            raise UsageError(not_there(name, states))


def _could_be(name: str, profiles: Collection[str]) -> bool:
    profile, _, number = name.rpartition("-")
    return profile in profiles and number.isdecimal()


def _near(name: str, states: Sequence[ReplicaState]) -> str:
    """The replicas of a profile of that name, else the one that is written nearly so."""
    of_profile = sorted({r.id for r in states if name == r.profile})
    return " or ".join(of_profile[:LISTED] or get_close_matches(name.lower(), {r.id for r in states}, n=1, cutoff=0.8))
