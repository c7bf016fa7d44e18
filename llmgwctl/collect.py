"""All hosts at once into one snapshot: a sick host costs one row, never the run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Protocol, runtime_checkable

from llmgwctl.model.errors import Unreachable
from llmgwctl.model.host import READINGS, Host, HostFacts, Snapshot
from llmgwctl.model.reading import Reading, broken
from llmgwctl.probe.base import Output, Probe, Section
from llmgwctl.transport.base import Transport

Answer = dict[str, Output] | Unreachable
Save = Path | Callable[[Host, Answer, float, float], object]

NOT_ASKED = Output(exit_code=None, state="not-saved", note="not asked in this run")


@runtime_checkable
class Recorded(Protocol):
    """A transport whose answers are not of now."""

    def when(self, host: Host) -> tuple[float, float]:
        """When the host was read, and how many seconds that took."""
        ...


async def collect(
    hosts: Sequence[Host],
    transport: Transport,
    probes: Sequence[Probe] | None = None,
    *,
    on_host: Callable[[HostFacts], None] | None = None,
    deadline_s: float | None = None,
    save: Save | None = None,
    extra: Callable[[Host], Sequence[Section]] | None = None,
) -> Snapshot:
    """Read the hosts (the fabric set, unless told) in the order in which they were given.

    `on_host` is called as each row comes in; `deadline_s` is a limit for one host beside the transport's own;
    `save` gets every raw answer, or is a directory that gets them as a bundle. `extra`: sections of one host alone.
    """
    from llmgwctl.probe import FABRIC_SET

    keep = _into(save) if isinstance(save, Path) else save
    wanted = tuple(s for p in (FABRIC_SET if probes is None else probes) for s in p.sections)

    async def one(host: Host) -> HostFacts:
        sections = (*wanted, *extra(host)) if extra is not None else wanted
        answer, taken_at, seconds = await _asked(host, transport, sections, deadline_s)
        if keep is not None:
            keep(host, answer, taken_at, seconds)
        facts = _facts(host, answer, taken_at, seconds)
        if on_host is not None:
            on_host(facts)
        return facts

    rows = await _all_or_none([asyncio.ensure_future(one(h)) for h in hosts])
    return Snapshot(taken_at=max((f.taken_at for f in rows), default=time.time()), hosts=tuple(rows))


def _into(directory: Path) -> Callable[[Host, Answer, float, float], object]:
    from llmgwctl.transport.bundle import save

    return partial(save, directory)


async def _all_or_none(tasks: list[asyncio.Future[HostFacts]]) -> list[HostFacts]:
    """What is raised here is not a host's doing (a full disk, Ctrl-C): the others are not left running."""
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _asked(
    host: Host, transport: Transport, sections: Sequence[Section], deadline_s: float | None
) -> tuple[Answer, float, float]:
    """The answer of a host or why there is none, when, and after how many seconds."""
    began = time.monotonic()
    answer: Answer
    try:
        async with asyncio.timeout(deadline_s):
            answer = await transport.read(host, sections)
    except Unreachable as e:
        answer = e
    except TimeoutError:
        answer = Unreachable(f"{host.name}: no whole answer within {deadline_s or 0:g} s", "deadline")
    except Exception as e:  # ours, and still only this host's row
        answer = Unreachable(f"{host.name}: {type(e).__name__}: {e}"[:300], "internal-error")
    if isinstance(transport, Recorded):
        return answer, *transport.when(host)
    # As exactly as a bundle keeps them, so that its replay says the same.
    return answer, round(time.time(), 6), round(time.monotonic() - began, 3)


def _facts(host: Host, answer: Answer, taken_at: float, seconds: float) -> HostFacts:
    if isinstance(answer, Unreachable):
        return unreachable(host, answer, taken_at)
    from llmgwctl.probe import assemble

    return assemble(host, _nothing_asked() | answer, taken_at, seconds)


@cache
def _nothing_asked() -> dict[str, Output]:
    from llmgwctl.probe import PROBES

    return {s.name: NOT_ASKED for p in PROBES for s in p.sections}


def unreachable(host: Host, error: Unreachable, taken_at: float) -> HostFacts:
    """The row of a host that did not answer: its named end state stands first in every reading."""
    nothing: Reading[float] = broken(f"{error.kind}: {error}")
    unread: Reading[object] = broken(f"host not read: {error.kind}")
    return HostFacts(host, reachable=nothing, taken_at=taken_at, **dict.fromkeys(READINGS, unread))  # type: ignore[arg-type]
