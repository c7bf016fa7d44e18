"""LG5: the health of the GPUs, from nvidia-smi and from the kernel log."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from llmgwctl.doctor.base import Answer, Check, Found, View, each, found
from llmgwctl.doctor.verdicts import has, reasons
from llmgwctl.doctor.xid import BY_CODE, Class, class_of, counted, recovery_word, same_gpu
from llmgwctl.model.finding import Severity
from llmgwctl.model.gpu import Gpu
from llmgwctl.model.host import HostFacts
from llmgwctl.model.machine import KernelLine
from llmgwctl.model.numbers import whole

KLOG = "journalctl -k -b | grep -E 'NVRM: Xid'"
TELLS_RECOVERY = 570  # from this driver on nvidia-smi says itself what a GPU needs


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


def _flag(says: Callable[[Gpu], str | None]) -> Callable[[HostFacts, View], Iterator[Answer]]:
    def of_host(facts: HostFacts, view: View) -> Iterator[Answer]:
        gpus = facts.gpus.value.gpus if facts.gpus.value else ()
        lines = tuple(f"GPU {g.index}: {text}" for g in gpus if (text := says(g)))
        if lines:
            yield found(facts, *lines)

    return of_host


def _remap_failed(gpu: Gpu) -> str | None:
    return "row remapping failed" if gpu.remap_failed else None


def _remap_pending(gpu: Gpu) -> str | None:
    return "row remapping waits for the next reset" if gpu.remap_pending else None


def _ecc(gpu: Gpu) -> str | None:
    return (
        f"{gpu.ecc_uncorrected} uncorrectable ECC errors since the driver was loaded" if gpu.ecc_uncorrected else None
    )


# --- the kernel log -------------------------------------------------------------------------------------------------


def _lines(facts: HostFacts, *kinds: Class) -> list[KernelLine]:
    log = facts.kernel_log.value
    return [x for x in log.lines if x.kind == "xid" and class_of(x) in kinds] if log is not None else []


def _xids(*kinds: Class) -> Callable[[HostFacts, View], Iterator[Answer]]:
    """One finding a host with a line for each GPU and code of these classes."""

    def of_host(facts: HostFacts, view: View) -> Iterator[Answer]:
        values = tuple(_said(facts, *one) for one in counted(_lines(facts, *kinds)))
        if values:
            yield found(facts, *values, severity=_past(facts, view))

    return of_host


def _past(facts: HostFacts, view: View) -> Severity | None:
    """A log is history: where the driver says of each GPU that it needs nothing, what happened is only a warning."""
    report = facts.gpus.value
    if report is None or not report.all_readable or has(view, facts, "recovery", "gpu-lost"):
        return None
    return "warn" if _major(report.driver) >= TELLS_RECOVERY else None


def _major(driver: str | None) -> int:
    return whole((driver or "").split(".")[0]) or 0


def _said(facts: HostFacts, device: str, code: int, times: int, last: KernelLine) -> str:
    name = f" ({BY_CODE[code].name})" if code in BY_CODE else ""
    often = f", {times} times" if times > 1 else ""
    return f"{_gpu_at(facts, device)}: Xid {code}{name}{often}{_ago(facts, last)}"


def _gpu_at(facts: HostFacts, device: str) -> str:
    gpus = facts.gpus.value.gpus if facts.gpus.value else ()
    index = next((g.index for g in gpus if same_gpu(device, g.bus_id)), None)
    return f"GPU {index}" if index is not None else f"PCI {device}"


def _ago(facts: HostFacts, line: KernelLine) -> str:
    system = facts.system.value
    if line.at_s is None or system is None or not system.uptime_s or system.uptime_s < line.at_s:
        return ""
    minutes = (system.uptime_s - line.at_s) / 60
    return f", {minutes:.0f} min ago" if minutes < 120 else f", {minutes / 60:.0f} h ago"


def _asked(facts: HostFacts, view: View) -> Iterator[Answer]:
    """Xid 154: the last word of each GPU counts, and only where nvidia-smi cannot say it itself."""
    report = facts.gpus.value
    if report is not None and report.all_readable and _major(report.driver) >= TELLS_RECOVERY:
        return
    last = {line.device: line for line in _lines(facts, "recovery")}
    words = {device: recovery_word(line.text) for device, line in last.items()}
    values = tuple(f"{_gpu_at(facts, d)}: the driver asks for: {w}" for d, w in words.items() if w and w != "None")
    if values:
        yield found(facts, *values)


def _unknown_codes(facts: HostFacts, view: View) -> Iterator[Answer]:
    log = facts.kernel_log.value
    strange = [x for x in log.lines if x.kind == "xid" and class_of(x) is None] if log is not None else []
    values = tuple(_said(facts, *one) for one in counted(strange))
    if values:
        yield found(facts, *values)


def _switches(facts: HostFacts, view: View) -> Iterator[Answer]:
    """SXid lines of NVSwitches: a fatal one has taken the fabric of the machine with it."""
    log = facts.kernel_log.value
    fatal = [x for x in log.lines if x.kind == "sxid" and ", Fatal" in x.text] if log is not None else []
    values = tuple(f"NVSwitch {d}: SXid {c}, {n} times" for d, c, n, _ in counted(fatal))
    if values:
        joined = not has(view, facts, "not-joined", "refused", "gpus-unread")
        yield found(facts, *values, severity="warn" if joined else None)


RESET = "drain, then reset the GPU (nvidia-smi --gpu-reset -i N) or reboot; what comes back goes to the vendor"

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
        each(_flag(_remap_failed)),
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
        each(_flag(_remap_pending)),
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
        each(_flag(_ecc)),
        seen="nvidia-smi -q -d ECC",
        action="drain and reset the GPU; a GPU that does it again goes to the vendor",
        who="host admin",
        disturbs="everything on the GPU",
        needs=("gpus",),
        hides=("LG515", "LG516"),
    ),
    Check(
        "LG511",
        "A GPU fell off the bus (Xid 79)",
        "block",
        each(_xids("bus")),
        seen=KLOG,
        action="drain and reboot the host; if it comes back, cold power cycle, then the vendor",
        who="host admin",
        disturbs="everything on the host",
        needs=("kernel_log",),
    ),
    Check(
        "LG512",
        "The GPU's system processor (GSP) stopped answering",
        "block",
        each(_xids("gsp")),
        seen=KLOG,
        action="reset the GPU, or reboot where the reset hangs; align the driver. Each nvidia-smi call costs 45 s",
        who="host admin",
        disturbs="everything on the host",
        needs=("kernel_log",),
        hides=("LG601",),
    ),
    Check(
        "LG513",
        "NVLink failed on a GPU",
        "block",
        each(_xids("link")),
        seen=f"{KLOG}; nvidia-smi nvlink -s",
        action="drain and reset the GPU; if it comes back, have the link repaired",
        who="rack operator",
        disturbs="everything on the host",
        needs=("kernel_log",),
    ),
    Check(
        "LG514",
        "NVLink events that were survived",
        "warn",
        each(_xids("link-soft")),
        seen=KLOG,
        action="restart the program that saw an error (the first rank that failed), and watch the link",
        who="job owner",
        needs=("kernel_log",),
    ),
    Check(
        "LG515",
        "Uncorrectable memory errors in the kernel log",
        "block",
        each(_xids("memory")),
        seen=KLOG,
        action=RESET,
        who="host admin",
        disturbs="everything on the GPU",
        needs=("kernel_log",),
    ),
    Check(
        "LG516",
        "Memory errors that were contained",
        "warn",
        each(_xids("memory-soft")),
        seen=KLOG,
        action="restart the program that was hit; reset the GPU when it is idle",
        who="host admin",
        disturbs="everything on the GPU",
        needs=("kernel_log",),
    ),
    Check(
        "LG517",
        "Row remapping failed, says the kernel log",
        "block",
        each(_xids("retired")),
        seen=KLOG,
        action="take the host out of use and have the GPU replaced",
        who="host admin",
        disturbs="everything on the host",
        needs=("kernel_log",),
    ),
    Check(
        "LG518",
        "The kernel log asks for a recovery (Xid 154)",
        "block",
        each(_asked),
        seen=KLOG,
        action="drain the host and do what the word says",
        who="host admin",
        disturbs="everything on the host",
        needs=("kernel_log",),
        hides=("LG513", "LG515", "LG519"),
    ),
    Check(
        "LG519",
        "A GPU had an error after which it needs a reset",
        "block",
        each(_xids("reset")),
        seen=KLOG,
        action=RESET,
        who="host admin",
        disturbs="everything on the GPU",
        needs=("kernel_log",),
    ),
    Check(
        "LG520",
        "NVLink-C2C events between CPU and GPU",
        "warn",
        each(_xids("c2c")),
        seen=KLOG,
        action="watch it; if it repeats, vendor service",
        who="host admin",
        needs=("kernel_log",),
    ),
    Check(
        "LG521",
        "Power smoothing events of a GPU",
        "warn",
        each(_xids("power")),
        seen=KLOG,
        action="tell the vendor of events that mention its lifetime",
        who="host admin",
        needs=("kernel_log",),
    ),
    Check(
        "LG522",
        "Xids that this llmgwctl does not know",
        "info",
        each(_unknown_codes),
        seen=KLOG,
        action="look the number up in NVIDIA's Xid catalogue",
        who="host admin",
        needs=("kernel_log",),
    ),
    Check(
        "LG523",
        "An NVSwitch had a fatal error",
        "block",
        each(_switches),
        seen="journalctl -k -b | grep SXid; /var/log/fabricmanager.log",
        action="drain and reboot; a switch that does it again goes to the vendor",
        who="host admin",
        disturbs="everything on the host",
        needs=("kernel_log",),
        hides=("LG104",),
    ),
)
