"""What each Xid of the kernel log means, as data: its class, and so its severity and its cure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from llmgwctl.model.fact import fact
from llmgwctl.model.machine import KernelLine

Class = Literal[
    "application", "bus", "gsp", "link", "link-soft", "memory", "memory-soft", "retired", "recovery", "reset", "c2c",
    "power",
]  # fmt: skip


@fact
class Xid:
    code: int
    name: str
    kind: Class


# NVIDIA's catalogue, as public health checkers code it. "application": a program's own fault, never the host's.
XIDS = (
    Xid(13, "graphics engine exception", "application"),
    Xid(31, "memory page fault", "application"),
    Xid(43, "channel stopped", "application"),
    Xid(45, "channels cleaned up", "application"),
    Xid(48, "double-bit ECC error", "memory"),
    Xid(63, "row remapping recorded", "memory-soft"),
    Xid(64, "row remapping failed", "retired"),
    Xid(74, "NVLink error", "link"),
    Xid(79, "fallen off the bus", "bus"),
    Xid(92, "many single-bit errors", "memory-soft"),
    Xid(94, "contained memory error", "memory-soft"),
    Xid(95, "uncontained memory error", "memory"),
    Xid(109, "context switch timeout", "reset"),
    Xid(119, "GSP does not answer", "gsp"),
    Xid(120, "GSP error", "gsp"),
    Xid(121, "NVLink-C2C event", "c2c"),
    Xid(136, "NVLink training failed", "link"),
    Xid(137, "NVLink privilege error", "link-soft"),
    Xid(140, "unrecovered ECC error", "reset"),
    Xid(143, "GPU initialisation failed", "reset"),
    Xid(144, "NVLink SAW event", "link"),
    Xid(145, "NVLink RLW event", "link"),
    Xid(146, "NVLink TLW event", "link"),
    Xid(147, "NVLink TREX event", "link"),
    Xid(148, "NVLink NVLPW event", "link"),
    Xid(149, "NVLink NETIR event", "link"),
    Xid(150, "NVLink MSE event", "link"),
    Xid(154, "recovery action changed", "recovery"),
    Xid(155, "NVLink software error", "reset"),
    Xid(156, "resource retired", "reset"),
    Xid(158, "fatal GPU timeout", "reset"),
    Xid(162, "power smoothing", "power"),
    Xid(163, "power smoothing", "power"),
    Xid(164, "power smoothing", "power"),
    Xid(165, "power smoothing", "power"),
    Xid(171, "DRAM part of an ECC error", "memory-soft"),
    Xid(172, "SRAM part of an ECC error", "memory-soft"),
)
BY_CODE = {x.code: x for x in XIDS}
WORDED = range(144, 151)  # NVLink 5: the line itself says Fatal or Nonfatal
NONFATAL = re.compile(r"\bNon-?fatal\b", re.IGNORECASE)


def class_of(line: KernelLine) -> Class | None:
    """The class of one line; None: a code that is not in the table."""
    known = BY_CODE.get(line.code or -1)
    if known is None:
        return None
    if known.code in WORDED and NONFATAL.search(line.text):
        return "link-soft"
    return known.kind


def recovery_word(text: str) -> str:
    """What Xid 154 asks for now: `... from 0x0 (None) to 0x2 (Node Reboot Required)`."""
    found = re.search(r"\bto\b(.{1,80})$", text)
    tail = found[1].strip().rstrip(".") if found else ""
    inner = re.search(r"\(([^()]{1,60})\)", tail)
    return (inner[1] if inner else tail).strip()


def same_gpu(device: str, bus_id: str) -> bool:
    """0000:18:00 (as the kernel log has it) and 00000000:18:00.0 (as nvidia-smi has it)."""
    return _place(device) == _place(bus_id)


def _place(address: str) -> tuple[int, str, str] | None:
    parts = address.lower().split(".")[0].split(":")
    if len(parts) != 3:
        return None
    try:
        return int(parts[0], 16), parts[1], parts[2]
    except ValueError:
        return None


def counted(lines: Iterable[KernelLine]) -> list[tuple[str, int, int, KernelLine]]:
    """(device, code, how often, the last line) in the order of the log's devices and codes."""
    groups: dict[tuple[str, int], list[KernelLine]] = {}
    for line in lines:
        if line.code is not None:
            groups.setdefault((line.device, line.code), []).append(line)
    return [(device, code, len(found), found[-1]) for (device, code), found in groups.items()]
