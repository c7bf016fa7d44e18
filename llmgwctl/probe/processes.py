"""Processes of the host with their owner and state: who holds a GPU, and what hangs in the kernel."""

from __future__ import annotations

import re

from llmgwctl.model.machine import HostProcess
from llmgwctl.model.reading import Reading, broken, ok
from llmgwctl.probe.base import NOT_SAVED, Output, Probe, Section, failure
from llmgwctl.probe.lines import grouped

SECTIONS = (Section("processes", "sys", 20, script="processes.sh"),)
PROCESS = re.compile(r"(\d{1,9}) ([A-Za-z]) ?(.{0,64})")
OWNER = re.compile(r"(\d{1,9}) (\d{1,10})")
USER = re.compile(r"(\d{1,10}) (\S{1,64})")


def parse(outputs: dict[str, Output]) -> Reading[object]:
    """All of user space by pid; a user without a name goes by its number. Broken when not one could be seen."""
    said = outputs.get("processes", NOT_SAVED)
    if (why := failure(said)) is not None:
        return broken(why)
    found = grouped(said.stdout)
    users = {m[1]: m[2] for rest in found.get("user", []) if (m := USER.fullmatch(rest))}
    owners = {int(m[1]): users.get(m[2], m[2]) for rest in found.get("owner", []) if (m := OWNER.fullmatch(rest))}
    rows = [m for rest in found.get("process", []) if (m := PROCESS.fullmatch(rest))]
    if not rows:
        return broken(said.stderr.strip()[:200] or "no process could be seen")
    return ok(tuple(sorted((_process(m, owners) for m in rows), key=lambda p: p.pid)))


def _process(row: re.Match[str], owners: dict[int, str]) -> HostProcess:
    pid = int(row[1])
    return HostProcess(pid, owners.get(pid, ""), row[2], row[3].strip())


PROBE = Probe("processes", SECTIONS, parse, fabric_set=False)
