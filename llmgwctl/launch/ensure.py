"""What `ensure` has to do for a profile, from what the hosts say: pure, so that it can be tested row by row."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from llmgwctl.launch.prepare import fingerprint
from llmgwctl.model.fact import fact
from llmgwctl.model.host import Snapshot
from llmgwctl.model.numbers import document
from llmgwctl.model.profile import Profile
from llmgwctl.model.replica import ReplicaState

STUCK_S = 600  # claims without a process: by then the run that made them is gone
BACK_OFF = "backoff."
MAX_BACK_OFF_S = 3600


@fact
class BackOff:
    """Starts of a profile that failed one after the other, and how long ago the last one was seen to."""

    failures: int = 0
    age_s: float = 0.0

    @property
    def wait_s(self) -> float:
        """1, 2, 4 ... 60 minutes after the last failure; 0: it may be tried now."""
        if not self.failures:
            return 0.0
        return max(0.0, min(60.0 * (1 << min(self.failures - 1, 10)), MAX_BACK_OFF_S) - self.age_s)


NO_FAILURE = BackOff()


@fact
class Todo:
    """For one profile. `remove`: failed ones, with why, but for those of which nothing can be ended now;
    `died_at_start`: of these, those that never served."""

    profile: str
    wanted: int
    have: tuple[ReplicaState, ...]
    remove: tuple[tuple[ReplicaState, str], ...] = ()
    died_at_start: int = 0
    place: int = 0
    restart: ReplicaState | None = None
    changed: tuple[ReplicaState, ...] = ()
    extra: int = 0
    wait_s: float = 0.0

    @property
    def counts(self) -> dict[str, int]:
        return {s: sum(r.state == s for r in self.have) for s in ("ready", "starting", "failed", "unknown")}


def of_profile(states: Iterable[ReplicaState], profile: Profile) -> tuple[ReplicaState, ...]:
    """Its replicas: by their spec; another account's, of which only claims are seen, by their name."""
    name = re.compile(re.escape(profile.name) + r"-\d+")
    return tuple(s for s in states if s.profile == profile.name or (not s.profile and name.fullmatch(s.id)))


def to_judge(states: Sequence[ReplicaState]) -> tuple[ReplicaState, ...]:
    """Those that nobody has seen serve: every process runs, so they can be asked."""
    return tuple(s for s in states if s.state == "starting" and s.shards and {x.state for x in s.shards} == {"running"})


def decide(
    profile: Profile,
    states: Sequence[ReplicaState],
    back_off: BackOff = NO_FAILURE,
    *,
    restart_changed: bool = False,
) -> Todo:
    """`states`: those of the profile, the ready ones already known to be. What is not certain counts as being there."""
    failed = tuple((s, why) for s in states if (why := dead(profile, s)))
    remove = tuple((s, why) for s, why in failed if not out_of_reach(s))
    gone = {s.launch for s, _ in failed}
    there = [s for s in states if s.launch not in gone]
    counted = [s for s in there if not replaceable(profile, s)]
    died = sum(died_at_start(s) for s, _ in remove)
    back_off = BackOff(back_off.failures + died, 0.0) if died else back_off
    missing = max(0, profile.replicas - len(counted))
    changed = tuple(s for s in counted if s.state == "ready" and s.fingerprint not in ("", fingerprint(profile)))
    quiet = not missing and not remove and all(s.state == "ready" for s in counted)
    return Todo(
        profile=profile.name,
        wanted=profile.replicas,
        have=tuple(states),
        remove=remove,
        died_at_start=died,
        place=0 if back_off.wait_s else missing,
        restart=changed[0] if restart_changed and changed and quiet else None,
        changed=changed,
        extra=max(0, len(counted) - profile.replicas),
        wait_s=back_off.wait_s if missing else 0.0,
    )


def died_at_start(state: ReplicaState) -> bool:
    """It never served and its own processes are why, not a host that went away."""
    if state.half_stopped:  # its leader's end takes the others along, and what said that it served may be gone
        return False
    late = state.state == "starting" and not state.stuck
    return not state.served and (late or any(s.state == "exited" for s in state.shards))


def dead(profile: Profile, state: ReplicaState) -> str:
    """Why a replica makes way for another; empty: it stays. One that is only unreachable is not dead."""
    if any(s.known_newer for s in state.shards):
        return ""
    if state.state == "failed":
        half = "half stopped, the rest is ended: " if state.half_stopped else ""
        return half + (state.why or "failed")
    if state.state == "starting" and state.for_s is not None:
        if state.stuck and state.for_s >= STUCK_S:
            return f"claimed {state.for_s:.0f} s ago, and nothing was started"
        if not state.stuck and state.for_s >= profile.ready_timeout_s:
            return f"not ready after {state.for_s:.0f} s"
    return ""


def out_of_reach(state: ReplicaState) -> bool:
    """Whether all that may be left of it is on hosts that do not answer: until they do there is nothing to end."""
    return any(s.state == "unknown" for s in state.shards) and all(
        s.absent or s.state == "unknown" for s in state.shards
    )


def replaceable(profile: Profile, state: ReplicaState) -> bool:
    after = profile.replace_unreachable_after_s
    return after is not None and state.state == "unknown" and state.for_s is not None and state.for_s >= after


# --- the back-off, as it lies on hosts ------------------------------------------------------------------------------


def back_off_of(snapshot: Snapshot, profile: str) -> BackOff:
    """The most that any host remembers; what was written before a reboot is forgotten with it."""
    notes = [n for f in snapshot.hosts if f.life.value for n in f.life.value.notes if n.name == BACK_OFF + profile]
    found = [BackOff(_failures(n.text), n.age_s) for n in notes if n.age_s is not None]
    return max(found, key=lambda b: (b.failures, -b.age_s), default=BackOff())


def _failures(text: str) -> int:
    told = document(text)
    failures = told.get("failures") if isinstance(told, dict) else None
    return max(0, min(failures, 1000)) if isinstance(failures, int) else 0
