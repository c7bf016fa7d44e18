"""LG5: what the kernel log tells of the GPUs: Xids by their class, and NVSwitches."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from llmgwctl.doctor.base import Answer, Check, View, each, found
from llmgwctl.doctor.names import ago
from llmgwctl.doctor.verdicts import has
from llmgwctl.doctor.xid import BY_CODE, Class, class_of, counted, recovery_word, same_gpu
from llmgwctl.model.finding import Severity
from llmgwctl.model.host import HostFacts
from llmgwctl.model.machine import KernelLine
from llmgwctl.model.numbers import whole

KLOG = "journalctl -k -b | grep -E 'NVRM: Xid'"
TELLS_RECOVERY = 570  # from this driver on nvidia-smi says itself what a GPU needs


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
    return f"{_gpu_at(facts, device)}: Xid {code}{name}{often}{ago(facts, last)}"


def _gpu_at(facts: HostFacts, device: str) -> str:
    gpus = facts.gpus.value.gpus if facts.gpus.value else ()
    index = next((g.index for g in gpus if same_gpu(device, g.bus_id)), None)
    return f"GPU {index}" if index is not None else f"PCI {device}"


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
