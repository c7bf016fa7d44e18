"""RDMA adapters as sysfs describes them: ports, GIDs, partition keys, and what tells compute adapters from others."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from llmgwctl.model.network import Gid, Hca, Port
from llmgwctl.model.reading import Reading, absent, broken, ok
from llmgwctl.probe.base import NOT_SAVED, Output, Probe, Section, failure
from llmgwctl.probe.ibstat import is_ibstat, read_ibstat
from llmgwctl.probe.same import same
from llmgwctl.probe.smi_tree import number

LIMIT_LINES, MAX_NETDEVS = 50_000, 256
SECTIONS = (Section("hcas", "sys", 30, script="hcas.sh", alternatives=("ibstat.txt", "ibstatus.txt")),)
GID = re.compile(r"[0-9a-fA-F]{4}(:[0-9a-fA-F]{4}){7}")
HEX = re.compile(r"0x[0-9a-fA-F]{1,8}")
VPD = {"switch-management": True, "other": False}


@dataclass(slots=True)
class _Port:
    number: int
    facts: dict[str, str] = field(default_factory=dict)
    gids: list[Gid] = field(default_factory=list)
    pkeys: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Hca:
    name: str
    facts: dict[str, str] = field(default_factory=dict)
    netdevs: list[str] = field(default_factory=list)
    marks: set[str] = field(default_factory=set)
    vpd: str = ""
    ports: list[_Port] = field(default_factory=list)


def parse(outputs: dict[str, Output]) -> Reading[object]:
    """All adapters, by name as the kernel lists them; absent where there is no InfiniBand stack; broken when cut."""
    said = outputs.get("hcas", NOT_SAVED)
    if (why := failure(said)) is not None:
        return broken(why)
    if is_ibstat(said.stdout):
        return ok(read_ibstat(said.stdout))
    lines = said.stdout.replace("\r", "").split("\n")
    if "none" in lines:
        return absent("no RDMA adapters")
    if len(lines) > LIMIT_LINES:
        return broken(f"more than {LIMIT_LINES} lines about adapters: no host has so many")
    if said.truncated or "end" not in lines:
        return broken(said.stderr.strip()[:200] or "the list of adapters ends early")
    return ok(tuple(_finished(h) for h in _read(lines)))


def _read(lines: list[str]) -> list[_Hca]:
    hcas: list[_Hca] = []
    for kind, _, rest in (line.partition(" ") for line in lines):
        if kind == "hca":
            hcas.append(_Hca(rest))
        elif kind == "port" and hcas:
            hcas[-1].ports.append(_Port(number(rest) or 0))
        elif hcas and kind in ("is", "netdev", "virtual", "vpd"):
            _of_hca(hcas[-1], kind, rest)
        elif hcas and hcas[-1].ports:
            _of_port(hcas[-1].ports[-1], kind, rest)
    return hcas


def _of_hca(hca: _Hca, kind: str, rest: str) -> None:
    if kind == "is":
        key, _, value = rest.partition(" ")
        hca.facts.setdefault(key, same(value))
    elif kind == "netdev":
        name, *marks = rest.split() or [""]
        if len(hca.netdevs) < MAX_NETDEVS:
            hca.netdevs.append(name)
        hca.marks.update(marks)
    elif kind == "virtual":
        hca.marks.add("virtual")
    else:
        hca.vpd = rest


def _of_port(port: _Port, kind: str, rest: str) -> None:
    if kind == "has":
        key, _, value = rest.partition(" ")
        port.facts.setdefault(key, same(value))
    elif kind == "gid":
        index, gid, netdev, what = (*rest.split(" ", 3), "", "", "", "")[:4]
        if number(index) is not None and GID.fullmatch(gid):
            port.gids.append(Gid(int(index), gid.lower(), same(what.strip()), "" if netdev == "-" else netdev))
    elif kind == "pkey" and HEX.fullmatch(rest):
        port.pkeys.append(rest)


def _finished(hca: _Hca) -> Hca:
    facts = hca.facts
    return Hca(
        name=same(hca.name),
        ports=tuple(_port(p) for p in sorted(hca.ports, key=lambda p: p.number)),
        node_guid=facts.get("node_guid", ""),
        system_guid=facts.get("sys_image_guid", ""),
        hca_type=facts.get("hca_type", ""),
        firmware=facts.get("fw_ver", ""),
        board=facts.get("board_id", ""),
        numa_node=number(facts.get("numa_node")),  # -1: the kernel does not know
        pci_address=facts.get("pci", ""),
        netdevs=same(tuple(hca.netdevs)),
        virtual_function="virtual" in hca.marks,
        bonded="bond" in hca.marks or "_bond_" in hca.name,
        bridged="bridge" in hca.marks,
        switch_management=VPD.get(hca.vpd),
    )


def _port(port: _Port) -> Port:
    facts = port.facts
    return Port(
        number=port.number,
        state=_word(facts.get("state", "")),
        phys_state=_word(facts.get("phys_state", "")),
        rate_gbps=_rate(facts.get("rate", "")),
        link_layer=facts.get("link_layer", ""),
        lid=_hex(facts.get("lid", "")),
        sm_lid=_hex(facts.get("sm_lid", "")),
        gids=tuple(sorted(port.gids, key=lambda g: g.index)),
        pkeys=same(tuple(port.pkeys)),
    )


def _word(text: str) -> str:
    """`4: ACTIVE` -> ACTIVE."""
    return same(text.partition(":")[2].strip() or text.strip())


def _rate(text: str) -> int | None:
    """`400 Gb/sec (4X NDR)`; the slow ones have a fraction (`2.5 Gb/sec`)."""
    amount, _, unit = text.partition(" ")
    return number(amount.partition(".")[0]) if unit.startswith("Gb/sec") else None


def _hex(text: str) -> int | None:
    return int(text, 16) if HEX.fullmatch(text) else None


PROBE = Probe("hcas", SECTIONS, parse, fabric_set=True)
