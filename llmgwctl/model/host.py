"""A host of the inventory, and everything that one run read from it."""

from __future__ import annotations

from dataclasses import field, fields

from llmgwctl.model.fact import fact
from llmgwctl.model.gpu import GpuReport
from llmgwctl.model.imex import Imex
from llmgwctl.model.life import HostLife
from llmgwctl.model.machine import (
    Clock,
    FabricManager,
    HostProcess,
    Installed,
    KernelLog,
    NcclFile,
    Resources,
    Versions,
)
from llmgwctl.model.network import Hca, Network
from llmgwctl.model.reading import Reading, broken
from llmgwctl.model.topology import GpuLinks, Numa, Topology


@fact
class Expect:
    """What the inventory says that a host should be; None: it does not say."""

    gpus: int | None = None
    gpu: str | None = None  # exact product token, "GB200"
    domain: bool | None = None


@fact
class Host:
    """One host as the inventory names it. `root_prefix` is empty except on simulated hosts."""

    name: str
    address: str = ""  # empty: the name
    pool: str = "default"
    rack: str | None = None
    user: str | None = None
    port: int | None = None
    identity_file: str | None = None
    proxy_jump: str | None = None
    state_dir: str = "~/.local/state/llmgwctl"
    root_prefix: str = ""
    expect: Expect = Expect()
    mgmt_interface: str | None = None
    mgmt_address: str | None = None
    shared_with_scheduler: bool = False
    sudo: bool = False
    order: int = 0  # place in the inventory


@fact
class System:
    """What /proc and the login shell say. Limits: None is unlimited. Times in seconds, sizes in bytes."""

    node_name: str
    boot_id: str
    uptime_s: float
    kernel: str
    account: str
    arch: str = ""
    memlock_hard_bytes: int | None = None
    nofile_hard: int | None = None
    stack_soft_bytes: int | None = None
    scheduler: str | None = None  # slurmd or kubelet, when one runs
    environment: tuple[tuple[str, str], ...] = ()  # inherited variables of the NCCL/UCX/... families
    stuck_gpu_tool: str | None = None  # "nvidia-smi (pid 311) in D state", when one hangs


NOT_READ: Reading[object] = broken("not read")


def _unread() -> Reading:  # type: ignore[type-arg]
    return NOT_READ


@fact
class HostFacts:
    """A host and its readings. `reachable` broken: one of the named end states, and every reading says so.

    The readings from `topology` on are of the full set; where only the fabric set was asked they say so.
    """

    host: Host
    reachable: Reading[float] = field(default_factory=_unread)  # value: seconds that reading the host took
    system: Reading[System] = field(default_factory=_unread)
    gpus: Reading[GpuReport] = field(default_factory=_unread)
    imex: Reading[Imex] = field(default_factory=_unread)
    hcas: Reading[tuple[Hca, ...]] = field(default_factory=_unread)
    network: Reading[Network] = field(default_factory=_unread)
    life: Reading[HostLife] = field(default_factory=_unread)
    taken_at: float = 0.0  # seconds since the epoch, the controller's (or the bundle's) clock
    topology: Reading[Topology] = field(default_factory=_unread)
    links: Reading[tuple[GpuLinks, ...]] = field(default_factory=_unread)
    numa: Reading[Numa] = field(default_factory=_unread)
    fabric_manager: Reading[FabricManager] = field(default_factory=_unread)
    processes: Reading[tuple[HostProcess, ...]] = field(default_factory=_unread)
    kernel_log: Reading[KernelLog] = field(default_factory=_unread)
    resources: Reading[Resources] = field(default_factory=_unread)
    clock: Reading[Clock] = field(default_factory=_unread)
    versions: Reading[Versions] = field(default_factory=_unread)
    nccl: Reading[tuple[NcclFile, ...]] = field(default_factory=_unread)
    engines: Reading[tuple[Installed, ...]] = field(default_factory=_unread)


READINGS = tuple(f.name for f in fields(HostFacts) if f.name not in ("host", "reachable", "taken_at"))
"""The fields of HostFacts that a probe fills."""


@fact
class Snapshot:
    """Everything read from all hosts at one time."""

    taken_at: float
    hosts: tuple[HostFacts, ...]
