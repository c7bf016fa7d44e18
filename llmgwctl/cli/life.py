"""The life of replicas: place, ps, logs, stop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from llmgwctl.cli.common import Asked, finish, only_live, out, out_json, run, session, shared
from llmgwctl.cli.naming import refuse_slips

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llmgwctl.cli.common import Session
    from llmgwctl.launch.stop import Stopped
    from llmgwctl.model.host import Snapshot
    from llmgwctl.model.replica import ReplicaState

FAILED, UNKNOWN = 1, 3

ProfileArgument = Annotated[str, typer.Argument(metavar="PROFILE", help="A profile of the inventory.")]
ReplicaArgument = Annotated[str, typer.Argument(metavar="REPLICA", help="As `ps` names it: deepseek-r1-0.")]


def register(app: typer.Typer) -> None:
    for command in (place, ensure, restart, ps, logs, stop):
        app.command()(command)


# --- place ----------------------------------------------------------------------------------------------------------


@shared
def place(
    *,
    asked: Asked,
    profile: ProfileArgument,
    replicas: Annotated[
        int | None,
        typer.Option("--replicas", metavar="N", min=1, max=1000, help="Default: as many as the profile says."),
    ] = None,
    timeout: Annotated[
        int | None, typer.Option("--timeout", metavar="S", min=1, help="Default: ready_timeout_s of the profile.")
    ] = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Start it and return; `ps` says how it is.")] = False,
    require_transport: Annotated[
        bool,
        typer.Option("--require-transport", help="Roll back unless NCCL's log proves the transport of the plan."),
    ] = False,
) -> None:
    """Plan a replica, start it on its hosts, wait until it serves, and print its endpoint.

    Example: llmgwctl place deepseek-r1 --timeout 900

    Hosts that cannot carry it (a finding of the doctor that blocks, no engine, no model) are left out, which is said,
    and others taken. When a shard dies or it does not serve in time, everything is stopped again and the last words of
    every rank are saved. Ctrl-C rolls back while it is being started; while waiting it leaves the replica running
    (exit code 3).
    """
    from llmgwctl.cli.job import Wanted
    from llmgwctl.cli.placing import bring_up

    if no_wait and require_transport:
        raise typer.BadParameter("--require-transport waits until the replica serves: it does not go with --no-wait")
    only_live(asked, "started")
    wanted = Wanted(profile, replicas, timeout, not no_wait, require_transport=require_transport)
    run(bring_up(asked, wanted), "interrupted; nothing was left running")


@shared
def ensure(
    *,
    asked: Asked,
    profiles: Annotated[list[str] | None, typer.Argument(metavar="[PROFILE...]", help="Default: all.")] = None,
    restart_changed: Annotated[
        bool,
        typer.Option(
            "--restart-changed",
            help="Replace replicas whose profile has changed, one a run, where the new one could start.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done.")] = False,
) -> None:
    """Make what runs what the profiles ask for: place what is missing, replace what has failed. For cron.

    Example: llmgwctl ensure -q deepseek-r1

    It starts and returns; the next run judges. A start that failed is tried again after 1, 2, 4 ... 60 minutes. A
    replica that cannot be reached is not doubled, and where most hosts cannot be read nothing is done (exit code 3).
    Exit code 1 when something failed, 2 when a profile is wrong, 4 when there is no place for what is missing.
    """
    from llmgwctl.cli.ensuring import ensure as work

    if not dry_run:
        only_live(asked, "started")
    run(work(asked, profiles or [], dry_run=dry_run, restart_changed=restart_changed))


@shared
def restart(*, asked: Asked, replica: ReplicaArgument) -> None:
    """Stop a replica and place its profile again, as the inventory has it now, under the same name.

    Example: llmgwctl restart deepseek-r1-0

    It may come up on other hosts. What would refuse the new one (a finding of the doctor that blocks, a model that is
    gone, no room) is looked for first, as if the old one were stopped already: then nothing is stopped, it runs on, and
    the exit code is that of `place`.
    """
    from llmgwctl.cli.restarting import restart as work

    only_live(asked, "restarted")
    run(work(asked, replica), f"interrupted; `llmgwctl ps {replica}` says whether it runs")


# --- ps -------------------------------------------------------------------------------------------------------------


@shared
def ps(
    *,
    asked: Asked,
    replica: Annotated[str | None, typer.Argument(metavar="[REPLICA]", help="Only this one.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Exit code 1 unless every replica shown is ready.")] = False,
    transport: Annotated[
        bool, typer.Option("--transport", help="Read the logs again: over what NCCL runs now.")
    ] = False,
) -> None:
    """Show the replicas on the hosts, whoever started them: how each is, for how long, and what to do.

    Example: llmgwctl ps --check deepseek-r1-0

    Exit code 2 when there is no such REPLICA, 3 when a host could not be read: what runs there is not known. With
    --check also 1 when a replica has failed or does not serve yet (with --transport: when it runs over less than
    planned), 3 when nobody can tell.
    """
    from llmgwctl.cli.showing import show

    run(show(asked, replica, check=check, transport=transport))


async def read_life(s: Session) -> Snapshot:
    """What runs on the hosts: no GPU tool is started for it."""
    from llmgwctl.probe import PROBES

    return await s.collect(probes=[p for p in PROBES if p.field in ("system", "life")])


def find(snapshot: Snapshot, names: list[str] | None) -> tuple[ReplicaState, ...]:
    from llmgwctl.launch.state import replicas

    return tuple(r for r in replicas(snapshot) if names is None or r.id in names)


def unseen(snapshot: Snapshot) -> list[str]:
    return [f.host.name for f in snapshot.hosts if not f.life.ok]


def tell_unseen(s: Session, snapshot: Snapshot) -> None:
    """Hosts whose life could not be read, and entries there that are none of ours."""
    from llmgwctl.render.fold import alike, fold
    from llmgwctl.render.text import clean

    sick = [
        (f.host.name, f.reachable.why if f.reachable.broken else f.life.why) for f in snapshot.hosts if not f.life.ok
    ]
    for names, why in alike(sick):
        s.note(f"{fold(names)}: {clean(why)}")
    for f in snapshot.hosts:
        for odd in f.life.value.unreadable if f.life.value else ():
            s.note(f"{f.host.name}: {clean(odd)}")


# --- logs -----------------------------------------------------------------------------------------------------------


@shared
def logs(
    *,
    asked: Asked,
    replica: ReplicaArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")] = False,
    rank: Annotated[int | None, typer.Option("--rank", metavar="N", min=0, help="Only this rank.")] = None,
    tail: Annotated[int, typer.Option("--tail", "-n", metavar="LINES", min=1, help="Of each command.")] = 100,
    since: Annotated[
        str | None, typer.Option("--since", metavar="SPAN", help="What was written in the last 30s, 10m, 2h or 1d.")
    ] = None,
    grep: Annotated[str | None, typer.Option("--grep", metavar="REGEX", help="Only lines that match.")] = None,
) -> None:
    """Print what the commands of a replica have said, each line with its rank; known failures are named with the fix.

    Example: llmgwctl logs -f deepseek-r1-0 --grep NCCL

    --since goes by the times that engines write before their lines; where a log has none, all of it is shown. -f leaves
    nothing out but what a host does not keep any more (of each command the first 4 MiB and the newest 4 to 8), of which
    it says how many bytes that were, and the rest of a line longer than 65536 characters, which it says too.
    """
    from llmgwctl.cli.logbook import Wish, show_logs

    run(show_logs(asked, replica, Wish.of(asked, rank, tail, since, grep), follow=follow))


# --- stop -----------------------------------------------------------------------------------------------------------


@shared
def stop(
    *,
    asked: Asked,
    replicas: Annotated[list[str] | None, typer.Argument(metavar="REPLICA...", help="As `ps` names them.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Every replica of this account on the chosen hosts.")] = False,
) -> None:
    """End replicas: every process that was started for them, verified, and their claims given back.

    Example: llmgwctl stop deepseek-r1-0

    Stopping what is already gone does no harm. Exit code 1 when something would not die, 3 when a host did not answer.
    """
    only_live(asked, "stopped")
    run(_stop(asked, replicas or [], everything=all_), "interrupted; the next `llmgwctl stop` ends what is left")


async def _stop(asked: Asked, names: list[str], *, everything: bool) -> None:
    from llmgwctl.cli.afterwards import memory_left, tell_memory
    from llmgwctl.model.errors import UsageError

    if bool(names) == everything:
        raise UsageError("name the replicas to stop, or say --all")
    async with session(asked) as s:
        snapshot = await read_life(s)
        refuse_slips(names, find(snapshot, None), s.inventory.profiles)
        states = chosen(s, snapshot, None if everything else names)
        for name in (n for n in names if not any(r.id == n for r in states)):
            s.note(f"{name}: nothing of it on the hosts that answered")
        ended = await end_all(s, snapshot, states)
        left = await memory_left(s, snapshot, ended)
        tell_memory(s, left)
        tell_unseen(s, snapshot)
        if asked.json:
            out_json({"schema": "llmgwctl.stop/v1", "stopped": [_stopped(x) for x in ended], "memory": left})
    unknown = unseen(snapshot) or any(x.gone is None for x in ended)
    finish(FAILED if any(x.gone is False for x in ended) else UNKNOWN if unknown else 0)


async def end_all(s: Session, snapshot: Snapshot, states: Sequence[ReplicaState]) -> list[Stopped]:
    """At once where they share no host: each may take its whole grace. Told as they end."""
    import asyncio

    from llmgwctl.launch.state import targets_of
    from llmgwctl.launch.stop import Turns, stop_replica
    from llmgwctl.launch.witness import forget

    turns = Turns()

    async def end(r: ReplicaState) -> tuple[Stopped, ...]:
        targets = targets_of(snapshot, r)
        async with turns.on_hosts(targets):
            done = await stop_replica(targets, s.transport)
        if all(x.gone for x in done) and len(done) == len(r.shards):
            await forget(snapshot, r.id, r.launch, s.transport)
        tell_stopped(s, r, done)
        return done

    return [x for done in await asyncio.gather(*map(end, states)) for x in done]


def chosen(s: Session, snapshot: Snapshot, names: list[str] | None) -> list[ReplicaState]:
    """Those of that name that are ours. That some host tells of another one of the same name keeps nothing from it."""
    found = find(snapshot, names)
    mine = [r for r in found if ours(s, r, snapshot, named=False)]
    for r in found if names is not None else ():
        if not any(r.id == x.id for x in mine):
            ours(s, r, snapshot, named=True)
    return mine


def ours(s: Session, r: ReplicaState, snapshot: Snapshot, *, named: bool) -> bool:
    """Another account's replica, and one that a newer llmgwctl started, are shown and never touched."""
    from llmgwctl.model.errors import UsageError

    accounts = {f.host.name: f.system.value.account for f in snapshot.hosts if f.system.value}
    foreign = [x for x in r.shards if x.account and x.account != accounts.get(x.host, x.account)]
    if foreign:
        why = f"{r.id} belongs to account {foreign[0].account} on {foreign[0].host}"
    elif newer(r):
        why = f"{r.id} was started by a newer llmgwctl"
    else:
        return True
    if named:
        raise UsageError(f"{why}: it is left alone")
    s.note(f"{why}: it is left alone")
    return False


def newer(r: ReplicaState) -> bool:
    """By its leader's spec, else by all: a single host that says so keeps no other from its end."""
    leader = [x for x in r.shards if x.rank == 0] or r.shards
    return all(x.known_newer for x in leader)


def tell_stopped(s: Session, r: ReplicaState, ended: tuple[Stopped, ...]) -> None:
    from llmgwctl.render.letters import clean

    def say(text: str) -> None:
        s.note(clean(text))  # a line of ours is one line, whatever a host puts in

    asked = {(x.target.rank, x.target.host.name) for x in ended}
    for shard in (x for x in r.shards if (x.rank, x.host) not in asked):
        where = f"{r.id} rank {shard.rank} on {shard.host}"
        say(f"{where}: its host did not answer; what is left there is cleaned by the next stop or ensure")
    for x in ended:
        where = f"{r.id} rank {x.target.rank} on {x.target.host.name}"
        if x.gone is None:
            say(f"{where}: its host did not answer ({x.why}); its entry stays, and the next stop cleans it")
        elif not x.gone:
            say(f"{where}: not gone: {', '.join(x.left) or x.why}")
        elif x.killed:
            say(f"{where}: {x.killed} processes had to be killed")
        if x.gone and x.why:
            say(f"{where}: {x.why}")
    if ended and len(ended) == len(r.shards) and all(x.gone for x in ended) and not s.asked.json:
        out(clean(f"{r.id} is stopped; nothing of it is left on {len(ended)} host{'s' if len(ended) > 1 else ''}"))


def _stopped(x: Stopped) -> dict[str, object]:
    return {
        "replica": x.target.replica,
        "rank": x.target.rank,
        "host": x.target.host.name,
        "gone": x.gone,
        "killed": x.killed,
        "left": list(x.left),
        "why": x.why,
    }
