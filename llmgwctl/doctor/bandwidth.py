"""LG2: NVLink that is joined and slow, or joined and broken."""

from __future__ import annotations

from llmgwctl.doctor.base import Check, Found, View, found
from llmgwctl.doctor.verdicts import reasons
from llmgwctl.model.host import HostFacts

SMI = "nvidia-smi -q | grep -A12 Fabric"
RECOVERY = "route recovery in progress"


def _degraded(facts: HostFacts, view: View, texts: tuple[str, ...]) -> Found | None:
    mine = tuple(t for t in texts if RECOVERY not in t or "bandwidth" in t)
    return found(facts, *mine) if mine else None


def _recovering(facts: HostFacts, view: View, texts: tuple[str, ...]) -> Found | None:
    mine = tuple(t for t in texts if RECOVERY in t and "bandwidth" not in t)
    return found(facts, *mine) if mine else None


def _unhealthy(facts: HostFacts, view: View, texts: tuple[str, ...]) -> Found | None:
    mine = tuple(t for t in texts if "incorrect configuration" not in t and "no partition" not in t)
    return found(facts, *mine) if mine else None


def _misconfigured(facts: HostFacts, view: View, texts: tuple[str, ...]) -> Found | None:
    mine = tuple(t for t in texts if "incorrect configuration" in t or "no partition" in t)
    return found(facts, *mine) if mine else None


CHECKS = (
    Check(
        "LG201",
        "NVLink bandwidth of a GPU is degraded",
        "degrade",
        reasons("degraded", shape=_degraded),
        seen=f"{SMI}; nvidia-smi nvlink -s",
        action="drain, then reseat or replace; meanwhile small shards work, and allow_degraded lets a profile use it",
        who="rack operator",
        disturbs="everything on the host",
        matters=True,
        hides=("LG203",),
    ),
    Check(
        "LG202",
        "An NVLink route of a GPU is broken",
        "block",
        reasons("unhealthy", shape=_unhealthy),
        seen=SMI,
        action="keep the host out and have the link repaired",
        who="rack operator",
        disturbs="everything on the host",
        matters=True,
        hides=("LG203",),
    ),
    Check(
        "LG204",
        "NVLink routes are being recovered",
        "degrade",
        reasons("degraded", shape=_recovering),
        seen=SMI,
        action="read again in a minute; if it stays, the rack operator looks at the switches",
        who="rack operator",
    ),
    Check(
        "LG205",
        "The NVLink fabric says that a GPU is configured wrongly",
        "block",
        reasons("unhealthy", shape=_misconfigured),
        seen=SMI,
        action="vendor service: board, slot, serials or GPU firmware do not fit the rack",
        who="rack operator",
        matters=True,
    ),
)
