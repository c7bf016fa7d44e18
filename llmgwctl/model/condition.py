"""What a GPU says of itself beside its fabric: clocks, power, its PCIe link, and repairs that wait."""

from __future__ import annotations

from dataclasses import field

from llmgwctl.model.fact import fact


@fact
class PcieLink:
    """GPU Link Info. The most is what this GPU can have in this host. None: not printed.

    A GPU that idles lowers the generation of its link and keeps the width.
    """

    generation: int | None = None
    generation_max: int | None = None
    width: int | None = None  # lanes
    width_max: int | None = None


@fact
class PowerLimits:
    """Limits in watts: what holds now, what was asked for, what the product has, and the most that may be asked for."""

    enforced_w: float | None = None
    asked_w: float | None = None
    default_w: float | None = None
    max_w: float | None = None


@fact
class Condition:
    """The driver's own words where they are known. None (or empty): not printed by this driver, or N/A on this card.

    `clock_reasons`: each of the Clocks Event Reasons (Throttle Reasons up to R530) with whether it is active.
    `module_power`: of the board that GPU and Grace share. `strange`: rows whose text is none of those that are known.
    """

    performance_state: str | None = None  # P0 (most) to P15
    clock_reasons: tuple[tuple[str, bool], ...] = ()
    pcie: PcieLink = field(default_factory=PcieLink)
    power: PowerLimits = field(default_factory=PowerLimits)
    module_power: PowerLimits = field(default_factory=PowerLimits)
    channel_repair_pending: bool | None = None
    tpc_repair_pending: bool | None = None
    sram_threshold_exceeded: bool | None = None
    strange: tuple[tuple[str, str], ...] = ()

    def slowed_by(self, reason: str) -> bool | None:
        """The first row of a name counts."""
        return next((active for name, active in self.clock_reasons if name == reason), None)
