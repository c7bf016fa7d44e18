"""docs/drivers.md says what is read of each driver; it is made from the fixtures, and an old one fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import smi
from smi_matrix import Matrix
from test_probe_imex import EARLY, NEW, OLD, as_json

from llmgwctl.model.condition import PcieLink, PowerLimits
from llmgwctl.model.gpu import Gpu
from llmgwctl.probe import gpus, topology
from llmgwctl.probe.base import Output
from llmgwctl.probe.imex_table import read_table

DOC = Path(__file__).parents[1] / "docs" / "drivers.md"
YES, NO = "yes", "–"
HEAD = """# What is read of each driver

Made by `pytest tests/test_drivers_doc.py --update-golden` from the layouts that the drivers print (tests/smi.py). What
a driver does not print is *unknown*: it is never taken for bad, and never for fine. The set does not grow with the
number: 590 lacks a row that 580.126 has.

## The report of `nvidia-smi -q` (as text and as XML)

"""
SINCE = """
`joined` needs ClusterUUID and CliqueId beside State and Status; *healthy* is told as soon as one health row has a
value (R550 may print N/A for the bandwidth of a healthy GPU, and then it is not told). Reset status stands in for the
recovery action where there is no such key.

## Other commands

| command | what is read |
|---|---|
"""


def all_of(*names: str) -> Callable[[Gpu], bool]:
    """All of these are told."""
    return lambda g: all(_value(g, name) not in (None, "") for name in names)


def _value(found: object, path: str) -> object:
    for name in path.split("."):
        found = getattr(found, name)
    return found


LINK, POWER = PcieLink(5, 5, 16, 16), PowerLimits(1100.0, 1150.0, 1200.0, 1250.0)
HEALTH = "fabric.health."
ROWS: tuple[tuple[str, Callable[[Gpu], bool]], ...] = (
    ("identity: UUID, PCI address, name", all_of("uuid", "bus_id", "name")),
    ("memory, MIG, compute mode", all_of("memory_used_mib", "memory_total_mib", "mig_enabled", "compute_mode")),
    ("ECC, row remapping", all_of("ecc_uncorrected", "remap_pending", "remap_failed")),
    ("SRAM threshold", all_of("condition.sram_threshold_exceeded")),
    ("pending repairs of channels and TPCs", all_of(*(f"condition.{x}_repair_pending" for x in ("channel", "tpc")))),
    ("what slows the clocks, PCIe link", lambda g: len(g.condition.clock_reasons) == 9 and g.condition.pcie == LINK),
    ("power limits: now, asked, default, most", lambda g: g.condition.power == POWER),
    ("processes", lambda g: g.processes_known),
    ("addressing mode", all_of("addressing_mode")),
    ("C2C mode", all_of("c2c_mode")),
    ("chassis, slot, tray (Platform Info)", all_of("platform.chassis_serial", "platform.slot", "platform.tray")),
    ("fabric: State, Status", all_of("fabric.state", "fabric.status")),
    ("fabric: ClusterUUID, CliqueId", all_of("fabric.cluster_uuid", "fabric.clique_id")),
    ("**joined** can be told", all_of("fabric.joined")),
    ("**healthy** can be told", all_of("fabric.healthy")),
    ("health: Summary", all_of(HEALTH + "summary")),
    ("health: Bandwidth", all_of(HEALTH + "bandwidth")),
    ("health: Route Recovery, Route Unhealthy", all_of(HEALTH + "route_recovery", HEALTH + "route_unhealthy")),
    ("health: Access Timeout Recovery", all_of(HEALTH + "access_timeout_recovery")),
    ("health: Incorrect Configuration", all_of(HEALTH + "incorrect_configuration")),
    ("health: Partition Assigned", all_of(HEALTH + "partition_assigned")),
    ("health: Global Fabric Manager State", all_of(HEALTH + "gfm_connected")),
)


def one(driver: str, card: smi.Card, form: Callable[..., str] = smi.text) -> Gpu:
    reading = gpus.PROBE.read({"nvidia-smi-q": Output(form(driver, [card]))})
    assert reading.ok, reading.why
    return reading.value.gpus[0]


def report_table() -> str:
    full = smi.Card(health={"Partition Assigned": "True", "Global Fabric Manager State": "Connected"})
    found = {d: one(d, full) for d in smi.DRIVERS}
    for driver, gpu in found.items():
        assert one(driver, full, smi.xml) == gpu, driver
    lines = ["| | " + " | ".join(f"R{d}" for d in smi.DRIVERS) + " |", "|---|" + "---|" * len(smi.DRIVERS)]
    lines += [f"| {name} | " + " | ".join(YES if told(g) else NO for g in found.values()) + " |" for name, told in ROWS]
    return "\n".join([*lines, "| pending recovery | " + " | ".join(map(recovery, smi.DRIVERS)) + " |"]) + "\n"


def recovery(driver: str) -> str:
    said = one(driver, smi.Card(recovery="Drain and Reset")).recovery_action
    return {None: NO, "Drain and Reset": "action"}.get(said, "reset status")


def matrix_words(columns: int) -> str:
    found = topology.read_matrix(Matrix(nics=("mlx5_0",), columns=columns, gpu_numa={0: "2"}).tabs())
    assert not isinstance(found, str)
    told = {"CPUs": found.cpus, "NUMA node": found.numa, "the GPU's own NUMA node": found.gpu_numa}
    return ", ".join(("GPU to GPU", "GPU to adapter", *(name for name, value in told.items() if value)))


def imex_words(text: str) -> str:
    table = read_table(text)
    marked = any(n.local for n in table.nodes)
    told = {"versions": any(n.version for n in table.nodes), "the local mark": marked, "every pair": table.cells}
    return ", ".join(("nodes", *(name for name, value in told.items() if value)))


def other_rows() -> str:
    rows = (
        ("`nvidia-smi topo -m` up to R4xx", matrix_words(1)),
        ("`nvidia-smi topo -m` R510", matrix_words(2)),
        ("`nvidia-smi topo -m` from R535 on", matrix_words(3)),
        ("`nvidia-smi nvlink -s`", "each link's speed or that it is inactive; R510 stops at its twelfth link"),
        ("`nvidia-imex-ctl -q`", "the state word, on stdout alone; R550's program mistranslates newer daemons"),
        ("`nvidia-imex-ctl -N` of early R570", imex_words(EARLY)),
        ("`nvidia-imex-ctl -N` of R570", imex_words(OLD)),
        ("`nvidia-imex-ctl -N` from R580 on", imex_words(NEW)),
        ("`nvidia-imex-ctl -N -j` from R570 on", imex_words(as_json())),
        ("`--query-gpu=index,uuid,compute_cap`", "nvidia-smi's own numbers, to check the order by PCI address"),
    )
    return "".join(f"| {command} | {words} |\n" for command, words in rows)


def test_the_table_of_drivers_is_what_the_parsers_do(golden):
    """Each cell is what came out of reading that driver's layout; text and XML agree."""
    golden(DOC, HEAD + report_table() + SINCE + other_rows())
