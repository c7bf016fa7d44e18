"""One GPU block of `nvidia-smi -q`: a Gpu, or the reason why this GPU cannot be read."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from llmgwctl.model.gpu import Gpu, GpuProcess, Platform
from llmgwctl.probe.same import same
from llmgwctl.probe.smi_condition import condition_of
from llmgwctl.probe.smi_fabric import fabric_of
from llmgwctl.probe.smi_tree import FAILED, GONE, NOTHING, Node, mebibytes, number, yes_no

T = TypeVar("T")
GPU_UUID = re.compile(r"GPU-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
ELSEWHERE = frozenset({"Fabric", "Processes", "Addressing Mode"})  # healthy 4090s on 535 fail to tell their addressing


def bus_id(text: str) -> str:
    """The 8-digit upper-case form of a PCI address, whatever length its domain has."""
    domain, _, rest = text.upper().partition(":")
    return f"{domain[-8:]:>08}:{rest}"


def alarms(block: Node) -> Node:
    """The block with those sections alone that may say that something is wrong: of a sound GPU none."""
    return Node(block.name, block.value, [c for c in block.children if not c.quiet])


def trouble(block: Node, alarming: Node) -> str | None:
    """Why this block is no readable GPU; None when it is one. A dead GPU may still tell its name and UUID."""
    gone = (block.child("Fabric") or Node("")).saying(GONE)
    name, value = next(alarming.saying(FAILED, skip=ELSEWHERE), None) or next(gone, ("", ""))
    return f"{value} ({name})" if value else _essential(block)


def _essential(block: Node) -> str | None:
    uuid = block.raw("GPU UUID")
    if uuid is None or block.raw("Product Name") is None or block.child("Processes") is None:
        return "its block ends early"
    if not GPU_UUID.fullmatch(uuid):
        return f"no UUID: {uuid[:60]}"
    strange = _of(block, _memory, "FB Memory Usage").strange
    return f"memory: {strange[:60]}" if strange is not None else None


@dataclass(frozen=True, slots=True)
class _Memory:
    """In MiB; `strange`: what is no amount and no word for none."""

    total: int | None
    used: int | None
    strange: str | None


def _memory(section: Node) -> _Memory:
    texts = section.raw("Total"), section.raw("Used")
    strange = (t for t in texts if t is not None and mebibytes(t) is None and t not in NOTHING)
    return _Memory(mebibytes(texts[0]), mebibytes(texts[1]), next(strange, None))


def gpu_of(block: Node, index: int, compute_cap: str | None = None) -> Gpu:
    memory = _of(block, _memory, "FB Memory Usage")
    remap_pending, remap_failed = _of(block, _remapped, "Remapped Rows")
    processes = block.child("Processes") or _NO_SECTION
    return Gpu(
        index=index,
        uuid=block.raw("GPU UUID") or "",
        bus_id=same(bus_id(block.value or "")),
        name=block.raw("Product Name") or "",
        fabric=fabric_of(block),
        platform=_of(block, _platform, "Platform Info"),
        memory_total_mib=memory.total,
        memory_used_mib=memory.used,
        mig_enabled=_of(block, _mig, "MIG Mode"),
        recovery_action=_recovery(block),
        compute_cap=compute_cap,
        minor=number(block.raw("Minor Number")),
        persistence=yes_no(block.raw("Persistence Mode"), "Enabled", "Disabled"),
        addressing_mode=_told(_word(block.raw("Addressing Mode"))),
        c2c_mode=_word(block.raw("GPU C2C Mode")),
        compute_mode=_word(block.raw("Compute Mode")),
        ecc_uncorrected=_of(block, _ecc, "ECC Errors", "Volatile"),
        remap_pending=remap_pending,
        remap_failed=remap_failed,
        condition=same(condition_of(block)),
        processes=tuple(p for n in processes.all("Process ID") if (p := _process(n)) is not None),
        processes_known=_listed(processes),
    )


_NO_SECTION = Node("")


def _of(block: Node, reads: Callable[[Node], T], *path: str) -> T:
    """What is read from a section; as from an empty one where it is not there."""
    return (block.child(*path) or _NO_SECTION).once(reads)


def _mig(section: Node) -> bool | None:
    return yes_no(section.raw("Current"), "Enabled", "Disabled")


def _remapped(section: Node) -> tuple[bool | None, bool | None]:
    """Whether a remapping waits for a reset, and whether one has failed."""
    failed = yes_no(section.raw("Remapping Failure Occurred"), "Yes", "No")
    return yes_no(section.raw("Pending"), "Yes", "No"), failed


def _word(text: str | None) -> str | None:
    """None for what says nothing (N/A and its relatives)."""
    return None if text in NOTHING else text


def _told(text: str | None) -> str | None:
    return None if text in FAILED else text


def _platform(info: Node) -> Platform:
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


def _ecc(volatile: Node) -> int | None:
    """Uncorrectable errors since the driver was loaded; None where the card has no ECC or prints N/A."""
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
