"""What looks broken and is not: a remark at most. A doctor that cries wolf is worse than none."""

from __future__ import annotations

from dataclasses import replace

import pytest
from doctor_racks import but, changed, clocks, condition, fields, gpus, healthy, log, said, seen
from facts import OTHER_UUID, ib_port, joined, with_cells
from test_doctor_checks import HGX, ONE, ROCE, T, at_work, many, own_name, settings, slots, system

from llmgwctl.model.condition import Condition, PcieLink, PowerLimits
from llmgwctl.model.finding import SEVERITIES
from llmgwctl.model.gpu import Fabric, FabricHealth
from llmgwctl.model.imex import ImexNode
from llmgwctl.model.machine import FabricManager, Installed, KernelLog
from llmgwctl.model.network import Hca
from llmgwctl.model.reading import absent, ok
from llmgwctl.probe import PROBES, imex
from llmgwctl.probe.base import Output


def unused_slots():
    """DRA lists 18 names; of four hosts the domain is DEGRADED for ever, and each pair of them is connected."""

    def of(facts):
        table = facts.imex.value.table
        nodes = (*table.nodes, *(ImexNode(i, f"slot-{i}", "UNAVAILABLE") for i in range(4, 18)))
        cells = {(i, j): "I" if i > 3 else "N" for i in range(18) for j in range(18)} | table.cells
        lines = (*facts.imex.value.node_list, *(f"slot-{i}" for i in range(4, 18)))
        return but(
            facts, imex=fields(table=replace(table, nodes=nodes, cells=cells, domain_state="DEGRADED"), node_list=lines)
        )

    return many(T, of)


def per_job(**change):
    """A host of Slurm or DRA on which IMEX rests while no job runs."""
    fleet = changed(ONE, imex=fields(**({"state": "DOWN", "table": None, "unit_active": "inactive"} | change)))
    return fleet


def slurm():
    fleet = per_job()
    return fleet | {ONE: but(fleet[ONE], system=fields(scheduler="slurmd"))}


def pythons():
    """sim runs on each host's own python3, and nothing of a replica depends on which that is."""

    def of(facts):
        told = Installed("sim", (("python3", f"3.{10 + T.index(facts.host.name)}.0"),))
        return but(facts, engines=ok((*facts.engines.value, told)))

    return many(T, of)


def dra():
    fleet = per_job(unit_file="masked", channels=())
    return fleet | {ONE: but(fleet[ONE], system=fields(scheduler="kubelet"))}


def bridges():
    """An HGX B200 whose NVSwitch management functions look like adapters that are down."""
    fleet = {}
    for i, name in enumerate(("b200-01", "b200-02")):
        facts = healthy()[("h100-001", "h100-002")[i]]
        cards = tuple(replace(g, name="NVIDIA B200") for g in facts.gpus.value.gpus)
        port = ib_port(active=False, sm_lid=0)
        strange = tuple(Hca(f"mlx5_{n}", (port,), hca_type="MT4129", switch_management=True) for n in range(8, 12))
        mine = facts.hcas.value + (strange if i else strange[:2])
        host = replace(facts.host, name=name, expect=replace(facts.host.expect, gpu="B200"))
        fleet[name] = replace(facts, host=host, gpus=ok(replace(facts.gpus.value, gpus=cards)), hcas=ok(mine))
        fleet[name] = but(fleet[name], links=lambda rows: tuple(replace(r, speeds=(53.125,) * 18) for r in rows))
    return fleet


def storage_pair():
    """A bonded pair for storage is down on one host: it carries no compute traffic anywhere."""
    bond = Hca(
        "mlx5_bond_0", (replace(ib_port(), link_layer="Ethernet", rate_gbps=200),), bonded=True, hca_type="MT41692"
    )
    down = replace(bond, ports=(replace(bond.ports[0], state="DOWN", phys_state="Disabled"),))
    fleet = many(("h100-001", "h100-002", "h100-003"), lambda f: but(f, hcas=lambda h: (*h, bond)))
    return fleet | {HGX: but(fleet[HGX], hcas=lambda h: (*h[:-1], down))}


def unplugged():
    """A second port that no host of the kind uses."""
    spare = replace(ib_port(active=False, sm_lid=0), number=2)
    return many(("h100-001", "h100-002", "h100-003"),
                lambda f: but(f, hcas=lambda h: tuple(replace(a, ports=(*a.ports, spare)) for a in h)))  # fmt: skip


def ipoib_down():
    def of(network):
        extra = tuple(replace(network.interfaces[1], name=f"ib{i}", up=False, addresses=()) for i in range(8))
        return replace(network, interfaces=(*network.interfaces, *extra))

    return changed(HGX, network=of)


def read_only_root():
    def of(resources):
        return replace(
            resources,
            rooms=tuple(replace(r, read_only=True, free_mib=0) if r.path == "/" else r for r in resources.rooms),
        )

    return changed(ONE, resources=of)


def nccl_debug():
    from llmgwctl.model.machine import NcclFile

    return changed(ONE, nccl=ok((NcclFile("/etc/nccl.conf", (("NCCL_DEBUG", "WARN"),)),)))


def login_node():
    fleet = healthy()
    one = fleet[HGX]
    host = replace(one.host, expect=replace(one.host.expect, gpus=None), pool="login")
    none = absent("no NVIDIA driver")
    return fleet | {HGX: replace(one, host=host, gpus=none, topology=none, links=none, fabric_manager=none)}


def pcie():
    fleet = changed(HGX, gpus=gpus(name="NVIDIA H100 PCIe", fabric=Fabric("N/A", "N/A")))
    off = lambda rows: tuple(replace(r, speeds=(), why="all links are inActive") for r in rows)  # noqa: E731
    matrix = lambda t: replace(t, links={p: w if w == "X" else "SYS" for p, w in t.links.items()})  # noqa: E731
    return fleet | {HGX: but(fleet[HGX], links=off, topology=matrix, fabric_manager=absent("none"))}


ONE_SIDED = {(1, j): "I" for j in range(4)}
TRAPS = [
    ("I11 the status port alone is blocked", lambda: many((T[0], T[2], T[3]), lambda f: with_cells(f, ONE_SIDED))),
    ("I22 IMEX rests where Slurm starts it per job", slurm),
    ("I23 the unit is masked, DRA runs it", dra),
    ("I23 the unit is masked and nobody else is seen", lambda: per_job(unit_file="masked")),
    ("I24 the domain is DEGRADED by slots that nobody uses", unused_slots),
    ("I28 a cut of seconds ago: the row is gone, the column still C",
     lambda: many((T[0], T[2], T[3]), lambda f: with_cells(f, ONE_SIDED))),
    ("I14 another order of lines is the same list",
     lambda: changed(ONE, imex=lambda i: replace(i, node_list=tuple(reversed(i.node_list))))),
    ("F19 an HGX host that prints a ClusterUUID", lambda: changed(HGX, gpus=gpus(fabric=joined(OTHER_UUID, 0)))),
    ("N25 several of them, with one and the same",
     lambda: many(("h100-001", "h100-002"), lambda f: but(f, gpus=gpus(fabric=joined(OTHER_UUID, 0))))),
    ("F18 equal cliques of two racks are two domains", lambda: healthy() | second_rack()),
    ("D11 no fabric manager belongs on a tray",
     lambda: changed(ONE, fabric_manager=ok(FabricManager("loaded", "inactive", "dead", "disabled")))),
    ("D11 the unit is down, and the fabric is up", lambda: changed(HGX, fabric_manager=fields(unit_active="failed"))),
    ("D14 health rows that are N/A",
     lambda: changed(ONE, gpus=gpus(fabric=joined(health=FabricHealth(summary="Healthy", bandwidth="Full"))))),
    ("D20 NVSwitch management functions", bridges),
    ("R21 a log full of registers that may not be read",
     lambda: changed(HGX, kernel_log=log(*["mlx5_core 0000:05:00.0: mlx5_cmd_out_err:838:(pid 2): ACCESS_REG(0x805) failed"] * 50))),  # noqa: E501
    ("R22 the storage pair", storage_pair),
    ("R25 IPoIB is down beside a port that works", ipoib_down),
    ("R01 ports that nobody of the kind uses", unplugged),
    ("G20 faults of programs", lambda: changed(ONE, kernel_log=log(
        *[f"NVRM: Xid (PCI:0009:06:00): {n}, pid=77, name=python3, Ch 00000008" for n in (13, 31, 43, 45)]))),
    ("G05 an SXid that is not fatal",
     lambda: changed(HGX, kernel_log=log("nvidia-nvswitch0: SXid (PCI:0000:84:00.0): 12028, Non-fatal, Link 3"))),
    ("G10 a recovery that is done",
     lambda: changed(ONE, kernel_log=log("NVRM: Xid (PCI:0009:06:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"))),  # noqa: E501
    ("H09 a file server that is well again",
     lambda: changed(ONE, kernel_log=log("nfs: server nas1 not responding, still trying", "nfs: server nas1 OK"))),
    ("H11 a system image that is read-only by design", read_only_root),
    ("D18 ports that are reserved",
     lambda: settings(ip_local_port_range="32768 60999", ip_local_reserved_ports="8080,50000-50010")),
    ("H07 a governor with another name", lambda: settings(governor="schedutil")),
    ("H05 a clock within what can be told", lambda: changed(ONE, clock=ok(replace(healthy()[ONE].clock.value, offset_s=3.0, bound_s=2.5)))),  # noqa: E501
    ("N18 a file that sets nothing which steers", nccl_debug),
    ("N15 no stack limit in the login: the supervisor sets it", lambda: system(stack_soft_bytes=None)),
    ("V10 a desktop's graphics process", lambda: changed(ONE, gpus=gpus(1, processes=graphics()))),
    ("R19 a GPU that rests lowers the generation of its link",
     lambda: changed(HGX, gpus=condition(performance_state="P8", pcie=PcieLink(1, 5, 16, 16)))),
    ("R19 nothing says whether it rests",
     lambda: changed(HGX, gpus=condition(clock_reasons=(), pcie=PcieLink(1, 5, 16, 16)))),
    ("R19 slots that are all wired with eight lanes", lambda: slots(8, 8, 8)),
    ("G23 a busy GPU at its power limit", lambda: changed(ONE, gpus=at_work("SW Power Cap"))),
    ("G23 clocks that somebody set", lambda: changed(ONE, gpus=at_work("Applications Clocks Setting", "Sync Boost"))),
    ("G23 a slowdown that nothing causes: a change of clocks", lambda: changed(ONE, gpus=at_work("HW Slowdown"))),
    ("G24 a default below the most that may be asked for",
     lambda: changed(ONE, gpus=condition(power=PowerLimits(1000.0, 1000.0, 1000.0, 1200.0)))),
    ("G17 a driver that prints none of it", lambda: changed(ONE, gpus=gpus(condition=Condition()))),
    ("N07 Debian's own line for the host's name", lambda: own_name("127.0.1.1")),
    ("N07 one of several addresses is the host's", lambda: own_name("fe80::1", "10.9.9.9", "10.1.0.2")),
    ("M01 no GPU is expected and none is there", login_node),
    ("M02 a PCIe card without any fabric", pcie),
    ("M03 an old driver on an HGX host prints no UUID",
     lambda: changed(HGX, gpus=gpus(fabric=Fabric("Completed", "Success")))),
    ("M04 no RDMA adapters on any host", lambda: many(T, lambda f: replace(f, hcas=absent("no RDMA adapters")))),
    ("S01 any python3 will do for a drill", pythons),
    ("M05 an empty kernel log", lambda: changed(ROCE, kernel_log=ok(KernelLog((), "dmesg")))),
]  # fmt: skip


def second_rack():
    from doctor_racks import _tray
    from facts import rack

    return {n: _tray(f) for n, f in rack(3, "r2", OTHER_UUID, net=2).items()}


def graphics():
    from doctor_racks import process

    return process(kind="G")


@pytest.mark.parametrize("fleet", [t[1] for t in TRAPS], ids=[t[0] for t in TRAPS])
def test_traps_are_quiet(fleet):
    """Nothing graver than a remark, and the run is fine."""
    _, report = seen(fleet())
    assert said(report) == {}
    assert report.code() == 0
    assert all(SEVERITIES.index(f.severity) == SEVERITIES.index("info") for f in report.findings)


def test_a_dead_daemon_whose_command_exits_0_is_dead():
    """I02: only what stands on stdout says that IMEX is up."""
    died = Output("", "Query Status returned error code: 14 - failed to connect to all addresses", 0)
    reading = imex.PROBE.read(
        {"nvidia-imex-ctl-q": died, "imex-files": Output("config present\nset IMEX_CMD_ENABLED=1\nnode 10.1.0.2\n")}
    )
    _, report = seen(changed(ONE, imex=reading))
    assert "LG301" in said(report)


def test_only_verbs_that_disturb_nothing():
    """I30, V07: -q and -N of nvidia-imex-ctl, -q of nvidia-smi and its tables, and never a bug report or a reset."""
    sections = [s for p in PROBES for s in p.sections]
    asked = {s.argv[0]: set() for s in sections if s.argv}
    for s in sections:
        if s.argv:
            asked[s.argv[0]] |= set(s.argv[1:])
    assert asked["nvidia-imex-ctl"] == {"-q", "-N", "-j"}
    assert {w.split("=")[0] for w in asked["nvidia-smi"]} <= {
        "-q",
        "--query-gpu",
        "--format",
        "topo",
        "-m",
        "nvlink",
        "-s",
    }
    texts = " ".join(s.body() for s in sections)
    for verb in ("bug-report", "gpu-reset", "perfquery", "modprobe ", "systemctl start", "systemctl restart", "dcgmi"):
        assert verb not in texts


def test_an_environment_that_proves_nothing_is_not_judged():
    """N02: NCCL_MNNVL_ENABLE=1 neither proves nor breaks anything."""
    _, report = seen(system(environment=(("NCCL_MNNVL_ENABLE", "1"),)))
    assert said(report) == {}


def test_a_row_that_is_printed_without_end_is_one_unknown():
    """The first odd word of a row counts, as everywhere: a host does not fill the report."""
    odd = tuple(("HW Slowdown", f"word {n}") for n in range(5000))
    _, report = seen(changed(ONE, gpus=condition(1, strange=odd)))
    assert ["'word 0'" in u.why for u in report.unknown if "HW Slowdown" in u.why] == [True]


def test_the_first_row_of_a_name_counts():
    """A later row of the clocks takes back nothing, as with every other row of the report."""
    rows = (*clocks("HW Thermal Slowdown"), ("HW Thermal Slowdown", False))
    assert Condition(clock_reasons=rows).slowed_by("HW Thermal Slowdown") is True
    assert Condition(clock_reasons=rows).slowed_by("no such row") is None
