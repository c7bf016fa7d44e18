"""Adapters from `ibstat` or `ibstatus`, which is what people have when sysfs was not saved: states, rates, no more."""

from __future__ import annotations

import re

from llmgwctl.model.network import Gid, Hca, Port
from llmgwctl.probe.smi_tree import number

CA = re.compile(r"CA '([^']{1,64})'")
DEVICE = re.compile(r"Infiniband device '([^']{1,64})' port (\d{1,3}) status:")
PORT = re.compile(r"Port (\d{1,3}):")
GID = re.compile(r"[0-9a-f]{4}(:[0-9a-f]{4}){7}")
STATES = {"Active": "ACTIVE", "Down": "DOWN", "Initializing": "INIT", "Armed": "ARMED"}
Facts = dict[str, str]


def is_ibstat(text: str) -> bool:
    return CA.search(text) is not None or DEVICE.search(text) is not None


def read_ibstat(text: str) -> tuple[Hca, ...]:
    """What stands there, in order, also where the program broke off after good adapters (ibpanic)."""
    hcas: dict[str, Facts] = {}
    ports: dict[str, dict[int, Facts]] = {}
    name, into = "", {}
    for line in (raw.strip() for raw in text.replace("\r", "").split("\n")):
        if (found := CA.fullmatch(line)) is not None:
            name = found[1]
            into = hcas.setdefault(name, {})
        elif (found := DEVICE.fullmatch(line)) is not None:
            name = found[1]
            hcas.setdefault(name, {})
            into = ports.setdefault(name, {}).setdefault(int(found[2]), {})
        elif name and (found := PORT.fullmatch(line)) is not None:
            into = ports.setdefault(name, {}).setdefault(int(found[1]), {})
        else:
            key, colon, value = line.partition(":")
            if colon:
                into.setdefault(key.lower(), value.strip())
    return tuple(_hca(n, facts, ports.get(n, {})) for n, facts in hcas.items())


def _hca(name: str, facts: Facts, ports: dict[int, Facts]) -> Hca:
    return Hca(
        name=name,
        ports=tuple(_port(n, p) for n, p in sorted(ports.items())),
        node_guid=_guid(facts.get("node guid", "")),
        system_guid=_guid(facts.get("system image guid", "")),
        hca_type=facts.get("ca type", ""),
        firmware=facts.get("firmware version", ""),
        bonded="_bond_" in name,
    )


def _port(index: int, facts: Facts) -> Port:
    """`Active` and `4: ACTIVE`, `LinkUp` and `5: LinkUp`, `400` and `400 Gb/sec (4X NDR)`."""
    state = facts.get("state", "").rpartition(":")[2].strip()
    gid = facts.get("default gid", "")
    return Port(
        number=index,
        state=STATES.get(state, state.upper()),
        phys_state=(facts.get("physical state") or facts.get("phys state", "")).rpartition(":")[2].strip(),
        rate_gbps=number(facts.get("rate", "").partition(" ")[0].partition(".")[0]),
        link_layer=facts.get("link layer") or facts.get("link_layer", ""),
        lid=_lid(facts.get("base lid", "")),
        sm_lid=_lid(facts.get("sm lid", "")),
        gids=(Gid(0, gid, ""),) if GID.fullmatch(gid) else (),
    )


def _lid(text: str) -> int | None:
    if re.fullmatch(r"0x[0-9a-fA-F]{1,8}", text):
        return int(text, 16)
    return number(text)


def _guid(text: str) -> str:
    """As sysfs writes it: four groups of four."""
    digits = text.removeprefix("0x")
    return ":".join(digits[i : i + 4] for i in range(0, 16, 4)) if re.fullmatch(r"[0-9a-f]{16}", digits) else ""
