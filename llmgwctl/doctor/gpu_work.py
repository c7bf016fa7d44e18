"""LG5: what slows a GPU that works: heat and power, a lowered limit, a PCIe link with less than it could have."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from llmgwctl.doctor.base import Answer, Check, View, each, found
from llmgwctl.doctor.fleet import kind
from llmgwctl.doctor.gpus import by_gpu, strange
from llmgwctl.model.condition import PowerLimits
from llmgwctl.model.gpu import Gpu
from llmgwctl.model.host import HostFacts
from llmgwctl.model.product import product_of

FORCED = ("HW Thermal Slowdown", "HW Power Brake Slowdown", "SW Thermal Slowdown")
SLOWDOWN = "HW Slowdown"
AT_WORK = ("P0", "P1", "P2")
WATT = 1.0  # limits are printed with two digits, and some boards round them
LIMITS = ("Current Power Limit", "Enforced Power Limit", "Default Power Limit")


# --- clocks ---------------------------------------------------------------------------------------------------------


def _slowed(view: View) -> Iterator[Answer]:
    """SW Power Cap is how a busy GPU works, Idle how a free one rests: neither is looked at."""
    hit = {f.host.name: tuple(_forced(f)) for f in view.hosts}
    shared = _by_rack(view, {name for name, lines in hit.items() if lines})
    for facts in view.hosts:
        if lines := hit[facts.host.name]:
            rack = facts.host.name in shared
            yield found(facts, *lines, action=RACK if rack else "", who="rack operator" if rack else None)
        elif passing := tuple(_passing(facts)):
            yield found(facts, *passing, severity="info", action=AGAIN)
        yield from strange(facts, *FORCED, SLOWDOWN)


AGAIN = "read again: for the moment of a change of clocks it means nothing"
RACK = "look at the power and the cooling of the rack: most of its hosts are slowed down at once"


def _forced(facts: HostFacts) -> Iterator[str]:
    for gpu in facts.gpus.value.gpus if facts.gpus.value else ():
        words = [r for r in FORCED if gpu.condition.slowed_by(r)]
        if not words and gpu.condition.slowed_by(SLOWDOWN) and _alone(gpu) is None:
            words = [SLOWDOWN]
        if words:
            yield f"GPU {gpu.index}: {', '.join(words)}"


def _passing(facts: HostFacts) -> Iterator[str]:
    """HW Slowdown without a cause is also printed for the moment of a change of clocks (NVML's documentation)."""
    for gpu in facts.gpus.value.gpus if facts.gpus.value else ():
        if gpu.condition.slowed_by(SLOWDOWN) and _alone(gpu):
            yield f"GPU {gpu.index}: {SLOWDOWN} without heat or power brake"


def _alone(gpu: Gpu) -> bool | None:
    """Whether nothing else slows it; None where the card does not tell what does."""
    causes = [gpu.condition.slowed_by(r) for r in FORCED[:2]]
    return None if None in causes else not any(causes)


def _by_rack(view: View, hit: set[str]) -> set[str]:
    """Hosts of racks of which most hosts, and more than one, are slowed down."""
    members: dict[str, set[str]] = defaultdict(set)
    for facts in view.hosts:
        if facts.host.rack:
            members[facts.host.rack].add(facts.host.name)
    most = [names for names in members.values() if len(names & hit) > 1 and 2 * len(names & hit) > len(names)]
    return {name for names in most for name in names & hit}


# --- power ----------------------------------------------------------------------------------------------------------


def _limited(gpu: Gpu) -> str | None:
    own = _below(gpu.condition.power, "power limit")
    return own or _below(gpu.condition.module_power, "power limit of its module")


def _below(limits: PowerLimits, name: str) -> str | None:
    now, usual, asked = limits.enforced_w, limits.default_w, limits.asked_w
    if now is None or usual is None or now > usual - WATT:
        return None
    forced = f", though {asked:.0f} W was asked for" if asked is not None and asked > now + WATT else ""
    return f"{name} {now:.0f} W instead of {usual:.0f} W{forced}"


# --- PCIe -----------------------------------------------------------------------------------------------------------


def _narrow(view: View) -> Iterator[Answer]:
    """Fewer lanes than GPU and slot could have. A card that has what all cards of its kind have is wired so."""
    usual = _usual_widths(view)
    for facts in view.hosts:
        narrow = [g for g in (facts.gpus.value.gpus if facts.gpus.value else ()) if _lacks_lanes(g)]
        if narrow:
            lines = (f"GPU {g.index}: PCIe x{g.condition.pcie.width} of x{g.condition.pcie.width_max}" for g in narrow)
            most = usual.get(kind(facts) or "", 0)
            fault = any(_on_board(g) or (g.condition.pcie.width or 0) < most for g in narrow)
            yield found(facts, *lines, severity=None if fault else "info")
        yield from strange(facts, "Link Width Current", "Link Width Max")


def _lacks_lanes(gpu: Gpu) -> bool:
    link = gpu.condition.pcie
    return link.width is not None and link.width_max is not None and link.width < link.width_max


def _on_board(gpu: Gpu) -> bool:
    """A module of a board with NVLink; there is no slot that could have fewer lanes by design."""
    product = product_of(gpu.name)
    return product is not None and product.nvlinks > 0


def _usual_widths(view: View) -> Mapping[str, int]:
    """By kind of host, the width that most of its GPUs have; of two as frequent ones the wider."""
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for facts in view.hosts:
        for gpu in facts.gpus.value.gpus if facts.gpus.value else ():
            if gpu.condition.pcie.width:
                counts[kind(facts) or ""][gpu.condition.pcie.width] += 1
    return {group: max(c.items(), key=lambda kv: (kv[1], kv[0]))[0] for group, c in counts.items()}


def _slow_link(gpu: Gpu) -> str | None:
    """A GPU that rests lowers the generation of its link: judged only while it is at work."""
    condition, link = gpu.condition, gpu.condition.pcie
    if condition.performance_state not in AT_WORK or condition.slowed_by("Idle") is not False:
        return None
    if link.generation is None or link.generation_max is None or link.generation >= link.generation_max:
        return None
    return f"PCIe generation {link.generation} of {link.generation_max}, at work ({condition.performance_state})"


CHECKS = (
    Check(
        "LG524",
        "GPUs are slowed down by heat or power",
        "degrade",
        _slowed,
        seen="nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER",
        action="look at the host's cooling and power supplies: fans, coolant, a failed or unplugged supply",
        who="host admin",
        needs=("gpus",),
    ),
    Check(
        "LG525",
        "The power limit of a GPU is below its default",
        "degrade",
        each(by_gpu(_limited, *LIMITS)),
        seen="nvidia-smi -q -d POWER",
        action="if nobody lowered it on purpose: nvidia-smi -i N -pl WATTS, and look for what sets it at boot",
        who="host admin",
        needs=("gpus",),
    ),
    Check(
        "LG526",
        "The PCIe link of a GPU has fewer lanes than it could have",
        "degrade",
        _narrow,
        seen="nvidia-smi -q | grep -A3 'Link Width'; lspci -vv -s BUS | grep LnkSta (root)",
        action="cold power cycle; then reseat the card, its riser or its cable",
        who="host admin",
        disturbs="everything on the host",
        needs=("gpus",),
    ),
    Check(
        "LG527",
        "The PCIe link of a GPU at work is slower than it could be",
        "warn",
        each(by_gpu(_slow_link, "PCIe Generation Current", "PCIe Generation Max", "Idle", "Performance State")),
        seen="nvidia-smi -q | grep -A3 'PCIe Generation', while the GPU works",
        action="read again under load; if it stays, cold power cycle, then reseat card, riser or cable",
        who="host admin",
        disturbs="everything on the host",
        needs=("gpus",),
    ),
)
