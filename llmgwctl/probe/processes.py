"""Processes of the host that matter, with owner and state: who holds a GPU, what hangs, which agents are there."""

from __future__ import annotations

import re

from llmgwctl.model.machine import HostProcess
from llmgwctl.model.reading import Reading, broken, ok
from llmgwctl.probe.base import NOT_SAVED, Output, Probe, Section, failure
from llmgwctl.probe.lines import grouped

SECTIONS = (Section("processes", "sys", 20, script="processes.sh"),)
PROCESS = re.compile(r"(\d{1,9}) ([A-Za-z]) ?(.{0,64})")
OWNER = re.compile(r"(\d{1,9}) (\d{1,10})")
ON_GPU = re.compile(r"Process ID *: (\d{1,9})|<pid>(\d{1,9})</pid>")
AGENT = re.compile(r"nvidia|nv-|nvs|dcgm|nvlsm|slurm|kubelet|containerd|dockerd")
HANGS = frozenset("DZTtX")
USER = re.compile(r"(\d{1,10}) (\S{1,64})")


def parse(outputs: dict[str, Output]) -> Reading[object]:
    """By pid; a user without a name goes by its number. Broken when not one process could be seen.

    A host has hundreds of processes and a fleet thousands of hosts: those that hold no GPU, hang in no state and are no
    agent are seen and not kept.
    """
    said = outputs.get("processes", NOT_SAVED)
    if (why := failure(said)) is not None:
        return broken(why)
    found = grouped(said.stdout)
    users = {m[1]: m[2] for rest in found.get("user", []) if (m := USER.fullmatch(rest))}
    owners = {int(m[1]): users.get(m[2], m[2]) for rest in found.get("owner", []) if (m := OWNER.fullmatch(rest))}
    rows = [m for rest in found.get("process", []) if (m := PROCESS.fullmatch(rest))]
    if not rows:
        return broken(said.stderr.strip()[:200] or "no process could be seen")
    report = outputs.get("nvidia-smi-q", NOT_SAVED).stdout
    on_gpu = {int(m[1] or m[2]) for m in ON_GPU.finditer(report)}
    made = (_process(m, owners) for m in rows)
    return ok(tuple(sorted((p for p in made if _matters(p, on_gpu)), key=lambda p: p.pid)))


def _matters(process: HostProcess, on_gpu: set[int]) -> bool:
    return process.pid in on_gpu or process.state in HANGS or AGENT.match(process.command) is not None


def _process(row: re.Match[str], owners: dict[int, str]) -> HostProcess:
    pid = int(row[1])
    return HostProcess(pid, owners.get(pid, ""), row[2], row[3].strip())


PROBE = Probe("processes", SECTIONS, parse, fabric_set=False)
