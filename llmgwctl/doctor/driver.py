"""LG60-LG64: the driver and nvidia-smi itself: whether GPUs can be asked at all, and how the driver is set."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from llmgwctl.doctor.base import Answer, Check, Unknown, View, each, found, product
from llmgwctl.doctor.verdicts import has, only_a_right
from llmgwctl.model.gpu import IDLE_MIB, Gpu
from llmgwctl.model.host import HostFacts

GPU_LANE = ("gpus", "topology", "links")
HANGS = ("in D state", "no answer within its limit")
MISMATCH = "Driver/library version mismatch"
NOT_LOADED = ("couldn't communicate with the NVIDIA driver", "No devices were found", "Driver Not Loaded")
NOT_THERE = "nvidia-smi is not installed"


def _unread(*words: str) -> Callable[[HostFacts, View], Iterator[Answer]]:
    """GPUs that could not be read, for a cause that the words of nvidia-smi name."""

    def of_host(facts: HostFacts, view: View) -> Iterator[Answer]:
        if has(view, facts, "gpus-unread") and any(w in facts.gpus.why for w in words):
            yield found(facts, facts.gpus.why)

    return of_host


def _hangs(facts: HostFacts, view: View) -> Iterator[Answer]:
    yield from _unread(*HANGS)(facts, view)
    system = facts.system.value
    if facts.gpus.ok and system is not None and system.stuck_gpu_tool:
        yield found(facts, system.stuck_gpu_tool)


def _other(facts: HostFacts, view: View) -> Iterator[Answer]:
    known = (*HANGS, MISMATCH, *NOT_LOADED, NOT_THERE)
    if has(view, facts, "gpus-unread") and not any(w in facts.gpus.why for w in known):
        why = f"gpus: {facts.gpus.why}"
        yield Unknown((facts.host.name,), why, "gpus", right=only_a_right(facts.gpus.why))


def _mismatch(facts: HostFacts, view: View) -> Iterator[Answer]:
    """Also before anybody has tried: the module that is loaded and the library that is installed."""
    found_now = tuple(_unread(MISMATCH)(facts, view))
    yield from found_now
    versions = facts.versions.value
    if versions is None or found_now:
        return
    other = versions.driver_library or versions.driver_on_disk
    if versions.driver_loaded and other and other != versions.driver_loaded:
        what = "library" if versions.driver_library else "module on disk"
        text = f"driver {versions.driver_loaded} is loaded, the {what} is {other}"
        yield found(facts, text, severity=None if facts.gpus.broken else "warn")


def _gpus_that(says: Callable[[Gpu], str | None]) -> Callable[[HostFacts, View], Iterator[Answer]]:
    """One finding a host with a line for each GPU that has something to say."""

    def of_host(facts: HostFacts, view: View) -> Iterator[Answer]:
        gpus = facts.gpus.value.gpus if facts.gpus.value else ()
        lines = tuple(f"GPU {g.index}: {text}" for g in gpus if (text := says(g)))
        if lines:
            yield found(facts, *lines)

    return of_host


def _persistence(gpu: Gpu) -> str | None:
    return "persistence mode is off" if gpu.persistence is False else None


def _compute_mode(facts: HostFacts, view: View) -> Iterator[Answer]:
    gpus = facts.gpus.value.gpus if facts.gpus.value else ()
    odd = [g for g in gpus if g.compute_mode not in (None, "Default")]
    lines = tuple(f"GPU {g.index}: compute mode is {g.compute_mode}" for g in odd)
    if lines:
        closed = any(g.compute_mode == "Prohibited" for g in odd)
        yield found(facts, *lines, severity="block" if closed else None)


def _c2c(gpu: Gpu) -> str | None:
    return "NVLink-C2C is off" if gpu.c2c_mode not in (None, "Enabled") else None


def _grace(facts: HostFacts) -> bool:
    known = product(facts)
    return known is not None and known.grace


def _ats(facts: HostFacts, view: View) -> Iterator[Answer]:
    gpus = facts.gpus.value.gpus if facts.gpus.value else ()
    if any(g.addressing_mode == "ATS" for g in gpus):
        yield found(facts, "addressing mode ATS: GPU memory is NUMA nodes without CPUs")


def _foreign_work(facts: HostFacts, view: View) -> Iterator[Answer]:
    """Compute processes that no shard of ours accounts for. Whose they are is said; nothing is ever ended."""
    life = facts.life.value
    claimed = {c.key.removeprefix("gpu-").lower() for c in life.claims} if life is not None else set()
    lines = []
    for gpu in facts.gpus.value.gpus if facts.gpus.value else ():
        strangers = [p for p in gpu.processes if "C" in p.kind]
        if strangers and not _claimed(gpu, claimed):
            p = strangers[0]
            more = f" and {len(strangers) - 1} more" if len(strangers) > 1 else ""
            user = f" of {p.user}" if p.user else ""
            lines.append(f"GPU {gpu.index}: held by pid {p.pid} ({p.name}){user}{more}")
    if lines:
        yield found(facts, *lines)


def _held(facts: HostFacts, view: View) -> Iterator[Answer]:
    life = facts.life.value
    claimed = {c.key.removeprefix("gpu-").lower() for c in life.claims} if life is not None else set()
    lines = []
    for g in facts.gpus.value.gpus if facts.gpus.value else ():
        unnamed = not g.processes and g.processes_known and not g.mig_enabled
        if unnamed and (g.memory_used_mib or 0) > IDLE_MIB and not _claimed(g, claimed):
            lines.append(f"GPU {g.index}: {g.memory_used_mib} MiB used, and no process named")
    if lines:
        yield found(facts, *lines)


def _claimed(gpu: Gpu, claimed: set[str]) -> bool:
    return gpu.uuid.lower() in claimed or gpu.uuid.lower().removeprefix("gpu-") in claimed


CHECKS = (
    Check(
        "LG601",
        "nvidia-smi hangs: the GPUs of the host cannot be asked",
        "block",
        each(_hangs),
        seen="ps -eo pid,stat,etimes,wchan:24,args | grep nvidia-smi; never start another",
        action="save the kernel log, then reboot the host; a process in D state cannot be killed",
        who="host admin",
        disturbs="everything on the host",
        matters=True,
        explains=GPU_LANE,
        hides=("LG5", "LG606"),
    ),
    Check(
        "LG602",
        "The driver that is loaded and the installed one differ",
        "block",
        each(_mismatch),
        seen="cat /proc/driver/nvidia/version; modinfo -F version nvidia; nvidia-smi (exit code 18)",
        action="reboot when the host is drained, and hold the driver's packages (unattended upgrades did this)",
        who="host admin",
        disturbs="everything on the host",
        matters=True,
        explains=GPU_LANE,
        hides=("LG010",),
    ),
    Check(
        "LG603",
        "The NVIDIA driver is not loaded",
        "block",
        each(_unread(*NOT_LOADED)),
        seen="lsmod | grep nvidia; journalctl -k | grep -i nvrm",
        action="load it (modprobe nvidia); rebuild its module for this kernel, or sign it where secure boot is on",
        who="host admin",
        matters=True,
        explains=GPU_LANE,
    ),
    Check(
        "LG604",
        "nvidia-smi is not installed",
        "block",
        each(_unread(NOT_THERE)),
        seen="command -v nvidia-smi",
        action="install the driver's own tools (nvidia-utils of exactly its version)",
        who="host admin",
        matters=True,
        explains=GPU_LANE,
    ),
    Check(
        "LG605",
        "The GPUs could not be read",
        "block",
        each(_other),
        seen="llmgwctl probe HOST --raw nvidia-smi-q",
        action="see what it says: llmgwctl probe HOST --raw nvidia-smi-q",
        who="host admin",
        matters=True,
        explains=GPU_LANE,
    ),
    Check(
        "LG606",
        "Persistence mode is off: each nvidia-smi attaches every GPU anew",
        "warn",
        each(_gpus_that(_persistence)),
        seen="nvidia-smi -q | grep 'Persistence Mode'",
        action="systemctl enable --now nvidia-persistenced (nvidia-smi -pm 1 lasts only until the next boot)",
        who="host admin",
        needs=("gpus",),
    ),
    Check(
        "LG607",
        "The compute mode of a GPU keeps processes out",
        "warn",
        each(_compute_mode),
        seen="nvidia-smi -q | grep 'Compute Mode'",
        action="nvidia-smi -c 0 (Default, for all GPUs), and find what sets it at boot",
        who="host admin",
        needs=("gpus",),
    ),
    Check(
        "LG608",
        "NVLink-C2C between CPU and GPU is off",
        "degrade",
        each(_gpus_that(_c2c)),
        seen="nvidia-smi -q | grep 'C2C Mode'",
        action="drain, then one cold power cycle; if it stays off, vendor service",
        who="host admin",
        disturbs="everything on the host",
        needs=("gpus",),
        applies=_grace,
    ),
    Check(
        "LG609",
        "A process that is not of llmgwctl computes on a GPU",
        "warn",
        each(_foreign_work),
        seen="nvidia-smi -q -d PIDS; ps -o user,lstart,args -p PID",
        action="ask its owner; the GPU is taken until it ends, and llmgwctl never ends what it did not start",
        who="job owner",
        disturbs="that process",
        needs=("gpus", "life"),
    ),
    Check(
        "LG610",
        "GPU memory is in use, and nobody is named",
        "warn",
        each(_held),
        seen="nvidia-smi -q -d MEMORY,PIDS; ps -eo pid,stat,args | grep -E ' [DZ]'",
        action="look for a container, or a process that died and is not reaped; reset the GPU when the host is idle",
        who="host admin",
        disturbs="everything on the GPU",
        needs=("gpus", "life"),
    ),
    Check(
        "LG611",
        "GPU memory stands among the host's NUMA nodes",
        "info",
        each(_ats),
        seen="nvidia-smi -q | grep 'Addressing Mode'; numactl -H",
        action="bind to nodes with CPUs only (llmgwctl does); the driver's CDMM mode (580 and newer) hides them",
        who="job owner",
        needs=("gpus",),
    ),
)
