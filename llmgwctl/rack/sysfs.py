"""/sys of a simulated host: adapters and interfaces as the kernel lays them out, links included."""

from __future__ import annotations

from collections.abc import Iterator

from llmgwctl.rack.machine import Adapter, Gpu, Interface, Machine
from llmgwctl.rack.tree import Entry, File, Link


def entries(m: Machine) -> dict[str, Entry]:
    """Everything under sys/, by path."""
    found: dict[str, Entry] = {}
    for a in m.adapters:
        found |= dict(_adapter(a))
    for i in m.interfaces:
        found |= dict(_interface(m, i))
    found |= {f"sys/class/net/lo/{k}": File(f"{v}\n") for k, v in _LOOPBACK.items()}
    for node in range(2):
        cores = 72 if m.card.grace else 56
        cpus = f"{node * cores}-{node * cores + cores - 1}\n"
        found[f"sys/devices/system/node/node{node}/cpulist"] = File(cpus)
        found[f"sys/devices/system/node/node{node}/meminfo"] = File(f"Node {node} MemTotal:       {480 << 20} kB\n")
    for g in m.gpus:
        found |= dict(_card(m, g))
    return found


def _card(m: Machine, g: Gpu) -> Iterator[tuple[str, Entry]]:
    """A GPU on the PCI bus; on Grace its memory is a NUMA node without CPUs."""
    home = f"sys/bus/pci/devices/{g.bus_id[4:].lower()}"
    facts = {"vendor": "0x10de", "class": "0x030200", "device": f"0x{m.card.pci_id[:4].lower()}", "numa_node": g.numa}
    for key, value in facts.items():
        yield f"{home}/{key}", File(f"{value}\n")
    if m.card.grace:
        memory = f"sys/devices/system/node/node{2 + 8 * g.index}"
        yield f"{memory}/cpulist", File("\n")
        yield f"{memory}/meminfo", File(f"Node 0 MemTotal:       {m.card.memory_mib << 10} kB\n")


_LOOPBACK = {"operstate": "unknown", "mtu": "65536", "flags": "0x9", "type": "772", "ifindex": "1", "carrier": "1"}


def _device(a: Adapter) -> str:
    domain = a.pci.split(":")[0]
    return f"sys/devices/pci{domain}:00/{a.pci}"


def _adapter(a: Adapter) -> Iterator[tuple[str, Entry]]:
    device, home = _device(a), f"{_device(a)}/infiniband/{a.name}"
    yield f"sys/class/infiniband/{a.name}", Link(f"../../{home.removeprefix('sys/')}")
    yield f"{home}/device", Link("../..")
    yield f"{device}/numa_node", File(f"{a.numa}\n")
    yield f"{device}/vendor", File("0x15b3\n")
    yield f"{device}/device", File("0x1021\n")
    yield f"{device}/vpd", File(_vpd(a), 0o600)
    if a.netdev:
        yield f"{device}/net/{a.netdev}/address", File(f"{a.guid}\n")
    guid = a.guid if a.layer == "InfiniBand" else "0000:0000:0000:0000"
    facts = {
        "node_guid": a.guid, "sys_image_guid": guid, "hca_type": a.hca_type, "fw_ver": "28.43.2026",
        "board_id": "MT_0000000838", "node_type": "1: CA", "node_desc": f"{a.name}",
    }  # fmt: skip
    for key, value in facts.items():
        yield f"{home}/{key}", File(f"{value}\n")
    yield from _port(a, f"{home}/ports/1")


def _port(a: Adapter, port: str) -> Iterator[tuple[str, Entry]]:
    # Bit 10 of the mask is clear on the functions that manage NVSwitches and set on those that carry data.
    mask = "0xa751e848" if not a.switch_management or a.pci.endswith(("0", "2")) else "0xa751e448"
    facts = {
        "state": a.state, "phys_state": a.phys_state, "rate": a.rate, "link_layer": a.layer, "lid": a.lid,
        "sm_lid": a.sm_lid, "cap_mask": mask, "pkeys/0": "0xffff", "counters/link_downed": "0",
        "counters/link_error_recovery": "0", "counters/symbol_error": "0",
    }  # fmt: skip
    for key, value in facts.items():
        yield f"{port}/{key}", File(f"{value}\n")
    for g in a.gids:
        yield f"{port}/gids/{g.index}", File(f"{g.gid}\n")
        yield f"{port}/gid_attrs/types/{g.index}", File(f"{g.kind}\n")
        yield f"{port}/gid_attrs/ndevs/{g.index}", File(f"{g.netdev}\n")
    yield f"{port}/gids/{len(a.gids)}", File("0000:0000:0000:0000:0000:0000:0000:0000\n")


def _vpd(a: Adapter) -> bytes:
    """Vital product data: readable for root alone on a real host."""
    what = b"SW_MNG" if a.switch_management else b"PCIeGn5"
    return b"\x82\x10\x00ConnectX adapter\x90\x1c\x00PN\x0ainvented-1V3" + bytes([len(what)]) + what + b"\x78"


def _interface(m: Machine, i: Interface) -> Iterator[tuple[str, Entry]]:
    index = 2 + m.interfaces.index(i)
    facts = {
        "operstate": "up" if i.up else "down", "carrier": "1" if i.up else "0", "mtu": str(i.mtu), "address": i.mac,
        "type": "1", "flags": "0x1003" if i.up else "0x1002", "ifindex": str(index),
    }  # fmt: skip
    for key, value in facts.items():
        yield f"sys/class/net/{i.name}/{key}", File(f"{value}\n")
    if i.bond:
        yield f"sys/class/net/{i.name}/bonding/mode", File("802.3ad 4\n")
    owner = next((a for a in m.adapters if a.netdev == i.name and not i.bond), None)
    if owner:
        yield f"sys/class/net/{i.name}/device", Link(f"../../../{_device(owner).removeprefix('sys/')}")
