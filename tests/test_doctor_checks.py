"""Each check of the doctor: a fleet where it fires on exactly the right hosts, and nothing else of it is said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from doctor_racks import (
    Fleet,
    but,
    changed,
    clocks,
    condition,
    fields,
    gpus,
    hca,
    healthy,
    log,
    process,
    said,
    seen,
)
from facts import IN_PROGRESS, OTHER_UUID, ZERO, joined, with_cells

from llmgwctl.doctor import CHECKS
from llmgwctl.model.condition import PcieLink, PowerLimits
from llmgwctl.model.gpu import Fabric
from llmgwctl.model.host import HostFacts
from llmgwctl.model.imex import ImexChannel, ImexNode
from llmgwctl.model.life import Claim, HostLife
from llmgwctl.model.machine import Clock, Installed, NcclFile, OwnName
from llmgwctl.model.reading import absent, broken, ok

T = ("r1-t01", "r1-t02", "r1-t03", "r1-t04")
H = ("h100-001", "h100-002", "h100-003")
R = ("h200-001", "h200-002", "h200-003")
ONE, HGX, ROCE = T[1], H[1], R[1]


def many(names, change: Callable[[HostFacts], HostFacts]) -> Fleet:
    fleet = healthy()
    return fleet | {n: change(fleet[n]) for n in names}


def imex(**change) -> Fleet:
    return changed(ONE, imex=fields(**change))


def system(name: str = ONE, **change) -> Fleet:
    return changed(name, system=fields(**change))


def health(**rows):
    return gpus(1, fabric=joined(health=replace(joined().health, **rows)))


def unreachable(name: str) -> Fleet:
    fleet = healthy()
    dead = broken("host not read: refused")
    readings = [f for f in fleet[name].__slots__ if f not in ("host", "taken_at", "reachable")]
    lost = replace(fleet[name], reachable=broken("refused: it does not answer"), **dict.fromkeys(readings, dead))
    return fleet | {name: lost}


def unread(why: str, name: str = ONE) -> Fleet:
    lost = broken(why)
    return changed(name, gpus=lost, topology=lost, links=lost)


def cells(bad: dict[tuple[int, int], str], *names: str) -> Fleet:
    return many(names or T, lambda f: with_cells(f, bad))


def lists(*wrong: str, cell: str = "C") -> Fleet:
    fleet = healthy()
    short = {n: but(fleet[n], imex=fields(node_list=("10.1.0.1", "10.1.0.2", "10.1.0.3"))) for n in wrong}
    fleet |= short
    if cell == "C":
        return fleet
    at = [T.index(n) for n in wrong]
    bad = {(i, j): cell for i in range(4) for j in range(4) if (i in at) != (j in at)}
    return fleet | {n: with_cells(fleet[n], bad) for n in T}


def versions(version: str, *names: str) -> Fleet:
    """IMEX of another version on some hosts, as every host's own table shows it."""
    at = [T.index(n) for n in names]

    def of(facts: HostFacts) -> HostFacts:
        table = facts.imex.value.table
        nodes = tuple(ImexNode(n.index, n.host, n.status, version if n.index in at else n.version) for n in table.nodes)
        return but(facts, imex=fields(table=replace(table, nodes=nodes)))

    return many(T, of)


def waits(**manager) -> Fleet:
    """An HGX host whose GPUs wait for its fabric manager."""
    return changed(HGX, gpus=gpus(fabric=IN_PROGRESS), fabric_manager=fields(**manager))


def room(path: str, name: str = ONE, **change) -> Fleet:
    def of(resources):
        return replace(resources, rooms=tuple(replace(r, **change) if r.path == path else r for r in resources.rooms))

    return changed(name, resources=of)


def settings(**values: str) -> Fleet:
    return changed(ONE, resources=lambda r: replace(r, settings=tuple((dict(r.settings) | values).items())))


def own_name(*addresses: str, why: str = "") -> Fleet:
    return changed(ONE, resources=fields(own_name=OwnName(ONE, addresses, why)))


def hot_rack() -> Fleet:
    """Three of the four trays of a rack at once."""
    return many(T[:3], lambda f: but(f, gpus=condition(clock_reasons=clocks("HW Power Brake Slowdown"))))


def at_work(*reasons: str, **change):
    """A GPU that a program keeps busy: it is not idle, whatever else holds its clocks."""
    return condition(2, clock_reasons=clocks(*reasons), **change)


def rail(fleet_host: str, **change) -> Fleet:
    """Interface rail2 of a RoCE host."""

    def of(network):
        return replace(
            network, interfaces=tuple(replace(i, **change) if i.name == "rail2" else i for i in network.interfaces)
        )

    return changed(fleet_host, network=of)


def no_rails(name: str) -> Fleet:
    def of(network):
        return replace(
            network, interfaces=tuple(replace(i, addresses=()) if "rail" in i.name else i for i in network.interfaces)
        )

    return changed(name, network=of)


# id, what is wrong, the fleet, and all that is said of it: id -> hosts
ROWS: list[tuple[str, str, Callable[[], Fleet], dict[str, tuple[str, ...]]]] = [
    # fleet
    ("LG003", "a GPU less than expected", lambda: changed(ONE, gpus=lambda r: replace(r, attached=3, gpus=r.gpus[:3])),
     {"LG003": (ONE,)}),
    ("LG004", "cards on PCI and no driver", lambda: unread_absent("no NVIDIA driver (4 NVIDIA cards on the PCI bus)"),
     {"LG004": (ONE,)}),
    ("LG005", "another product", lambda: changed(ONE, gpus=gpus(name="NVIDIA GB300")), {"LG005": (ONE,)}),
    ("LG008", "one machine twice", lambda: system(boot_id="boot-r1-t01", node_name="r1-t01"), {"LG008": T[:2]}),
    ("LG010", "driver differs in a domain", lambda: changed(ONE, gpus=fields(driver="595.91.07")), {"LG010": (ONE,)}),
    ("LG010", "driver differs in a pool", lambda: changed(HGX, gpus=fields(driver="595.91.07"),
      fabric_manager=fields(version="595.91.07"), versions=fields(driver_loaded="595.91.07", driver_library="595.91.07")),  # noqa: E501
     {"LG010": (HGX,)}),
    ("LG011", "another kernel", lambda: system(kernel="6.14.0"), {"LG011": (ONE,)}),
    # joining
    ("LG101", "one GPU waits", lambda: changed(ONE, gpus=gpus(2, fabric=IN_PROGRESS)), {"LG101": (ONE,)}),
    ("LG102", "a whole tray waits", lambda: changed(ONE, gpus=gpus(fabric=IN_PROGRESS)), {"LG102": (ONE,)}),
    ("LG103", "a whole rack waits", lambda: many(T, lambda f: but(f, gpus=gpus(fabric=IN_PROGRESS))), {"LG103": T}),
    ("LG104", "an HGX host waits, and nothing says why", lambda: changed(HGX, gpus=gpus(fabric=IN_PROGRESS)),
     {"LG104": (HGX,)}),
    ("LG105", "refused", lambda: changed(ONE, gpus=gpus(fabric=Fabric("Completed", "Insufficient Resources", ZERO, 0))),
     {"LG105": (ONE,)}),
    ("LG106", "zeros on a tray", lambda: changed(ONE, gpus=gpus(fabric=Fabric("Completed", "Success", ZERO, 0))),
     {"LG106": (ONE,)}),
    ("LG107", "no fabric on a tray", lambda: changed(ONE, gpus=gpus(fabric=Fabric("N/A", "N/A"))), {"LG107": (ONE,)}),
    ("LG108", "two cliques in a host", lambda: changed(ONE, gpus=gpus(0, fabric=joined(clique=2))), {"LG108": (ONE,)}),
    ("LG109", "a tray alone in another partition", lambda: changed(ONE, gpus=gpus(fabric=joined(clique=2))),
     {"LG109": (ONE,)}),
    ("LG109", "half a rack in another domain", lambda: many(T[:2], lambda f: but(f, gpus=gpus(fabric=joined(OTHER_UUID)))),  # noqa: E501
     {"LG109": T}),
    ("LG110", "a stranger in the rack", lambda: changed(HGX, host=None), {"LG110": (HGX,)}),
    ("LG112", "a domain expected of an HGX host", lambda: expecting(HGX, domain=True), {"LG112": (HGX,)}),
    ("LG112", "none expected of a tray", lambda: expecting(ONE, domain=False), {"LG112": (ONE,)}),
    # bandwidth
    ("LG201", "degraded", lambda: changed(ONE, gpus=health(summary="Limited Capacity", bandwidth="Degraded")),
     {"LG201": (ONE,)}),
    ("LG202", "a broken route", lambda: changed(ONE, gpus=health(summary="Unhealthy", route_unhealthy=True)),
     {"LG202": (ONE,)}),
    ("LG203", "links down", lambda: changed(ONE, links=links(active=16)), {"LG203": (ONE,)}),
    ("LG203", "links slow", lambda: changed(ONE, links=links(speed=25.0)), {"LG203": (ONE,)}),
    ("LG204", "recovering", lambda: changed(ONE, gpus=health(summary="Limited Capacity", route_recovery=True)),
     {"LG204": (ONE,)}),
    ("LG205", "wrong slot", lambda: changed(ONE, gpus=health(summary="Unhealthy", incorrect_configuration="Invalid Location")),  # noqa: E501
     {"LG205": (ONE,)}),
    ("LG206", "a pair by PCI", lambda: changed(HGX, topology=apart(0, 3)), {"LG206": (HGX,)}),
    # IMEX
    ("LG301", "down", lambda: imex(state="DOWN", table=None, unit_active="inactive"), {"LG301": (ONE,)}),
    ("LG302", "waits", lambda: imex(state="WAITING_FOR_PEERS", table=None), {"LG302": (ONE,)}),
    ("LG302", "waits for recovery", lambda: imex(state="WAITING_FOR_RECOVERY", table=None), {"LG302": (ONE,)}),
    ("LG303", "not installed", lambda: changed(ONE, imex=absent("no IMEX on this host")), {"LG303": (ONE,)}),
    ("LG304", "cannot be asked", lambda: imex(state="", why="its command service is disabled", cmd_enabled=False, table=None),  # noqa: E501
     {"LG304": (ONE,)}),
    ("LG305", "one way", lambda: cells({(1, 3): "N"}), {"LG305": (ONE,)}),
    ("LG305", "inbound blocked", lambda: cells({(0, 1): "N", (2, 1): "N", (3, 1): "N"}), {"LG305": (ONE,)}),
    ("LG305", "both ways", lambda: cells({(1, 2): "R", (2, 1): "R"}), {"LG305": T[1:3]}),
    ("LG306", "lists differ", lambda: lists(ONE, cell="!M!"), {"LG306": (ONE,)}),
    ("LG306", "a file differs, and nothing is broken yet", lambda: lists(T[0]), {"LG306": (T[0],)}),
    ("LG306", "two lists, half and half", lambda: lists(T[0], T[1], cell="!M!"), {"LG306": T}),
    ("LG307", "versions differ", lambda: versions("595.91.07", ONE), {"LG307": (ONE,)}),
    ("LG308", "not in its own list", lambda: imex(state="DOWN", table=None, node_list=("10.9.9.9",)), {"LG308": (ONE,)}),  # noqa: E501
    ("LG309", "a name that does not resolve", lambda: imex(node_addresses=(("tray99", ()),)), {"LG309": (ONE,)}),
    ("LG311", "died with memory shared", lambda: changed(ONE, gpus=gpus(recovery_action="Recover IMEX Domain")),
     {"LG311": (ONE,)}),
    # channel
    ("LG401", "none", lambda: imex(channels=()), {"LG401": (ONE,)}),
    ("LG402", "stale", lambda: imex(channels=(ImexChannel(0, 499, True),)), {"LG402": (ONE,)}),
    ("LG403", "not writable", lambda: imex(channels=(ImexChannel(0, 506, False),)), {"LG403": (ONE,)}),
    ("LG404", "none in common", lambda: imex(channels=(ImexChannel(3, 506, True),)), {"LG404": (ONE,)}),
    # GPU health
    ("LG501", "lost", lambda: changed(ONE, gpus=lambda r: replace(r, gpus=r.gpus[:3], lost=("GPU is lost",)),
      kernel_log=log("NVRM: Xid (PCI:000b:06:00): 79, GPU has fallen off the bus.")), {"LG501": (ONE,)}),
    ("LG502", "a reset pending", lambda: changed(ONE, gpus=gpus(1, recovery_action="GPU Reset Required"),
      kernel_log=log("NVRM: Xid (PCI:0009:06:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)")),  # noqa: E501
     {"LG502": (ONE,)}),
    ("LG503", "MIG", lambda: changed(HGX, gpus=gpus(1, mig_enabled=True)), {"LG503": (HGX,)}),
    ("LG504", "remapping failed", lambda: changed(ONE, gpus=gpus(1, remap_failed=True, remap_pending=True)),
     {"LG504": (ONE,)}),
    ("LG505", "remapping pending", lambda: changed(ONE, gpus=gpus(1, remap_pending=True)), {"LG505": (ONE,)}),
    ("LG506", "ECC", lambda: changed(ONE, gpus=gpus(1, ecc_uncorrected=2)), {"LG506": (ONE,)}),
    ("LG502", "drain and reset, as older drivers say it",
     lambda: changed(ONE, gpus=gpus(1, recovery_action="Drain and Reset Recommended")), {"LG502": (ONE,)}),
    ("LG507", "a channel to repair", lambda: changed(ONE, gpus=condition(1, channel_repair_pending=True)), {"LG507": (ONE,)}),  # noqa: E501
    ("LG507", "a TPC to repair", lambda: changed(ONE, gpus=condition(1, tpc_repair_pending=True)), {"LG507": (ONE,)}),
    ("LG508", "SRAM", lambda: changed(ONE, gpus=condition(1, sram_threshold_exceeded=True)), {"LG508": (ONE,)}),
    ("LG509", "infoROM", lambda: changed(ONE, gpus=lambda r: replace(r, inforom_corrupt=(r.gpus[1].bus_id,))), {"LG509": (ONE,)}),  # noqa: E501
    *(
        ("LG524", reason, (lambda reason=reason: changed(ONE, gpus=at_work(reason))), {"LG524": (ONE,)})
        for reason in ("HW Thermal Slowdown", "HW Power Brake Slowdown", "SW Thermal Slowdown")
    ),
    ("LG524", "a slowdown of which the card does not tell the cause",
     lambda: changed(ONE, gpus=condition(2, clock_reasons=(("HW Slowdown", True),))), {"LG524": (ONE,)}),
    ("LG524", "a whole rack at once", hot_rack, {"LG524": T[:3]}),
    ("LG525", "a lowered limit", lambda: changed(ONE, gpus=condition(1, power=PowerLimits(700.0, 700.0, 1200.0))),
     {"LG525": (ONE,)}),
    ("LG525", "a lowered limit of the module",
     lambda: changed(ONE, gpus=condition(1, module_power=PowerLimits(1800.0, 2500.0, 2500.0, 2500.0))), {"LG525": (ONE,)}),  # noqa: E501
    ("LG526", "lanes of a board", lambda: changed(HGX, gpus=condition(3, pcie=PcieLink(5, 5, 8, 16))), {"LG526": (HGX,)}),  # noqa: E501
    ("LG526", "a card with fewer lanes than the others", lambda: slots(8, 16, 16), {"LG526": (H[0],)}),
    ("LG527", "a link that stays slow under load", lambda: changed(ONE, gpus=at_work(pcie=PcieLink(1, 5, 16, 16))),
     {"LG527": (ONE,)}),
    *(
        (id_, f"Xid {code}", (lambda code=code, words=words: changed(ONE, kernel_log=xid(code, words))), {id_: (ONE,)})
        for id_, code, words in (
            ("LG511", 79, "GPU has fallen off the bus."),
            ("LG512", 119, "Timeout waiting for RPC from GSP"),
            ("LG513", 74, "NVLINK"),
            ("LG513", 149, "NETIR Fatal"),
            ("LG514", 145, "RLW Nonfatal"),
            ("LG514", 137, "privilege"),
            ("LG515", 48, "DBE"),
            ("LG516", 94, "Contained"),
            ("LG517", 64, "remap failed"),
            ("LG519", 109, "CTX SWITCH TIMEOUT"),
            ("LG520", 121, "C2C"),
            ("LG521", 163, "power"),
        )
    ),
    ("LG518", "Xid 154 on a driver that prints no action", lambda: but_driver(ONE, "550.144.03",
      "NVRM: Xid (PCI:0009:06:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"),
     {"LG010": (ONE,), "LG518": (ONE,)}),
    ("LG523", "SXid", lambda: changed(HGX, kernel_log=log("nvidia-nvswitch0: SXid (PCI:0000:84:00.0): 20009, Fatal, Link 3")),  # noqa: E501
     {"LG523": (HGX,)}),
    # driver and tools
    ("LG601", "D state", lambda: unread("nvidia-smi (pid 311) hangs in D state"), {"LG601": (ONE,)}),
    ("LG601", "no answer", lambda: unread("no answer within its limit (60 s)"), {"LG601": (ONE,)}),
    ("LG602", "mismatch", lambda: unread("nvidia-smi: Failed to initialize NVML: Driver/library version mismatch (exit code 18)"),  # noqa: E501
     {"LG602": (ONE,)}),
    ("LG602", "an update that waits for a boot", lambda: changed(ONE, versions=fields(driver_library="580.178.04")),
     {"LG602": (ONE,)}),
    ("LG603", "not loaded", lambda: unread("nvidia-smi: NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."),  # noqa: E501
     {"LG603": (ONE,)}),
    ("LG604", "no nvidia-smi", lambda: unread("nvidia-smi is not installed, but the driver is loaded"), {"LG604": (ONE,)}),  # noqa: E501
    ("LG606", "persistence", lambda: changed(ONE, gpus=gpus(persistence=False)), {"LG606": (ONE,)}),
    ("LG607", "compute mode", lambda: changed(ONE, gpus=gpus(2, compute_mode="Prohibited")), {"LG607": (ONE,)}),
    ("LG608", "C2C off", lambda: changed(ONE, gpus=gpus(2, c2c_mode="Disabled")), {"LG608": (ONE,)}),
    ("LG609", "a stranger's process", lambda: changed(ONE, gpus=gpus(2, processes=process(), memory_used_mib=30_000)),
     {"LG609": (ONE,)}),
    ("LG610", "memory of nobody", lambda: changed(ONE, gpus=gpus(2, memory_used_mib=30_000)), {"LG610": (ONE,)}),
    # fabric manager
    ("LG651", "not running", lambda: waits(unit_active="failed"), {"LG651": (HGX,)}),
    ("LG652", "not installed", lambda: changed(HGX, gpus=gpus(fabric=IN_PROGRESS), fabric_manager=absent("none")),
     {"LG652": (HGX,)}),
    ("LG653", "starting", lambda: waits(unit_active="activating", active_for_s=60.0), {"LG653": (HGX,)}),
    ("LG654", "another version", lambda: waits(unit_active="failed", version="580.178.04"), {"LG654": (HGX,)}),
    ("LG655", "stayed resident", lambda: waits(stay_resident=True), {"LG655": (HGX,)}),
    ("LG656", "shared", lambda: waits(fabric_mode=1), {"LG656": (HGX,)}),
    ("LG657", "no nvlsm", lambda: waits(unit_active="failed", switches=0, nvlsm=False), {"LG657": (HGX,)}),
    ("LG658", "no ib_umad", lambda: waits(unit_active="failed", switches=0, ib_umad=False), {"LG658": (HGX,)}),
    ("LG659", "a switch is missing", lambda: waits(unit_active="failed", switches=3), {"LG659": (HGX,)}),
    # adapters
    ("LG701", "a port is down", lambda: changed(HGX, hcas=hca(2, {"state": "DOWN", "phys_state": "Polling"})),
     {"LG701": (HGX,)}),
    ("LG702", "one is missing", lambda: changed(HGX, hcas=lambda h: h[:7]), {"LG702": (HGX,)}),
    ("LG702", "one is named otherwise", lambda: changed(HGX, hcas=hca(7, name="ibp7")), {"LG702": (HGX,)}),
    ("LG703", "no subnet manager", lambda: changed(HGX, hcas=lambda h: all_ports(h, state="INIT", sm_lid=0)),
     {"LG703": (HGX,)}),
    ("LG704", "half speed", lambda: changed(HGX, hcas=hca(2, {"rate_gbps": 200})), {"LG704": (HGX,)}),
    ("LG705", "a rail without address", lambda: rail(ROCE, addresses=()), {"LG705": (ROCE,)}),
    ("LG706", "no rail at all", lambda: no_rails(ROCE), {"LG706": (ROCE,)}),
    ("LG707", "limited member", lambda: changed(HGX, hcas=hca(2, {"pkeys": ("0x7fff",)})), {"LG707": (HGX,)}),
    ("LG708", "another fabric", lambda: changed(HGX, hcas=lambda h: all_ports(h, sm_lid=9)), {"LG708": (HGX,)}),
    ("LG709", "firmware", lambda: changed(ROCE, hcas=hca(1, firmware="28.39.2048")), {"LG709": (ROCE,)}),
    ("LG710", "MTU", lambda: rail(ROCE, mtu=1500), {"LG710": (ROCE,)}),
    ("LG711", "memlock", lambda: system(HGX, memlock_hard_bytes=8 << 20), {"LG711": (HGX,)}),
    ("LG712", "no GPUDirect", lambda: changed(HGX, versions=fields(open_kernel_module=False)), {"LG712": (HGX,)}),
    ("LG713", "power", lambda: changed(HGX, kernel_log=log(
        "mlx5_core 0000:1a:00.0: mlx5_pcie_event:301: Detected insufficient power on the PCIe slot (27W).")),
     {"LG713": (HGX,)}),
    ("LG714", "peermem", lambda: changed(HGX, kernel_log=log(
        "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing")),
     {"LG714": (HGX,)}),
    # host
    ("LG801", "clock", lambda: changed(ONE, clock=ok(Clock(-61.0, 0.1))), {"LG801": (ONE,)}),
    ("LG802", "NUMA balancing", lambda: settings(numa_balancing="1"), {"LG802": (ONE,)}),
    ("LG803", "governor", lambda: settings(governor="powersave"), {"LG803": (ONE,)}),
    ("LG804", "full", lambda: room("/var", free_mib=20), {"LG804": (ONE,)}),
    ("LG805", "shm", lambda: room("/dev/shm", size_mib=64, free_mib=60), {"LG805": (ONE,)}),
    ("LG806", "read-only", lambda: room("/home/ops", read_only=True), {"LG806": (ONE,)}),
    ("LG807", "dead file server", lambda: room("/home/ops", size_mib=None, free_mib=None, inodes_free=None,
      why="it does not answer (a dead file server?)"), {"LG807": (ONE,)}),
    ("LG808", "nfs", lambda: changed(ONE, kernel_log=log("nfs: server nas1 not responding, still trying")), {"LG808": (ONE,)}),  # noqa: E501
    ("LG809", "oom", lambda: changed(ONE, kernel_log=log("Out of memory: Killed process 411 (python3)")), {"LG809": (ONE,)}),  # noqa: E501
    ("LG810", "files", lambda: changed(ONE, kernel_log=log("VFS: file-max limit 9223372 reached")), {"LG810": (ONE,)}),
    ("LG811", "lockup", lambda: changed(ONE, kernel_log=log("watchdog: BUG: soft lockup - CPU#3 stuck for 22s!")),
     {"LG811": (ONE,)}),
    ("LG812", "disk", lambda: changed(ONE, kernel_log=log("I/O error, dev nvme0n1, sector 1234")), {"LG812": (ONE,)}),
    ("LG813", "remounted", lambda: changed(ONE, kernel_log=log("EXT4-fs (nvme0n1p2): Remounting filesystem read-only")),
     {"LG813": (ONE,)}),
    ("LG814", "memory", lambda: changed(ONE, resources=fields(memory_available_mib=9_000)), {"LG814": (ONE,)}),
    ("LG815", "nofile", lambda: system(nofile_hard=1024), {"LG815": (ONE,)}),
    ("LG817", "a name that nobody knows", own_name, {"LG817": (ONE,)}),
    ("LG817", "a name that leads elsewhere", lambda: own_name("10.9.9.9"), {"LG817": (ONE,)}),
    ("LG818", "a reboot", lambda: changed(ONE, versions=fields(reboot_for=("linux-image-6.8.0-90-generic",))), {"LG818": (ONE,)}),  # noqa: E501
    # launch
    ("LG901", "nccl.conf", lambda: changed(ONE, nccl=ok((NcclFile("/etc/nccl.conf", (("NCCL_P2P_DISABLE", "1"),)),))),
     {"LG901": (ONE,)}),
    ("LG904", "engine versions", lambda: changed(ONE, engines=ok((Installed("vllm", (("vllm", "0.10.0"),)),))),
     {"LG904": (ONE,)}),
    ("LG905", "a broken engine", lambda: changed(ONE, engines=ok((Installed("vllm", (), "exit code 1"),))),
     {"LG905": (ONE,)}),
]  # fmt: skip


def slots(*widths: int) -> Fleet:
    """H100 PCIe cards, one host a width."""
    off = lambda rows: tuple(replace(r, speeds=(), why="all links are inActive") for r in rows)  # noqa: E731
    matrix = lambda t: replace(t, links={p: w if w == "X" else "SYS" for p, w in t.links.items()})  # noqa: E731
    fleet = healthy()
    for name, width in zip(H, widths, strict=True):
        card = gpus(name="NVIDIA H100 PCIe", fabric=Fabric("N/A", "N/A"))
        narrow = condition(pcie=PcieLink(5, 5, width, 16))
        one = but(fleet[name], gpus=card, links=off, topology=matrix, fabric_manager=absent("none"))
        fleet[name] = but(one, gpus=narrow)
    return fleet


def unread_absent(why: str) -> Fleet:
    gone = absent(why)
    return changed(ONE, gpus=gone, topology=gone, links=gone)


def expecting(name: str, **expect) -> Fleet:
    fleet = healthy()
    host = fleet[name].host
    return fleet | {name: replace(fleet[name], host=replace(host, expect=replace(host.expect, **expect)))}


def links(active: int = 18, speed: float = 53.125):
    def of(rows):
        return (replace(rows[0], speeds=(speed,) * active + (None,) * (18 - active)), *rows[1:])

    return of


def apart(a: int, b: int):
    return lambda t: replace(t, links=t.links | {(a, b): "SYS", (b, a): "SYS"})


def xid(code: int, words: str):
    return log(f"NVRM: Xid (PCI:0009:06:00): {code}, pid=123, {words}")


def but_driver(name: str, driver: str, line: str) -> Fleet:
    versions = fields(driver_loaded=driver, driver_library=driver)
    return changed(name, gpus=fields(driver=driver), versions=versions, kernel_log=log(line))


def all_ports(hcas, **change):
    return tuple(replace(h, ports=tuple(replace(p, **change) for p in h.ports)) for h in hcas)


def stranger() -> Fleet:
    """An HGX host that the inventory puts into the rack, and into its domain."""
    fleet = healthy()
    host = fleet[HGX].host
    host = replace(host, rack="r1", expect=replace(host.expect, domain=True))
    return fleet | {HGX: replace(fleet[HGX], host=host)}


ROWS = [(i, w, stranger if i == "LG110" else f, e) for i, w, f, e in ROWS]
REMARKS = {"LG006", "LG007", "LG111", "LG310", "LG312", "LG522", "LG611", "LG816", "LG902", "LG903"}
LAUNCH = {"LG911", "LG912", "LG913", "LG914", "LG921", "LG922", "LG923"}
TOLD = {"LG001", "LG002", "LG605"}  # they say that something could not be told


@pytest.mark.parametrize(("check", "what", "fleet", "expected"), ROWS, ids=[f"{r[0]} {r[1]}" for r in ROWS])
def test_it_fires_on_the_right_hosts_and_nothing_else_does(check, what, fleet, expected):
    """One thing is wrong: one finding (or what goes with it), on exactly its hosts, and a failing exit code."""
    assert check in expected
    _, report = seen(fleet())
    assert said(report) == {i: tuple(sorted(h)) for i, h in expected.items()}, what
    assert report.code() == 1


def test_a_healthy_fleet_is_silent():
    """Not a finding, not a remark, nothing that could not be told."""
    _, report = seen(healthy())
    assert report.findings == ()
    assert report.unknown == ()
    assert report.code() == 0


def test_every_check_has_a_row():
    """No check is there that nobody has seen firing."""
    shown = {r[0] for r in ROWS} | REMARKS | LAUNCH | TOLD
    assert {c.id for c in CHECKS} - shown == set()
    assert len({c.id for c in CHECKS}) == len(CHECKS)


REMARK_ROWS = [
    ("LG006", lambda: system(scheduler="slurmd")),
    ("LG310", lambda: many((T[0], T[2], T[3]), lambda f: with_cells(f, {(1, j): "I" for j in range(4)}))),
    ("LG312", lambda: settings(ip_local_port_range="32768 60999", ip_local_reserved_ports="50000")),
    ("LG522", lambda: changed(ONE, kernel_log=xid(999, "new"))),
    ("LG611", lambda: changed(ONE, gpus=gpus(addressing_mode="ATS"))),
    ("LG816", lambda: system(uptime_s=1800.0)),
    ("LG524", lambda: changed(ONE, gpus=at_work("HW Slowdown"))),
    ("LG817", lambda: own_name("127.0.1.1")),
    ("LG902", lambda: changed(ONE, nccl=ok((NcclFile("/etc/nccl.conf", why="no right to read /etc/nccl.conf"),)))),
    ("LG903", lambda: system(environment=(("NCCL_IB_HCA", "mlx5_0"),))),
]


@pytest.mark.parametrize(("check", "fleet"), REMARK_ROWS, ids=[r[0] for r in REMARK_ROWS])
def test_remarks_are_no_problem(check, fleet):
    """They are said, and the run is fine."""
    _, report = seen(fleet())
    assert said(report, info=True) == {check: (ONE,)}
    assert report.code() == 0


def test_a_host_that_was_asked_alone_is_no_fault():
    """Of one tray nobody can say that it is alone in its domain: a remark."""
    fleet = {ONE: healthy()[ONE]}
    _, report = seen(fleet)
    assert said(report, info=True) == {"LG111": (ONE,)}
    assert report.code() == 0


def test_a_cordoned_host_counts_for_nothing():
    """What is wrong there is still shown, and the run is fine."""
    _, report = seen(imex(state="DOWN", table=None), cordons={ONE: "optics"})
    assert said(report, info=True) == {"LG007": (ONE,), "LG301": (ONE,)}
    assert report.code() == 0
    _, dark = seen(unreachable(ONE), cordons={ONE: "off"})
    assert dark.code() == 0


UNTOLD = [
    ("LG001", lambda: unreachable(ONE), 3),
    ("LG002", lambda: changed(ONE, system=broken("the host does not tell its name")), 3),
    ("LG605", lambda: unread("another probe is at work"), 3),
    ("LG301", lambda: changed(ONE, imex=broken("no answer within its limit (30 s)")), 3),
    ("LG305", lambda: imex(table=None, table_why="no answer within its limit (60 s)"), 3),
    ("LG401", lambda: imex(channels=(), files_why="no answer within its limit (30 s)"), 3),
    ("LG101", lambda: changed(ONE, gpus=gpus(fabric=Fabric("Completed", "Success"))), 3),
    ("LG513", lambda: changed(ONE, kernel_log=broken("reading the kernel log needs a right that needs root")), 0),
    ("LG801", lambda: changed(ONE, clock=broken("not measured")), 0),
    ("LG507", lambda: changed(ONE, gpus=condition(1, strange=(("TPC Repair Pending", "Maybe"),))), 0),
    ("LG508", lambda: changed(ONE, gpus=condition(1, strange=(("SRAM Threshold Exceeded", "Maybe"),))), 0),
    ("LG524", lambda: changed(ONE, gpus=condition(1, strange=(("HW Thermal Slowdown", "Perhaps"),))), 0),
    ("LG525", lambda: changed(ONE, gpus=condition(1, strange=(("Current Power Limit", "much"),))), 0),
    ("LG526", lambda: changed(ONE, gpus=condition(1, strange=(("Link Width Current", "wide"),))), 0),
    ("LG527", lambda: changed(ONE, gpus=condition(1, strange=(("PCIe Generation Current", "new"),))), 0),
    ("LG817", lambda: own_name(why="its resolver did not answer"), 0),
    ("LG817", lambda: changed(ONE, resources=fields(own_name=None)), 0),
    ("LG818", lambda: changed(ONE, versions=broken("not saved")), 0),
    ("LG651", lambda: changed(HGX, fabric_manager=broken("not saved")), 0),
]


@pytest.mark.parametrize(("check", "fleet", "code"), UNTOLD, ids=[r[0] for r in UNTOLD])
def test_what_cannot_be_read_is_unknown_and_never_fine(check, fleet, code):
    """It is named with its reason; what decides about using a host makes the run fail, the rest with --strict."""
    _, report = seen(fleet())
    told = {c.id: u for u in report.unknown for c in u.checks}
    assert check in told
    assert told[check].why
    assert report.code() == code
    assert report.code(strict=True) == 3
    assert said(report) == {}


def test_a_rack_that_is_slowed_down_at_once_is_the_racks():
    """One tray: its own supplies. Most of the rack: the rack operator, in one line."""
    _, report = seen(changed(ONE, gpus=at_work("HW Power Brake Slowdown")))
    assert [(f.who, f.hosts) for f in report.findings] == [("host admin", (ONE,))]
    _, report = seen(hot_rack())
    assert [(f.who, f.hosts) for f in report.findings] == [("rack operator", T[:3])]
    assert "rack" in report.findings[0].action


def test_a_gpu_of_ours_is_nobody_elses():
    """A process on a GPU that a shard claims is no stranger's."""
    fleet = changed(ONE, gpus=gpus(2, processes=process(), memory_used_mib=30_000))
    uuid = fleet[ONE].gpus.value.gpus[2].uuid
    claim = Claim(f"gpu-{uuid.removeprefix('GPU-')}", "m-0", 0, "l1", alive=True)
    fleet[ONE] = replace(fleet[ONE], life=ok(HostLife((claim,))))
    assert said(seen(fleet)[1]) == {}
