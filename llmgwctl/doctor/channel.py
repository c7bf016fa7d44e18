"""LG4: the IMEX channel, without which a process may not share memory across hosts."""

from __future__ import annotations

from collections.abc import Iterator

from llmgwctl.doctor.base import Answer, Check, Found, View, found
from llmgwctl.doctor.names import folded
from llmgwctl.doctor.verdicts import foreign, reasons
from llmgwctl.fabric.domains import may_span
from llmgwctl.fabric.imex import usable_channels
from llmgwctl.model.host import HostFacts

LS = "ls -l /dev/nvidia-caps-imex-channels/; grep imex /proc/devices"


def _missing(facts: HostFacts, view: View, texts: tuple[str, ...]) -> Found:
    why = foreign(facts)
    if why:
        action = "no action while channels are made per job; for llmgwctl there must be one all the time"
        return found(facts, f"{texts[0]}; {why}", severity="info", action=action, who="job owner")
    return found(facts, *texts)


def _no_common(view: View) -> Iterator[Answer]:
    """All processes of a job must hold the same channel number."""
    facts = {f.host.name: f for f in view.hosts}
    for domain in view.fmap.domains:
        imex = {n: facts[n].imex.value for n in domain.names if n in facts}
        usable = {n: frozenset(usable_channels(i)) for n, i in imex.items() if i is not None}
        having = {n: c for n, c in usable.items() if c}
        if len(having) > 1 and not frozenset.intersection(*having.values()):
            said = sorted(set(having.values()), key=sorted)
            words = ", ".join(f"{folded(n for n in having if having[n] == c)} has {_numbers(c)}" for c in said)
            most = max(said, key=lambda c: sum(h == c for h in having.values()))
            yield Found(tuple(n for n in having if having[n] != most), (words,))


def _numbers(channels: frozenset[int]) -> str:
    return "channel " + ", ".join(map(str, sorted(channels)[:6]))


CHECKS = (
    Check(
        "LG401",
        "There is no IMEX channel",
        "block",
        reasons("channel-missing", "channel-unknown", shape=_missing),
        seen=LS,
        action="options nvidia NVreg_CreateImexChannel0=1, then reload the module; or mknod with the major of "
        "/proc/devices (gone at the next boot)",
        who="host admin",
        disturbs="everything on the host, when the module is reloaded",
        matters=True,
    ),
    Check(
        "LG402",
        "The IMEX channel is a leftover of an earlier driver",
        "block",
        reasons("channel-stale"),
        seen=LS,
        action="remove the device node and make it again with the major of /proc/devices",
        who="host admin",
        matters=True,
    ),
    Check(
        "LG403",
        "The IMEX channel may not be used by the account that launches",
        "block",
        reasons("channel-denied"),
        seen=LS,
        action="give the account write access to the channel (mode 0666 where all users are trusted, else a group)",
        who="host admin",
        matters=True,
    ),
    Check(
        "LG404",
        "Hosts of one domain have no IMEX channel in common",
        "block",
        _no_common,
        seen=f"{LS}, on all hosts",
        action="make the same channel number on all hosts of the domain",
        who="host admin",
        scope="domain",
        needs=("imex",),
        applies=may_span,
        matters=True,
    ),
)
