"""What other hosts remember of a replica, so that one whose hosts are all gone is unknown and not forgotten."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence

from llmgwctl.launch.remote import call
from llmgwctl.model.errors import LlmgwError
from llmgwctl.model.host import Host, Snapshot
from llmgwctl.model.life import Note, ShardRecord
from llmgwctl.transport.base import Transport

SCHEMA = "llmgwctl.seen/v1"
WITNESSES = 2
PREFIX = "seen."
# Of a shard's spec: what `ps` shows of a replica that nobody can reach.
_KEYS = (
    *("replica", "launch", "profile", "profile_fingerprint", "pool", "engine", "model", "tier", "fabric"),
    *("endpoint", "shards", "operator", "workstation", "created_at"),
)


def note_name(replica: str, launch: str) -> str:
    return f"{PREFIX}{replica}.{launch}"


def remembered(note: Note) -> ShardRecord | None:
    """The replica that a note tells of; None for a note about something else, or one that is not whole."""
    if not note.name.startswith(PREFIX):
        return None
    try:
        told = json.loads(note.text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict) or told.get("schema") != SCHEMA:
        return None
    record = ShardRecord("", {k: v for k, v in told.items() if k != "schema"})
    return record if note.name == note_name(record.replica, record.launch) else None


def witnesses(hosts: Iterable[Host], used: Sequence[str], pool: str) -> tuple[Host, ...]:
    """Hosts that remember a replica: none of its own, of its pool where there are enough."""
    others = sorted((h for h in hosts if h.name not in used), key=lambda h: (h.pool != pool, h.order, h.name))
    return tuple(others[:WITNESSES])


async def remember(spec: Mapping[str, object], answering: Iterable[Host], transport: Transport) -> tuple[Host, ...]:
    """Leave a note with witnesses among the hosts that answer, and say with which.

    One that fails is no reason to fail anything.
    """
    told = {"schema": SCHEMA, **{k: spec[k] for k in _KEYS if k in spec}}
    shards = spec.get("shards")
    used = [str(s.get("host")) for s in shards if isinstance(s, dict)] if isinstance(shards, list) else []
    name = note_name(str(spec["replica"]), str(spec["launch"]))
    chosen = witnesses(answering, used, str(spec.get("pool", "")))
    data = json.dumps(told).encode()
    await _each(call(transport, host, "notes.sh", "put", name, stdin=data) for host in chosen)
    return chosen


async def forget(snapshot: Snapshot, replica: str, launch: str, transport: Transport) -> None:
    """Take the notes about a launch away from whoever has them."""
    await drop(snapshot, note_name(replica, launch), transport)


async def unsay(hosts: Iterable[Host], replica: str, launch: str, transport: Transport) -> None:
    """The same by the hosts that were told: a start that was undone leaves nothing to remember."""
    await _each(call(transport, host, "notes.sh", "drop", note_name(replica, launch)) for host in hosts)


async def drop(snapshot: Snapshot, name: str, transport: Transport) -> None:
    holders = [f.host for f in snapshot.hosts if f.life.value and any(n.name == name for n in f.life.value.notes)]
    await _each(call(transport, host, "notes.sh", "drop", name) for host in holders)


async def _each(calls: Iterable[object]) -> None:
    done = await asyncio.gather(*calls, return_exceptions=True)  # type: ignore[call-overload]
    for result in done:
        if isinstance(result, BaseException) and not isinstance(result, LlmgwError):
            raise result
