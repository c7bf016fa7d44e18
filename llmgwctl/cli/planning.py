"""Commands that decide and start nothing: plan, env, engines."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from llmgwctl.cli.common import (
    Asked,
    finish,
    load_inventory,
    look,
    note,
    out,
    out_json,
    run,
    session,
    shared,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from llmgwctl.cli.preflight import Checked
    from llmgwctl.engines.base import Build, Engine
    from llmgwctl.inventory import Inventory
    from llmgwctl.model.host import Host, Snapshot
    from llmgwctl.model.plan import Plan, ReplicaPlan
    from llmgwctl.model.profile import Profile
    from llmgwctl.render.json import Launches

COULD_NOT_TELL, NO_PLACEMENT = 3, 4

ProfileArgument = Annotated[str, typer.Argument(metavar="PROFILE", help="A \\[profiles.NAME] of the inventory.")]
ReplicasOption = Annotated[
    int | None, typer.Option("--replicas", metavar="N", min=1, max=1000, help="Default: as many as the profile says.")
]


def register(app: typer.Typer) -> None:
    app.command()(plan)
    app.command()(env)
    app.command()(engines)


@shared
def plan(
    *,
    asked: Asked,
    profile: ProfileArgument,
    replicas: ReplicasOption = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Every domain and every host on its own line, with the whole reason.")
    ] = False,
) -> None:
    """Say where a profile would run, with what environment, and why; start nothing.

    Example: llmgwctl plan deepseek-r1 --replicas 2

    Exit code 4 when no placement fits: the reasons are printed, host by host.
    """
    run(_plan(asked, profile, replicas, explain=explain))


async def _plan(asked: Asked, name: str, replicas: int | None, *, explain: bool) -> None:
    from llmgwctl.render import plan as render

    made, launches, hosts, checked = await _planned(asked, name, replicas)
    if asked.json:
        out_json(document(made, launches, checked))
    else:
        refused = checked.problems if checked is not None else ()  # said once, when the command ends with them
        shown = replace(made, warnings=tuple(w for w in made.warnings if w not in refused))
        out(render.plan(shown, launches, look(), hosts, refused=bool(refused)))
        if explain:
            out(render.explained(made, hosts, look()))
    if checked is not None:
        checked.refuse()
    finish(0 if made.replicas else NO_PLACEMENT)


Planned = tuple["Plan", "Launches", "tuple[Host, ...]", "Checked | None"]


async def _planned(asked: Asked, name: str, replicas: int | None) -> Planned:
    """Read the hosts, map them, place the profile, look at what it would meet there, translate it for its engine."""
    from llmgwctl.cli.around import planned_around
    from llmgwctl.cli.job import Job, Wanted, operator
    from llmgwctl.cli.reading import neighbours
    from llmgwctl.engines import engine_of

    async with session(asked) as s:
        wanted = s.inventory.profile(name)
        engine = engine_of(wanted.engine)
        refuse_problems(wanted, engine, s.inventory)
        snapshot = await s.collect(extra=neighbours(wanted))
        job = Job(s, Wanted(name, replicas), wanted, engine, "", operator())
        _, made, checked = await planned_around(job, snapshot)
        if checked is None:
            return made, {}, s.hosts, None
    launches: Launches = {}
    for replica in made.replicas:
        launches = {**launches, **launched(replica, wanted, engine, checked.builds)}
    return warned(made, checked, *_no_key(s.inventory, wanted)), launches, s.hosts, checked


def warned(made: Plan, checked: Checked, *more: str) -> Plan:
    """The plan with what speaks against it."""
    warnings = dict.fromkeys((*made.warnings, *checked.problems, *checked.notes, *more))
    return replace(made, warnings=tuple(warnings))


def document(made: Plan, launches: Launches, checked: Checked | None) -> dict[str, object]:
    """A plan as JSON, with the doctor's findings that refuse it."""
    from llmgwctl.model.finding import Report
    from llmgwctl.render import json as documents
    from llmgwctl.render import refusal

    report = checked.report if checked is not None else Report()
    return {**documents.plan(made, launches), **refusal.document(report)}


def refuse_problems(profile: Profile, engine: Engine, inventory: Inventory) -> None:
    """What the engine says against a profile before any host is read, as one error."""
    from llmgwctl.model.errors import InventoryError

    problems = engine.validate(profile, ())
    if problems:
        raise InventoryError("\n".join(inventory.of_profile(profile.name, str(p)) for p in problems))


def _no_key(inventory: Inventory, profile: Profile) -> tuple[str, ...]:
    """A key that is not there keeps nobody from planning; `place` would refuse."""
    from llmgwctl.cli.job import read_api_key
    from llmgwctl.model.errors import InventoryError

    try:
        read_api_key(inventory, profile)
    except InventoryError as e:
        return (f"`place` will refuse it: {e}",)
    return ()


def launched(replica: ReplicaPlan, profile: Profile, engine: Engine, builds: Mapping[str, Build]) -> Launches:
    """Environment and commands of each shard, by replica and rank. `builds`: by host."""
    from llmgwctl.engines.base import ShardContext
    from llmgwctl.engines.env import environment

    contexts = [ShardContext(replica, shard, profile, builds[shard.host]) for shard in replica.shards]
    return {
        (replica.id, ctx.shard.rank): (environment(ctx, engine), [(c.name, c.argv) for c in engine.commands(ctx)])
        for ctx in contexts
    }


@shared
def env(
    *,
    asked: Asked,
    profile: ProfileArgument,
    rank: Annotated[int, typer.Option("--rank", metavar="N", min=0, help="Which shard of the replica.")] = 0,
    shell: Annotated[bool, typer.Option("--shell", help="As lines that a shell can source.")] = False,
) -> None:
    """Print the environment that a shard of a profile would get, each variable with its reason.

    Example: llmgwctl env deepseek-r1 --rank 1 --shell > rank1.env

    It is that of the first replica that `plan` would make now. Exit code 4 when no placement fits.
    """
    run(_env(asked, profile, rank, shell=shell))


async def _env(asked: Asked, name: str, rank: int, *, shell: bool) -> None:
    from llmgwctl.model.errors import NoPlacement, UsageError
    from llmgwctl.render import json as documents
    from llmgwctl.render import plan as render
    from llmgwctl.render.text import clean

    made, launches, _, checked = await _planned(asked, name, 1)
    if not made.replicas:
        why = clean(made.why_not)
        raise NoPlacement(f"no placement fits {name}: {why} (`llmgwctl plan {name}` says why, host by host)")
    replica = made.replicas[0]
    if rank >= len(replica.shards):
        raise UsageError(f"{name} has {len(replica.shards)} shards: --rank goes up to {len(replica.shards) - 1}")
    variables = launches[replica.id, rank][0]
    if asked.json:
        out_json(documents.env(name, replica, rank, variables))
    else:
        out(render.shell(variables) if shell else render.environment(variables, look()))
    for words in () if checked is None or asked.quiet else (*checked.problems, *checked.notes):
        note(f"! {clean(words)}")


@shared
def engines(*, asked: Asked) -> None:
    """List the engines that this version can start, and the version of each on the hosts of the inventory.

    Example: llmgwctl engines -w 'r1-t[01-18]'

    Without an inventory only the engines are listed. Exit code 3 when a host could not be read.
    """
    from llmgwctl.model.errors import InventoryError

    try:
        chosen = load_inventory(asked)
    except InventoryError:
        if asked.inventory is not None or any(asked_for(asked)):
            raise
        chosen = None
    run(_engines(asked, read=chosen is not None))


def asked_for(asked: Asked) -> tuple[object, ...]:
    """What only hosts can answer."""
    return asked.hosts, asked.pool, asked.bundle


async def _engines(asked: Asked, *, read: bool) -> None:
    from llmgwctl.engines import ENGINES
    from llmgwctl.render import engines as render

    snapshot = await _installed(asked) if read else None
    rows = [_engine(e) for e in ENGINES.values()]
    if asked.json:
        out_json(render.document(rows, snapshot))
    else:
        out(render.listing(rows, snapshot, look()))
    unread = [f for f in snapshot.hosts if f.engines.broken] if snapshot is not None else []
    finish(COULD_NOT_TELL if unread else 0)


async def _installed(asked: Asked) -> Snapshot:
    from llmgwctl.cli.reading import engine_sections
    from llmgwctl.probe import engines as installed
    from llmgwctl.render.fold import alike, fold
    from llmgwctl.render.text import clean

    async with session(asked) as s:
        found = await s.collect(probes=(installed.PROBE,), extra=engine_sections(s.inventory))
        for names, why in alike((f.host.name, f.engines.why) for f in found.hosts if f.engines.broken):
            s.note(f"could not tell: {fold(names)}: {clean(why)}")
    return found


def _engine(engine: Engine) -> dict[str, object]:
    from llmgwctl.engines.preflight import main_name

    return {
        "name": engine.name,
        "health_path": engine.health_path,
        "metrics_path": engine.metrics_path,
        "gpuless": engine.gpuless,
        "uses_nccl": engine.uses_nccl,
        "package": main_name(engine),
        "needs_build": engine.needs_build,
        "least": engine.version.least if engine.version is not None else "",
    }
