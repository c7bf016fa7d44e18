"""Starting the shards of a claimed replica, on all hosts at once."""

from __future__ import annotations

from collections.abc import Sequence

from llmgwctl.launch.prepare import Prepared
from llmgwctl.launch.remote import RemoteFailed, call, fields, settle
from llmgwctl.model.numbers import whole
from llmgwctl.transport.base import Transport


async def start(prepared: Sequence[Prepared], transport: Transport) -> tuple[int, ...]:
    """Hand each host its shard; the pids of the supervisors by rank. When one cannot, the others are still waited for,

    so that whoever rolls back meets no start that is under way.
    """
    done = await settle([_start_on(p, transport) for p in prepared])
    for result in done:
        if isinstance(result, BaseException):
            raise result
    return tuple(r for r in done if isinstance(r, int))


async def _start_on(p: Prepared, transport: Transport) -> int:
    words = (p.replica, str(p.rank), p.launch.id)
    said = await call(transport, p.host, "shard.sh", "start", *words, *p.keys, stdin=p.payload)
    pids = (whole(line[1], 9) for line in fields(said) if line[0] == "started" and len(line) > 1)
    pid = next((p for p in pids if p is not None), None)
    if pid is None:
        raise RemoteFailed(p.host.name, said.exit_code, "it does not say what it started")
    return pid
