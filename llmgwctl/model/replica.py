"""A replica as the hosts tell of it: one state, and what each of its shards is doing."""

from __future__ import annotations

from typing import Literal

from llmgwctl.model.fact import fact

State = Literal["starting", "ready", "failed", "unknown"]
BEST_FIRST: tuple[State, ...] = ("ready", "starting", "unknown", "failed")  # of two launches of one name
SHARD_STATES = ("running", "starting", "stopping", "exited", "gone", "rebooted", "dropped", "claimed", "unknown")


@fact
class ShardState:
    """One rank. `state`: one of SHARD_STATES; "claimed": it holds a claim and no process was ever started;

    "dropped": it runs, and a GPU of it has left the NVLink domain that the replica was planned over.

    `known_newer`: the spec was written by a newer llmgwctl: shown, never touched.
    """

    rank: int
    host: str
    state: str
    pid: int | None = None
    gpus: tuple[int, ...] = ()
    exit_code: int | None = None
    why: str = ""
    account: str = ""
    known_newer: bool = False
    for_s: float | None = None  # how long it has been in that state, by its host's own clock
    absent: bool = False  # its host was read, and nothing of it is there


@fact
class ReplicaState:
    """One launch of a replica. `why` says in words what is wrong when it is neither starting nor ready."""

    id: str
    launch: str
    state: State
    shards: tuple[ShardState, ...]
    profile: str = ""
    engine: str = ""
    endpoint: str = ""
    fabric: str = ""
    tier: str = ""
    transport: str = ""
    pool: str = ""
    fingerprint: str = ""
    model: str = ""
    operator: str = ""
    created_at: str = ""
    why: str = ""
    proof: str = ""  # the transport in words, as it was proved
    for_s: float | None = None  # how long it has been so, as far as the hosts can tell
    served: bool = False  # somebody has seen it serve
    changed: bool = False  # its profile in the inventory is another one now

    @property
    def stuck(self) -> bool:
        """Claims without anything that could become a process: the llmgwctl that made them is gone or not yet there."""
        return self.state == "starting" and any(s.state == "claimed" for s in self.shards)

    @property
    def half_stopped(self) -> bool:
        """A stop of it has begun and not ended: what its other ranks did since is no fault of theirs."""
        return self.state == "failed" and any(s.state == "stopping" or s.absent for s in self.shards)
