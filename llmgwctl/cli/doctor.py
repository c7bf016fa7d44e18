"""`doctor`: read everything, judge it, say what is wrong and what to do."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llmgwctl.cli.common import Asked, Session, finish, look, out, out_json, run, session, shared
from llmgwctl.model.fact import fact

if TYPE_CHECKING:
    from llmgwctl.doctor.base import Check, Deep, Launch
    from llmgwctl.model.fabric import FabricMap
    from llmgwctl.model.finding import Report, Severity
    from llmgwctl.model.host import Snapshot

NO_PLACEMENT = 4
LISTS = "IDs (LG301), beginnings of them (LG3) or families (imex), with commas."


def register(app: typer.Typer) -> None:
    app.command()(doctor)


@fact
class Wanted:
    """What was asked beside the shared options."""

    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    severity: str = ""
    strict: bool = False
    html: Path | None = None
    junit: Path | None = None
    changed: bool = False
    state: Path | None = None
    profile: str | None = None
    deep: bool = False


@shared
def doctor(
    *,
    asked: Asked,
    explain: Annotated[
        str | None, typer.Option("--explain", metavar="ID", help="What a check means, and what to do; reads nothing.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="All checks there are; reads nothing.")] = False,
    only: Annotated[str | None, typer.Option("--only", metavar="LIST", help=f"Only these checks: {LISTS}")] = None,
    skip: Annotated[str | None, typer.Option("--skip", metavar="LIST", help="All but these checks.")] = None,
    severity: Annotated[
        str | None, typer.Option("--severity", metavar="LEAST", help="block, degrade, warn or info: nothing milder.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="What lacks only a right, or a part of a bundle, counts as not told.")
    ] = False,
    profile: Annotated[
        str | None, typer.Option("--profile", metavar="NAME", help="The hosts that would run it, and its launch.")
    ] = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also run bounded tests on idle hosts (-w or --profile): TCP, all-reduce.")
    ] = False,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Also write one page.")] = None,
    junit: Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Also write JUnit XML.")] = None,
    changed: Annotated[
        bool, typer.Option("--changed", help="Only what is new, worse or gone since the run that wrote --state.")
    ] = False,
    state: Annotated[
        Path | None, typer.Option("--state", metavar="FILE", help="Where a run is remembered, for --changed.")
    ] = None,
) -> None:
    """Say what is wrong, why, what to do, and who can do it. Only reads, unless --deep.

    Example: llmgwctl doctor -w 'r1-t[01-18]' --severity block

    Exit code 1 when a problem was found, 3 when something that matters could not be told; --severity and suppressions
    decide what counts.
    """
    from llmgwctl.doctor import CHECKS

    if explain is not None:
        _explain(explain, CHECKS, asked)
    elif list_:
        _list(CHECKS, asked)
    else:
        wanted = Wanted(_words(only), _words(skip), severity or "", strict, html, junit, changed, state, profile, deep)
        _refuse(wanted, CHECKS)
        run(_doctor(asked, wanted))


def _words(text: str | None) -> tuple[str, ...]:
    return tuple(w.strip() for w in (text or "").split(",") if w.strip())


def _refuse(wanted: Wanted, checks: Sequence[Check]) -> None:
    """A word that names nothing is a mistake, not an empty answer."""
    from llmgwctl.doctor.choose import strangers
    from llmgwctl.inventory import nearest
    from llmgwctl.model.errors import UsageError
    from llmgwctl.model.finding import SEVERITIES

    for word in strangers((*wanted.only, *wanted.skip), checks):
        raise UsageError(f"no check is named {word!r}; {nearest(word, [c.id for c in checks], 'known check')}")
    if wanted.severity and wanted.severity not in SEVERITIES:
        raise UsageError(f"--severity is one of {', '.join(SEVERITIES)}, not {wanted.severity!r}")
    if wanted.changed and wanted.state is None:
        raise UsageError("--changed compares with the last run: --state FILE says where that is remembered")


def _explain(id_: str, checks: Sequence[Check], asked: Asked) -> None:
    from llmgwctl.inventory import nearest
    from llmgwctl.model.errors import UsageError
    from llmgwctl.render import doctor as render

    found = next((c for c in checks if c.id == id_.upper()), None)
    if found is None:
        raise UsageError(f"there is no check {id_!r}; {nearest(id_.upper(), [c.id for c in checks], 'known check')}")
    if asked.json:
        out_json(render.catalogue([found]))
    else:
        out(render.explained(found, look()))


def _list(checks: Sequence[Check], asked: Asked) -> None:
    from llmgwctl.render import doctor as render

    if asked.json:
        out_json(render.catalogue(checks))
    else:
        out(render.listed(checks, look()))


async def _doctor(asked: Asked, wanted: Wanted) -> None:
    from llmgwctl.render.letters import clean

    async with session(asked) as s:
        snapshot = await _read(s)
        report, why_not = await _judged(s, snapshot, wanted)
    if why_not:
        s.note(f"no placement fits {wanted.profile}: {clean(why_not)} (`llmgwctl plan {wanted.profile}` says more)")
    _write(report, snapshot, wanted, s)
    code = _say(report, snapshot, wanted, s)
    finish(code or (NO_PLACEMENT if why_not else 0))


async def _read(s: Session) -> Snapshot:
    """Everything, in one connection a host."""
    from llmgwctl.cli.reading import engine_sections
    from llmgwctl.probe import PROBES

    return await s.collect(probes=PROBES, extra=engine_sections(s.inventory))


async def _judged(s: Session, snapshot: Snapshot, wanted: Wanted) -> tuple[Report, str]:
    """The report, and why a profile that was asked for has no place."""
    from llmgwctl.doctor import CHECKS, diagnose
    from llmgwctl.doctor.choose import at_least, chosen, on_hosts, suppress

    fmap = s.map(snapshot)
    about = await _about(s, snapshot, fmap, wanted.profile)
    tests = await _deep(s, snapshot, about.hosts) if wanted.deep else None
    report = diagnose(snapshot, fmap, about.launches, chosen(CHECKS, wanted.only, wanted.skip), tests)
    if about.hosts is not None:
        report = on_hosts(report, about.hosts.__contains__)
    day = day_of(snapshot)
    report = suppress(report, s.inventory.suppressions, day)
    for old in report.ended:
        s.note(old.epitaph)
    return (at_least(report, _severity(wanted.severity)) if wanted.severity else report), about.why_not


async def _deep(s: Session, snapshot: Snapshot, hosts: frozenset[str] | None) -> Deep:
    """Active tests on the hosts that were named, each of them idle."""
    from llmgwctl.cli import deep
    from llmgwctl.model.errors import UsageError

    if s.asked.bundle is not None:
        raise UsageError("--deep runs on live hosts, and --from answers from a bundle")
    picked = [f for f in snapshot.hosts if hosts is None or f.host.name in hosts]
    deep.refuse(picked, hosts is not None or s.asked.hosts is not None)
    return await deep.tested(s, snapshot, picked)


@fact
class About:
    """What the report is about. `hosts` None: all that were read."""

    hosts: frozenset[str] | None = None
    launches: tuple[Launch, ...] = ()
    why_not: str = ""


async def _about(s: Session, snapshot: Snapshot, fmap: FabricMap, name: str | None) -> About:
    """The hosts of a profile's replicas, of a replica that runs, or of the pool where no placement fits."""
    from llmgwctl.cli.launching import launches, planned, with_models
    from llmgwctl.launch.state import replicas

    if name is None:
        return About()
    running = next((r for r in replicas(snapshot) if r.id == name), None)
    if running is not None and name not in s.inventory.profiles:
        return About(frozenset(shard.host for shard in running.shards))
    profile = s.inventory.profile(name)
    made = planned(s, snapshot, fmap, profile)
    if not made.replicas:
        return About(frozenset(h.name for h in s.hosts if h.pool == profile.pool), (), made.why_not)
    placed = launches(made, profile)
    if s.asked.bundle is None:
        placed = await with_models(s, placed)
    return About(frozenset(shard.host for one in placed for shard in one.replica.shards), placed)


def _severity(word: str) -> Severity:
    from llmgwctl.model.finding import SEVERITIES

    return next(s for s in SEVERITIES if s == word)


def day_of(snapshot: Snapshot) -> date:
    """The day of the facts, so that an old bundle is judged as it was."""
    return datetime.fromtimestamp(snapshot.taken_at, UTC).date()


# --- what is said and written ---------------------------------------------------------------------------------------


def _write(report: Report, snapshot: Snapshot, wanted: Wanted, s: Session) -> None:
    from llmgwctl.doctor import CHECKS
    from llmgwctl.publish import write_file
    from llmgwctl.render import doctor as render

    if wanted.html is not None:
        from llmgwctl.render.html_doctor import doctor_page

        write_file(wanted.html, doctor_page(report, snapshot, made_at=time.time()))
        s.note(f"written: {wanted.html}")
    if wanted.junit is not None:
        write_file(wanted.junit, render.junit(report, CHECKS))
        s.note(f"written: {wanted.junit}")


def _say(report: Report, snapshot: Snapshot, wanted: Wanted, s: Session) -> int:
    """Print the report, or what has changed in it; the exit code follows what was printed."""
    from llmgwctl.doctor import changes
    from llmgwctl.doctor.choose import at_least
    from llmgwctl.render import doctor as render

    hosts = {h.name: h for h in s.hosts}
    remarks = bool(wanted.severity) or s.asked.verbose
    what = None
    shown = report
    if wanted.state is not None:
        before, counted = _remembered(wanted.state), report if remarks else at_least(report, "warn")
        if wanted.changed:
            what = changes.changes(counted, before)
            shown = what.report
        _remember(wanted.state, changes.state(counted, before), snapshot)
    if s.asked.json:
        out_json(render.document(report, snapshot.taken_at, what))
    elif what is not None:
        text = render.changed(what, hosts, look())
        if text:
            out(text)
    else:
        out(render.text(report, hosts, look(), verbose=s.asked.verbose, remarks=remarks))
    return shown.code(wanted.strict)


def _remembered(file: Path) -> dict[str, dict[str, str]]:
    from llmgwctl.doctor import changes
    from llmgwctl.model.errors import UsageError

    if not file.exists():
        return {}
    try:
        return changes.read(file.read_text(encoding="utf-8", errors="replace"))
    except OSError as e:
        raise UsageError(f"{file}: cannot be read: {e.strerror}") from e
    except ValueError as e:
        raise UsageError(f"{file}: {e}: move it away, and the next run begins anew") from e


def _remember(file: Path, now: dict[str, dict[str, str]], snapshot: Snapshot) -> None:
    from llmgwctl.doctor import changes
    from llmgwctl.publish import write_file
    from llmgwctl.render.json import moment

    write_file(file, json.dumps(changes.document(now, moment(snapshot.taken_at)), indent=1) + "\n")
