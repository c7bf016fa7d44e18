"""What the pages show of a tray: its chips, its words and its age, one frozen view a thing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from markupsafe import Markup

from llmgwctl.model.fabric import HostVerdict
from llmgwctl.model.fact import fact
from llmgwctl.model.gpu import Gpu, GpuReport
from llmgwctl.model.host import HostFacts, Snapshot
from llmgwctl.model.product import product_of
from llmgwctl.model.replica import ReplicaState
from llmgwctl.render.json import moment
from llmgwctl.render.words import out_of_domain

# state of a chip -> (class in the page, words). The classes are one letter: there may be 72,000 chips.
CHIPS = {
    "joined": ("j", "joined"),
    "degraded": ("d", "joined, bandwidth degraded"),
    "unhealthy": ("u", "joined, not healthy"),
    "out": ("n", "not joined"),
    "unknown": ("q", "unknown whether joined"),
    "unread": ("q", "fabric health not known"),
    "lost": ("x", "not readable"),
    "own": ("o", "present, its NVLink stays in the machine"),
}
NO_CHIPS = Markup("")
OLD_S = 300.0  # a host read this much before the page's newest facts says so


@fact
class ShardView:
    """A shard that runs (or should run) on a host."""

    replica: str
    rank: int
    state: str = ""  # as in SHARD_STATES
    gpus: tuple[int, ...] = ()

    @property
    def words(self) -> str:
        rank = f" rank {self.rank}" if self.rank >= 0 else ""
        return f"{self.replica}{rank}" + (f" {self.state}" if self.state not in ("", "running") else "")


@fact
class TrayView:
    """One host as it is drawn. `state`: ok | out | slow | unknown | missing | elsewhere."""

    name: str
    state: str
    chips: Markup = NO_CHIPS
    place: str = ""
    imex: str = ""
    shards: tuple[ShardView, ...] = ()
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    read: str = ""  # ISO 8601, when this host was read
    older: str = ""  # in words, when that was well before the others
    says: str = ""  # what a tray that is not of this domain is


def chip_state(gpu: Gpu) -> str:
    """Which of CHIPS a GPU is. A product whose NVLink stays in the machine joins nothing, and that is no fault."""
    fabric, product = gpu.fabric, product_of(gpu.name)
    alone = product is not None and not product.multi_host_domain
    if alone and (not product.has_fabric or fabric.state in (None, "Completed", "N/A")):  # type: ignore[union-attr]
        refused = fabric.state == "Completed" and fabric.status not in (None, "Success")
        return "out" if refused else _health(gpu, "own")
    if fabric.joined is None:
        return "unknown"
    return _health(gpu, "joined") if fabric.joined else "out"


def _health(gpu: Gpu, fine: str) -> str:
    if gpu.fabric.healthy is not False:
        return "unread" if gpu.fabric.health.unread else fine
    return "degraded" if gpu.fabric.health.degraded_only else "unhealthy"


def chips(report: GpuReport | None, busy: Mapping[str, str] | None = None) -> Markup:
    """A list of chips; GPUs that nvidia-smi counts and cannot read come last. `busy`: GPU uuid -> who claims it."""
    if report is None:
        return Markup('<span class="g"><i role=img class=q aria-label="GPUs unknown"></i></span>')
    claims = busy or {}
    shown = tuple((g.index, chip_state(g), g.uuid in claims) for g in report.gpus)
    return _chips(shown, max(0, report.attached - len(report.gpus)))


@lru_cache(maxsize=4096)
def _chips(shown: tuple[tuple[int, str, bool], ...], lost: int) -> Markup:
    """Nearly all trays of a fleet look the same, so their markup is made once; GPUs all alike are named in one go."""
    numbered = not lost and [i for i, _, _ in shown] == list(range(len(shown)))
    kinds = {(state, busy) for _, state, busy in shown}
    if numbered and len(shown) > 1 and len(kinds) == 1:
        letters, label = _named(f"all {len(shown)} GPUs", *kinds.pop())
        one = Markup('<i class="{}"></i>').format(letters)
        return Markup('<span class="g c" role=img aria-label="{}">{}</span>').format(label, one * len(shown))
    parts = [_chip(f"GPU {i}", state, busy) for i, state, busy in shown]
    parts += [_chip("a GPU", "lost", False)] * lost
    return Markup('<span class="g{}">{}</span>').format(Markup(" c") if numbered else "", Markup("").join(parts))


def _chip(who: str, state: str, busy: bool) -> Markup:
    letters, label = _named(who, state, busy)
    return Markup('<i role=img class="{}" aria-label="{}"></i>').format(letters, label)


def _named(who: str, state: str, busy: bool) -> tuple[str, str]:
    """The classes of a chip, and what a screen reader says of it."""
    letter, words = CHIPS[state]
    return (f"{letter} s", f"{who} {words}, with a shard") if busy else (letter, f"{who} {words}")


def tray(
    facts: HostFacts,
    verdict: HostVerdict,
    snapshot: Snapshot,
    place: str = "",
    shards: tuple[ShardView, ...] = (),
) -> TrayView:
    """A host that was read."""
    reasons = out_of_domain(verdict)
    read, older = age(facts, snapshot)
    return TrayView(
        name=facts.host.name,
        state=state_of(verdict),
        chips=chips(facts.gpus.value, claimed(facts)),
        place=place,
        imex=verdict.imex,
        shards=shards,
        reasons=reasons,
        notes=verdict.notes,
        read=read,
        older=older,
    )


def state_of(verdict: HostVerdict) -> str:
    """out where something is known to be wrong, slow where that is bandwidth alone, unknown where it was not told."""
    reasons = [r for r in verdict.reasons if r.code != "one-machine"]
    if not reasons:
        return "ok"
    if all(r.unknown for r in reasons):
        return "unknown"
    return "slow" if all(r.code == "degraded" for r in reasons) else "out"


def age(facts: HostFacts, snapshot: Snapshot) -> tuple[str, str]:
    """When a host was read, and in words how much older that is than the snapshot when it is much."""
    at = facts.taken_at or snapshot.taken_at
    behind = snapshot.taken_at - at
    return moment(at), f"{span(behind)} older than this page" if behind > OLD_S else ""


def span(seconds: float) -> str:
    """A time for people: 42 s, 7 min, 3 h, 2 d."""
    s = max(0, round(seconds))
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if s >= 2 * unit:
            return f"{s // unit} {name}"
    return f"{s} s"


def claimed(facts: HostFacts) -> dict[str, str]:
    """GPU uuid -> replica that claims it."""
    life = facts.life.value
    found = life.claims if life else ()
    return {c.key.removeprefix("gpu-"): c.replica for c in found if c.key.startswith("gpu-") and not c.stale}


def shards_by_host(replicas: Sequence[ReplicaState]) -> dict[str, tuple[ShardView, ...]]:
    """Host -> the shards on it, with their state as `ps` tells it."""
    found: dict[str, list[ShardView]] = {}
    for replica in replicas:
        for s in replica.shards:
            found.setdefault(s.host, []).append(ShardView(replica.id, s.rank, s.state, s.gpus))
    return {host: tuple(views) for host, views in found.items()}
