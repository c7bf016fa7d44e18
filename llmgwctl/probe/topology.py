"""`nvidia-smi topo -m`: how GPUs reach each other and the adapters. Tabs or blanks, with or without ANSI."""

from __future__ import annotations

import re
from dataclasses import dataclass

from llmgwctl.model.reading import Reading, broken, ok
from llmgwctl.model.topology import Topology
from llmgwctl.probe.base import NOT_SAVED, Output, Probe, Section, failure
from llmgwctl.probe.smi_failure import no_answer
from llmgwctl.probe.smi_tree import number

NAME = "nvidia-smi-topo-m"
SECTIONS = (Section(NAME, "gpu", 60, argv=("nvidia-smi", "topo", "-m")),)
ANSI = re.compile(r"\x1b\[[0-9;]{0,16}[A-Za-z]")
LABEL = re.compile(r"(?:GPU|NIC)\d{1,4}")
GPU = re.compile(r"GPU(\d{1,4})")
CELL = re.compile(r"X|NV\d{1,3}|PIX|PXB|PHB|NODE|SYS")
LEGEND = re.compile(r"(NIC\d{1,4}): *(\S{1,64})")
TAILS = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
TAIL = re.compile("|".join(TAILS))
FAILED = "Failed to run topology matrix"
LIMIT_COLUMNS, LIMIT_LINE = 512, 16384


@dataclass(frozen=True, slots=True)
class Header:
    """The labels of the device columns, in order, and how many columns of affinity stand behind them."""

    labels: tuple[str, ...]
    behind: int  # the CPUs; + the NUMA node; + the GPU's own node

    @property
    def gpu_numa(self) -> bool:
        return self.behind == len(TAILS)


def parse(outputs: dict[str, Output]) -> Reading[object]:
    """The matrix; broken with nvidia-smi's words when it cannot make one (a lost GPU on 535 and 550, SoftiWARP)."""
    said = outputs.get(NAME, NOT_SAVED)
    if (why := failure(said)) is not None:
        return broken(why)
    found = read_matrix(said.stdout)
    if isinstance(found, Topology):
        return ok(found)
    return broken(found) if found else no_answer(said, outputs.get("system", NOT_SAVED))


def read_matrix(text: str) -> Topology | str:
    """The matrix, or why there is none; "": this text is none."""
    lines = [line[:LIMIT_LINE] for line in _unprefixed(ANSI.sub("", text.replace("\r", "")).split("\n"))]
    start = next((i for i, line in enumerate(lines) if _is_header(line)), None)
    header, rest = _header(lines, start) if start is not None else (None, lines)
    rows = [row for line in rest if header and (row := _row(line, header)) is not None]
    if header is None or not rows:
        return f"nvidia-smi: {FAILED}" if FAILED in text else "the matrix has no rows" if header else ""
    legend = {found[1]: found[2] for line in rest if (found := LEGEND.match(line.strip())) is not None}
    return _topology(header, rows, legend)


def _unprefixed(lines: list[str]) -> list[str]:
    """Without the `host: ` of pdsh and its relatives, where every row of the matrix has the same."""
    heads = {found[1] for line in lines if (found := re.match(r"([A-Za-z0-9_.-]{1,255}: )[\t ]*GPU0\b", line))}
    if len(heads) != 1:
        return lines
    prefix = heads.pop()
    return [line[len(prefix) :] if line.startswith(prefix) else "" for line in lines]


def _is_header(line: str) -> bool:
    """Labels alone: a row of the matrix has an X in it."""
    words = line.split()
    return bool(words) and GPU.match(words[0]) is not None and "X" not in words


def _header(lines: list[str], start: int) -> tuple[Header, list[str]]:
    """On a narrow pipe the header may go on over lines, until the columns of affinity; labels may run together."""
    end = start + 1
    while end < len(lines) and TAILS[0] not in lines[end - 1] and _goes_on(lines[end]):
        end += 1
    text = "\t".join(lines[start:end]) if "\t" in lines[start] else " ".join(lines[start:end])
    devices = TAIL.split(text)[0]
    labels = [part for word in devices.split() for part in _apart(word)]
    return Header(tuple(labels[:LIMIT_COLUMNS]), sum(name in text for name in TAILS)), lines[end:]


def _goes_on(line: str) -> bool:
    """The rest of a header: labels and the names of the columns of affinity, and nothing else."""
    words = TAIL.sub(" ", line).split()
    return all("".join(LABEL.findall(w)) == w for w in words) and (bool(words) or TAIL.search(line) is not None)


def _apart(word: str) -> list[str]:
    """NIC28NIC29 is two labels; old drivers have the adapters' own names there."""
    found = LABEL.findall(word)
    return found if "".join(found) == word else [word]


def _row(line: str, header: Header) -> tuple[str, list[str], list[str]] | None:
    """Label, cells of the device columns, and what stands behind them. Rows of adapters may end early."""
    label = line.split(maxsplit=1)[0] if line.strip() else ""
    if label not in header.labels:
        return None
    cells = [cell.strip() for cell in line.split("\t")[1:]] if "\t" in line else line.split()[1:]
    count = len(header.labels)
    inside, behind = cells[:count], cells[count:]
    if len(inside) < count or not all(CELL.fullmatch(c) for c in inside):
        return None
    return label, inside, _behind(behind, "\t" in line, header)


def _behind(cells: list[str], tabs: bool, header: Header) -> list[str]:
    """CPU affinity, NUMA affinity, GPU NUMA ID. Between tabs a cell may be empty, and one always is before the last;
    between blanks an empty one is not there at all, and then only what is certain is told."""
    if tabs:
        cpu, numa = (*cells, "", "")[:2]
        last = cells[-1] if header.gpu_numa and len(cells) > 2 else ""
        return [cpu, numa, last]
    if len(cells) == header.behind:
        return [*cells, "", ""][:3]
    if header.gpu_numa and len(cells) == 2:
        return ["", *cells]
    return ["", "", ""]


def _topology(header: Header, rows: list[tuple[str, list[str], list[str]]], legend: dict[str, str]) -> Topology:
    gpus = {label: int(found[1]) for label in header.labels if (found := GPU.fullmatch(label))}
    names = {label: legend.get(label, label) for label in header.labels if label not in gpus}
    made = Topology(tuple(sorted(set(gpus.values()))), tuple(dict.fromkeys(names.values())))
    for label, cells, (cpu, numa, gpu_numa) in rows:
        if label not in gpus:
            continue
        index = gpus[label]
        for column, cell in zip(header.labels, cells, strict=True):
            if column in names:
                made.ways[index, names[column]] = cell
            elif column != label:
                made.links[index, gpus[column]] = cell
        _affinity(made, index, cpu, numa, gpu_numa)
    return made


def _affinity(made: Topology, index: int, cpu: str, numa: str, gpu_numa: str) -> None:
    if cpu not in ("", "N/A"):
        made.cpus[index] = cpu[:1024]
    if numa not in ("", "N/A"):
        made.numa[index] = numa[:64]
    if (node := number(gpu_numa)) is not None:
        made.gpu_numa[index] = node


PROBE = Probe("topology", SECTIONS, parse, fabric_set=False)
