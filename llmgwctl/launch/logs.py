"""What the commands of a replica have printed: fetched from the hosts, and saved in a folder here."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from llmgwctl.launch.remote import GONE, call, plain
from llmgwctl.launch.stop import Target
from llmgwctl.model.fact import fact
from llmgwctl.model.names import NAME
from llmgwctl.model.numbers import whole
from llmgwctl.transport.base import Transport

TAIL_BYTES = 2 * 1024 * 1024
MORE_BYTES = 1024 * 1024  # in one answer, of one command
MAX_PARTS = 256
CLOCK = "clock"


@fact
class CommandLog:
    """The kept output of one command of a rank. `why`: it could not be fetched."""

    rank: int
    host: str
    command: str = ""
    text: str = ""
    total_bytes: int = 0  # that the command has printed, up to the end of the text
    missed_bytes: int = 0  # that came before the text and are not kept any more
    why: str = ""
    since: str = ""  # by its host's clock, the moment from which lines were asked for
    gone: bool = False  # its shard is not on the host any more

    def last(self, count: int) -> tuple[str, ...]:
        return tuple(self.text.rstrip("\n").split("\n")[-count:]) if self.text.strip() else ()


async def fetch_logs(
    targets: Sequence[Target], transport: Transport, max_bytes: int = TAIL_BYTES, since_s: int | None = None
) -> tuple[CommandLog, ...]:
    """The newest part of every command of every rank, rank by rank; a host that does not answer costs its own."""
    back = str(since_s) if since_s is not None else "0"
    found = await asyncio.gather(*(_fetch(t, transport, "tail", str(max_bytes), back) for t in targets))
    return tuple(_from_a_line(log, max_bytes) for logs in found for log in _dated(logs))


def _from_a_line(log: CommandLog, max_bytes: int) -> CommandLog:
    """Of more than was asked for the first line is cut, and half a secret would not be known for one."""
    cut = log.total_bytes > max_bytes and "\n" in log.text
    return replace(log, text=log.text.partition("\n")[2]) if cut else log


def _dated(logs: Sequence[CommandLog]) -> list[CommandLog]:
    """Before its logs a host says what its clock said so long ago."""
    moment = next((x.text.strip() for x in logs if x.command == CLOCK), "")
    return [replace(x, since=moment) for x in logs if x.command != CLOCK]


async def fetch_more(
    targets: Sequence[Target], transport: Transport, seen: Mapping[tuple[int, str], Mapping[str, int]]
) -> tuple[CommandLog, ...]:
    """What has come since `seen`: (rank, host) -> command -> total_bytes of what was read. One answer brings MORE_BYTES
    of a command at most: whether there may be more says `cut`."""

    def known(t: Target) -> list[str]:
        return [word for name, size in seen.get((t.rank, t.host.name), {}).items() for word in (name, str(size))]

    found = await asyncio.gather(*(_fetch(t, transport, "after", str(MORE_BYTES), *known(t)) for t in targets))
    return tuple(log for logs in found for log in logs)


def cut(log: CommandLog) -> bool:
    """Whether an answer may have ended at its limit: a character takes four bytes at most."""
    return len(log.text) >= MORE_BYTES // 4


async def matching_lines(
    targets: Sequence[Target], transport: Transport, patterns: Sequence[str]
) -> tuple[CommandLog, ...]:
    """Lines that hold one of the fixed strings."""
    found = await asyncio.gather(*(_fetch(t, transport, "lines", *patterns) for t in targets))
    return tuple(log for logs in found for log in logs)


async def _fetch(t: Target, transport: Transport, verb: str, *args: str) -> list[CommandLog]:
    nonce = secrets.token_hex(16)
    try:
        said = await call(transport, t.host, "logs.sh", verb, *t.words, nonce, *args, allowed=(GONE,))
    except Exception as e:  # whatever one host does, the others' logs are fetched
        return [CommandLog(t.rank, t.host.name, why=str(e))]
    if said.exit_code == GONE:
        return [CommandLog(t.rank, t.host.name, why=plain(said.stderr.strip()[:200]) or "it is gone", gone=True)]
    return [CommandLog(t.rank, t.host.name, *part) for part in split(said.stdout, nonce)]


def split(text: str, nonce: str) -> list[tuple[str, str, int, int]]:
    """(command, text, bytes up to its end, bytes missed before it) for each part.

    Nothing that a log holds can imitate our secret line. A host may say any name: part of a file's name here.
    """
    parts = []
    for part in text.split(f"\n{nonce} ", MAX_PARTS + 1)[1 : MAX_PARTS + 1]:
        head, _, body = part.partition("\n")
        name, size, missed = (*head.split(), "", "", "")[:3]
        command = name if NAME.fullmatch(name) else "unnamed"
        parts.append((command, body, whole(size) or 0, whole(missed) or 0))
    return parts


def save_logs(logs: Sequence[CommandLog], folder: Path) -> tuple[Path, ...]:
    """One file a command, in a folder that only we can read (a log may hold anything)."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    written = []
    for log in logs:
        path = folder / f"r{log.rank}.{log.host}.{log.command or 'unknown'}.log"
        path.write_text(log.text or f"(not fetched: {log.why})\n", encoding="utf-8", errors="backslashreplace")
        path.chmod(0o600)
        written.append(path)
    return tuple(written)
