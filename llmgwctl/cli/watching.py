"""`watch`: looks again and again, or once for cron, and says what has changed."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llmgwctl.cli.common import Asked, Session, finish, look, note, out, out_json, run, session, shared

if TYPE_CHECKING:
    from llmgwctl.model.fabric import FabricMap
    from llmgwctl.model.host import Snapshot
    from llmgwctl.watch import Seen, Transition

WORSE = 1
EXEC_LIMIT_S = 60.0
SHOWN = 12  # of the newest transitions, on a terminal
CLEAR = "\x1b[H\x1b[2J"
STDERR = 2  # as a number: what a command says goes where ours goes, whoever has put something in its place


@shared
def watch(
    *,
    asked: Asked,
    once: Annotated[bool, typer.Option("--once", help="One look, against the last one in --state: for cron.")] = False,
    state: Annotated[
        Path | None, typer.Option("--state", metavar="FILE", help="Where the last look is remembered.")
    ] = None,
    every: Annotated[int, typer.Option("--every", metavar="S", min=5, help="Seconds from look to look.")] = 60,
    execute: Annotated[
        str | None,
        typer.Option("--exec", metavar="CMD", help="Run it for each transition, which it gets as JSON on stdin."),
    ] = None,
) -> None:
    """Say what changes: a GPU left or rejoined, a domain dropped, IMEX down, a host gone, a replica failed.

    Example: llmgwctl watch --once --state ~/.local/state/llmgwctl-watch.json --exec 'notify-oncall --stdin'

    Quiet while nothing changes. With --once the exit code is 1 when something got worse; the first look has nothing
    to compare with. --json gives one document with --once, else one a line for each transition.
    """
    if once and state is None:
        raise typer.BadParameter("--once compares with the look before it: give --state FILE")
    command = tuple(shlex.split(execute)) if execute else ()
    run(_once(asked, Memory(state), command) if once else _live(asked, Memory(state), command, every))


@dataclass
class Memory:
    """The last look: in a file when there is one, else in this process alone."""

    path: Path | None
    kept: Seen | None = field(default=None)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """One watch at a time has it, from before it is read until after it is written."""
        from llmgwctl.publish import locked

        if self.path is None:
            yield
        else:
            with locked(self.path.resolve()):
                yield

    def load(self) -> Seen | None:
        from llmgwctl.model.errors import UsageError
        from llmgwctl.watch import BadState, loads

        if self.path is None:
            return self.kept
        try:
            text = self.path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None
        except OSError as e:
            raise UsageError(f"{self.path}: cannot be read: {e.strerror}") from e
        try:
            return loads(text)
        except BadState as e:
            raise UsageError(f"{self.path}: {e}: move it away, and the next look begins anew") from e

    def save(self, seen: Seen) -> None:
        from llmgwctl.publish import write_file
        from llmgwctl.watch import dumps

        self.kept = seen
        if self.path is not None:
            write_file(self.path, dumps(seen), 0o600)


async def _once(asked: Asked, memory: Memory, command: tuple[str, ...]) -> None:
    from llmgwctl.publish import Busy

    try:
        async with session(asked) as s:
            with memory.held():
                first = memory.path is not None and not memory.path.exists()
                found, (_, snapshot), failed = await _look(s, memory, command)
    except Busy as e:
        if not asked.quiet:
            note(f"{e}: this run leaves it to that one")
        if asked.json:
            out_json(document((), None, first=False))
        return
    if asked.json:
        out_json(document(found, snapshot, first=first))
    else:
        for transition in found:
            out(_line(transition, asked, dated=False))
    finish(WORSE if failed or any(t.severity == "worse" for t in found) else 0)


def document(found: Sequence[Transition], snapshot: Snapshot | None, *, first: bool) -> dict[str, object]:
    """One look whole. `taken_at` None: it was left to another watch that has the state now."""
    from llmgwctl.render.json import moment

    return {
        "schema": "llmgwctl.transitions/v1",
        "taken_at": moment(snapshot.taken_at) if snapshot is not None else None,
        "first_look": first,
        "transitions": [t.document() for t in found],
    }


async def _look(
    s: Session, memory: Memory, command: tuple[str, ...]
) -> tuple[tuple[Transition, ...], tuple[FabricMap, Snapshot], bool]:
    """Read, compare, act, remember: in this order, so that a crash repeats a message and never loses one."""
    from llmgwctl.cli.pages import seen as look_at
    from llmgwctl.render.words import counted
    from llmgwctl.watch import step

    before = memory.load()
    snapshot = await s.collect()
    fmap, replicas = look_at(s, snapshot)
    seen, found = step(before, fmap, snapshot, replicas)
    failed = [t for t in found if command and not await _told(command, t)]
    memory.save(seen)
    if before is None and memory.path is not None:
        s.note(f"first look: {counted(len(snapshot.hosts), 'host')} remembered in {memory.path}")
    return found, (fmap, snapshot), bool(failed)


async def _told(command: tuple[str, ...], transition: Transition) -> bool:
    """Whether the command took it. It gets no more than its time, and its output goes to stderr."""
    import asyncio

    try:
        process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE, stdout=STDERR)
    except OSError as e:
        note(f"--exec {command[0]}: {e.strerror}")
        return False
    try:
        async with asyncio.timeout(EXEC_LIMIT_S):
            await process.communicate(json.dumps(transition.document()).encode() + b"\n")
    except TimeoutError:
        note(f"--exec {command[0]}: did not end within {EXEC_LIMIT_S:g} s")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        note(f"--exec {command[0]}: exit code {process.returncode}")
    return process.returncode == 0


def _line(transition: Transition, asked: Asked, *, dated: bool) -> str:
    from llmgwctl.render.text import clean
    from llmgwctl.render.visible import dumps

    document = transition.document()
    if asked.json:
        return dumps(document)
    when = f"{document['at']} " if dated else ""
    return f"{when}{transition.severity}: {clean(transition.text)}"


async def _live(asked: Asked, memory: Memory, command: tuple[str, ...], every_s: int) -> None:
    import asyncio

    from llmgwctl.publish import Busy

    shown: list[str] = []
    drawn = sys.stdout.isatty() and not asked.json
    async with session(asked) as s:
        while True:
            began = asyncio.get_running_loop().time()
            try:
                with memory.held():
                    found, seen, _ = await _look(s, memory, command)
            except Busy as e:
                s.note(str(e))
            else:
                lines = [_line(t, asked, dated=True) for t in found]
                shown = [*shown, *lines][-SHOWN:]
                if drawn:
                    out(_screen(*seen, shown))
                else:
                    for line in lines:
                        out(line)
            await asyncio.sleep(max(1.0, began + every_s - asyncio.get_running_loop().time()))


def _screen(fmap: FabricMap, snapshot: Snapshot, lines: list[str]) -> str:
    from llmgwctl.render.rack import racks

    told = "\n".join(lines) or "nothing has changed since this began"
    return f"{CLEAR}{racks(fmap, snapshot, look())}\n{told}\n"
