"""What runs on a host because of us: claims on GPUs, shards with their specs and processes."""

from __future__ import annotations

from llmgwctl.model.fact import fact

SPEC_SCHEMA = "llmgwctl.shard/v1"
MAX_RANKS = 1024  # of a replica: what a host says of a rank beyond is not believed


@fact
class Claim:
    """One file in the claim directory: a GPU (or a slot) that a shard has. `key` is gpu-<uuid> or slot-<replica>."""

    key: str
    replica: str
    rank: int
    launch: str  # id of the one launch that made it
    operator: str = ""
    workstation: str = ""
    account: str = ""
    created_at: str = ""  # UTC, ISO 8601
    boot_id: str = ""
    uptime_s: float = 0.0  # the host's own uptime when it was made
    alive: bool = False  # a process of the launch is running
    stale: bool = False  # another boot, or ten minutes without a process
    stopping: bool = False  # a stop of its launch has begun: nothing more of it starts


@fact
class Process:
    """A process that a supervisor started. `state`: running | exited | waiting | gone (no exit was recorded)."""

    name: str
    pid: int | None
    state: str
    exit_code: int | None = None


@fact
class ShardRecord:
    """A shard directory on a host: its spec (as started) and how its processes are now."""

    directory: str
    spec: dict[str, object]  # llmgwctl.shard/v1; a newer schema is shown and never touched
    processes: tuple[Process, ...] = ()
    supervisor_alive: bool = False
    stopping: bool = False
    boot_matches: bool = True
    log_bytes: int = 0
    started_uptime_s: float | None = None
    ended: tuple[tuple[str, str], ...] = ()  # of the first process that ended: name, code, at, uptime_s
    ready: dict[str, object] | None = None  # what the controller recorded when it served: endpoint, transport, at
    carried: bool = False  # some process carries the marker of this launch, recorded or not
    age_s: float | None = None  # since its supervisor began, by the host's own clock; None: another boot, or not told
    ended_ago_s: float | None = None  # since the first end of a process

    def text(self, key: str) -> str:
        value = self.spec.get(key, "")
        return value if isinstance(value, str) else ""

    @property
    def replica(self) -> str:
        return self.text("replica")

    @property
    def rank(self) -> int:
        value = self.spec.get("rank", -1)
        return value if isinstance(value, int) else -1

    @property
    def launch(self) -> str:
        return self.text("launch")


@fact
class Cordon:
    """A host, or some of its GPUs, that an operator keeps out of new placements. `until`: seconds since the epoch.

    `account`: whose file on the host says so; "": it stands beside the inventory.
    """

    reason: str
    until: float | None = None
    by: str = ""
    at: str = ""  # UTC, ISO 8601
    gpus: tuple[int, ...] = ()  # none: the whole host
    account: str = ""


@fact
class Note:
    """A small document that llmgwctl left on a host about something else. `age_s` None: written before a reboot."""

    name: str
    text: str
    age_s: float | None = None


@fact
class HostLife:
    """All claims and cordons (of every account) and all shards and notes (of this account) on a host."""

    claims: tuple[Claim, ...] = ()
    shards: tuple[ShardRecord, ...] = ()
    unreadable: tuple[str, ...] = ()  # half-written or foreign entries, named
    uptime_s: float = 0.0
    boot_id: str = ""
    cordons: tuple[Cordon, ...] = ()
    notes: tuple[Note, ...] = ()
