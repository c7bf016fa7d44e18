"""`logs`: what every rank has said, followed or filtered, with the failures that are known named beside it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from llmgwctl.cli.common import Asked, Session, finish, out, out_json, session
from llmgwctl.cli.life import UNKNOWN, find, read_life, tell_unseen, unseen
from llmgwctl.cli.naming import not_there
from llmgwctl.cli.secrets import Hider, hider
from llmgwctl.launch.logs import CommandLog, cut, fetch_logs, fetch_more
from llmgwctl.launch.signatures import Found, Part, dated, named, since
from llmgwctl.launch.state import targets_of
from llmgwctl.launch.stop import Target
from llmgwctl.model.errors import UsageError
from llmgwctl.model.fact import fact
from llmgwctl.model.host import Snapshot
from llmgwctl.model.numbers import ranges
from llmgwctl.model.replica import ReplicaState
from llmgwctl.render import life as render
from llmgwctl.render.fold import alike
from llmgwctl.render.text import clean

POLL_S = 1.0
BURST = 32  # answers that are read on at once; a host may go on for ever with long ones
LONGEST = 65536  # characters that are kept of a line without an end
BEYOND = 8192  # as many more are waited for before it is cut: a secret that lies across the cut is whole by then
SPAN = re.compile(r"(\d{1,6})([smhd])")
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@fact
class Wish:
    """Which lines are wanted."""

    rank: int | None = None
    tail: int = 100
    since_s: int | None = None
    grep: re.Pattern[str] | None = None
    supervisor: bool = False

    @classmethod
    def of(cls, asked: Asked, rank: int | None, tail: int, back: str | None, grep: str | None) -> Wish:
        try:
            pattern = re.compile(grep) if grep else None
        except re.error as e:
            raise UsageError(f"--grep {grep!r} is no regular expression: {e}") from None
        return cls(rank, tail, seconds(back) if back else None, pattern, asked.verbose)

    def lines(self, log: CommandLog) -> tuple[str, ...]:
        lines: Sequence[str] = log.text.rstrip("\n").split("\n") if log.text.strip() else ()
        if self.since_s is not None:
            lines = since(lines, log.since) if log.since else lines
        found = tuple(x for x in lines if self.grep is None or self.grep.search(x))
        return found if self.since_s is not None or self.grep is not None else found[-self.tail :]

    def wants(self, log: CommandLog) -> bool:
        return not log.why and (log.command != "supervisor" or self.supervisor)


def seconds(text: str) -> int:
    span = SPAN.fullmatch(text)
    if span is None:
        raise UsageError(f"--since {text!r}: a span like 30s, 10m, 2h or 1d")
    return int(span[1]) * UNITS[span[2]]


async def show_logs(asked: Asked, name: str, wish: Wish, *, follow: bool) -> None:
    if follow and asked.json:
        raise UsageError("--follow prints lines for people: it does not go with --json")
    async with session(asked) as s:
        snapshot = await read_life(s)
        states = find(snapshot, [name])
        if not states:
            tell_unseen(s, snapshot)
            raise UsageError(not_there(name, find(snapshot, None)))
        ranks = sorted({x.rank for r in states for x in r.shards})
        if wish.rank is not None and wish.rank not in ranks:
            raise UsageError(f"{name} has no rank {wish.rank}: it has {ranges(ranks) or 'none'}")
        targets = [t for r in states for t in targets_of(snapshot, r) if wish.rank is None or t.rank == wish.rank]
        hidden = hider(s.inventory)
        logs = hidden(await fetch_logs(targets, s.transport, since_s=wish.since_s))
        logs, rests = unfinished(logs) if follow else (logs, {})
        known = named(parts(logs, states))
        if asked.json:
            out_json(_document(name, logs, known, wish))
        else:
            shown = [(label(x), "\n".join(wish.lines(x))) for x in logs if wish.wants(x)]
            if text := render.log_lines(shown):
                out(text)
            tell_known(s, known)
        tell_uncut(s, [x for x in logs if wish.wants(x)], wish)
        for lost in (x for x in logs if x.why):
            s.note(clean(f"rank {lost.rank} on {lost.host}: {lost.why}"))
        if follow:
            await _Follow(s, targets, wish, hidden, rests).run(logs)
    if missing := _missing(snapshot, states, wish):
        tell_unseen(s, snapshot)
    finish(UNKNOWN if missing or any(x.why for x in logs) else 0)


def _missing(snapshot: Snapshot, states: Iterable[ReplicaState], wish: Wish) -> bool:
    """Whether a rank that was asked for could not be asked; when nothing else is known, whether any host could not."""
    if wish.rank is not None and any(x.rank == wish.rank and x.state != "unknown" for r in states for x in r.shards):
        return False
    return bool(unseen(snapshot))


def label(log: CommandLog) -> str:
    return f"r{log.rank} {log.command}"


def unfinished(logs: Iterable[CommandLog]) -> tuple[tuple[CommandLog, ...], dict[str, str]]:
    """The logs up to their last line break, and by label the beginnings of lines that will go on: what is secret in
    such a line is only known when it is whole."""
    kept, rests = [], {}
    for log in logs:
        whole, cut, rest = log.text.rpartition("\n")
        kept.append(replace(log, text=whole + cut))
        if rest:
            rests[label(log)] = rest
    return tuple(kept), rests


def parts(logs: Iterable[CommandLog], states: Iterable[ReplicaState] = ()) -> list[Part]:
    """The logs with how long ago each rank ended, which tells causes from consequences."""
    ended = {(x.rank, x.host): x.for_s for r in states for x in r.shards if x.state == "exited"}
    return [
        Part(x.rank, x.host, x.command, x.text, ended.get((x.rank, x.host)))
        for x in logs
        if not x.why and x.command != "supervisor"
    ]


def tell_uncut(s: Session, logs: Sequence[CommandLog], wish: Wish) -> None:
    """--since goes by the times in the lines. Where a log has none, all of it is shown, and that is said."""
    if wish.since_s is None:
        return
    uncut = ((str(x.rank), x.command) for x in logs if x.text.strip() and not (x.since and dated(x.text)))
    for ranks, command in alike(uncut):
        which = f"rank{'s' if len(set(ranks)) > 1 else ''} {ranges(map(int, ranks))}"
        s.note(clean(f"{command} of {which} writes no times: --since cuts nothing there, its last lines are all shown"))


def tell_known(s: Session, known: Sequence[Found]) -> None:
    for found in known:
        s.note(clean(f"! {found}"))


def _document(name: str, logs: Iterable[CommandLog], known: Iterable[Found], wish: Wish) -> dict[str, object]:
    told = [
        {"rank": x.rank, "host": x.host, "command": x.command, "text": "".join(f"{line}\n" for line in wish.lines(x))}
        for x in logs
        if not x.why
    ]
    signatures = [
        {
            "name": f.signature.name,
            "rank": f.rank,
            "host": f.host,
            "meaning": f.signature.meaning,
            "fix": f.signature.fix,
            "line": f.line,
        }
        for f in known
    ]
    return {"schema": "llmgwctl.logs/v1", "replica": name, "logs": told, "known": signatures}


@dataclass
class _Follow:
    """Asks each rank for what is new, once a second, until nothing of the replica is left or Ctrl-C."""

    s: Session
    targets: list[Target]
    wish: Wish
    hidden: Hider
    rests: dict[str, str] = field(default_factory=dict)
    long: set[str] = field(default_factory=set)  # the line that is not finished is too long: no more of it is kept
    torn: set[str] = field(default_factory=set)  # what comes next is the end of a line that has lost its beginning
    told: set[str] = field(default_factory=set)

    async def run(self, logs: Sequence[CommandLog]) -> None:
        seen = {(x.rank, x.host): self._sizes(logs, x.rank, x.host) for x in logs}
        behind = 0  # answers in a row that were not the last of what there is
        while self.targets:
            await asyncio.sleep(POLL_S if behind % BURST == 0 else 0)
            found = await fetch_more(self.targets, self.s.transport, seen)
            behind = behind + 1 if any(map(cut, found)) else 0
            for log in found:
                if log.gone:
                    self._end(log.rank)
                    self.targets = [t for t in self.targets if (t.rank, t.host.name) != (log.rank, log.host)]
                    self._say(f"rank {log.rank} on {log.host}: nothing of it is left there")
                elif log.why:
                    self._say(f"rank {log.rank} on {log.host}: {log.why}")
                elif self.wish.wants(log):
                    seen.setdefault((log.rank, log.host), {})[log.command] = log.total_bytes
                    self._tell_missed(log)
                    self._print(log)

    def _sizes(self, logs: Sequence[CommandLog], rank: int, host: str) -> dict[str, int]:
        return {x.command: x.total_bytes for x in logs if (x.rank, x.host) == (rank, host)}

    def _print(self, log: CommandLog) -> None:
        """Whole lines; the beginning of one that is not finished waits for its end. What comes in two answers may be
        one secret, so the two together are looked through."""
        text = log.text
        if label(log) in self.long:
            _, found, text = text.partition("\n")
            if not found:
                return
            self.long.remove(label(log))
            text = f"\n{text}"
        text = self.rests.pop(label(log), "") + text
        if label(log) in self.torn:
            _, found, text = text.partition("\n")
            if not found:
                return
            self.torn.remove(label(log))
        (joined,) = self.hidden((replace(log, text=text),))
        whole, cut, rest = joined.text.rpartition("\n")
        if rest:
            self._keep(log, rest)
        shown = self._show(label(log), whole.split("\n")) if cut else []
        for known in named([Part(log.rank, log.host, log.command, "\n".join(shown))]) if shown else ():
            self._say(f"! {known}")

    def _keep(self, log: CommandLog, rest: str) -> None:
        """The beginning of a line, until its end comes; of one that is too long nothing more is kept, which is said."""
        self.rests[label(log)] = rest
        if len(rest) > LONGEST + BEYOND:
            self.rests[label(log)] = rest[:LONGEST]
            self.long.add(label(log))
            what = f"rank {log.rank} on {log.host}: a line of {log.command} is longer than {LONGEST} characters"
            self.s.note(clean(f"{what}: the rest of it is left out"))

    def _tell_missed(self, log: CommandLog) -> None:
        """Of the two lines in which a gap begins and ends neither is shown: half a secret is not known for one."""
        if log.missed_bytes:
            self.rests.pop(label(log), None)
            self.torn.add(label(log))
            where = f"rank {log.rank} on {log.host}"
            self.s.note(
                clean(f"{where}: {log.missed_bytes} bytes of {log.command} are left out: its host keeps no more")
            )

    def _end(self, rank: int) -> None:
        """Nothing more comes: what has no line break is its last line."""
        for one in [x for x in self.rests if x.startswith(f"r{rank} ")]:
            self._show(one, [self.rests.pop(one)])

    def _show(self, which: str, lines: Sequence[str]) -> list[str]:
        shown = [x for x in lines if self.wish.grep is None or self.wish.grep.search(x)]
        if shown:
            out(render.log_lines([(which, "\n".join(shown))]))
        return shown

    def _say(self, text: str) -> None:
        """Once: a host that stays silent is not told every second."""
        if text not in self.told:
            self.told.add(text)
            self.s.note(clean(text))
