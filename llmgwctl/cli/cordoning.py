"""hosts cordon and uncordon: hosts that get no new shards."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from llmgwctl.cli.common import Asked, finish, on_hosts, only_live, out, out_json, run, session, shared

if TYPE_CHECKING:
    from collections.abc import Callable

    from llmgwctl.cli.common import Session
    from llmgwctl.inventory.cordons import Cordons
    from llmgwctl.model.host import Host
    from llmgwctl.model.life import Cordon

UNKNOWN = 3
SPAN = re.compile(r"\+?(\d{1,4})([mhdw])")
UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 604800}

NodesetArgument = Annotated[str, typer.Argument(metavar="NODESET", help="Hosts of the inventory: r1-t[01-04].")]
ReasonOption = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; `hosts` and `plan` show it.")]
UntilOption = Annotated[
    str | None,
    typer.Option("--until", metavar="WHEN", help="2026-12-24, 2026-12-24T18:00 (local time) or 3d, 12h from now."),
]


def register(group: typer.Typer) -> None:
    for command in (cordon, uncordon):
        group.command()(command)


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
    run(keep_out(asked, nodeset, reason, until, gpus))


async def keep_out(asked: Asked, nodeset: str, reason: str, until: str | None, gpus: str | None) -> None:
    from llmgwctl.cli.job import operator
    from llmgwctl.fabric.cordons import words
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
        missed, _ = await _on_hosts(s, _set_words(made), made.reason.encode())
        _tell(s, f"cordoned{_of_gpus(made)}", [h.name for h in s.hosts], f": {words(made)}", missed)


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
        missed, cleared = await _on_hosts(s, ("clear",), b"")
        had = {n for n in names if n in cleared or s.cordons.get(n)}
        _tell(s, "uncordoned", [h.name for h in s.hosts if h.name in had], "", missed)
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


async def _on_hosts(s: Session, words: tuple[str, ...], payload: bytes) -> tuple[dict[str, str], set[str]]:
    """Host -> why it could not be told; another account's cordon that stays is told as well. And the hosts on which
    one of ours has been taken away."""
    import asyncio

    from llmgwctl.launch.remote import call, fields
    from llmgwctl.model.errors import LlmgwError

    cleared: set[str] = set()

    async def one(host: Host) -> str:
        try:
            said = await call(s.transport, host, "cordon.sh", *words, stdin=payload)
        except LlmgwError as e:
            return f"the host itself was not told: {e}"
        lines = fields(said)
        if ["cleared"] in lines:
            cleared.add(host.name)
        others = [line[1] for line in lines if line[0] == "other" and len(line) > 1]
        return f"account {', '.join(others)} has cordoned it: that stays" if others else ""

    told = await asyncio.gather(*map(one, s.hosts))
    return {h.name: why for h, why in zip(s.hosts, told, strict=True) if why}, cleared


def _of_gpus(made: Cordon) -> str:
    return f" GPU {','.join(map(str, made.gpus))} of" if made.gpus else ""


def _tell(s: Session, what: str, changed: list[str], why: str, missed: dict[str, str]) -> None:
    """`changed`: the hosts of which that is true. Of one that did not answer nobody knows whether it was cordoned."""
    from llmgwctl.render.fold import alike, fold
    from llmgwctl.render.text import clean

    names = [h.name for h in s.hosts]
    as_before = [n for n in names if n not in changed and n not in missed]
    if s.asked.json:
        rows = [{"host": n, "changed": n in changed, "told": n not in missed, "why": missed.get(n, "")} for n in names]
        out_json({"schema": "llmgwctl.cordon/v1", "done": what.partition(" ")[0], "hosts": rows})
    else:
        if changed:
            out(clean(f"{what} {fold(changed)}{why}"))
        if as_before:
            out(f"not cordoned before: {fold(as_before)}")
    for some, said in alike(missed.items()):
        s.note(f"{fold(some)}: {clean(said)}")
