"""A rack in the foreground, until it is interrupted: what happens is yielded, and whoever asked prints it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

from llmgwctl.model.fact import fact
from llmgwctl.rack import control
from llmgwctl.rack.fleet import RackSpec
from llmgwctl.rack.serve import PORT, Rack, serve

_Events = asyncio.Queue[tuple[str, ...] | None]


@fact
class Event:
    """`up`: the rack answers; `order`: somebody changed it (`words`); `down`: it has ended."""

    kind: str
    rack: Rack
    words: tuple[str, ...] = ()


def main_loop(spec: RackSpec, directory: Path | str, *, port: int = PORT, net: str | None = None) -> Iterator[Event]:
    """Blocks between events. Ctrl-C, SIGTERM and a closed terminal end it, and with it all that was started there."""
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        events: _Events = asyncio.Queue()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue  # nohup
            loop.add_signal_handler(number, events.put_nowait, None)
        stack = AsyncExitStack()
        try:
            rack = runner.run(_up(stack, serve(spec, directory, port=port, net=net), events))
            yield Event("up", rack)
            while (words := runner.run(events.get())) is not None:
                yield Event("order", rack, words)
        finally:
            runner.run(stack.aclose())
        yield Event("down", rack)


async def _up(stack: AsyncExitStack, rack: AbstractAsyncContextManager[Rack], events: _Events) -> Rack:
    running = await stack.enter_async_context(rack)
    server = await control.listen(running, lambda words: events.put_nowait(tuple(words)))
    stack.callback(server.close)
    return running
