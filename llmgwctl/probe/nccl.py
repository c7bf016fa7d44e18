"""NCCL's hidden settings: /etc/nccl.conf, ~/.nccl.conf and the file of NCCL_CONF_FILE."""

from __future__ import annotations

from llmgwctl.model.machine import NcclFile
from llmgwctl.model.reading import Reading, absent, broken, ok
from llmgwctl.probe.base import NOT_SAVED, Output, Probe, Section, failure
from llmgwctl.probe.lines import facts, pairs

SECTIONS = (Section("nccl", "sys", 10, script="nccl.sh"),)


def parse(outputs: dict[str, Output]) -> Reading[object]:
    """The files that are there, with what they set; absent where there is none."""
    said = outputs.get("nccl", NOT_SAVED)
    if (why := failure(said)) is not None:
        return broken(why)
    found: list[tuple[str, str, list[str]]] = []
    ended = False
    for kind, rest in facts(said.stdout):
        if kind == "file":
            path, _, state = rest.rpartition(" ")
            found.append((path, state, []))
        elif kind == "set" and found:
            found[-1][2].append(rest)
        ended = ended or kind == "end"
    if not ended:
        return broken(said.stderr.strip()[:200] or "the list of files ends early")
    return ok(tuple(_file(*f) for f in found)) if found else absent("no settings of NCCL outside the environment")


def _file(path: str, state: str, settings: list[str]) -> NcclFile:
    if state != "present":
        return NcclFile(path, why=f"no right to read {path}")
    return NcclFile(path, tuple(sorted(pairs(settings).items())))


PROBE = Probe("nccl", SECTIONS, parse, fabric_set=False)
