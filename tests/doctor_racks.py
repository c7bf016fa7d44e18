"""A healthy fleet with every reading there, and hands to break one thing of it: the ground of the doctor's tests."""

from __future__ import annotations

from dataclasses import replace

from facts import hgx, rack, roce_hca, snapshot

from llmgwctl.doctor import diagnose
from llmgwctl.fabric import fabric_map
from llmgwctl.model.condition import Condition, PcieLink, PowerLimits
from llmgwctl.model.finding import Report
from llmgwctl.model.gpu import GpuProcess
from llmgwctl.model.host import Expect, HostFacts, Snapshot
from llmgwctl.model.machine import (
    Clock,
    FabricManager,
    Installed,
    KernelLine,
    KernelLog,
    OwnName,
    Resources,
    Room,
    Versions,
)
from llmgwctl.model.reading import absent, ok
from llmgwctl.model.topology import GpuLinks, Numa, NumaNode, Topology
from llmgwctl.probe.kernel_log import line_of

Fleet = dict[str, HostFacts]
DRIVER = "580.173.02"
REASONS = (
    "Idle",
    "Applications Clocks Setting",
    "SW Power Cap",
    "HW Slowdown",
    "HW Thermal Slowdown",
    "HW Power Brake Slowdown",
    "Sync Boost",
    "SW Thermal Slowdown",
    "Display Clock Setting",
)
RESTING = Condition(
    performance_state="P0",
    clock_reasons=tuple((name, name == "Idle") for name in REASONS),
    pcie=PcieLink(5, 5, 16, 16),
    power=PowerLimits(1200.0, 1200.0, 1200.0, 1200.0),
    module_power=PowerLimits(2500.0, 2500.0, 2500.0, 2500.0),
    channel_repair_pending=False,
    tpc_repair_pending=False,
    sram_threshold_exceeded=False,
)
MANAGER = FabricManager("loaded", "active", "running", "enabled", "success", 90_000.0, DRIVER, "present", 0, False, 4)


def healthy() -> Fleet:
    """A rack of four GB200 trays, three H100 hosts on InfiniBand and three H200 hosts on RoCE."""
    trays = {n: _tray(f) for n, f in rack(4).items()}
    boards = {n: _board(f) for n, f in hgx(3).items()}
    return trays | boards | roce_hosts()


def roce_hosts(count: int = 3) -> Fleet:
    made = {}
    for i, (name, facts) in enumerate(hgx(count, "h200", 8, "NVIDIA H200").items()):
        hcas = tuple(replace(roce_hca(r, i + 1), hca_type="MT4129", firmware="28.43.1014", board="b") for r in range(4))
        network = facts.network.value
        rails = tuple(
            replace(network.interfaces[1], name=f"rail{r}", addresses=(f"10.{r}.0.{i + 1}/24",), mtu=9000)
            for r in range(4)
        )
        cards = tuple(replace(g, name="NVIDIA H200") for g in facts.gpus.value.gpus)
        made[name] = _board(
            replace(
                facts,
                gpus=ok(replace(facts.gpus.value, gpus=cards)),
                hcas=ok(hcas),
                network=ok(replace(network, interfaces=(*network.interfaces, *rails))),
                host=replace(facts.host, pool="roce", order=200 + i),
            )
        )
    return made


def _tray(facts: HostFacts) -> HostFacts:
    return _full(facts, "NV18", 18, 53.125, absent("no fabric manager here, and no NVSwitch"))


def _board(facts: HostFacts) -> HostFacts:
    facts = replace(facts, host=replace(facts.host, expect=Expect(8, None, False)))
    return _full(facts, "NV18", 18, 26.562, ok(MANAGER))


def _full(facts: HostFacts, way: str, links: int, speed: float, manager) -> HostFacts:
    gpus = facts.gpus.value.gpus
    indexes = tuple(g.index for g in gpus)
    matrix = {(a, b): "X" if a == b else way for a in indexes for b in indexes}
    hcas = tuple(
        h if h.hca_type else replace(h, hca_type="MT4129", firmware="28.43.1014", board="MT_0838")
        for h in facts.hcas.value
    )
    system = replace(facts.system.value, memlock_hard_bytes=None, nofile_hard=1 << 20, stack_soft_bytes=8 << 20)
    rooms = tuple(
        Room(path, "ext4", 500_000, 400_000, 10**7, False) for path in ("/dev/shm", "/tmp", "/", "/var", "/home/ops")
    )
    cards = tuple(replace(g, persistence=True, compute_mode="Default", condition=RESTING) for g in gpus)
    name = OwnName(facts.host.name, (facts.network.value.reached_at,))
    settings = (("numa_balancing", "0"), ("governor", "performance"))
    return replace(
        facts,
        gpus=ok(replace(facts.gpus.value, gpus=cards)),
        hcas=ok(hcas),
        network=ok(replace(facts.network.value, listening=(22,))),
        system=ok(system),
        topology=ok(Topology(indexes, tuple(h.name for h in hcas), matrix)),
        links=ok(tuple(GpuLinks(i, gpus[i].uuid, (speed,) * links) for i in indexes)),
        numa=ok(Numa((NumaNode(0, "0-71"), NumaNode(1, "72-143")))),
        fabric_manager=manager,
        processes=ok(()),
        kernel_log=ok(KernelLog((), "journalctl")),
        resources=ok(Resources((), 900_000, 800_000, rooms, settings, name)),
        clock=ok(Clock(0.002, 0.004)),
        versions=ok(Versions(DRIVER, DRIVER, DRIVER, True, "6.8.0", modules=(("nvidia", DRIVER),))),
        nccl=absent("no settings of NCCL outside the environment"),
        engines=ok((Installed("vllm", (("vllm", "0.11.1"), ("nvidia-nccl-cu12", "2.27.5"))),)),
    )


def seen(fleet: Fleet, *, cordons: dict[str, str] | None = None) -> tuple[Snapshot, Report]:
    """The snapshot of a fleet and what the doctor says of it."""
    found = snapshot(fleet)
    return found, diagnose(found, fabric_map(found, (), cordons))


def changed(name: str, **readings) -> Fleet:
    """The healthy fleet with fields of one host replaced: a reading, or a function of what is there."""
    fleet = healthy()
    return fleet | {name: but(fleet[name], **readings)}


def but(facts: HostFacts, **readings) -> HostFacts:
    made = {}
    for field, value in readings.items():
        reading = getattr(facts, field)
        made[field] = ok(value(reading.value)) if callable(value) else value
    return replace(facts, **made)


def gpus(index: int | None = None, **change):
    """For `changed(gpus=...)`: fields of one GPU, or of all of them."""

    def of(report):
        cards = tuple(replace(g, **change) if index in (None, g.index) else g for g in report.gpus)
        return replace(report, gpus=cards)

    return of


def fields(**change):
    return lambda value: replace(value, **change)


def log(*texts: str):
    """A kernel log of these lines, each ten minutes after boot, as the probe reads them."""
    lines = tuple(line_of(f"[  600.000000] {text}") for text in texts)
    assert all(isinstance(x, KernelLine) for x in lines)
    return ok(KernelLog(lines, "journalctl"))


def hca(index: int = 0, port: dict | None = None, **change):
    """For `changed(hcas=...)`: fields of one adapter, and of its first port."""

    def of(hcas):
        made = list(hcas)
        one = replace(made[index], **change)
        made[index] = replace(one, ports=(replace(one.ports[0], **(port or {})), *one.ports[1:]))
        return tuple(made)

    return of


def condition(index: int | None = None, **change):
    """For `changed(gpus=...)`: fields of the condition of one GPU, or of all of them."""
    return gpus(index, condition=replace(RESTING, **change))


def clocks(*active: str) -> tuple[tuple[str, bool], ...]:
    """Clocks Event Reasons of which these are active."""
    return tuple((name, name in active) for name in REASONS)


def process(pid: int = 4711, kind: str = "C") -> tuple[GpuProcess, ...]:
    return (GpuProcess(pid, kind, "python3", 30_000, "alice"),)


def said(report: Report, *, info: bool = False) -> dict[str, tuple[str, ...]]:
    """id -> hosts of what was found; remarks only when asked for."""
    found: dict[str, tuple[str, ...]] = {}
    for f in report.findings:
        if info or f.severity != "info":
            found[f.id] = tuple(dict.fromkeys((*found.get(f.id, ()), *f.hosts)))
    return {i: tuple(sorted(h)) for i, h in found.items()}
