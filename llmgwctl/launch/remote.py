"""Calling the shard scripts on a host, and what their exit codes mean."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from llmgwctl.model.errors import LlmgwError, Unreachable
from llmgwctl.model.host import Host
from llmgwctl.probe.base import Output
from llmgwctl.transport.base import Script, Transport

HELD, LEFT, ALIVE, REFUSED, GONE = 10, 11, 12, 13, 14
CALL_S = 60.0

T = TypeVar("T")


class RemoteFailed(LlmgwError):
    """A script of ours ended with an error on a host: the message has the host and the script's own words."""

    def __init__(self, host: str, code: int | None, words: str) -> None:
        super().__init__(f"{host}: {words or f'exit code {code}'}")
        self.host = host
        self.code = code


async def call(
    transport: Transport,
    host: Host,
    script: str,
    *args: str,
    stdin: bytes = b"",
    limit_s: float = CALL_S,
    allowed: tuple[int, ...] = (),
) -> Output:
    """Run a verb. A lost connection is Unreachable; an exit code that is neither 0 nor allowed is RemoteFailed."""
    said = await transport.run(host, Script(script, (host.root_prefix, host.state_dir, *args), stdin), limit_s)
    if said.exit_code is None:
        raise Unreachable(said.note or "the connection was lost", "lost")
    if said.exit_code != 0 and said.exit_code not in allowed:
        raise RemoteFailed(host.name, said.exit_code, plain(said.stderr.strip()[-400:]))
    return said


def plain(text: str) -> str:
    """Words from a host without control characters: they must not reach a terminal raw."""
    return "".join(c if c.isprintable() else " " for c in text)


def fields(output: Output) -> list[list[str]]:
    """Lines of tab-separated words, each made harmless."""
    return [[plain(word) for word in line.split("\t")] for line in output.stdout.split("\n") if line]


async def settle(calls: list[Coroutine[Any, Any, T]]) -> list[T | BaseException]:
    """The results or failures of all calls. When cancelled, what is under way on hosts still comes to its end first:

    a clean-up must not run beside the very start that it is to undo.
    """
    tasks = [asyncio.ensure_future(c) for c in calls]
    if not tasks:
        return []
    try:
        await asyncio.wait(tasks)
    except asyncio.CancelledError:
        await asyncio.wait(tasks, timeout=CALL_S)
        for task in tasks:
            task.cancel()
        raise
    return [task.exception() or task.result() for task in tasks]
