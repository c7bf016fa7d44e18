"""What a host is beside its GPUs and its fabric: processes, kernel log, room, clock, fabric manager, versions."""

from __future__ import annotations

from typing import Literal

from llmgwctl.model.fact import fact


@fact
class HostProcess:
    """A process of user space. `state` as /proc has it (R, S, D, Z ...); `command` its short name."""

    pid: int
    user: str
    state: str
    command: str


LogKind = Literal["xid", "sxid", "nvrm", "mlx5", "nvlink", "oom", "lockup", "hung", "nfs", "disk", "limits", "other"]


@fact
class KernelLine:
    """One line of the kernel log that names the GPU, the fabric, the adapters or a sick kernel.

    `at_s`: seconds after boot. `code` and `device`: the number and the PCI address of an Xid or SXid.
    """

    kind: LogKind
    text: str
    at_s: float | None = None
    code: int | None = None
    device: str = ""


@fact
class KernelLog:
    """Lines that matter, oldest first. `cut`: there were more, and the newest were kept."""

    lines: tuple[KernelLine, ...]
    source: str = ""  # journalctl | dmesg
    cut: bool = False


@fact
class Limit:
    """A line of /proc/self/limits for the account that launches; None is unlimited."""

    name: str
    soft: int | None
    hard: int | None


@fact
class Room:
    """Room in the file system that holds a path. `why`: it could not be told (it does not answer, no right)."""

    path: str
    kind: str = ""  # ext4, tmpfs, nfs4 ...
    size_mib: int | None = None
    free_mib: int | None = None
    inodes_free: int | None = None
    read_only: bool | None = None
    why: str = ""


@fact
class OwnName:
    """What the host's own name is to its resolver: addresses in the order in which a program gets them.

    None of them and no `why`: the name is unknown there. `why`: it could not be asked.
    """

    name: str
    addresses: tuple[str, ...] = ()
    why: str = ""


@fact
class Resources:
    """Limits of the account, memory, and file systems. `settings`: kernel settings by name (numa_balancing ...).

    `own_name` None: it was not asked.
    """

    limits: tuple[Limit, ...] = ()
    memory_total_mib: int | None = None
    memory_available_mib: int | None = None
    rooms: tuple[Room, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    own_name: OwnName | None = None

    def room(self, path: str) -> Room | None:
        return next((r for r in self.rooms if r.path == path), None)

    def limit(self, name: str) -> Limit | None:
        return next((x for x in self.limits if x.name == name), None)


@fact
class Clock:
    """The host's clock less the controller's, in seconds, and by how much that may be wrong."""

    offset_s: float
    bound_s: float


@fact
class FabricManager:
    """nvidia-fabricmanager on this host, and what of NVSwitch PCI shows. None: could not be told."""

    unit_load: str | None = None
    unit_active: str | None = None
    unit_sub: str | None = None
    unit_file: str | None = None
    unit_result: str | None = None
    active_for_s: float | None = None  # since the unit came into its present state
    version: str = ""
    config: str = ""  # present | absent | unreadable
    fabric_mode: int | None = None
    stay_resident: bool | None = None
    switches: int = 0  # NVSwitch functions on the PCI bus (class 0680 of NVIDIA)
    bridges: int | None = None  # adapters that manage NVSwitches (SW_MNG); None: no right to look
    nvlsm: bool | None = None  # its program is installed
    ib_umad: bool | None = None  # the module is loaded


@fact
class Versions:
    """What is installed and loaded, as each of them says; "" where it does not say. `runtimes`: name and version."""

    driver_loaded: str = ""
    driver_on_disk: str = ""
    driver_library: str = ""
    open_kernel_module: bool | None = None
    kernel: str = ""
    os: str = ""
    imex: str = ""
    cuda: tuple[tuple[str, str], ...] = ()  # folder, version
    runtimes: tuple[tuple[str, str], ...] = ()
    modules: tuple[tuple[str, str], ...] = ()  # kernel modules that are loaded, with their version
    reboot_for: tuple[str, ...] | None = None  # packages for which Debian and its kin want a reboot; None: not said


@fact
class NcclFile:
    """A file from which NCCL takes settings that no environment shows."""

    path: str
    settings: tuple[tuple[str, str], ...] = ()
    why: str = ""  # it is there and could not be read


@fact
class Installed:
    """What an engine's version command said: names and versions; `why`: what it said instead."""

    engine: str
    versions: tuple[tuple[str, str], ...] = ()
    why: str = ""

    def version(self, name: str) -> str:
        return next((v for n, v in self.versions if n == name), "")
