"""What goes up and down is said once, and then kept quiet until it has settled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from llmgwctl.watch.changes import Change, Severity
from llmgwctl.watch.seen import GpuSeen, Seen
from llmgwctl.watch.tell import Transition, grouped

WINDOW_S = 30 * 60.0
FLAPS = 4  # changes of one subject within the window: down, up, down, up
SETTLED_S = 10 * 60.0
CARDS = ("gpu", "bandwidth", "health")  # subjects that are named by the card's UUID


def damped(
    before: Seen, after: Seen, found: Sequence[Change]
) -> tuple[Seen, tuple[Change, ...], tuple[Transition, ...]]:
    """The look with its memory of changes, the changes that are to be told, and what is flapping or has settled."""
    now = after.taken_at
    marks = _marks(before.marks, found, now)
    flapping = dict(before.flapping)
    kept, begun = [], []
    for change in found:
        if change.subject in flapping:
            flapping[change.subject] = now
        elif len(marks[change.subject]) >= FLAPS:
            flapping[change.subject] = now
            begun.append(replace(change, kind="flapping", severity="worse", to="", why=""))
        else:
            kept.append(change)
    settled = sorted(s for s, last in flapping.items() if now - last >= SETTLED_S)
    for subject in settled:
        del flapping[subject]
        marks.pop(subject, None)
    told = (*grouped(begun, now), *_settled(after, settled))
    return replace(after, marks=marks, flapping=flapping), tuple(kept), told


def _marks(old: Mapping[str, tuple[float, ...]], found: Iterable[Change], now: float) -> dict[str, tuple[float, ...]]:
    marks = {s: kept for s, at in old.items() if (kept := tuple(t for t in at if now - t < WINDOW_S))}
    for change in found:
        marks[change.subject] = (*marks.get(change.subject, ()), now)
    return marks


def _settled(after: Seen, subjects: Sequence[str]) -> tuple[Transition, ...]:
    """How each of them is, now that it has stopped changing."""
    where = {u: (host, g) for host, h in after.hosts.items() for u, g in h.gpus.items()}
    found = [change for s in subjects if (change := _last(after, s, where)) is not None]
    return tuple(grouped(sorted(found, key=lambda c: c.severity != "worse"), after.taken_at))


def _last(after: Seen, subject: str, where: Mapping[str, tuple[str, GpuSeen]]) -> Change | None:
    what, _, name = subject.partition(":")
    kind: str
    severity: Severity
    kind, severity = ("settled", "better") if _good(after, what, name) else ("settled-bad", "worse")
    if what in CARDS:
        if name not in where:  # that it was taken out has been told, but for a card that was kept quiet itself
            return Change("gpu-replaced", "changed", subject, (), None, name) if what == "gpu" else None
        host, gpu = where[name]
        return Change(kind, severity, subject, (host,), gpu.index, name, gpu.home)
    replica = after.replicas.get(name) if what == "replica" else None
    return Change(kind, severity, subject, replica.hosts if replica else (name,) if what != "replica" else ())


def _good(after: Seen, what: str, name: str) -> bool:
    if what == "replica":
        replica = after.replicas.get(name)
        return replica is None or replica.state == "ready"
    if what in ("host", "gpus", "imex"):
        host = after.hosts.get(name)
        if host is None:
            return True
        return {"host": host.reachable, "gpus": host.read, "imex": host.imex == "up"}[what]
    gpu = next((h.gpus[name] for h in after.hosts.values() if name in h.gpus), None)
    if gpu is None:
        return True
    return {"gpu": bool(gpu.joined), "bandwidth": not gpu.degraded, "health": not gpu.unhealthy}[what]
