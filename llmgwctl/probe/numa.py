"""NUMA nodes of the host and the node of each GPU, from sysfs: nvidia-smi is not asked."""

from __future__ import annotations

import re

from llmgwctl.model.reading import Reading, absent, broken, ok
from llmgwctl.model.topology import Numa, NumaNode
from llmgwctl.probe.base import NOT_SAVED, Output, Probe, Section, failure
from llmgwctl.probe.lines import grouped
from llmgwctl.probe.smi_gpu import bus_id
from llmgwctl.probe.smi_tree import number

SECTIONS = (Section("numa", "sys", 10, script="numa.sh"),)
CPULIST = re.compile(r"\d{1,5}(?:[-,]\d{1,5}){0,2000}")
PCI = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F]")


def parse(outputs: dict[str, Output]) -> Reading[object]:
    """Nodes by number, those without CPUs too (a Grace GPU's memory is one); absent on a kernel without NUMA."""
    said = outputs.get("numa", NOT_SAVED)
    if (why := failure(said)) is not None:
        return broken(why)
    found = grouped(said.stdout)
    nodes = sorted((n for rest in found.get("node", []) if (n := _node(rest)) is not None), key=lambda n: n.number)
    if not nodes:
        return broken(said.stderr.strip()[:200]) if said.stderr.strip() else absent("this kernel shows no NUMA nodes")
    places = [words for rest in found.get("pci", []) if len(words := rest.split()) == 2 and PCI.fullmatch(words[0])]
    of_pci = {bus_id(pci): int(node) for pci, node in places if number(node) is not None}  # -1: the kernel cannot tell
    return ok(Numa(tuple(nodes), of_pci))


def _node(rest: str) -> NumaNode | None:
    index, memory, cpus = (*rest.split(" ", 2), "", "", "")[:3]
    if number(index) is None:
        return None
    kib = number(memory)
    return NumaNode(int(index), cpus if CPULIST.fullmatch(cpus) else "", kib // 1024 if kib is not None else None)


PROBE = Probe("numa", SECTIONS, parse, fabric_set=False)
