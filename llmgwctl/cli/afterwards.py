"""After a stop: whether the memory of the GPUs is free again, or who still holds it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llmgwctl.cli.common import Session
    from llmgwctl.launch.stop import Stopped
    from llmgwctl.model.gpu import Gpu
    from llmgwctl.model.host import Host, Snapshot

TRIES, PAUSE_S = 4, 2.0  # freeing 190 GB takes the driver a moment


async def memory_left(s: Session, snapshot: Snapshot, ended: Iterable[Stopped]) -> list[dict[str, object]]:
    """GPUs of stopped ranks that are not idle, and those of which nobody can tell."""
    wanted = dict(_gpus(snapshot, [x for x in ended if x.gone]))
    hosts = [f.host for f in snapshot.hosts if f.host.name in wanted]
    left: list[dict[str, object]] = []
    for attempt in range(TRIES if hosts else 0):
        if attempt:
            await asyncio.sleep(PAUSE_S)
        left = await _read(s, [h for h in hosts if h.name in wanted], wanted)
        wanted = {n: uuids for n, uuids in wanted.items() if any(x["host"] == n and x["why"] for x in left)}
        if not any(x["used_mib"] for x in left):
            break
    return left


def _gpus(snapshot: Snapshot, ended: list[Stopped]) -> Iterator[tuple[str, set[str]]]:
    """Host -> the GPUs of the ranks that were stopped there, by their specs."""
    gone = {(x.target.replica, x.target.launch, x.target.rank) for x in ended}
    for f in snapshot.hosts:
        uuids: set[str] = set()
        for record in f.life.value.shards if f.life.value else ():
            told = record.spec.get("gpu_uuids")
            if (record.replica, record.launch, record.rank) in gone and isinstance(told, list):
                uuids |= set(map(str, told))
        if uuids:
            yield f.host.name, uuids


async def _read(s: Session, hosts: list[Host], wanted: dict[str, set[str]]) -> list[dict[str, object]]:
    from llmgwctl.probe import gpus

    found = await s.collect(hosts, probes=(gpus.PROBE,), doing="looking at the memory of GPUs")
    rows: list[dict[str, object]] = []
    for f in found.hosts:
        report = f.gpus.value
        if report is None:
            rows.append({"host": f.host.name, "gpu": None, "used_mib": None, "why": f"not read: {f.gpus.why}"})
            continue
        ours = [g for g in report.gpus if g.uuid in wanted[f.host.name]]
        if lost := len(wanted[f.host.name]) - len(ours):
            why = f"{lost} of them cannot be read any more"
            rows.append({"host": f.host.name, "gpu": None, "used_mib": None, "why": why})
        rows += [{"host": f.host.name, **row} for gpu in ours if (row := _not_idle(gpu))]
    return rows


def _not_idle(gpu: Gpu) -> dict[str, object] | None:
    """Where the memory in use is not printed, the programs that compute there speak for it."""
    from llmgwctl.model.gpu import IDLE_MIB

    who = ", ".join(f"{p.name} (pid {p.pid})" for p in gpu.processes) or "no process is named"
    used = gpu.memory_used_mib
    if used is None and (not gpu.processes_known or any("C" in p.kind for p in gpu.processes)):
        return {"gpu": gpu.index, "used_mib": None, "why": f"its memory in use is not printed; {who}"}
    return {"gpu": gpu.index, "used_mib": used, "why": who} if used is not None and used > IDLE_MIB else None


def tell_memory(s: Session, left: Iterable[dict[str, object]]) -> None:
    from llmgwctl.render.text import clean

    for x in left:
        if x["gpu"] is None:
            s.note(clean(f"{x['host']}: whether its GPUs are idle again could not be told: {x['why']}"))
        elif x["used_mib"] is None:
            s.note(clean(f"{x['host']} GPU {x['gpu']}: whether it is idle again could not be told: {x['why']}"))
        else:
            s.note(clean(f"! {x['host']} GPU {x['gpu']}: {x['used_mib']} MiB are still in use: {x['why']}"))
