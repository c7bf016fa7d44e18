"""The fabric manager of a host: whether it is there, runs, and why it might wait. Absent on most machines."""

from __future__ import annotations

import re

from llmgwctl.model.machine import FabricManager
from llmgwctl.model.reading import Reading, absent, broken, ok
from llmgwctl.probe.base import NOT_SAVED, Output, Probe, Section, failure
from llmgwctl.probe.lines import grouped, pairs
from llmgwctl.probe.smi_tree import number, yes_no

NAME = "fabric-manager"
SECTIONS = (Section(NAME, "sys", 20, script="fabric-manager.sh"),)
VERSION = re.compile(r"\d{3}\.\d{1,3}(?:\.\d{1,3})?")


def parse(outputs: dict[str, Output]) -> Reading[object]:
    """Absent: no unit, no configuration, and no NVSwitch on PCI or behind an adapter."""
    said = outputs.get(NAME, NOT_SAVED)
    if (why := failure(said)) is not None:
        return broken(why)
    found = grouped(said.stdout)
    if "config" not in found:
        return broken(said.stderr.strip()[:200] or "its configuration could not be looked for")
    unit, settings = pairs(found.get("unit", [])), pairs(found.get("set", []))
    bridges = _bridges(outputs.get("hcas", NOT_SAVED))
    switches = number(_first(found, "switches")) or 0
    loaded = unit.get("LoadState", "not-found") != "not-found"
    if not loaded and _first(found, "config") == "absent" and not switches and not bridges:
        return absent("no fabric manager here, and no NVSwitch")
    return ok(
        FabricManager(
            unit_load=unit.get("LoadState"),
            unit_active=unit.get("ActiveState"),
            unit_sub=unit.get("SubState"),
            unit_file=unit.get("UnitFileState") or None,
            unit_result=unit.get("Result"),
            active_for_s=_since(unit.get("StateChangeTimestampMonotonic"), _first(found, "uptime")),
            version=m[0] if (m := VERSION.search(_first(found, "version"))) else "",
            config=_first(found, "config"),
            fabric_mode=number(settings.get("FABRIC_MODE")),
            stay_resident=yes_no(settings.get("FM_STAY_RESIDENT_ON_FAILURES"), "1", "0"),
            switches=switches,
            bridges=bridges,
            nvlsm=yes_no(_first(found, "nvlsm"), "yes", "no"),
            ib_umad=yes_no(_first(found, "ib_umad"), "yes", "no"),
        )
    )


def _first(found: dict[str, list[str]], kind: str) -> str:
    return found.get(kind, [""])[0]


def _bridges(hcas: Output) -> int | None:
    """Adapters that say SW_MNG; none found among those that could not be read is not known."""
    said = [line for line in hcas.stdout.split("\n") if line.startswith("vpd ")]
    count = said.count("vpd switch-management")
    if count == 0 and (failure(hcas) is not None or "vpd unreadable" in said):
        return None
    return count


def _since(stamp: str | None, uptime: str) -> float | None:
    """Seconds, from systemd's microseconds since boot; 0 means never."""
    micros, seconds = number(stamp), number(uptime.partition(".")[0])
    if not micros or seconds is None:
        return None
    return max(0.0, float(seconds - micros // 1_000_000))


PROBE = Probe("fabric_manager", SECTIONS, parse, fabric_set=False)
