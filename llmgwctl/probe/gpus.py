"""`nvidia-smi -q`, text or XML: one Gpu for each readable block, indexed by PCI place and checked by --query-gpu."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from llmgwctl.model.gpu import GpuReport
from llmgwctl.model.reading import Reading, broken, ok
from llmgwctl.probe.base import NOT_SAVED, Output, Probe, Section, failure
from llmgwctl.probe.smi_condition import inforom_corrupt
from llmgwctl.probe.smi_csv import read_csv
from llmgwctl.probe.smi_failure import no_answer
from llmgwctl.probe.smi_gpu import alarms, bus_id, gpu_of, trouble
from llmgwctl.probe.smi_text import error_lines, read_text, remarks
from llmgwctl.probe.smi_tree import Node, number
from llmgwctl.probe.smi_xml import NotXml, is_xml, read_xml

QUERY = "nvidia-smi-query-gpu"
SECTIONS = (
    Section("nvidia-smi-q", "gpu", 60, argv=("nvidia-smi", "-q"), alternatives=("nvidia-smi-q.xml",)),
    Section(
        QUERY,
        "gpu",
        30,
        argv=("nvidia-smi", "--query-gpu=index,uuid,compute_cap", "--format=csv,noheader"),
        alternatives=("nvidia-smi-query-gpu.csv",),
    ),
)
MAX_GPUS = 64
FIELDS = ("index", "uuid", "compute_cap")
ROW = re.compile(r"(\d{1,6}), *(GPU-[0-9a-fA-F-]{36})(?:, *(\d{1,3}\.\d{1,3}))?\b")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of --query-gpu."""

    index: int
    uuid: str
    compute_cap: str | None


def parse(outputs: dict[str, Output]) -> Reading[object]:
    """The report; broken when there is none, absent on a host without NVIDIA driver."""
    said = outputs.get("nvidia-smi-q", NOT_SAVED)
    if (why := failure(said)) is not None:
        return broken(why)
    heard = "\n".join(map(remarks, (said.stdout, said.stderr)))
    try:
        root = read_xml(said.stdout) if is_xml(said.stdout) else read_text(said.stdout, noisy=bool(heard.strip()))
    except NotXml as e:
        return broken(str(e))
    if root is None:
        return no_answer(said, outputs.get("system", NOT_SAVED))
    return _report(root, heard, outputs.get(QUERY, NOT_SAVED), cut=said.truncated)


def _report(root: Node, heard: str, query: Output, *, cut: bool) -> Reading[object]:
    attached = number(root.raw("Attached GPUs"))
    if attached is None:
        return broken("the report does not say how many GPUs are attached")
    if attached > MAX_GPUS or len(root.all("GPU")) > MAX_GPUS:
        return broken(f"the report tells of more than {MAX_GPUS} GPUs: no host has so many")
    blocks = sorted(root.all("GPU"), key=lambda b: bus_id(b.value or ""))
    alarming = [alarms(b) for b in blocks]
    bad = [trouble(b, alarm) for b, alarm in zip(blocks, alarming, strict=True)]
    lost = [f"GPU {bus_id(b.value or '')}: {why}" for b, why in zip(blocks, bad, strict=True) if why is not None]
    lost += _twice(blocks)
    lost += _uncounted(attached, len(blocks), error_lines(heard), cut)
    corrupt = dict.fromkeys(bus_id(at) for at in inforom_corrupt(f"{heard}\n{query.stdout}\n{query.stderr}", alarming))
    rows = _rows(query)
    numbers = _numbered(blocks, rows, whole=not lost)
    if numbers is None:
        return broken("GPU indices cannot be trusted: the order by PCI address and nvidia-smi's own list differ")
    gpus = tuple(gpu_of(b, i, cap) for b, why, (i, cap) in zip(blocks, bad, numbers, strict=True) if why is None)
    driver = root.text("Driver Version") or root.text("KMD Version")
    cuda = root.text("CUDA Version") or root.text("CUDA UMD Version")
    return ok(GpuReport(driver, cuda, attached, gpus, tuple(lost), _notes(query, rows), tuple(corrupt)))


def _uncounted(attached: int, blocks: int, errors: tuple[str, ...], cut: bool) -> list[str]:
    """Words for GPUs that have no block at all, or for blocks that are too many."""
    lost = list(errors)
    if cut:
        lost.append("the report was cut off")
    if blocks < attached and len(errors) < attached - blocks:
        lost.append(f"{attached} GPUs attached, {blocks} described")
    if blocks > attached:
        lost.append(f"{attached} GPUs attached, but {blocks} described")
    return lost


def _twice(blocks: list[Node]) -> list[str]:
    """A UUID names one GPU: by it claims are made, and environments pinned."""
    counts = Counter((b.raw("GPU UUID") or "").lower() for b in blocks)
    return [f"{n} GPUs say that they are {uuid[:60]}" for uuid, n in counts.items() if n > 1 and uuid]


def _rows(query: Output) -> list[Row]:
    """nvidia-smi's own numbers, by index; lines that are no such row are noise. A saved list may have its header."""
    named = read_csv(query.stdout)
    lines = [", ".join(row.get(k) or "" for k in FIELDS) for row in named] if named else query.stdout.splitlines()
    found = (ROW.match(line.strip()) for line in lines)
    return sorted((Row(int(m[1]), m[2].lower(), m[3]) for m in found if m), key=lambda row: row.index)


def _numbered(blocks: list[Node], rows: list[Row], whole: bool) -> list[tuple[int, str | None]] | None:
    """Index and compute capability of each block. With a GPU missing only nvidia-smi knows its numbers; with all
    there, places by PCI address and its list must agree, and None says that they do not."""
    uuids = [(b.raw("GPU UUID") or "").lower() for b in blocks]
    if whole and rows:
        agree = list(enumerate(uuids)) == [(row.index, row.uuid) for row in rows]
        return [(row.index, row.compute_cap) for row in rows] if agree else None
    known = {row.uuid: (row.index, row.compute_cap) for row in rows}
    return [known.get(uuid, (place, None)) for place, uuid in enumerate(uuids)]


def _notes(query: Output, rows: list[Row]) -> tuple[str, ...]:
    if rows:
        return ()
    why = failure(query) or (query.stdout + query.stderr).strip().split("\n")[0][:120] or "no answer"
    return (f"GPU indices by PCI address, not checked (--query-gpu: {why})",)


PROBE = Probe("gpus", SECTIONS, parse, fabric_set=True)
