"""Which transport NCCL uses, from its own lines in the engine's log: proved, not hoped for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from llmgwctl.launch.logs import matching_lines
from llmgwctl.launch.stop import Target
from llmgwctl.model.fact import fact
from llmgwctl.transport.base import Transport

Verdict = Literal["nvlink", "ib", "tcp", "not proved"]

# Fixed strings that a host looks for; what they mean is decided here.
PATTERNS = (
    *("MNNVL 1 ", "via P2P/MNNVL", "via NET/", "Using network ", "NET/IB : Using ", " nNodes "),
    *("NET/IB : No device found", "GPU Direct RDMA Enabled"),
)
_CLIQUE = re.compile(r"\bMNNVL 1 cliqueId\b(?:.*?\bcliqueSize (\d{1,7}))?")
_CHANNEL = re.compile(r"\bvia P2P/MNNVL\b")
_COMM = re.compile(r"\bnRanks (\d{1,7}) nNodes (\d{1,7})\b.*\bMNNVL ([01])\b")
_NET = re.compile(r"\bvia NET/(IB|Socket)(?:/\d+)?(/GDRDMA)?")
_CHOSEN = re.compile(r"\bUsing network (IB|Socket)\b")
_ROCE = re.compile(r"\bNET/IB : Using .*/RoCE\b")
_RANK = {"nvlink": 3, "ib": 2, "tcp": 1, "not proved": 0}
PLANNED: dict[str, Verdict] = {"nvlink": "nvlink", "scale-out": "ib", "tcp": "tcp"}
SEEN_LEVELS = ("INFO", "TRACE", "ABORT")


@fact
class Proof:
    """`kind` is for scripts; `text` says it with what was seen: how large the clique, with GPUDirect or without."""

    kind: Verdict
    text: str


NO_LINES = "its log has no NCCL line that names it"
UNREAD = "a host did not answer"


async def verify_transport(targets: Sequence[Target], transport: Transport, world: int, silent: str = "") -> Proof:
    """Of a replica of several hosts that serves. `world`: its GPUs; `silent`: why its engine prints no such line."""
    logs = await matching_lines(targets, transport, PATTERNS)
    if any(log.why for log in logs):
        return unproved(UNREAD)
    return proof((line for log in logs for line in log.text.split("\n")), world, silent)


def unproved(why: str) -> Proof:
    return Proof("not proved", f"not proved: {why}")


def verdict(lines: Iterable[str]) -> Verdict:
    return proof(lines, 0).kind


def proof(lines: Iterable[str], world: int, silent: str = "") -> Proof:
    """The weakest link between ranks is the answer. `Using network` alone says only what NCCL would take.

    Channels over NET are what carries data between hosts; an MNNVL communicator has none of them inside a domain.
    """
    told = list(lines)
    nets = [m for line in told for m in _NET.finditer(line)]
    chosen = {m[1] for line in told for m in _CHOSEN.finditer(line)}
    roce = any(_ROCE.search(line) for line in told)
    if any(m[1] == "Socket" for m in nets):
        return Proof("tcp", "TCP")
    if nets:
        return _rdma(roce, direct=all(m[2] for m in nets), some=any(m[2] for m in nets))
    sizes = [int(m[1] or 0) for line in told for m in _CLIQUE.finditer(line)]
    if (sizes or any(_CHANNEL.search(line) for line in told)) and not _spans_cliques(told):
        return Proof("nvlink", _clique(max(sizes, default=0), world))
    if chosen == {"IB"}:
        direct = any("GPU Direct RDMA Enabled" in line for line in told)
        return _rdma(roce, direct=direct, some=direct)
    if chosen == {"Socket"}:
        return Proof("tcp", "TCP")
    if len(chosen) > 1:
        return unproved("ranks name different networks")
    return unproved(silent or NO_LINES)


def _spans_cliques(lines: Iterable[str]) -> bool:
    """Under MNNVL a "node" is a clique: more than one means that a network joins them."""
    found = [m for line in lines for m in _COMM.finditer(line)]
    return any(int(m[2]) > 1 for m in found)


def _clique(size: int, world: int) -> str:
    return f"NVLink (MNNVL, clique of {size} of {world} ranks)" if size and world else "NVLink (MNNVL)"


def _rdma(roce: bool, *, direct: bool, some: bool) -> Proof:
    how = "GPUDirect" if direct else "GPUDirect on some channels only" if some else "without GPUDirect"
    return Proof("ib", f"{'RoCE' if roce else 'InfiniBand'} ({how})")


def weaker(tier: str, kind: str) -> bool:
    """Whether what was proved is less than what was planned. What is not proved is not known to be."""
    planned = PLANNED.get(tier)
    return planned is not None and 0 < _RANK.get(kind, 0) < _RANK[planned]


def short_of(tier: str, found: Proof) -> str:
    """What stands against a replica that must have the transport of its plan; empty: nothing."""
    if tier not in PLANNED:
        return ""
    if found.kind == "not proved":
        return found.text
    return f"planned over {tier}, and NCCL uses {found.text}" if weaker(tier, found.kind) else ""


def silence(env: Sequence[tuple[str, str]], uses_nccl: bool) -> str:
    """Why no line that proves anything can be expected; empty: they can."""
    if not uses_nccl:
        return "its engine does not use NCCL"
    told = dict(env)
    level = told.get("NCCL_DEBUG", "INFO").upper()
    if level not in SEEN_LEVELS:
        return f"the profile sets NCCL_DEBUG={level}, and NCCL names its transport at INFO"
    subsystems = told.get("NCCL_DEBUG_SUBSYS", "INIT,NET").upper()
    if subsystems.startswith("^") or not {"INIT", "NET", "ALL"} & set(subsystems.split(",")):
        return f"the profile sets NCCL_DEBUG_SUBSYS={subsystems}, which leaves INIT and NET out"
    if "NCCL_DEBUG_FILE" in told:
        return "the profile sets NCCL_DEBUG_FILE, and NCCL writes there"
    return ""
