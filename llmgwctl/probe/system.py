"""The host itself: who it is, since when it runs, what its limits are, and what stands in the way."""

from __future__ import annotations

import math
from collections.abc import Iterable

from llmgwctl.model.host import System
from llmgwctl.model.reading import Reading, broken, ok
from llmgwctl.probe.base import NOT_SAVED, Output, Probe, Section, failure
from llmgwctl.probe.smi_tree import number

SECTIONS = (Section("system", "sys", 20, script="system.sh"),)


def parse(outputs: dict[str, Output]) -> Reading[object]:
    """Broken when the boot id or the node's name is missing: nothing could be placed or judged without them."""
    said = outputs.get("system", NOT_SAVED)
    if (why := failure(said)) is not None:
        return broken(why)
    facts = _facts(said.stdout)
    node, boot_id = facts.get("node", [""])[0], facts.get("boot_id", [""])[0]
    if not node or not boot_id:
        return broken(said.stderr.strip()[:200] or "the host does not tell its name and boot id")
    limits = {words[0]: words[1:] for line in facts.get("limit", []) if (words := line.split())}
    stuck = facts.get("stuck", [])
    return ok(
        System(
            node_name=node,
            boot_id=boot_id,
            uptime_s=_seconds(facts.get("uptime", [""])[0]),
            kernel=facts.get("kernel", [""])[0],
            account=facts.get("account", [""])[0],
            arch=facts.get("arch", [""])[0],
            memlock_hard_bytes=_limit(limits.get("memlock", []), 1),
            nofile_hard=_limit(limits.get("nofile", []), 1),
            stack_soft_bytes=_limit(limits.get("stack", []), 0),
            scheduler=_first(facts.get("scheduler", [])),
            environment=_environment(facts.get("env", [])),
            stuck_gpu_tool=f"{stuck[0].replace(' ', ' (pid ')}) in D state" if stuck else None,
        )
    )


def _facts(text: str) -> dict[str, list[str]]:
    facts: dict[str, list[str]] = {}
    for line in text.replace("\r", "").split("\n"):
        key, space, value = line.partition(" ")
        if space:
            facts.setdefault(key, []).append(value.strip())
    return facts


def _first(values: list[str]) -> str | None:
    return values[0] if values else None


def _seconds(text: str) -> float:
    """The first number of /proc/uptime."""
    try:
        value = float((text.split() or ["0"])[0])
    except ValueError:
        return 0.0
    return value if math.isfinite(value) and value >= 0 else 0.0


def _limit(soft_hard: list[str], which: int) -> int | None:
    """Bytes or files; None is unlimited. A limit that could not be read counts as the lowest there is."""
    if len(soft_hard) <= which:
        return 0
    return None if soft_hard[which] == "unlimited" else (number(soft_hard[which]) or 0)


def _environment(lines: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Sorted by name; the first of a name wins, as in the shell."""
    found: dict[str, str] = {}
    for line in lines:
        name, equals, value = line.partition("=")
        if equals:
            found.setdefault(name, value)
    return tuple(sorted(found.items()))


PROBE = Probe("system", SECTIONS, parse, fabric_set=True)
