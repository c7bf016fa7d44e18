"""A simulated host as facts: its cards, adapters, interfaces and IMEX, and how it behaves. Pure; rendered elsewhere."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import replace

from llmgwctl.model.fact import fact

ZERO_UUID = "00000000-0000-0000-0000-000000000000"
CHANNEL_MAJOR = 506
ROLES = uuid.UUID("5a0f2c1e-7b0d-4c3e-9f52-6d1c7e0b8a44")  # namespace of every invented id


def invented_uuid(*of: object) -> str:
    """The same id for the same things, so that a rack that is started again is the same rack."""
    return str(uuid.uuid5(ROLES, "/".join(map(str, of))))


def invented_hex(digits: int, *of: object) -> str:
    return hashlib.sha256("/".join(map(str, of)).encode()).hexdigest()[:digits]


@fact
class Card:
    """What is equal for all GPUs of a product. Sizes in MiB, power in W; `health` as a good one prints it."""

    token: str
    name: str
    architecture: str
    compute_cap: str
    memory_mib: int
    reserved_mib: int
    link_speed: str
    pci_id: str
    power_w: int
    rack: bool  # one of 72 on an NVLink switch that crosses hosts
    health: Health

    @property
    def grace(self) -> bool:
        return self.rack

    @property
    def buses(self) -> tuple[str, ...]:
        return _TRAY if self.rack else _BOARD


@fact
class Health:
    """The rows of the Health block, in the words of nvidia-smi."""

    summary: str = "N/A"
    bandwidth: str = "N/A"
    route_recovery: str = "N/A"
    route_unhealthy: str = "N/A"
    access_timeout: str = "N/A"
    incorrect: str = "N/A"
    partition: str = "N/A"
    manager: str = "N/A"


_GOOD = Health("Healthy", "Full", "False", "False", "False", "None", "N/A", "Connected")
_QUIET = Health()  # these boards do not report it
_TRAY = ("00000008:06:00.0", "00000009:06:00.0", "00000018:06:00.0", "00000019:06:00.0")
_BOARD = tuple(f"00000000:{bus}:00.0" for bus in ("1B", "43", "52", "61", "9D", "C3", "D1", "DF"))

CARDS = {
    c.token: c
    for c in (
        Card("GB200", "NVIDIA GB200", "Blackwell", "10.0", 189471, 742, "53.125", "294110DE", 1200, True, _GOOD),
        Card("GB300", "NVIDIA GB300", "Blackwell", "10.3", 284208, 947, "53.125", "31C210DE", 1400, True, _GOOD),
        Card("H100", "NVIDIA H100 80GB HBM3", "Hopper", "9.0", 81559, 566, "26.562", "233010DE", 700, False, _QUIET),
        Card("H200", "NVIDIA H200", "Hopper", "9.0", 143771, 665, "26.562", "233510DE", 700, False, _QUIET),
        Card("B200", "NVIDIA B200", "Blackwell", "10.0", 183359, 728, "53.125", "290110DE", 1000, False,
             Health("Healthy", access_timeout="False")),
    )
}  # fmt: skip


@fact
class GpuProcess:
    pid: int
    name: str
    used_mib: int


@fact
class Gpu:
    """One GPU and its faults. `clique` and `cluster` as printed while State is Completed."""

    index: int
    uuid: str
    bus_id: str
    serial: str
    module: int
    numa: int
    cluster: str
    clique: int
    health: Health
    state: str = "Completed"
    status: str = "Success"
    lost: bool = False
    mig: bool = False
    recovery: str = "None"
    processes: tuple[GpuProcess, ...] = ()

    @property
    def used_mib(self) -> int:
        return sum(p.used_mib for p in self.processes)


@fact
class Gid:
    index: int
    gid: str
    kind: str  # IB/RoCE v1 | RoCE v2
    netdev: str = ""


@fact
class Adapter:
    """An HCA with its one port, in the words of sysfs."""

    name: str
    pci: str
    numa: int
    guid: str  # 4 groups of 4 hex digits
    layer: str = "InfiniBand"
    rate: str = "400 Gb/sec (4X NDR)"
    state: str = "4: ACTIVE"
    phys_state: str = "5: LinkUp"
    lid: str = "0x0"
    sm_lid: str = "0x1"
    gids: tuple[Gid, ...] = ()
    netdev: str = ""
    hca_type: str = "MT4129"
    switch_management: bool = False


@fact
class Interface:
    """A network interface; `address` is IPv4 CIDR. `bond`: it is a bond of that many ports."""

    name: str
    address: str
    mac: str
    mtu: int = 1500
    up: bool = True
    bond: bool = False


@fact
class Imex:
    """The IMEX service of a tray. `nodes`: lines of nodes_config.cfg; `cut_to`: hosts that it cannot reach."""

    nodes: tuple[str, ...]
    up: bool = True
    channels: tuple[int, ...] = (0,)
    cut_to: tuple[str, ...] = ()


@fact
class Process:
    """A process that is only shown: its name and state as /proc has them."""

    pid: int
    name: str
    state: str = "S"


@fact
class Place:
    """Platform Info: where a tray sits in its chassis."""

    serial: str
    slot: int
    tray: int


@fact
class Machine:
    """A host. `smi`: how nvidia-smi behaves (ok, hang, slow SECONDS, missing); `ssh`: how its SSH answers."""

    name: str
    address: str
    card: Card
    driver: str
    gpus: tuple[Gpu, ...]
    adapters: tuple[Adapter, ...]
    interfaces: tuple[Interface, ...]
    pool: str
    rack: str | None = None
    imex: Imex | None = None
    place: Place | None = None
    smi: str = "ok"
    ssh: str = "ok"
    powered: bool = True
    boot_id: str = ""
    kernel_log: tuple[str, ...] = ()
    units: tuple[str, ...] = ()  # services that run here
    processes: tuple[Process, ...] = ()
    vllm: str = "0.33.0"  # its version; empty: not installed
    models: bool = True  # the models of the profiles lie on its disk

    @property
    def release(self) -> tuple[int, ...]:
        """The driver as numbers: which keys nvidia-smi prints is a matter of its version."""
        return tuple(int(n) for n in self.driver.split("."))

    def with_gpus(self, change: dict[str, object], index: int | None = None) -> Machine:
        """The same machine with fields of one GPU (or of all) replaced."""
        return replace(
            self,
            gpus=tuple(replace(g, **change) if index in (None, g.index) else g for g in self.gpus),  # type: ignore[arg-type]
        )
