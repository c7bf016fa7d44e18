"""The claims of all accounts on a host and the shards of this one, with what lives of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from llmgwctl.model.life import MAX_RANKS, SPEC_SCHEMA, Claim, Cordon, HostLife, Note, Process, ShardRecord
from llmgwctl.model.numbers import document, real, whole
from llmgwctl.model.reading import Reading, broken, ok
from llmgwctl.probe.base import NOT_SAVED, Output, Probe, Section, failure

STALE_S = 600  # without a process; by the host's own uptime
LIMIT = 2048  # claims and shards, and lines of each: a host has some tens
_PID = re.compile(r"[0-9]{1,9}")
_MARKER = re.compile(r"(?P<replica>[A-Za-z0-9._-]+)\.r(?P<rank>[0-9]{1,6})\.(?P<launch>[A-Za-z0-9-]+)")


@dataclass
class Block:
    """A line that the script said, with the words after it and the indented lines of a file below it."""

    word: str
    rest: str
    body: list[str] = field(default_factory=list)

    def pairs(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.body if "=" in line)


def parse(outputs: dict[str, Output]) -> Reading[object]:
    said = outputs.get("life", NOT_SAVED)
    if (why := failure(said)) is not None:
        return broken(why)
    if said.exit_code != 0:
        return broken(f"exit code {said.exit_code}: {said.stderr.strip()[:200]}")
    blocks = list(_blocks(said.stdout))
    about = {b.word: b.rest for b in blocks if b.word in ("boot_id", "uptime_s", "node", "account", "clock", "ticks")}
    uptime_s = _number(about.get("uptime_s", "0"))
    if "boot_id" not in about or uptime_s <= 0:
        return broken("neither boot id nor uptime was said")
    clock_s, ticks = _number(about.get("clock", "0")), _number(about.get("ticks", "100")) or 100
    return ok(_Reader(about["boot_id"], uptime_s, clock_s, ticks).read(blocks))


def _blocks(text: str) -> Iterator[Block]:
    """By line feed alone: other line breaks of Unicode inside a file's content are no new line of ours."""
    block: Block | None = None
    for line in text.split("\n"):
        if line.startswith("  "):
            if block:
                block.body.append(line[2:])
        elif line:
            if block:
                yield block
            word, _, rest = line.partition(" ")
            block = Block(word, rest)
    if block:
        yield block


@dataclass
class _Reader:
    boot_id: str
    uptime_s: float
    clock_s: float = 0.0  # of the real kernel, by which processes begin and end
    ticks: float = 100.0
    cordons: list[Cordon] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    shards: list[ShardRecord] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    carriers: dict[str, int] = field(default_factory=dict)  # marker -> one pid
    bearers: set[str] = field(default_factory=set)  # markers that processes of other accounts carry

    def read(self, blocks: list[Block]) -> HostLife:
        groups: list[list[Block]] = []
        for block in blocks:
            if block.word == "carrier":
                pid, _, marker = block.rest.partition(" ")
                if _PID.fullmatch(pid) and len(self.carriers) < LIMIT:
                    self.carriers.setdefault(marker, int(pid))
            elif block.word == "bearer":
                if len(self.bearers) < LIMIT:
                    self.bearers.add(block.rest.partition(" ")[2])
            elif block.word == "more":
                kind, _, where = block.rest.partition(" ")
                self.unreadable.append(f"{where}: more than 256 of {kind}; the rest was not looked at")
            elif block.word == "cordon":
                self._cordon(block)
            elif block.word == "note":
                self._note(block)
            elif block.word in ("claim", "blocked", "shard", "unreadable"):
                groups.append([block])
            elif groups and len(groups[-1]) < LIMIT:
                groups[-1].append(block)
        for first, *more in groups[:LIMIT]:
            self._group(first, more)
        if len(groups) > LIMIT:
            self.unreadable.append(f"more than {LIMIT} claims and shards; the rest was not looked at")
        self._orphans()
        return HostLife(
            claims=tuple(self.claims),
            shards=tuple(self.shards),
            unreadable=tuple(self.unreadable),
            uptime_s=self.uptime_s,
            boot_id=self.boot_id,
            cordons=tuple(self.cordons[:LIMIT]),
            notes=tuple(self.notes[:LIMIT]),
        )

    # --- cordons and notes

    def _cordon(self, block: Block) -> None:
        told = block.pairs()
        gpus = tuple(int(g) for g in told.get("gpus", "").split(",") if _PID.fullmatch(g))
        owner = block.rest.partition(" owner=")[2]
        words = (told.get("by", ""), told.get("at", ""))
        if told.get("reason"):
            until = _number(told.get("until", "")) or None
            self.cordons.append(Cordon(told["reason"], until, *words, gpus=gpus, account=owner))

    def _note(self, block: Block) -> None:
        name, boot, since = (*block.rest.split(" "), "", "")[:3]
        same = boot == self.boot_id and bool(since)
        self.notes.append(Note(name, "\n".join(block.body), self.uptime_s - _number(since) if same else None))

    def _group(self, first: Block, more: list[Block]) -> None:
        if first.word == "unreadable":
            self.unreadable.append(first.rest)
        elif first.word == "shard":
            self._shard(first, more)
        else:
            self._claim(first, more)

    # --- claims

    def _claim(self, first: Block, more: list[Block]) -> None:
        name, _, owner = first.rest.partition(" owner=")
        key = name.split("~")[0]
        told = first.pairs()
        try:
            made = Claim(
                key=key,
                replica=told["replica"],
                rank=_rank(told["rank"]),
                launch=told["launch"],
                operator=told.get("operator", ""),
                workstation=told.get("workstation", ""),
                account=owner,
                created_at=told.get("created_at", ""),
                boot_id=told["boot_id"],
                uptime_s=_seconds(told["uptime_s"]),
                stopping="stopping" in told,
            )
        except (KeyError, ValueError):
            # It keeps the GPU all the same: nobody can claim it while the file is there.
            self.unreadable.append(f"claim {name} of account {owner}: not whole, or none of ours")
            self.claims.append(Claim(key, "", -1, "", account=owner))
            return
        alive = any(b.word == "process" and not b.rest.endswith(" dead") for b in more)
        marker = _marker(made.replica, made.rank, made.launch)
        alive = made.boot_id == self.boot_id and (alive or marker in self.carriers or marker in self.bearers)
        since = max(made.uptime_s, _number(told.get("ended_s", "0")))
        idle = not alive and self.uptime_s - since >= STALE_S
        self.claims.append(replace(made, alive=alive, stale=made.boot_id != self.boot_id or idle))

    # --- shards

    def _shard(self, first: Block, more: list[Block]) -> None:
        directory, _, boot = first.rest.partition(" boot=")
        spec = _json("\n".join(first.body))
        rank = spec.get("rank") if spec is not None else None
        if spec is None or isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < MAX_RANKS:
            self.unreadable.append(f"{directory}: its spec is not whole")
            return
        same = boot == self.boot_id
        words = {b.word: b for b in more}
        begun = _number(words["begun"].rest) / self.ticks if "begun" in words else 0.0
        ended = words["exit"].pairs() if "exit" in words else {}
        marker = _marker(str(spec.get("replica")), spec.get("rank"), str(spec.get("launch")))
        self.shards.append(
            ShardRecord(
                directory=directory,
                spec=spec,
                processes=_processes(more, same),
                supervisor_alive=same and "supervisor" in words and not words["supervisor"].rest.endswith(" dead"),
                stopping="stopping" in words,
                boot_matches=same,
                log_bytes=int(_number(words["log"].rest)) if "log" in words else 0,
                ended=tuple(ended.items()),
                age_s=max(0.0, self.clock_s - begun) if same and begun and self.clock_s else None,
                ended_ago_s=_ago(self.clock_s, ended) if same else None,
                ready=_json("\n".join(words["ready"].body)) if "ready" in words else None,
                carried=same and marker in self.carriers,
            )
        )

    def _orphans(self) -> None:
        """Processes of ours of which no directory tells: they are shown all the same, so that stop finds them."""
        told = {_marker(s.replica, s.rank, s.launch) for s in self.shards}
        for marker, pid in self.carriers.items():
            if marker not in told and (m := _MARKER.fullmatch(marker)):
                if int(m["rank"]) >= MAX_RANKS:
                    self.unreadable.append(f"process {pid} carries {marker[:100]}: no replica has so many ranks")
                    continue
                spec = {"schema": SPEC_SCHEMA, "replica": m["replica"], "rank": int(m["rank"]), "launch": m["launch"]}
                self.shards.append(ShardRecord("", spec, (Process("?", pid, "running"),), carried=True))


def _processes(more: list[Block], same_boot: bool) -> tuple[Process, ...]:
    mains = {}
    for block in more:
        if block.word == "main":
            index, _, pid, life = (*block.rest.split(" "), "", "", "", "")[:4]
            if _PID.fullmatch(pid):
                mains[index] = (int(pid), life)
    return tuple(_process(b.rest, mains, same_boot) for b in more if b.word == "command")


def _process(words: str, mains: dict[str, tuple[int, str]], same_boot: bool) -> Process:
    index, name, code = (*words.split(" "), "", "", "")[:3]
    pid, life = mains.get(index, (None, "none"))
    if code:
        return Process(name, pid, "exited", int(code) if _PID.fullmatch(code) else None)
    if pid is None:
        return Process(name, None, "waiting")
    return Process(name, pid, "running" if same_boot and life != "dead" else "gone")


def _rank(text: str) -> int:
    value = whole(text, 6)
    if value is None or value >= MAX_RANKS:
        raise ValueError(text[:20])
    return value


def _seconds(text: str) -> float:
    value = real(text)
    if value is None or value < 0:
        raise ValueError(text[:20])
    return value


def _marker(replica: str, rank: object, launch: str) -> str:
    return f"{replica}.r{rank}.{launch}"


def _json(text: str) -> dict[str, object] | None:
    value = document(text)
    return value if isinstance(value, dict) else None


def _ago(clock_s: float, ended: dict[str, str]) -> float | None:
    at = _number(ended.get("clock", ""))
    return max(0.0, clock_s - at) if at and clock_s else None


def _number(text: str) -> float:
    return real(text) or 0.0


PROBE = Probe("life", (Section("life", "sys", 20, script="life.sh"),), parse, fabric_set=True)
