"""LG8: the host under the GPUs: clock, room, memory, kernel, limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from llmgwctl.doctor.base import Answer, Check, View, each, found
from llmgwctl.doctor.names import ago, few
from llmgwctl.model.finding import Severity
from llmgwctl.model.host import HostFacts
from llmgwctl.model.machine import KernelLine, Room

CLOCK_S = 2.0
SHM_MIB, SHM_LEAST_MIB = 1024, 128  # NCCL maps some tens of MiB a rank, engines more
ROOM_MIB, ROOM_LEAST_MIB = 2048, 128
NOFILE = 4096
JUST_UP_S = 3600
SYSTEM_PATHS = ("/", "/var", "/tmp", "/dev/shm")  # noqa: S108 - names of what was measured
SILENT = "does not answer"


def _clock(facts: HostFacts, view: View) -> Iterator[Answer]:
    clock = facts.clock.value
    if clock is not None and abs(clock.offset_s) - clock.bound_s > CLOCK_S:
        way = "ahead of" if clock.offset_s > 0 else "behind"
        yield found(facts, f"{abs(clock.offset_s):.1f} s {way} this workstation's clock")


def _setting(name: str, bad: Callable[[str], bool], words: str) -> Callable[[HostFacts, View], Iterator[Answer]]:
    def of_host(facts: HostFacts, view: View) -> Iterator[Answer]:
        resources = facts.resources.value
        value = dict(resources.settings).get(name, "") if resources is not None else ""
        if value and bad(value):
            yield found(facts, words.format(value=value))

    return of_host


def _rooms(facts: HostFacts) -> tuple[Room, ...]:
    return facts.resources.value.rooms if facts.resources.value is not None else ()


def _full(facts: HostFacts, view: View) -> Iterator[Answer]:
    """One line a file system: paths on the same one have the same numbers."""
    lines: dict[tuple[int | None, int | None], str] = {}
    least: list[int] = []
    for room in _rooms(facts):
        if room.free_mib is None or room.path == "/dev/shm" or room.read_only:  # noqa: S108
            continue
        if room.free_mib < ROOM_MIB:
            lines.setdefault(
                (room.size_mib, room.free_mib), f"{room.path}: {room.free_mib} MiB of {room.size_mib} left"
            )
            least.append(room.free_mib)
        elif room.inodes_free is not None and room.inodes_free < 1000:
            lines.setdefault((room.size_mib, room.free_mib), f"{room.path}: {room.inodes_free} inodes left")
            least.append(0)
    if lines:
        yield found(facts, *lines.values(), severity="block" if min(least) < ROOM_LEAST_MIB else None)


def _shm(facts: HostFacts, view: View) -> Iterator[Answer]:
    room = next((r for r in _rooms(facts) if r.path == "/dev/shm"), None)  # noqa: S108
    if room is not None and room.free_mib is not None and room.free_mib < SHM_MIB:
        severity: Severity | None = "block" if room.free_mib < SHM_LEAST_MIB else None
        yield found(facts, f"{room.path}: {room.free_mib} MiB of {room.size_mib} free", severity=severity)


def _read_only(facts: HostFacts, view: View) -> Iterator[Answer]:
    """A system image that is read-only by design is none: only places where something must be written."""
    shut = [r.path for r in _rooms(facts) if r.read_only and r.path not in ("/", "/dev/shm")]  # noqa: S108
    if shut:
        yield found(facts, f"read-only: {few(shut)}", severity=None if set(shut) - set(SYSTEM_PATHS) else "warn")


def _silent(facts: HostFacts, view: View) -> Iterator[Answer]:
    dead = [r.path for r in _rooms(facts) if SILENT in r.why]
    if dead:
        yield found(facts, f"{few(dead)} does not answer: a file server that is gone?")


def _log(facts: HostFacts, *kinds: str) -> list[KernelLine]:
    return [x for x in facts.kernel_log.value.lines if x.kind in kinds] if facts.kernel_log.value is not None else []


def _logged(*kinds: str, without: str = "") -> Callable[[HostFacts, View], Iterator[Answer]]:
    def of_host(facts: HostFacts, view: View) -> Iterator[Answer]:
        lines = [x for x in _log(facts, *kinds) if not (without and without in x.text)]
        if lines:
            more = f" ({len(lines)} such lines)" if len(lines) > 1 else ""
            yield found(facts, f"{lines[-1].text[:160]}{more}{ago(facts, lines[-1])}")

    return of_host


def _nfs(facts: HostFacts, view: View) -> Iterator[Answer]:
    """The last word about each server counts: it may be well again."""
    last: dict[str, KernelLine] = {}
    for line in _log(facts, "nfs"):
        server = line.text.partition("server ")[2].split(" ")[0] or "?"
        last[server] = line
    dead = [name for name, line in last.items() if "not responding" in line.text or "timed out" in line.text]
    if dead:
        yield found(facts, f"NFS server {few(dead)} is not responding, by its last word")


def _remounted(facts: HostFacts, view: View) -> Iterator[Answer]:
    lines = [x for x in _log(facts, "disk") if "Remounting filesystem read-only" in x.text]
    if lines:
        yield found(facts, lines[-1].text[:160] + ago(facts, lines[-1]))


def _memory(facts: HostFacts, view: View) -> Iterator[Answer]:
    r = facts.resources.value
    if r is None or not r.memory_total_mib or r.memory_available_mib is None:
        return
    if r.memory_available_mib * 20 < r.memory_total_mib:
        yield found(facts, f"{r.memory_available_mib} MiB of {r.memory_total_mib} available")


def _nofile(facts: HostFacts, view: View) -> Iterator[Answer]:
    system = facts.system.value
    if system is not None and system.nofile_hard is not None and 0 < system.nofile_hard < NOFILE:
        yield found(facts, f"hard limit of open files is {system.nofile_hard} for {system.account}")


def _just_up(facts: HostFacts, view: View) -> Iterator[Answer]:
    system = facts.system.value
    if system is not None and 0 < system.uptime_s < JUST_UP_S:
        yield found(facts, f"up for {system.uptime_s / 60:.0f} min")


def _numa_balancing(value: str) -> bool:
    return value not in ("0", "")


CHECKS = (
    Check(
        "LG801",
        "The clock of a host is wrong",
        "warn",
        each(_clock),
        seen="date +%s.%N on both; timedatectl; chronyc tracking",
        action="mend its time service (chrony), then step the clock",
        who="host admin",
        needs=("clock",),
    ),
    Check(
        "LG802",
        "Automatic NUMA balancing is on",
        "degrade",
        each(_setting("numa_balancing", _numa_balancing, "kernel.numa_balancing = {value}")),
        seen="cat /proc/sys/kernel/numa_balancing",
        action="sysctl -w kernel.numa_balancing=0, and in /etc/sysctl.d",
        who="host admin",
        needs=("resources", "gpus"),
    ),
    Check(
        "LG803",
        "The CPUs save power",
        "warn",
        each(_setting("governor", lambda v: v == "powersave", "scaling_governor is {value}")),
        seen="cat /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
        action="set the governor to performance (cpupower frequency-set -g performance)",
        who="host admin",
        needs=("resources", "gpus"),
    ),
    Check(
        "LG804",
        "A file system is full, or nearly",
        "warn",
        each(_full),
        seen="df -h / /var /tmp ~; df -i /",
        action="make room: logs (/var/log/nvidia-imex.log*), core dumps, compile caches, container images",
        who="host admin",
        needs=("resources",),
    ),
    Check(
        "LG805",
        "Shared memory (/dev/shm) is short",
        "warn",
        each(_shm),
        seen="df -h /dev/shm; ls -la /dev/shm",
        action="remove leftovers of dead processes (nccl-*), or mount it larger; in containers --shm-size",
        who="host admin",
        needs=("resources",),
    ),
    Check(
        "LG806",
        "A file system that must be written to is read-only",
        "block",
        each(_read_only),
        seen="grep ' ro[ ,]' /proc/mounts",
        action="look at the disk (journalctl -k), replace it, mount again",
        who="host admin",
        disturbs="everything on the host",
        needs=("resources",),
    ),
    Check(
        "LG807",
        "A file system does not answer",
        "block",
        each(_silent),
        seen="timeout 5 stat -f PATH; journalctl -k | grep nfs",
        action="mend the file server or the network to it; ask nothing more of that path until then",
        who="host admin",
        needs=("resources",),
        hides=("LG808",),
    ),
    Check(
        "LG808",
        "An NFS server does not respond",
        "degrade",
        each(_nfs),
        seen="journalctl -k -b | grep 'nfs: server'",
        action="mend the file server or the network to it",
        who="host admin",
        needs=("kernel_log",),
    ),
    Check(
        "LG809",
        "A process was killed for lack of memory",
        "warn",
        each(_logged("oom")),
        seen="journalctl -k -b | grep -E 'oom-kill|Killed process'",
        action="give the process that was killed more memory, or offload less",
        who="job owner",
        needs=("kernel_log",),
    ),
    Check(
        "LG810",
        "The kernel ran out of open files",
        "warn",
        each(_logged("limits")),
        seen="journalctl -k -b | grep 'file-max'; cat /proc/sys/fs/file-nr",
        action="raise fs.file-max",
        who="host admin",
        needs=("kernel_log",),
    ),
    Check(
        "LG811",
        "CPUs or tasks of the host were stuck",
        "degrade",
        each(_logged("lockup", "hung")),
        seen="journalctl -k -b | grep -E 'soft lockup|blocked for more than'",
        action="reboot when drained; align kernel, driver and firmware",
        who="host admin",
        disturbs="everything on the host",
        needs=("kernel_log",),
    ),
    Check(
        "LG812",
        "A disk has errors",
        "degrade",
        each(_logged("disk", without="Remounting")),
        seen="journalctl -k -b | grep -E 'I/O error|nvme'",
        action="look at the disk (smartctl -a), replace it",
        who="host admin",
        disturbs="everything on the host",
        needs=("kernel_log",),
    ),
    Check(
        "LG813",
        "The kernel made a file system read-only",
        "block",
        each(_remounted),
        seen="journalctl -k -b | grep 'Remounting filesystem'",
        action="replace the disk",
        who="host admin",
        disturbs="everything on the host",
        needs=("kernel_log",),
        hides=("LG806", "LG812"),
    ),
    Check(
        "LG814",
        "The host has hardly any memory left",
        "warn",
        each(_memory),
        seen="free -m; grep HugePages /proc/meminfo",
        action="find who has it (or which huge pages are reserved for nobody)",
        who="host admin",
        needs=("resources",),
    ),
    Check(
        "LG815",
        "The account may open few files",
        "warn",
        each(_nofile),
        seen="ulimit -H -n, over SSH as the account that launches",
        action="raise nofile in /etc/security/limits.d",
        who="host admin",
        needs=("system",),
    ),
    Check(
        "LG816",
        "A host was booted within the last hour",
        "info",
        each(_just_up),
        seen="uptime; last -x reboot",
        action="if nobody did it on purpose, treat the host as suspect",
        who="host admin",
        needs=("system",),
    ),
)
