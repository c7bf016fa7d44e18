"""Clocks, power, PCIe link and pending repairs of one GPU block; a row with an unknown word is set aside by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TypeVar

from llmgwctl.model.condition import Condition, PcieLink, PowerLimits
from llmgwctl.model.numbers import real
from llmgwctl.probe.smi_tree import NOTHING, Node, number, yes_no

T = TypeVar("T")
MOST_ROWS = 32  # of one section; a report has a dozen
REASONS = ("Clocks Event Reasons", "Clocks Throttle Reasons")
PERFORMANCE = re.compile(r"P\d{1,2}")
INFOROM = re.compile(
    r"WARNING: infoROM is corrupted at gpu ([0-9A-Fa-f]{1,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])"
)
CORRUPT = frozenset({"Corrupted infoROM"})


def condition_of(gpu: Node) -> Condition:
    rows = _Rows(gpu)
    link = ("PCI", "GPU Link Info")
    return Condition(
        performance_state=rows.read(_performance, "Performance State"),
        clock_reasons=tuple(islice(rows.reasons(), MOST_ROWS)),
        pcie=PcieLink(
            generation=rows.read(number, *link, "PCIe Generation", "Current"),
            generation_max=rows.read(number, *link, "PCIe Generation", "Max"),
            width=rows.read(_lanes, *link, "Link Width", "Current"),
            width_max=rows.read(_lanes, *link, "Link Width", "Max"),
        ),
        power=rows.power("GPU Power Readings" if gpu.child("GPU Power Readings") else "Power Readings"),
        module_power=rows.power("Module Power Readings"),
        channel_repair_pending=rows.read(_yes, "ECC Errors", "Channel Repair Pending"),
        tpc_repair_pending=rows.read(_yes, "ECC Errors", "TPC Repair Pending"),
        sram_threshold_exceeded=rows.read(_yes, "ECC Errors", "Aggregate", "SRAM Threshold Exceeded"),
        strange=tuple(rows.strange[:MOST_ROWS]),
    )


class _Rows:
    """The rows of one GPU. What is there and cannot be understood is no value, and is not forgotten."""

    def __init__(self, gpu: Node) -> None:
        self.gpu = gpu
        self.strange: list[tuple[str, str]] = []

    def read(self, reads: Callable[[str], T | None], *path: str) -> T | None:
        text = self.gpu.text(*path)
        value = reads(text) if text is not None else None
        if text is not None and value is None:
            self.strange.append((" ".join(path[-2:]) if path[0] == "PCI" else path[-1], text[:60]))
        return value

    def power(self, section: str) -> PowerLimits:
        if self.gpu.child(section) is None:
            return PowerLimits()
        return PowerLimits(
            enforced_w=self._limit(section, "Current Power Limit", "Enforced Power Limit"),
            asked_w=self._limit(section, "Requested Power Limit", "Power Limit"),
            default_w=self._limit(section, "Default Power Limit"),
            max_w=self._limit(section, "Max Power Limit"),
        )

    def _limit(self, section: str, *names: str) -> float | None:
        """R510 has names of its own; R615's text has some of the rows one level deeper."""
        paths = [(*where, name) for name in names for where in ((section,), (section, "GPU Ceiling Power Limit"))]
        return next((watts for path in paths if (watts := self.read(_watts, *path)) is not None), None)

    def reasons(self) -> Iterator[tuple[str, bool]]:
        """Every row below the section: HW Slowdown is a row of its own, and in the text form a section as well."""
        block = next((b for name in REASONS if (b := self.gpu.child(name)) is not None), Node(""))
        for name, text in block.values():
            active = yes_no(text, "Active", "Not Active")
            if active is not None:
                yield name[:60], active
            elif text not in NOTHING:
                self.strange.append((name[:60], text[:60]))


def _performance(text: str) -> str | None:
    return text if PERFORMANCE.fullmatch(text) else None


def _lanes(text: str) -> int | None:
    return number(text.removesuffix("x"))


def _watts(text: str) -> float | None:
    return real(text.removesuffix(" W")) if text.endswith(" W") else None


def _yes(text: str) -> bool | None:
    return yes_no(text, "Yes", "No")


def inforom_corrupt(said: str, blocks: list[Node]) -> Iterator[str]:
    """PCI addresses, as printed, of GPUs whose infoROM nvidia-smi calls corrupted: in a warning beside the report, or
    as the text in place of a value (inside Fabric that is the fabric's own status)."""
    if "infoROM is corrupted" in said:
        yield from (found[1] for line in said.split("\n") if (found := INFOROM.search(line[:400])))
    yield from (b.value or "" for b in blocks if any(b.saying(CORRUPT, skip=frozenset({"Fabric"}))))
