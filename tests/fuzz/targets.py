"""What is fuzzed: every parser of something that a host says, with seeds and what must hold of its answer."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import smi
import test_probe_imex as imex_texts
from captures import files
from smi_matrix import Matrix, links

from llmgwctl.model.gpu import GpuReport
from llmgwctl.model.host import Host
from llmgwctl.model.reading import Reading
from llmgwctl.probe import PROBES, assemble
from llmgwctl.probe import engines as engines_probe
from llmgwctl.probe.base import Output, Probe
from llmgwctl.probe.mask import Mask
from llmgwctl.probe.smi_csv import read_csv
from llmgwctl.transport import frames

Check = Callable[[bytes], None]
NONCE = "0123456789abcdef"


@dataclass(frozen=True)
class Target:
    """`seeds`: texts to begin with; `check` raises when the answer is wrong, or when there is none."""

    name: str
    seeds: tuple[bytes, ...]
    check: Check


def text_of(data: bytes) -> str:
    """As the transport decodes it."""
    return data.decode("utf-8", "replace")


def section(probe: Probe, name: str, data: bytes) -> None:
    """The parser itself, not what catches its failures; then the judgement of the facts, which must be total too."""
    reading = probe.parse({name: Output(text_of(data))})
    assert isinstance(reading, Reading)
    assert (reading.value is None) == (reading.state != "ok")
    assert reading.state == "ok" or reading.why, "a reading that is not ok says why"
    if isinstance(reading.value, GpuReport):
        gpus_hold(reading.value)


def gpus_hold(report: GpuReport) -> None:
    """What everything behind builds on."""
    assert report.all_readable == (not report.lost)
    for gpu in report.gpus:
        fabric = gpu.fabric
        assert gpu.uuid.startswith("GPU-")
        assert (fabric.pair is not None) == (fabric.joined is True)
        assert fabric.joined in (True, False, None)
        assert fabric.healthy in (True, False, None)
        assert fabric.clique_id is None or 0 <= fabric.clique_id < 2**32


def framed(data: bytes) -> None:
    answer = frames.parse(data, NONCE)
    assert all(isinstance(o, Output) for o in answer.outputs.values())
    assert answer.begun or not answer.outputs


def masked(data: bytes) -> None:
    text = text_of(data)
    assert Mask(b"k" * 32).text(text).count("\n") == text.count("\n")


def listed(data: bytes) -> None:
    for row in read_csv(text_of(data)):
        assert all(value is None or isinstance(value, str) for value in row.values())


def whole(data: bytes) -> None:
    """All sections of a host say the same nonsense: the facts are there, and each reading has its state."""
    outputs = {s.name: Output(text_of(data)) for p in PROBES for s in p.sections}
    facts = assemble(Host("h"), outputs, 0.0, 0.0)
    for probe in PROBES:
        why = getattr(facts, probe.field).why
        assert not why.startswith("could not be understood"), f"{probe.field}: {why}"


def captured(*patterns: str, limit: int = 24) -> tuple[bytes, ...]:
    """Real outputs where they are at hand, spread over the list."""
    found = [f for pattern in patterns for f in files(pattern) if f.is_file() and f.stat().st_size < 100_000]
    return tuple(f.read_bytes() for f in found[:: max(1, len(found) // limit)])


TRAY = Matrix(nics=("mlx5_0", "mlx5_bond_0"), gpu_numa={0: "2"}, ways={(0, 1): "PIX"})
FRAMES = (
    f"LLMGWCTL-BEGIN {NONCE}\n@ system 0 12 7 3 ran 0 \nnode x\nerr@ smi - 0 0 0 skipped 0 hangs\n"
    f"@ a 124 60000 2 0 ran 1 -\nokLLMGWCTL-END {NONCE} 1700000000.5\n"
)
SEEDS = Path(__file__).parent / "seeds"
OWN = {f.stem: f.read_text(encoding="utf-8") for f in sorted(SEEDS.glob("*.txt"))}  # by section
REAL = {
    "nvidia-smi-q": captured(
        "nvidia-smi-q/exporter_*.txt",
        "nvidia-smi-q/mock-nvml/*gb200x4*",
        "nvidia-smi-q/mock-nvml/fabric*",
        "failures/mock-nvml/*__q.out",
    ),
    "nvidia-smi-topo-m": captured("topo/*.txt", "topo/mock-nvml/*"),
    "nvidia-smi-nvlink-s": captured("nvlink/*.*", "nvlink/mock-nvml/*_s_*"),
    "nvidia-imex-ctl-N": captured("imex/nogpu/*_N.txt", "imex/nogpu/*_NH.txt"),
    "nvidia-imex-ctl-N-j": captured("imex/nogpu/*_Nj.txt", "imex/DCGM*"),
    "nvidia-imex-ctl-q": captured("imex/nogpu/*_q.txt", "imex/errors/norun_q*"),
    "hcas": captured("ib/gpud_ibstat*", "ib/*ibstatus*"),
}  # fmt: skip
WRITTEN = {
    "nvidia-smi-q": [smi.text(d, smi.trays(2)) for d in smi.DRIVERS],
    "nvidia-smi-query-gpu": [smi.query(smi.trays()), "index, uuid, compute_cap\n" + smi.query(smi.trays())],
    "nvidia-smi-topo-m": [TRAY.tabs(), TRAY.blanks(), TRAY.tabs(ansi=False, own_names=True)],
    "nvidia-smi-nvlink-s": [links(2, ("53.125", "", "25")), links(1, ())],
    "nvidia-imex-ctl-N": [imex_texts.NEW, imex_texts.OLD, imex_texts.EARLY],
    "nvidia-imex-ctl-N-j": [imex_texts.as_json()],
} | {name: [text] for name, text in OWN.items()}
BY_SECTION = {s.name: p for p in PROBES for s in p.sections}


def _sections() -> list[Target]:
    made = []
    for name, probe in BY_SECTION.items():
        seeds = (*(t.encode() for t in WRITTEN[name]), *REAL.get(name, ()))
        check = partial(query, name) if name == "nvidia-smi-query-gpu" else partial(section, probe, name)
        made.append(Target(name, seeds, check))
    return made


def query(name: str, data: bytes) -> None:
    """The list of indices beside a good report."""
    probe = BY_SECTION[name]
    report = Output(smi.text("580.126", smi.trays()))
    reading = probe.parse({"nvidia-smi-q": report, name: Output(text_of(data))})
    assert reading.state in ("ok", "broken")


XML = tuple(smi.xml(d, smi.trays(2)).encode() for d in smi.DRIVERS) + captured("nvidia-smi-q-xml/*/*.xml", limit=12)
TARGETS = (
    *_sections(),
    Target("nvidia-smi-q-xml", XML, partial(section, BY_SECTION["nvidia-smi-q"], "nvidia-smi-q")),
    Target(
        "engine-version", (b"vllm 0.11.1\ntorch 2.9.0\n",), partial(section, engines_probe.PROBE, "engine-version-vllm")
    ),
    Target("csv", captured("csv/mock-nvml/query*", "csv/*.csv") or (b"index, uuid\n0, x\n",), listed),
    Target("frames", (FRAMES.encode(),), framed),
    Target("mask", (OWN["network"].encode(), OWN["hcas"].encode(), smi.text("580.126", smi.trays(1)).encode()), masked),
    Target("whole-host", tuple(t.encode() for t in OWN.values()), whole),
)
