"""hosts cordon, uncordon, drain: hosts that get no new shards, and what is done about those that they have."""

from __future__ import annotations

import re
import shlex
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from llmgwctl.cli.common import Asked, finish, look, on_hosts, only_live, out, out_json, run, session, shared

if TYPE_CHECKING:
    from collections.abc import Callable

    from llmgwctl.cli.common import Session
    from llmgwctl.inventory.cordons import Cordons
    from llmgwctl.launch.stop import Stopped
    from llmgwctl.model.host import Host, Snapshot
    from llmgwctl.model.life import Cordon
    from llmgwctl.model.replica import ReplicaState

FAILED, UNKNOWN = 1, 3
SPAN = re.compile(r"\+?(\d{1,4})([mhdw])")
UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 604800}

NodesetArgument = Annotated[str, typer.Argument(metavar="NODESET", help="Hosts of the inventory: r1-t[01-04].")]
ReasonOption = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; `hosts` and `plan` show it.")]
UntilOption = Annotated[
    str | None,
    typer.Option("--until", metavar="WHEN", help="2026-12-24, 2026-12-24T18:00 (local time) or 3d, 12h from now."),
]


def register(group: typer.Typer) -> None:
    for command in (cordon, uncordon, drain):
        group.command()(command)


# --- cordon, uncordon -----------------------------------------------------------------------------------------------


@shared
def cordon(
    *,
    asked: Asked,
    nodeset: NodesetArgument,
    reason: ReasonOption,
    until: UntilOption = None,
    gpus: Annotated[
        str | None, typer.Option("--gpus", metavar="LIST", help="Only these GPUs of each host: 0,2-3.")
    ] = None,
) -> None:
    """Keep hosts out of new placements; what runs there runs on.

    Example: llmgwctl hosts cordon r1-t07 --reason 'DIMM 3' --until 2026-12-24

    It is written beside the inventory and on each host that answers; either counts. A second cordon of a host replaces
    the first.
    """
    only_live(asked, "cordoned")
    run(_cordon(asked, nodeset, reason, until, gpus))


async def _cordon(asked: Asked, nodeset: str, reason: str, until: str | None, gpus: str | None) -> None:
    from llmgwctl.cli.job import operator
    from llmgwctl.model.errors import UsageError
    from llmgwctl.model.life import Cordon

    if not reason.strip() or not reason.isprintable():
        raise UsageError("--reason is one line of plain words")
    now = time.time()
    ends = moment(until, now) if until else None
    who = operator()
    made = Cordon(reason, ends, f"{who.name}@{who.workstation}", _utc(now), _gpus(gpus))
    async with session(on_hosts(asked, nodeset, "NODESET")) as s:
        _remember(s, lambda found: {**found, **{h.name: (made,) for h in s.hosts}})
        missed = await _on_hosts(s, _set_words(made), made.reason.encode())
        _tell(s, "cordoned", made, missed)


@shared
def uncordon(*, asked: Asked, nodeset: NodesetArgument) -> None:
    """Let hosts carry new shards again.

    Example: llmgwctl hosts uncordon 'r1-t[07,09]'

    Exit code 3 when a host did not answer: the cordon that lies there counts until it is uncordoned again.
    """
    only_live(asked, "uncordoned")
    run(_uncordon(asked, nodeset))


async def _uncordon(asked: Asked, nodeset: str) -> None:
    async with session(on_hosts(asked, nodeset, "NODESET")) as s:
        names = {h.name for h in s.hosts}
        _remember(s, lambda found: {name: x for name, x in found.items() if name not in names})
        missed = await _on_hosts(s, ("clear",), b"")
        _tell(s, "uncordoned", None, missed)
    finish(UNKNOWN if missed else 0)


def moment(text: str, now: float) -> float:
    """Seconds since the epoch of --until; what lies in the past is refused."""
    from llmgwctl.model.errors import UsageError

    if (span := SPAN.fullmatch(text)) is not None:
        return now + timedelta(seconds=int(span[1]) * UNITS[span[2]]).total_seconds()
    try:
        told = datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"--until {text!r}: neither a date like 2026-12-24T18:00 nor a span like 3d or 12h") from None
    if told <= now:
        raise UsageError(f"--until {text} has passed")
    return told


def _gpus(text: str | None) -> tuple[int, ...]:
    from llmgwctl.model.errors import UsageError
    from llmgwctl.model.numbers import whole

    found: set[int] = set()
    for part in text.split(",") if text else ():
        first, _, last = part.strip().partition("-")
        low, high = whole(first), whole(last or first)
        if low is None or high is None or not low <= high < 64:
            raise UsageError(f"--gpus {text!r}: numbers and ranges, like 0,2-3")
        found |= set(range(low, high + 1))
    return tuple(sorted(found))


def _utc(now: float) -> str:
    return f"{datetime.fromtimestamp(now, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _set_words(made: Cordon) -> tuple[str, ...]:
    until = f"{made.until:.0f}" if made.until is not None else "-"
    return ("set", made.by, made.at, until, ",".join(map(str, made.gpus)) or "-")


def _remember(s: Session, how: Callable[[Cordons], Cordons]) -> None:
    from llmgwctl.inventory import cordons

    path = cordons.beside(s.inventory.path)
    if path is not None:
        cordons.change(path, how)


async def _on_hosts(s: Session, words: tuple[str, ...], payload: bytes) -> dict[str, str]:
    """Host -> why it could not be told; another account's cordon that stays is told as well."""
    import asyncio

    from llmgwctl.launch.remote import call, fields
    from llmgwctl.model.errors import LlmgwError

    async def one(host: Host) -> str:
        try:
            said = await call(s.transport, host, "cordon.sh", *words, stdin=payload)
        except LlmgwError as e:
            return f"the host itself was not told: {e}"
        others = [line[1] for line in fields(said) if line[0] == "other" and len(line) > 1]
        return f"account {', '.join(others)} has cordoned it too" if others else ""

    told = await asyncio.gather(*map(one, s.hosts))
    return {h.name: why for h, why in zip(s.hosts, told, strict=True) if why}


def _tell(s: Session, what: str, made: Cordon | None, missed: dict[str, str]) -> None:
    from llmgwctl.fabric.cordons import words
    from llmgwctl.render.fold import alike, fold
    from llmgwctl.render.text import clean

    names = [h.name for h in s.hosts]
    if s.asked.json:
        rows = [{"host": n, "told": n not in missed, "why": missed.get(n, "")} for n in names]
        out_json({"schema": "llmgwctl.cordon/v1", "done": what, "hosts": rows})
    else:
        gpus = f" GPU {','.join(map(str, made.gpus))} of" if made and made.gpus else ""
        out(clean(f"{what}{gpus} {fold(names)}" + (f": {words(made)}" if made else "")))
    for some, why in alike(missed.items()):
        s.note(f"{fold(some)}: {clean(why)}")


# --- drain ----------------------------------------------------------------------------------------------------------


@shared
def drain(
    *,
    asked: Asked,
    nodeset: NodesetArgument,
    stop: Annotated[bool, typer.Option("--stop", help="Stop the replicas that use them.")] = False,
    move: Annotated[bool, typer.Option("--move", help="Stop them one by one, and place each again elsewhere.")] = False,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the cordon.")] = "drained",
    until: UntilOption = None,
) -> None:
    """Say which replicas use hosts; with --stop or --move cordon the hosts and empty them.

    Example: llmgwctl hosts drain r1-t07 --move --reason 'DIMM 3'

    Without --stop and --move nothing is changed. Exit code 1 when a replica could not be stopped or placed again, 3
    when a host did not answer.
    """
    if stop or move:
        only_live(asked, "stopped")
    run(_drain(asked, nodeset, reason, until, stop=stop, move=move))


async def _drain(asked: Asked, nodeset: str, reason: str, until: str | None, *, stop: bool, move: bool) -> None:
    from llmgwctl.cli.life import find, read_life, tell_unseen
    from llmgwctl.model.errors import UsageError

    if stop and move:
        raise UsageError("--stop or --move, not both")
    if stop or move:
        await _cordon(replace(asked, json=False), nodeset, reason, until, None)
    async with session(replace(asked, hosts=None, pool=None)) as s:
        names = {h.name for h in s.inventory.select(nodeset, option="")}
        snapshot = await read_life(s)
        using = [r for r in find(snapshot, None) if any(x.host in names for x in r.shards)]
        unseen = sorted(f.host.name for f in snapshot.hosts if f.host.name in names and not f.life.ok)
        _tell_using(s, using, names, unseen)
        left = await _emptied(s, snapshot, using, move=move) if stop or move else []
        if using and not (stop or move):
            again = f"llmgwctl hosts drain {shlex.quote(nodeset)} --move"
            s.note(f"nothing was changed: `{again}` places them elsewhere, --stop ends them")
        tell_unseen(s, snapshot)
    finish(FAILED if left else UNKNOWN if unseen else 0)


def _tell_using(s: Session, using: list[ReplicaState], names: set[str], unseen: list[str]) -> None:
    from llmgwctl.render import life as render
    from llmgwctl.render.fold import fold

    if s.asked.json:
        out_json({**render.ps_document(using), "schema": "llmgwctl.drain/v1", "hosts": sorted(names)})
    elif using:
        out(render.ps(using, look()))
    elif unseen:
        out(f"no replica is known to use them; what runs on {fold(unseen)} could not be read")
    else:
        out("no replica uses them")


async def _emptied(s: Session, snapshot: Snapshot, using: list[ReplicaState], *, move: bool) -> list[str]:
    """One replica after the other, so that no more than one is missing at a time. The names of those not done."""

    async def emptied(r: ReplicaState) -> bool:
        return await stopped(s, snapshot, r) and (not move or await placed_again(s, r))

    return [r.id for r in using if not await emptied(r)]


async def stopped(s: Session, snapshot: Snapshot, r: ReplicaState) -> bool:
    """Stop a replica, say how, and whether nothing of it is left."""
    from llmgwctl.cli.life import ours, tell_stopped
    from llmgwctl.launch.state import targets_of
    from llmgwctl.launch.stop import stop_replica
    from llmgwctl.launch.witness import forget

    if not ours(s, r, snapshot, named=False):
        return False
    done: tuple[Stopped, ...] = await stop_replica(targets_of(snapshot, r), s.transport)
    tell_stopped(s, r, done)
    gone = bool(done) and all(x.gone for x in done)
    if gone and len(done) == len(r.shards):
        await forget(snapshot, r.id, r.launch, s.transport)
    return gone


async def placed_again(s: Session, r: ReplicaState) -> bool:
    """The same profile once more, under the same name where it can be had."""
    from llmgwctl.cli.job import Wanted
    from llmgwctl.cli.placing import bring_up
    from llmgwctl.model.errors import LlmgwError
    from llmgwctl.render.text import clean

    if r.profile not in s.inventory.profiles:
        s.note(f"{r.id}: its profile {clean(r.profile) or '?'} is not in the inventory: not placed again")
        return False
    try:
        await bring_up(replace(s.asked, hosts=None, pool=None, json=False), Wanted(r.profile, 1, ids=(r.id,)))
    except LlmgwError as e:
        s.note(f"{r.id}: not placed again: {clean(str(e))}")
        return False
    except typer.Exit:
        return False  # the reasons have been printed
    return True
