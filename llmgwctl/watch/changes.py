"""The single changes between two looks, one a subject, before anybody says what they mean together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from llmgwctl.model.fact import fact
from llmgwctl.watch.seen import GpuSeen, HostSeen, ReplicaSeen, Seen

Severity = Literal["worse", "better", "changed"]


@fact
class Change:
    """One subject that is another than before. `subject` is stable from look to look; `severity` is of the change."""

    kind: str
    severity: Severity
    subject: str
    hosts: tuple[str, ...] = ()
    gpu: int | None = None
    uuid: str = ""
    home: str = ""  # the domain that it is of
    to: str = ""  # the domain that it is in now, when that is another
    why: str = ""


def changes(before: Seen, after: Seen) -> tuple[Change, ...]:
    """Hosts that are new have nothing to compare with; hosts that left the inventory are no change."""
    found: list[Change] = []
    for name, now in after.hosts.items():
        was = before.hosts.get(name)
        if was is not None:
            found += _host(name, was, now)
    found += _replicas(before, after)
    return tuple(found)


def _host(name: str, was: HostSeen, now: HostSeen) -> Iterator[Change]:
    home = next((g.home for g in now.gpus.values() if g.home), "")
    why = now.why.split(":")[0]  # the kind of trouble: what follows names the host, and hosts are to be told together
    if was.reachable and not now.reachable:
        yield Change("host-gone", "worse", f"host:{name}", (name,), home=home, why=why)
    elif now.reachable and not was.reachable:
        yield Change("host-back", "better", f"host:{name}", (name,), home=home)
    elif was.read and not now.read:
        yield Change("gpus-unread", "worse", f"gpus:{name}", (name,), home=home, why=why)
    elif now.read and not was.read:
        yield Change("gpus-read", "better", f"gpus:{name}", (name,), home=home)
    if was.imex and now.imex and was.imex != now.imex:
        yield _imex(name, was.imex, now.imex, home)
    if now.read:
        yield from _gpus(name, was, now)


def _imex(name: str, was: str, now: str, home: str) -> Change:
    severity: Severity = "better" if now == "up" else "changed" if was == "down" else "worse"
    return Change(f"imex-{now}", severity, f"imex:{name}", (name,), home=home)


def _gpus(name: str, was: HostSeen, now: HostSeen) -> Iterator[Change]:
    for uuid, gpu in now.gpus.items():
        if uuid in was.gpus:
            yield from _gpu(name, uuid, was.gpus[uuid], gpu)
    for uuid, old in was.gpus.items():
        if uuid not in now.gpus:
            yield Change("gpu-replaced", "changed", f"gpu:{uuid}", (name,), old.index, uuid, old.home)


def _gpu(name: str, uuid: str, was: GpuSeen, now: GpuSeen) -> Iterator[Change]:
    def change(kind: str, severity: Severity, subject: str, home: str, to: str = "") -> Change:
        return Change(kind, severity, f"{subject}:{uuid}", (name,), now.index, uuid, home, to)

    if now.lost and not was.lost:
        yield change("gpu-lost", "worse", "gpu", was.home)
    elif was.lost and not now.lost:
        yield change("gpu-back", "better", "gpu", now.home)
    elif was.joined and now.joined is False:
        yield change("gpu-left", "worse", "gpu", was.home)
    elif now.joined and was.home and was.home != now.home:
        yield change("gpu-moved", "worse", "gpu", was.home, now.home)
    elif was.joined is False and now.joined:
        yield change("gpu-rejoined", "better", "gpu", now.home)
    if now.degraded is not None and was.degraded is not None and now.degraded != was.degraded:
        told: tuple[str, Severity] = ("degraded", "worse") if now.degraded else ("restored", "better")
        yield change(f"bandwidth-{told[0]}", told[1], "bandwidth", now.home)
    if now.unhealthy is not None and was.unhealthy is not None and now.unhealthy != was.unhealthy:
        told = ("unhealthy", "worse") if now.unhealthy else ("healthy", "better")
        yield change(f"gpu-{told[0]}", told[1], "health", now.home)


def _replicas(before: Seen, after: Seen) -> Iterator[Change]:
    for name in sorted(before.replicas.keys() | after.replicas.keys()):
        was, now = before.replicas.get(name), after.replicas.get(name)
        if was is None or now is None or was.state != now.state:
            yield _replica(name, was, now)


def _replica(name: str, was: ReplicaSeen | None, now: ReplicaSeen | None) -> Change:
    state = now.state if now else "gone"
    severity: Severity = "worse" if state == "failed" else "better" if state == "ready" and was else "changed"
    hosts = (now or was or ReplicaSeen("")).hosts
    return Change(f"replica-{state}", severity, f"replica:{name}", hosts, why=now.why if now else "")
