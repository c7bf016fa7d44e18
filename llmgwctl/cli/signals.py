"""A request to end, and a terminal that is closed, end a command as Ctrl-C does: with its clean-up."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def like_ctrl_c() -> Iterator[None]:
    """Only what would have killed us is taken: nohup goes on holding."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    taken = [number for number in ENDING if signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _interrupt(_number: int, _frame: object) -> None:
    """Through whoever waits for Ctrl-C now; a shell that starts us in the background has it ignored."""
    if callable(signal.getsignal(signal.SIGINT)):
        signal.raise_signal(signal.SIGINT)
    else:
        raise KeyboardInterrupt


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """A clean-up that is bounded is not cut short by a second Ctrl-C."""
    numbers = (signal.SIGINT, *ENDING)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
