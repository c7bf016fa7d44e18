"""What each engine's version command says. The commands are the engines' own; a run asks for those that it wants."""

from __future__ import annotations

import re
from collections.abc import Sequence

from llmgwctl.model.machine import Installed
from llmgwctl.model.reading import Reading, absent, broken, ok
from llmgwctl.probe.base import Output, Probe, Section, failure

PREFIX = "engine-version-"
LIMIT_S = 20
MISSING = 127
LINE = re.compile(r"([A-Za-z0-9._-]{1,80}) ([^\x00-\x1f\x7f]{1,200})")


def section(engine: str, text: str, args: Sequence[str]) -> Section:
    """The section of one engine: its script, with the arguments for the build of that host."""
    return Section(PREFIX + engine, "sys", LIMIT_S, text=text, args=tuple(args))


def parse(outputs: dict[str, Output]) -> Reading[object]:
    """Engines that are there; one whose program is missing is not listed. Broken when nobody was asked."""
    asked = {n.removeprefix(PREFIX): o for n, o in sorted(outputs.items()) if n.startswith(PREFIX)}
    asked = {name: o for name, o in asked.items() if o.state != "not-saved"}
    if not asked:
        return broken("not asked, or not saved")
    heard = {name: o for name, o in asked.items() if not o.lost}
    if not heard:
        return broken(next(iter(asked.values())).note)
    found = tuple(_installed(name, o) for name, o in heard.items() if o.exit_code != MISSING)
    return ok(found) if found else absent("no engine is installed where it was looked for")


def _installed(engine: str, said: Output) -> Installed:
    """Lines NAME VERSION; whatever else a login prints is not one."""
    lines = (LINE.fullmatch(line.strip()) for line in said.stdout.splitlines()[:200])
    versions = tuple((m[1], m[2].strip()) for m in lines if m)
    why = failure(said) or ("" if versions else said.stderr.strip()[:200] or f"exit code {said.exit_code}")
    return Installed(engine, versions, why)


PROBE = Probe("engines", (), parse, fabric_set=False)
