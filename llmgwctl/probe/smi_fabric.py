"""The Fabric block of one GPU: the driver's words where they are known, None where they are not."""

from __future__ import annotations

import re
from collections.abc import Iterator

from llmgwctl.model.gpu import Fabric, FabricHealth
from llmgwctl.probe.same import same
from llmgwctl.probe.smi_tree import FAILED, Node, number, yes_no

STATES = frozenset({"Completed", "In Progress", "Not Started", "N/A"})
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
CLIQUE_IDS = 2**32
LONGEST = 100  # of NVML's words, which are kept as they are
TRUE_FALSE = ("True", "False")
HEALTH_WORDS = {
    "Bandwidth": ("Full", "Degraded"),
    "Route Recovery in progress": TRUE_FALSE,
    "Route Unhealthy": TRUE_FALSE,
    "Access Timeout Recovery": TRUE_FALSE,
    "Partition Assigned": TRUE_FALSE,
}
"""All words of the rows that a verdict asks for. Any other word there is neither fine nor a fault: it is not known."""
COMPLAINTS = ("Summary", "Incorrect Configuration")
"""Rows in which a word that is not known yet is a complaint as those are that are known; error text is none."""


def fabric_of(gpu: Node) -> Fabric:
    """Only what this driver prints: the set of keys does not grow with the driver number."""
    block = gpu.child("Fabric")
    return block.once(_fabric) if block is not None else Fabric()


def _fabric(block: Node) -> Fabric:
    state = block.raw("State")
    found = Fabric(
        state=state if state in STATES else None,  # an unknown word, or error text: it is not known
        status=_status(state, block.raw("Status")),
        cluster_uuid=_uuid(block.text("ClusterUUID")),
        clique_id=_clique(block),
        health=_health(block.child("Health")),
    )
    return same(found)


def _status(state: str | None, status: str | None) -> str | None:
    """NVML's words; N/A beside Completed says nothing, and nothing is not a refusal."""
    return None if status is None or (state == "Completed" and status in ("N/A", "")) else status[:LONGEST]


def _uuid(text: str | None) -> str | None:
    lower = (text or "").lower()
    return lower if UUID.fullmatch(lower) else None


def _clique(block: Node) -> int | None:
    """CliqueId; R615 may say it only as the Unicast Pointer of Cliques (which is sometimes a key, then no list)."""
    found = number(block.text("CliqueId"))
    cliques = block.child("Cliques")
    if found is None and cliques is not None:
        found = number(cliques.text("Unicast Pointer") or _xml_entry(cliques))
    return found if found is not None and found < CLIQUE_IDS else None


def _xml_entry(cliques: Node) -> str | None:
    entries = (e for e in cliques.all("clique_entry") if e.text("clique_type") == "Unicast Pointer")
    return next((e.text("clique_id") for e in entries), None)


def _health(block: Node | None) -> FabricHealth:
    if block is None:
        return FabricHealth()
    return FabricHealth(
        summary=_complaint(block, "Summary"),
        bandwidth=_bandwidth(block.text("Bandwidth")),
        route_recovery=_flag(block, "Route Recovery in progress"),
        route_unhealthy=_flag(block, "Route Unhealthy"),
        access_timeout_recovery=_flag(block, "Access Timeout Recovery"),
        incorrect_configuration=_complaint(block, "Incorrect Configuration"),
        partition_assigned=_flag(block, "Partition Assigned"),
        gfm_connected=yes_no(block.text("Global Fabric Manager State"), "Connected", "Disconnected"),
        unread=tuple(_unread(block)),
    )


def _bandwidth(text: str | None) -> str | None:
    return text if text in HEALTH_WORDS["Bandwidth"] else None


def _complaint(block: Node, name: str) -> str | None:
    text = block.text(name)
    return None if text is None or text in FAILED else text[:LONGEST]


def _unread(block: Node) -> Iterator[str]:
    for name, words in HEALTH_WORDS.items():
        if (text := block.text(name)) is not None and text not in words:
            yield f"{name}: {text[:LONGEST]}"
    yield from (f"{name}: {text}" for name in COMPLAINTS if (text := block.text(name)) in FAILED)


def _flag(block: Node, name: str) -> bool | None:
    return yes_no(block.text(name), "True", "False")
