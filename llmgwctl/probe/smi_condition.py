"""Clocks, power, PCIe link and pending repairs of one GPU block; a row with an unknown word is set aside by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from llmgwctl.model.condition import Condition, PcieLink, PowerLimits
from llmgwctl.model.numbers import real
from llmgwctl.probe.smi_tree import CORRUPT, NOTHING, Node, number, yes_no

T = TypeVar("T")
MOST_ROWS = 32  # of one section; a report has a dozen
REASONS = ("Clocks Event Reasons", "Clocks Throttle Reasons")
PERFORMANCE = re.compile(r"P\d{1,2}")
INFOROM = re.compile(
    r"WARNING: infoROM is corrupted at gpu ([0-9A-Fa-f]{1,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])"
)


def condition_of(gpu: Node) -> Condition:
    """Section by section: most GPUs of a fleet print the same ones, and what they share is read once."""
    rows = _Rows(gpu)
    ecc = _of(gpu, _repairs, "ECC Errors")
    link = _of(gpu, _pcie, "PCI")
    power = _of(gpu, _power, "GPU Power Readings", "Power Readings")
    module = _of(gpu, _power, "Module Power Readings")
    reasons = _of(gpu, _reasons, *REASONS)
    performance_state = rows.read(_performance, "Performance State")
    strange = (*rows.strange, *reasons.strange, *link.strange, *power.strange, *module.strange, *ecc.strange)
    channel, tpc, sram = ecc.value
    return Condition(
        performance_state=performance_state,
        clock_reasons=reasons.value,
        pcie=link.value,
        power=power.value,
        module_power=module.value,
        channel_repair_pending=channel,
        tpc_repair_pending=tpc,
        sram_threshold_exceeded=sram,
        strange=strange[:MOST_ROWS],
    )


@dataclass(frozen=True, slots=True)
class _Part(Generic[T]):
    """What a section says, and its rows that nobody understands."""

    value: T
    strange: tuple[tuple[str, str], ...]


_EMPTY = Node("")


def _of(gpu: Node, reads: Callable[[Node], _Part[T]], *names: str) -> _Part[T]:
    """What the first of these sections says that is there; as of an empty one where none is."""
    section = next((found for name in names if (found := gpu.child(name)) is not None), _EMPTY)
    return section.once(reads)


class _Rows:
    """The rows of one section. What is there and cannot be understood is no value, and is not forgotten."""

    def __init__(self, section: Node) -> None:
        self.section = section
        self.strange: list[tuple[str, str]] = []

    def read(self, reads: Callable[[str], T | None], *path: str, called: str = "") -> T | None:
        text = self.section.text(*path)
        value = reads(text) if text is not None else None
        if text is not None and value is None:
            self.strange.append((called or path[-1], text[:60]))
        return value

    def part(self, value: T) -> _Part[T]:
        return _Part(value, tuple(self.strange[:MOST_ROWS]))


def _pcie(section: Node) -> _Part[PcieLink]:
    rows = _Rows(section)

    def row(reads: Callable[[str], int | None], *path: str) -> int | None:
        return rows.read(reads, "GPU Link Info", *path, called=" ".join(path))

    link = PcieLink(
        generation=row(number, "PCIe Generation", "Current"),
        generation_max=row(number, "PCIe Generation", "Max"),
        width=row(_lanes, "Link Width", "Current"),
        width_max=row(_lanes, "Link Width", "Max"),
    )
    return rows.part(link)


def _power(section: Node) -> _Part[PowerLimits]:
    rows = _Rows(section)
    limits = PowerLimits(
        enforced_w=_limit(rows, "Current Power Limit", "Enforced Power Limit"),
        asked_w=_limit(rows, "Requested Power Limit", "Power Limit"),
        default_w=_limit(rows, "Default Power Limit"),
        max_w=_limit(rows, "Max Power Limit"),
    )
    return rows.part(limits)


def _limit(rows: _Rows, *names: str) -> float | None:
    """R510 has names of its own; R615's text has some of the rows one level deeper."""
    for name in names:
        for path in ((name,), ("GPU Ceiling Power Limit", name)):
            if (watts := rows.read(_watts, *path)) is not None:
                return watts
    return None


def _repairs(section: Node) -> _Part[tuple[bool | None, bool | None, bool | None]]:
    """Channel repair pending, TPC repair pending, SRAM threshold exceeded."""
    rows = _Rows(section)
    channel, tpc = (rows.read(_yes, f"{what} Repair Pending") for what in ("Channel", "TPC"))
    return rows.part((channel, tpc, rows.read(_yes, "Aggregate", "SRAM Threshold Exceeded")))


def _reasons(section: Node) -> _Part[tuple[tuple[str, bool], ...]]:
    """Every row below the section: HW Slowdown is a row of its own, and in the text form a section as well."""
    rows = [(name[:60], text, yes_no(text, "Active", "Not Active")) for name, text in section.values()]
    active = [(name, on) for name, _, on in rows if on is not None]
    strange = [(name, text[:60]) for name, text, on in rows if on is None and text not in NOTHING]
    return _Part(tuple(active[:MOST_ROWS]), tuple(strange[:MOST_ROWS]))


def _performance(text: str) -> str | None:
    return text if PERFORMANCE.fullmatch(text) else None


def _lanes(text: str) -> int | None:
    return number(text.removesuffix("x"))


def _watts(text: str) -> float | None:
    return real(text.removesuffix(" W")) if text.endswith(" W") else None


def _yes(text: str) -> bool | None:
    return yes_no(text, "Yes", "No")


def inforom_corrupt(said: str, blocks: Iterable[Node]) -> Iterator[str]:
    """PCI addresses, as printed, of GPUs whose infoROM nvidia-smi calls corrupted: in a warning beside the report, or
    as the text in place of a value (inside Fabric that is the fabric's own status)."""
    if "infoROM is corrupted" in said:
        yield from (found[1] for line in said.split("\n") if (found := INFOROM.search(line[:400])))
    yield from (b.value or "" for b in blocks if any(b.saying(CORRUPT, skip=frozenset({"Fabric"}))))
