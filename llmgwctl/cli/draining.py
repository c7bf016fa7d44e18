"""hosts drain: which replicas use hosts, and their end or their move to others."""

from __future__ import annotations

import shlex
import sys
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from io import StringIO
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llmgwctl.cli.common import Asked, finish, look, on_hosts, only_live, out, out_json, run, session, shared
from llmgwctl.cli.cordoning import NodesetArgument, UntilOption
from llmgwctl.model.fact import fact

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from llmgwctl.cli.common import Session
    from llmgwctl.model.host import Snapshot
    from llmgwctl.model.replica import ReplicaState

FAILED, WRONG, UNKNOWN, NO_PLACEMENT = 1, 2, 3, 4
ORDER = (FAILED, WRONG, UNKNOWN, NO_PLACEMENT)  # of several, the first one is the exit code


@fact
class Emptied:
    """What became of one replica. `code`: its part in the exit code.

    `did`: moved | stopped | left (as it was) | not-gone (of what was to be stopped something is left) | lost (it is
    stopped, and was not placed again) | unknown (it was placed again, and how it is could not be told any more).
    """

    replica: str
    did: str
    code: int = 0


def register(group: typer.Typer) -> None:
    group.command()(drain)


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

    Without --stop and --move nothing is changed. A replica is stopped to be moved only where the next one has a place
    on other hosts that could carry it: else it runs on, the reasons are printed, and the exit code is 4. Exit code 1
    when a replica could not be stopped, or was stopped and could not be placed again; 3 when a host did not answer.
    Ctrl-C leaves running what was placed last, and the replicas after it as they are.
    """
    if stop or move:
        only_live(asked, "stopped")
    run(_drain(asked, nodeset, reason, until, stop=stop, move=move))


async def _drain(asked: Asked, nodeset: str, reason: str, until: str | None, *, stop: bool, move: bool) -> None:
    from llmgwctl.cli.cordoning import keep_out
    from llmgwctl.cli.life import find, read_life, tell_unseen
    from llmgwctl.model.errors import UsageError

    if stop and move:
        raise UsageError("--stop or --move, not both")
    on_hosts(asked, nodeset, "NODESET")  # -w beside it would say something else
    done: list[Emptied] = []
    if stop or move:
        with beside_the_document(asked):
            await keep_out(replace(asked, json=False), nodeset, reason, until, None)
    async with session(replace(asked, hosts=None, pool=None)) as s:
        names = {h.name for h in s.inventory.select(nodeset, asked.pool, option="")}
        snapshot = await read_life(s)
        using = [r for r in find(snapshot, None) if any(x.host in names for x in r.shards)]
        unseen = sorted(f.host.name for f in snapshot.hosts if f.host.name in names and not f.life.ok)
        if not asked.json:
            _tell_using(using, unseen)
        if stop or move:
            with beside_the_document(asked):
                plain = replace(s, asked=replace(s.asked, json=False))
                # One after the other, so that no more than one is missing at a time.
                done = [await (moved if move else stopped)(plain, snapshot, r) for r in using]
        elif using:
            pool = f" --pool {asked.pool}" if asked.pool else ""
            again = f"llmgwctl hosts drain {shlex.quote(nodeset)}{pool} --move"
            s.note(f"nothing was changed: `{again}` places them elsewhere, --stop ends them")
        if asked.json:
            out_json(_document(using, names, done))
        tell_unseen(s, snapshot)
    dark = unseen or any(x.state == "unknown" for r in using[: len(done)] for x in r.shards)
    codes = {x.code for x in done} | ({UNKNOWN} if dark else set())
    finish(next((c for c in ORDER if c in codes), 0))


@contextmanager
def beside_the_document(asked: Asked) -> Iterator[None]:
    """Where the answer is one JSON document, what is said on the way to it is not on stdout."""
    if not asked.json:
        yield
        return
    with redirect_stdout(StringIO() if asked.quiet else sys.stderr):
        yield


def _tell_using(using: list[ReplicaState], unseen: list[str]) -> None:
    from llmgwctl.render import life as render
    from llmgwctl.render.fold import fold

    if using:
        out(render.ps(using, look()))
    elif unseen:
        out(f"no replica is known to use them; what runs on {fold(unseen)} could not be read")
    else:
        out("no replica uses them")


def _document(using: list[ReplicaState], names: set[str], done: list[Emptied]) -> dict[str, object]:
    from llmgwctl.render import life as render

    told = {**render.ps_document(using), "schema": "llmgwctl.drain/v1", "hosts": sorted(names)}
    return {**told, "done": [{"replica": x.replica, "did": x.did, "code": x.code} for x in done]}


# --- one replica ----------------------------------------------------------------------------------------------------


async def stopped(s: Session, snapshot: Snapshot, r: ReplicaState) -> Emptied:
    """Stop a replica, say how, and whether nothing of it is left."""
    from llmgwctl.cli.life import ours
    from llmgwctl.cli.restarting import made_way

    if not ours(s, r, snapshot, named=False):
        return Emptied(r.id, "left", FAILED)
    gone = await made_way(s, snapshot, r)
    return Emptied(r.id, "stopped") if gone else Emptied(r.id, "not-gone", FAILED)


async def moved(s: Session, snapshot: Snapshot, r: ReplicaState) -> Emptied:
    """The same profile once more, elsewhere, and under the same name; where that has no place, it is left as it is."""
    from llmgwctl.cli.job import Wanted
    from llmgwctl.cli.life import ours
    from llmgwctl.cli.placing import bring_up
    from llmgwctl.cli.restarting import profile_of, sure_of_the_next
    from llmgwctl.model.errors import ContactLost

    if not ours(s, r, snapshot, named=False):
        return Emptied(r.id, "left", FAILED)
    wanted = Wanted(profile_of([r], r.id), 1, ids=(r.id,))
    if code := await _tried(s, r.id, "not moved", sure_of_the_next(s, wanted, [r])):
        return Emptied(r.id, "left", code)
    done = await stopped(s, snapshot, r)
    if done.code:
        return done
    asked = replace(s.asked, hosts=None, pool=None)
    try:
        lost = await _tried(s, r.id, "it is stopped, and was not placed again", bring_up(asked, wanted))
    except ContactLost as e:
        s.note(f"{r.id}: placed again, and how it is could not be told: {e}")
        return Emptied(r.id, "unknown", UNKNOWN)
    return Emptied(r.id, "lost" if lost else "moved", FAILED if lost else 0)


async def _tried(s: Session, name: str, failed: str, work: Coroutine[Any, Any, None]) -> int:
    """The exit code with which it ended; a replica that cannot be moved keeps no other from its move. What nobody
    waits for any more (Ctrl-C) ends the command, and what may live on has not failed."""
    from llmgwctl.cli.placing import Detached
    from llmgwctl.model.errors import ContactLost, LlmgwError

    try:
        await work
    except (Detached, ContactLost):
        raise
    except LlmgwError as e:
        s.note(f"{name}: {failed}: {e}")
        return e.exit_code
    except typer.Exit as e:  # the reasons have been printed
        s.note(f"{name}: {failed}")
        return e.exit_code
    return 0
