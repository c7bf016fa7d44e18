"""The engines, and what of each is installed where: hosts with the same versions stand on one line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llmgwctl.model.host import HostFacts, Snapshot
from llmgwctl.model.numbers import older
from llmgwctl.render.fold import alike, fold
from llmgwctl.render.text import PLAIN, Look, clean, draw, table

EngineRow = dict[str, Any]


def listing(engines: list[EngineRow], snapshot: Snapshot | None, look: Look = PLAIN) -> str:
    heads = ("ENGINE", "HEALTH", "METRICS", "WITHOUT GPUS", "USES NCCL")
    keys = ("name", "health_path", "metrics_path", "gpuless", "uses_nccl")
    parts: list[Any] = [table(heads, ([_cell(row[k]) for k in keys] for row in engines))]
    if snapshot is not None:
        rows = [(clean(name), fold(hosts), clean(said)) for name, hosts, said in _folded(engines, snapshot)]
        parts += ["", table(("ENGINE", "HOSTS", "INSTALLED"), rows, keep=(0,))]
    return draw(parts, look)


def _cell(value: Any) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value or "-")


def document(engines: list[EngineRow], snapshot: Snapshot | None) -> dict[str, Any]:
    hosts = snapshot.hosts if snapshot is not None else ()
    return {"schema": "llmgwctl.engines/v1", "engines": engines, "hosts": [_host(f) for f in hosts]}


def _host(facts: HostFacts) -> dict[str, Any]:
    found = facts.engines.value or ()
    return {
        "name": facts.host.name,
        "state": facts.engines.state,
        "why": facts.engines.why or "",
        "installed": [{"engine": e.engine, "versions": dict(e.versions), "why": e.why} for e in found],
    }


def _folded(engines: list[EngineRow], snapshot: Snapshot) -> Iterator[tuple[str, list[str], str]]:
    """Engines that can be asked; `package` names the one whose version is the engine's, or which it runs on."""
    read = [f for f in snapshot.hosts if not f.engines.broken]
    for row in engines:
        if row["package"]:
            said = alike((f.host.name, _words(f, row)) for f in read)
            yield from ((str(row["name"]), hosts, words) for hosts, words in said)


def _words(facts: HostFacts, row: EngineRow) -> str:
    package, least = str(row["package"]), str(row["least"])
    found = next((e for e in facts.engines.value or () if e.engine == row["name"]), None)
    if found is None or (found.versions and not found.version(package)):
        return "not installed" if row["needs_build"] else f"no {package}"
    told = ", ".join(f"{name} {version}" for name, version in found.versions) or found.why
    return f"{told}: too old, {least} is needed" if older(found.version(package), least) else told
