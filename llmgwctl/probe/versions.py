"""What is installed and what is loaded, which may differ: driver, CUDA, kernel, IMEX, container runtimes."""

from __future__ import annotations

import re

from llmgwctl.model.machine import Versions
from llmgwctl.model.reading import Reading, broken, ok
from llmgwctl.probe.base import NOT_SAVED, Output, Probe, Section, failure
from llmgwctl.probe.lines import grouped

SECTIONS = (Section("versions", "sys", 40, script="versions.sh"),)
DRIVER = re.compile(r"\b\d{3}\.\d{1,4}(?:\.\d{1,4})?\b")
NUMBER = re.compile(r"\d{1,6}(?:\.[0-9A-Za-z_+~-]{1,20}){1,4}")


def parse(outputs: dict[str, Output]) -> Reading[object]:
    """Broken when not even the kernel was told."""
    said = outputs.get("versions", NOT_SAVED)
    if (why := failure(said)) is not None:
        return broken(why)
    found = grouped(said.stdout)
    if "kernel" not in found:
        return broken(said.stderr.strip()[:200] or "the host tells no version of anything")
    loaded = _first(found, "loaded")
    return ok(
        Versions(
            driver_loaded=_number(loaded, DRIVER),
            driver_on_disk=_number(_first(found, "on_disk"), DRIVER),
            driver_library=max((_number(f, DRIVER) for f in found.get("library", [])), key=_order, default=""),
            open_kernel_module="Open Kernel Module" in loaded if loaded else None,
            kernel=_first(found, "kernel"),
            os=_first(found, "os")[:100],
            imex=_number(_first(found, "imex"), DRIVER),
            cuda=tuple((name, version) for name, version in _pairs(found.get("cuda", [])) if version != "-"),
            runtimes=tuple((name, _number(text, NUMBER)) for name, text in _pairs(found.get("runtime", []))),
            modules=tuple((name, "" if v == "-" else v) for name, v in _pairs(found.get("module", []))),
            reboot_for=tuple(found["reboot"][0].split()[:64]) if "reboot" in found else None,
        )
    )


def _first(found: dict[str, list[str]], kind: str) -> str:
    return found.get(kind, [""])[0]


def _number(text: str, pattern: re.Pattern[str]) -> str:
    found = pattern.search(text)
    return found[0] if found else ""


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in version.split(".") if n)


def _pairs(rests: list[str]) -> list[tuple[str, str]]:
    """NAME TEXT; a program that is there and said nothing has a name alone."""
    return [(name[:64], text.strip()[:200]) for name, _, text in (r.partition(" ") for r in rests[:100])]


PROBE = Probe("versions", SECTIONS, parse, fabric_set=False)
