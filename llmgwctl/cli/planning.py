"""Commands that decide and start nothing: plan, env, engines."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llmgwctl.cli.common import (
    Asked,
    finish,
    look,
    out,
    out_json,
    run,
    session,
    shared,
)

if TYPE_CHECKING:
    from llmgwctl.engines.base import Engine
    from llmgwctl.inventory import Inventory
    from llmgwctl.model.gpu import Gpu
    from llmgwctl.model.host import Host, Snapshot
    from llmgwctl.model.plan import Plan, ReplicaPlan
    from llmgwctl.model.profile import Profile
    from llmgwctl.render.json import Launches

NO_PLACEMENT = 4

ProfileArgument = Annotated[str, typer.Argument(metavar="PROFILE", help="A [profiles.NAME] of the inventory.")]
ReplicasOption = Annotated[
    int | None, typer.Option("--replicas", metavar="N", min=1, max=10_000, help="Default: as many as the profile says.")
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
) -> None:
    """Say where a profile would run, with what environment, and why; start nothing.

    Example: llmgwctl plan deepseek-r1 --replicas 2

    Exit code 4 when no placement fits: the reasons are printed, host by host.
    """
    run(_plan(asked, profile, replicas))


async def _plan(asked: Asked, name: str, replicas: int | None) -> None:
    from llmgwctl.render import json as documents
    from llmgwctl.render import plan as render

    made, launches, hosts = await _planned(asked, name, replicas)
    if asked.json:
        out_json(documents.plan(made, launches))
    else:
        out(render.plan(made, launches, look(), hosts))
    finish(0 if made.replicas else NO_PLACEMENT)


async def _planned(asked: Asked, name: str, replicas: int | None) -> tuple[Plan, Launches, tuple[Host, ...]]:
    """Read the hosts, map them, place the profile, translate it for its engine."""
    from llmgwctl.cli.fleet import mapped
    from llmgwctl.engines import engine_of
    from llmgwctl.placement import plan as place

    async with session(asked) as s:
        wanted = s.inventory.profile(name)
        engine = engine_of(wanted.engine)
        refuse_problems(wanted, engine)
        snapshot = await s.collect()
        made = place(mapped(s, snapshot), snapshot, wanted, engine.ports(wanted), replicas or wanted.replicas)
        launches: Launches = {}
        for replica in made.replicas:
            refuse_problems(wanted, engine, replica, snapshot, s.inventory)
            notes = engine.notes(wanted, gpus_of(replica, snapshot))
            made = replace(made, warnings=tuple(dict.fromkeys((*made.warnings, *notes))))
            launches = {**launches, **launched(replica, wanted, engine, s.inventory)}
    return made, launches, s.hosts


def refuse_problems(
    profile: Profile,
    engine: Engine,
    replica: ReplicaPlan | None = None,
    snapshot: Snapshot | None = None,
    inventory: Inventory | None = None,
) -> None:
    """What the engine says against a profile (on the GPUs and with the builds that a replica got), as one error."""
    from llmgwctl.model.errors import InventoryError

    problems = engine.validate(profile, gpus_of(replica, snapshot))
    if replica is not None and inventory is not None:
        hosts = {h.name: h for h in inventory.hosts}
        builds = {s.host: inventory.build_for(engine.name, hosts[s.host]) for s in replica.shards}
        problems = (*problems, *engine.refuse(replica, profile, builds))
    if problems:
        raise InventoryError("\n".join(f"profiles.{profile.name}: {p}" for p in problems))


def gpus_of(replica: ReplicaPlan | None, snapshot: Snapshot | None) -> tuple[Gpu, ...]:
    """The GPUs that a replica got, as they were read."""
    used = {u for shard in replica.shards for u in shard.gpu_uuids} if replica else set()
    reports = [f.gpus.value for f in (snapshot.hosts if snapshot else ()) if f.gpus.value]
    return tuple(g for report in reports for g in report.gpus if g.uuid in used)


def launched(replica: ReplicaPlan, profile: Profile, engine: Engine, inventory: Inventory) -> Launches:
    """Environment and commands of each shard, by replica and rank."""
    from llmgwctl.engines.base import ShardContext
    from llmgwctl.engines.env import environment

    hosts = {h.name: h for h in inventory.hosts}
    contexts = [
        ShardContext(replica, shard, profile, inventory.build_for(engine.name, hosts[shard.host]))
        for shard in replica.shards
    ]
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

    made, launches, _ = await _planned(asked, name, 1)
    if not made.replicas:
        raise NoPlacement(f"no placement fits {name}: {made.why_not} (`llmgwctl plan {name}` says why, host by host)")
    replica = made.replicas[0]
    if rank >= len(replica.shards):
        raise UsageError(f"{name} has {len(replica.shards)} shards: --rank goes up to {len(replica.shards) - 1}")
    variables = launches[replica.id, rank][0]
    if asked.json:
        out_json(documents.env(name, replica, rank, variables))
    else:
        out(render.shell(variables) if shell else render.environment(variables, look()))


@shared
def engines(*, asked: Asked) -> None:
    """List the engines that this version can start.

    Example: llmgwctl engines
    """
    from llmgwctl.engines import ENGINES
    from llmgwctl.render.text import draw, table

    rows = [_engine(e) for e in ENGINES.values()]
    if asked.json:
        out_json({"schema": "llmgwctl.engines/v1", "engines": rows})
    else:
        heads = ("ENGINE", "HEALTH", "METRICS", "WITHOUT GPUS", "USES NCCL")
        out(draw([table(heads, ([str(v) for v in row.values()] for row in rows))], look()))


def _engine(engine: Engine) -> dict[str, Any]:
    return {
        "name": engine.name,
        "health_path": engine.health_path,
        "metrics_path": engine.metrics_path,
        "gpuless": engine.gpuless,
        "uses_nccl": engine.uses_nccl,
    }
