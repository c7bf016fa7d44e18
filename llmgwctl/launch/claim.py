"""Claims of a replica: the first host in order decides who wins, then the rest at once; all of them or none."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from llmgwctl.launch.prepare import Prepared
from llmgwctl.launch.remote import GONE, HELD, call, fields, plain, settle
from llmgwctl.model.errors import LlmgwError
from llmgwctl.model.fact import fact
from llmgwctl.transport.base import Transport

MAX_HOLDERS = 256


@fact
class Holder:
    """Who has a GPU (or a slot) of a host."""

    host: str
    key: str
    replica: str
    rank: str = ""
    operator: str = ""
    workstation: str = ""
    account: str = ""
    created_at: str = ""

    def __str__(self) -> str:
        who = f"{self.operator or 'unknown'}@{self.workstation or 'unknown'} (account {self.account or 'unknown'})"
        rank = f" rank {self.rank}" if self.rank else ""
        since = f" since {self.created_at}" if self.created_at else ""
        return f"{self.host}: {self.key} is held by {self.replica}{rank}, {who}{since}"


class ClaimHeld(LlmgwError):
    """Somebody else was there first; nothing of ours is claimed any more. The loser reads again before it plans."""

    def __init__(self, holders: Sequence[Holder]) -> None:
        super().__init__("; ".join(map(str, holders)))
        self.holders = tuple(holders)


async def claim(prepared: Sequence[Prepared], transport: Transport) -> tuple[Holder, ...]:
    """Claim everything, or nothing and raise. Returns whose stale claims were taken over.

    What could not be given back is a note (PEP 678) of the error that is raised, whichever that is.
    """
    ordered = sorted(prepared, key=lambda p: (p.host.order, p.host.name))
    taken: list[Holder] = []
    try:
        for some in (ordered[:1], ordered[1:]):
            done = await settle([_claim_on(p, transport) for p in some])
            _raise_worst([r for r in done if isinstance(r, BaseException)])
            for result in done:
                taken += result if isinstance(result, list) else []
    except BaseException as e:
        for left in await release(ordered, transport):
            e.add_note(left)
        raise
    return tuple(taken)


def _raise_worst(failed: Sequence[BaseException]) -> None:
    """All who hold something are named in one error; else the first failure."""
    held = [h for e in failed if isinstance(e, ClaimHeld) for h in e.holders]
    if held:
        raise ClaimHeld(held)
    if failed:
        raise failed[0]


async def _claim_on(p: Prepared, transport: Transport) -> list[Holder]:
    who = p.launch.operator
    words = (p.replica, str(p.rank), p.launch.id, plain(who.name), plain(who.workstation), p.launch.created_at)
    said = await call(transport, p.host, "claims.sh", "claim", *words, *p.keys, allowed=(HELD,))
    lines = [line for line in fields(said) if line[0] in ("held", "took-over")][:MAX_HOLDERS]
    found = [Holder(p.host.name, *(word[:200] for word in (*line[1:8], *[""] * 7)[:7])) for line in lines]
    if said.exit_code == HELD:
        raise ClaimHeld(found)
    return found


async def release(prepared: Sequence[Prepared], transport: Transport) -> tuple[str, ...]:
    """Give back the claims of this launch, wherever there are any; says where that was not possible."""

    async def one(p: Prepared) -> str:
        try:
            args = (p.replica, str(p.rank), p.launch.id)
            await call(transport, p.host, "claims.sh", "release", *args, allowed=(GONE,))
        except Exception as e:  # whatever one host does, the others get theirs back
            return f"{p.host.name}: claims may be left: {e}"
        return ""

    return tuple(w for w in await asyncio.gather(*map(one, prepared)) if w)
