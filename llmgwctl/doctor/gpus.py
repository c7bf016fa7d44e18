"""LG5: what nvidia-smi says of the GPUs and their memory: lost, to be reset, to be replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from llmgwctl.doctor.base import Answer, Check, Found, Unknown, View, each, found
from llmgwctl.doctor.verdicts import reasons
from llmgwctl.model.gpu import Gpu
from llmgwctl.model.host import HostFacts


def _recovery(facts: HostFacts, view: View, texts: tuple[str, ...]) -> Found | None:
    """The action word is the driver's own; the one about IMEX has a check of its own."""
    mine = tuple(t for t in texts if "IMEX" not in t)
    if not mine:
        return None
    reboot = any("Reboot" in t for t in mine)
    return found(facts, *mine, action="drain and reboot the host" if reboot else "")


def _mig(facts: HostFacts, view: View, texts: tuple[str, ...]) -> Found:
    """Where nobody says that whole GPUs are expected, MIG may be meant: it is said, and is no fault."""
    return found(facts, *texts, severity=None if facts.host.expect.gpus else "warn")


def by_gpu(says: Callable[[Gpu], str | None], *rows: str) -> Callable[[HostFacts, View], Iterator[Answer]]:
    """A line for each GPU of which something is said. `rows` are those of the report that it looks at: what stands in
    them and is no known word is unknown, and a row that is not printed is nothing."""

    def of_host(facts: HostFacts, view: View) -> Iterator[Answer]:
        gpus = facts.gpus.value.gpus if facts.gpus.value else ()
        lines = tuple(f"GPU {g.index}: {text}" for g in gpus if (text := says(g)))
        if lines:
            yield found(facts, *lines)
        yield from strange(facts, *rows)

    return of_host


def strange(facts: HostFacts, *rows: str) -> Iterator[Unknown]:
    """The first odd word of each of these rows: a host may print a row as often as it likes."""
    for gpu in facts.gpus.value.gpus if facts.gpus.value else ():
        for name, text in dict(reversed(gpu.condition.strange)).items():
            if name in rows:
                why = f"GPU {gpu.index}: nvidia-smi says {text!r} of {name}, a word that is not known here"
                yield Unknown((facts.host.name,), why)


def _remap_failed(gpu: Gpu) -> str | None:
    return "row remapping failed" if gpu.remap_failed else None


def _remap_pending(gpu: Gpu) -> str | None:
    return "row remapping waits for the next reset" if gpu.remap_pending else None


def _ecc(gpu: Gpu) -> str | None:
    return (
        f"{gpu.ecc_uncorrected} uncorrectable ECC errors since the driver was loaded" if gpu.ecc_uncorrected else None
    )


REPAIRS = ("Channel Repair Pending", "TPC Repair Pending")
THRESHOLD = "SRAM Threshold Exceeded"


def _repair(gpu: Gpu) -> str | None:
    waits = (gpu.condition.channel_repair_pending, gpu.condition.tpc_repair_pending)
    words = [name for name, pending in zip(("memory channel", "TPC"), waits, strict=True) if pending]
    return f"repair of a {' and a '.join(words)} waits for the next reset" if words else None


def _threshold(gpu: Gpu) -> str | None:
    return "more uncorrectable SRAM errors than the product may have" if gpu.condition.sram_threshold_exceeded else None


def _inforom(facts: HostFacts, view: View) -> Iterator[Answer]:
    report = facts.gpus.value
    index = {g.bus_id: f"GPU {g.index}" for g in report.gpus} if report is not None else {}
    lines = [f"{index.get(at, f'PCI {at}')}: infoROM is corrupted" for at in report.inforom_corrupt] if report else []
    if lines:
        yield found(facts, *lines)


CHECKS = (
    Check(
        "LG501",
        "A GPU is lost: counted, and not readable",
        "block",
        reasons("gpu-lost"),
        seen="nvidia-smi -q; lspci -d 10de: (rev ff); journalctl -k | grep -E 'Xid.*79'",
        action="drain and reboot the host; if it comes back, cold power cycle, then the vendor",
        who="host admin",
        disturbs="everything on the host",
        matters=True,
        hides=("LG511", "LG003", "LG512"),
    ),
    Check(
        "LG502",
        "The driver asks for a recovery of a GPU",
        "block",
        reasons("recovery", shape=_recovery),
        seen="nvidia-smi -q | grep 'Recovery Action'",
        action="drain the host and do what the word says (GPU reset: nvidia-smi --gpu-reset -i N)",
        who="host admin",
        disturbs="everything on the GPU, with a reboot everything on the host",
        matters=True,
        hides=("LG513", "LG515", "LG518", "LG519", "LG512"),
    ),
    Check(
        "LG503",
        "A GPU is cut into MIG devices",
        "block",
        reasons("mig", shape=_mig),
        seen="nvidia-smi -q | grep -A1 'MIG Mode'",
        action="when the host is idle: nvidia-smi -mig 0, then reset the GPU; or take the host out of the inventory",
        who="host admin",
        disturbs="everything on the GPU",
        matters=True,
    ),
    Check(
        "LG504",
        "Row remapping of a GPU's memory has failed",
        "block",
        each(by_gpu(_remap_failed)),
        seen="nvidia-smi -q | grep -A4 'Remapped Rows'",
        action="take the host out of use and have the GPU replaced",
        who="host admin",
        disturbs="everything on the host",
        needs=("gpus",),
        hides=("LG517", "LG505", "LG516"),
    ),
    Check(
        "LG505",
        "Row remapping of a GPU's memory waits for a reset",
        "warn",
        each(by_gpu(_remap_pending)),
        seen="nvidia-smi -q | grep -A4 'Remapped Rows'",
        action="reset the GPU when it is idle",
        who="host admin",
        disturbs="everything on the GPU",
        needs=("gpus",),
        hides=("LG516",),
    ),
    Check(
        "LG506",
        "A GPU has had uncorrectable memory errors",
        "warn",
        each(by_gpu(_ecc)),
        seen="nvidia-smi -q -d ECC",
        action="drain and reset the GPU; a GPU that does it again goes to the vendor",
        who="host admin",
        disturbs="everything on the GPU",
        needs=("gpus",),
        hides=("LG515", "LG516"),
    ),
    Check(
        "LG507",
        "A repair of a GPU waits for a reset",
        "warn",
        each(by_gpu(_repair, *REPAIRS)),
        seen="nvidia-smi -q | grep 'Repair Pending'",
        action="reset the GPU when it is idle",
        who="host admin",
        disturbs="everything on the GPU",
        needs=("gpus",),
    ),
    Check(
        "LG508",
        "A GPU has had more SRAM errors than it may",
        "block",
        each(by_gpu(_threshold, THRESHOLD)),
        seen="nvidia-smi -q -d ECC | grep 'SRAM Threshold'",
        action="take the host out of use and have the GPU replaced",
        who="host admin",
        disturbs="everything on the host",
        needs=("gpus",),
        hides=("LG506",),
    ),
    Check(
        "LG509",
        "The infoROM of a GPU is corrupted",
        "warn",
        each(_inforom),
        seen="nvidia-smi 2>&1 | grep infoROM",
        action="plan a service visit: the vendor flashes or replaces the card; it works until then",
        who="host admin",
        disturbs="everything on the host",
        needs=("gpus",),
    ),
)
