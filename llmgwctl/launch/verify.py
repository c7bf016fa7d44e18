"""Which transport NCCL uses, from its own lines in the engine's log: proved, not hoped for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from llmgwctl.launch.logs import matching_lines
from llmgwctl.launch.stop import Target
from llmgwctl.transport.base import Transport

Verdict = Literal["nvlink", "ib", "tcp", "not proved"]

# Fixed strings that a host looks for; what they mean is decided here.
PATTERNS = ("MNNVL 1 ", "via P2P/MNNVL", "via NET/", "Using network ")
_USED = re.compile(r"\bMNNVL 1 cliqueId\b|\bvia P2P/MNNVL\b")
_NET = re.compile(r"\bvia NET/(IB|Socket)\b")
_CHOSEN = re.compile(r"\bUsing network (IB|Socket)\b")


async def verify_transport(targets: Sequence[Target], transport: Transport) -> Verdict:
    """Of a replica of several hosts that serves; a host that does not answer leaves it unproved."""
    logs = await matching_lines(targets, transport, PATTERNS)
    if any(log.why for log in logs):
        return "not proved"
    return verdict(line for log in logs for line in log.text.split("\n"))


def verdict(lines: Iterable[str]) -> Verdict:
    """The weakest link between ranks is the answer. `Using network` alone says only what NCCL would take.

    Channels over NET are what carries data between hosts; an MNNVL communicator has none of them inside a domain.
    """
    told = list(lines)
    nets = {m[1] for line in told for m in _NET.finditer(line)}
    if "Socket" in nets:
        return "tcp"
    if "IB" in nets:
        return "ib"
    if any(_USED.search(line) for line in told):
        return "nvlink"
    chosen = {m[1] for line in told for m in _CHOSEN.finditer(line)}
    if chosen == {"Socket"}:
        return "tcp"
    return "ib" if chosen == {"IB"} else "not proved"
