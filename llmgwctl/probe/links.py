"""`nvidia-smi nvlink -s`: the links of each GPU with their speed. They train without any fabric."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from llmgwctl.model.reading import Reading, absent, broken, ok
from llmgwctl.model.topology import GpuLinks
from llmgwctl.probe.base import NOT_SAVED, Output, Probe, Section, failure
from llmgwctl.probe.smi_failure import no_answer

NAME = "nvidia-smi-nvlink-s"
SECTIONS = (Section(NAME, "gpu", 60, argv=("nvidia-smi", "nvlink", "-s")),)
GPU = re.compile(r"GPU (\d{1,4}): .{0,200}\(UUID: ([^)]{1,64})\)")
LINK = re.compile(r"Link (\d{1,2}): (?:<inactive>|(\d{1,4}(?:\.\d{1,6})?) GB/s)")
LIMIT_LINKS = 64


@dataclass(slots=True)
class _Gpu:
    index: int
    uuid: str
    links: dict[int, float | None] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)


def parse(outputs: dict[str, Output]) -> Reading[object]:
    """A row for each GPU; absent where nvidia-smi ends well and prints nothing, as it does on cards without NVLink."""
    said = outputs.get(NAME, NOT_SAVED)
    if (why := failure(said)) is not None:
        return broken(why)
    found = [_finished(g) for g in _read(said.stdout)]
    if found:
        return ok(tuple(found))
    if said.exit_code == 0 and not said.stdout.strip() and not said.stderr.strip():
        return absent("no NVLink on any GPU")
    return no_answer(said, outputs.get("system", NOT_SAVED))


def _read(text: str) -> list[_Gpu]:
    """Whatever stands below a GPU and is no link is what nvidia-smi says in place of links."""
    gpus: list[_Gpu] = []
    for line in (raw.strip() for raw in text.replace("\r", "").split("\n")):
        if (found := GPU.search(line)) is not None:
            gpus.append(_Gpu(int(found[1]), found[2]))
        elif gpus and (link := LINK.search(line)) is not None:
            if int(link[1]) < LIMIT_LINKS:
                gpus[-1].links.setdefault(int(link[1]), float(link[2]) if link[2] else None)
        elif gpus and line and len(gpus[-1].words) < 2:
            gpus[-1].words.append(line[:200])
    return gpus


def _finished(gpu: _Gpu) -> GpuLinks:
    count = max(gpu.links, default=-1) + 1
    return GpuLinks(gpu.index, gpu.uuid, tuple(gpu.links.get(n) for n in range(count)), "; ".join(gpu.words))


PROBE = Probe("links", SECTIONS, parse, fabric_set=False)
