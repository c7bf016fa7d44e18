"""One GPU block of `nvidia-smi -q`: a Gpu, or the reason why this GPU cannot be read."""

from __future__ import annotations

import re

from llmgwctl.model.gpu import Gpu, GpuProcess, Platform
from llmgwctl.probe.same import same
from llmgwctl.probe.smi_condition import condition_of
from llmgwctl.probe.smi_fabric import fabric_of
from llmgwctl.probe.smi_tree import NOTHING, Node, mebibytes, number, yes_no

GPU_UUID = re.compile(r"GPU-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
GONE = frozenset({"GPU is lost", "GPU requires reset", "GPU access blocked by the operating system"})
FAILED = GONE | {
    "ERR!",
    "Unknown Error",
    "Uninitialized",
    "Driver Not Loaded",
    "Timeout",
    "Interrupt Request Issue",
    "System is not in ready state",
}
"""Error text in place of a value. Inside Fabric only GONE counts: there a failed call is a fact about the fabric."""
ELSEWHERE = frozenset({"Fabric", "Processes", "Addressing Mode"})  # healthy 4090s on 535 fail to tell their addressing


def bus_id(text: str) -> str:
    """The 8-digit upper-case form of a PCI address, whatever length its domain has."""
    domain, _, rest = text.upper().partition(":")
    return f"{domain[-8:]:>08}:{rest}"


def trouble(block: Node) -> str | None:
    """Why this block is no readable GPU; None when it is one. A dead GPU may still tell its name and UUID."""
    gone = (block.child("Fabric") or Node("")).saying(GONE)
    name, value = next(block.saying(FAILED, skip=ELSEWHERE), None) or next(gone, ("", ""))
    return f"{value} ({name})" if value else _essential(block)


def _essential(block: Node) -> str | None:
    uuid = block.raw("GPU UUID")
    if uuid is None or block.raw("Product Name") is None or block.child("Processes") is None:
        return "its block ends early"
    if not GPU_UUID.fullmatch(uuid):
        return f"no UUID: {uuid[:60]}"
    for key in ("Total", "Used"):
        value = block.raw("FB Memory Usage", key)
        if value is not None and mebibytes(value) is None and value not in NOTHING:
            return f"memory: {value[:60]}"
    return None


def gpu_of(block: Node, index: int, compute_cap: str | None = None) -> Gpu:
    processes = block.child("Processes") or Node("Processes")
    return Gpu(
        index=index,
        uuid=block.raw("GPU UUID") or "",
        bus_id=same(bus_id(block.value or "")),
        name=block.raw("Product Name") or "",
        fabric=same(fabric_of(block)),
        platform=_platform(block),
        memory_total_mib=mebibytes(block.raw("FB Memory Usage", "Total")),
        memory_used_mib=mebibytes(block.raw("FB Memory Usage", "Used")),
        mig_enabled=yes_no(block.raw("MIG Mode", "Current"), "Enabled", "Disabled"),
        recovery_action=_recovery(block),
        compute_cap=compute_cap,
        minor=number(block.text("Minor Number")),
        persistence=yes_no(block.raw("Persistence Mode"), "Enabled", "Disabled"),
        addressing_mode=_told(block.text("Addressing Mode")),
        c2c_mode=block.text("GPU C2C Mode"),
        compute_mode=block.text("Compute Mode"),
        ecc_uncorrected=_ecc(block.child("ECC Errors", "Volatile")),
        remap_pending=yes_no(block.raw("Remapped Rows", "Pending"), "Yes", "No"),
        remap_failed=yes_no(block.raw("Remapped Rows", "Remapping Failure Occurred"), "Yes", "No"),
        condition=same(condition_of(block)),
        processes=tuple(p for n in processes.all("Process ID") if (p := _process(n)) is not None),
        processes_known=_listed(processes),
    )


def _told(text: str | None) -> str | None:
    return None if text in FAILED else text


def _platform(block: Node) -> Platform:
    info = block.child("Platform Info")
    if info is None:
        return Platform()
    return Platform(
        chassis_serial=info.text("Chassis Serial Number"),
        slot=number(info.text("Slot Number")),
        tray=number(info.text("Tray Index")),
        host_id=number(info.text("Host ID")),
        peer_type=info.text("Peer Type"),
        module_id=number(info.text("Module Id")),
    )


def _recovery(block: Node) -> str | None:
    """GPU Recovery Action (580+), else what the older GPU Reset Status asks for. The words for none: None, N/A, No."""
    action = block.text("GPU Recovery Action")
    if action not in (None, "None"):
        return action
    asks = ("Reset Required", "Drain and Reset Recommended")
    return next((key for key in asks if block.raw("GPU Reset Status", key) == "Yes"), None)


def _ecc(volatile: Node | None) -> int | None:
    """Uncorrectable errors since the driver was loaded; None where the card has no ECC or prints N/A."""
    if volatile is None:
        return None
    rows = [c.value for c in volatile.children if c.name.startswith(("SRAM Uncorrectable", "DRAM Uncorrectable"))]
    rows = rows or [volatile.raw("Double Bit", "Total")]
    counts = [n for row in rows if (n := number(row)) is not None]
    return sum(counts) if counts else None


def _process(node: Node) -> GpuProcess | None:
    pid = number(node.value)
    if pid is None:
        return None
    kind, name = node.text("Type") or "", node.text("Name") or ""
    return GpuProcess(pid, kind, name, mebibytes(node.raw("Used GPU Memory")))


def _listed(processes: Node) -> bool:
    """Whether the list can be believed: `None`, an empty element, or processes that all have a number."""
    rows = processes.all("Process ID")
    if rows:
        return all(number(row.value) is not None for row in rows)
    return processes.value in ("None", "")
