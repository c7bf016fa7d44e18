"""A GPU as `nvidia-smi -q` describes it, with the two answers that everything asks: joined? healthy?"""

from __future__ import annotations

from dataclasses import field

from llmgwctl.model.condition import Condition
from llmgwctl.model.fact import fact

ZERO_UUID = "00000000-0000-0000-0000-000000000000"
IDLE_MIB = 1024  # a driver and its contexts of nobody take some hundred; above it somebody has the card, named or not


@fact
class FabricHealth:
    """Rows of the Health block. None: this driver does not print the row, or printed N/A.

    Rows per driver: 550 bandwidth only; 570 + the three routes; 580 + summary, incorrect_configuration;
    580.126 and 595 + partition_assigned; 615 + gfm_state. The set is not monotone (590.48 lacks one).
    """

    summary: str | None = None  # Healthy | Unhealthy | Limited Capacity
    bandwidth: str | None = None  # Full | Degraded
    route_recovery: bool | None = None
    route_unhealthy: bool | None = None
    access_timeout_recovery: bool | None = None
    incorrect_configuration: str | None = None  # "None" is the healthy text
    partition_assigned: bool | None = None
    gfm_connected: bool | None = None
    unread: tuple[str, ...] = ()  # rows above with a word that is none of theirs, as printed: "Bandwidth: ERR!"

    def problems(self) -> tuple[str, ...]:
        """What the printed rows complain of, in words. Rows win over Summary; a missing row never counts."""
        found = []
        if self.bandwidth == "Degraded":
            found.append("NVLink bandwidth degraded")
        if self.route_recovery:
            found.append("route recovery in progress")
        if self.route_unhealthy:
            found.append("route unhealthy")
        if self.access_timeout_recovery:
            found.append("access timeout recovery")
        if self.incorrect_configuration not in (None, "None"):
            found.append(f"incorrect configuration: {self.incorrect_configuration}")
        if self.partition_assigned is False:
            found.append("no partition assigned")
        if self.summary not in (None, "Healthy") and not found:
            found.append(f"fabric health: {self.summary}")
        return tuple(found)

    @property
    def degraded_only(self) -> bool:
        """Slower but whole (Limited Capacity): degraded bandwidth or a route update, and nothing else."""
        hard = self.route_unhealthy or self.access_timeout_recovery or self.partition_assigned is False
        wrong = self.incorrect_configuration not in (None, "None")
        soft = self.bandwidth == "Degraded" or self.route_recovery or self.summary == "Limited Capacity"
        return bool(soft) and not hard and not wrong and self.summary != "Unhealthy"

    @property
    def told(self) -> bool:
        """Whether the driver printed any row at all."""
        return self != FabricHealth()


@fact
class Fabric:
    """The Fabric block as printed: the driver's own words. None: the key is not printed by this driver.

    `state`: Completed | In Progress | Not Started | N/A, or an NVML error text.
    `status`: NVML's words, of meaning only with state Completed. `cluster_uuid` lower case.
    """

    state: str | None = None
    status: str | None = None
    cluster_uuid: str | None = None
    clique_id: int | None = None
    health: FabricHealth = field(default_factory=FabricHealth)

    @property
    def joined(self) -> bool | None:
        """Completed, Success and a ClusterUUID that is not zero; None where the driver cannot tell (535, 545)."""
        if self.state is None:
            return None
        if self.state != "Completed":
            return False
        if self.status is None:
            return None
        if self.status != "Success":
            return False
        if self.cluster_uuid is None or self.clique_id is None:
            return None
        return self.cluster_uuid != ZERO_UUID

    @property
    def healthy(self) -> bool | None:
        """No health row complains. None: no row printed (eligible, with a note), or one that cannot be read."""
        if self.health.problems():
            return False
        return True if self.health.told and not self.health.unread else None

    @property
    def pair(self) -> tuple[str, int] | None:
        """(ClusterUUID, CliqueId): the key of the domain, when joined. Never one without the other."""
        if self.joined and self.cluster_uuid is not None and self.clique_id is not None:
            return (self.cluster_uuid, self.clique_id)
        return None


@fact
class Platform:
    """Platform Info (R570+): where the tray sits. None: not printed, or N/A, or empty."""

    chassis_serial: str | None = None
    slot: int | None = None
    tray: int | None = None
    host_id: int | None = None
    peer_type: str | None = None  # Switch Connected | Direct Connected
    module_id: int | None = None


@fact
class GpuProcess:
    """A process that nvidia-smi names on a GPU. `kind`: C compute, G graphics, C+G, M+C; `user` from /proc."""

    pid: int
    kind: str
    name: str
    used_mib: int | None = None
    user: str | None = None


@fact
class Gpu:
    """One readable block of `nvidia-smi -q`. `index` is nvidia-smi's (its place by PCI address)."""

    index: int
    uuid: str
    bus_id: str  # 8-digit upper-case domain form, as printed: 00000008:06:00.0
    name: str  # NVIDIA GB200
    fabric: Fabric = field(default_factory=Fabric)
    platform: Platform = field(default_factory=Platform)
    memory_total_mib: int | None = None
    memory_used_mib: int | None = None
    mig_enabled: bool | None = None  # None: this card has no MIG, or it is not printed
    recovery_action: str | None = None  # None: nothing pending or not printed
    compute_cap: str | None = None  # "10.0"; from --query-gpu
    minor: int | None = None
    persistence: bool | None = None
    addressing_mode: str | None = None
    c2c_mode: str | None = None
    compute_mode: str | None = None
    ecc_uncorrected: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    condition: Condition = field(default_factory=Condition)
    numa_node: int | None = None  # filled by the full set
    processes: tuple[GpuProcess, ...] = ()
    processes_known: bool = True  # False: the block has error text where processes stand


@fact
class GpuReport:
    """What one `nvidia-smi -q` said of a host. `lost`: texts of GPUs that it counts and cannot read.

    `inforom_corrupt`: PCI addresses of GPUs that it warns of; that nothing is said of the others proves nothing.
    """

    driver: str | None
    cuda: str | None
    attached: int
    gpus: tuple[Gpu, ...]
    lost: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # said, and no fault: "GPU indices by PCI address, not checked"
    inforom_corrupt: tuple[str, ...] = ()

    @property
    def all_readable(self) -> bool:
        return not self.lost and len(self.gpus) == self.attached
