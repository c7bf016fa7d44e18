"""The command line: the only place where sentences for people and exit codes are made."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Sequence

INTERRUPTED = 130
FAILED = 1
SELDOM = 200_000  # objects between two looks for garbage: of what is loaded, and of facts, next to nothing ever is


def program() -> int:
    """Entry point of a process of its own, which need not look for garbage in what is about to end with it."""
    gc.set_threshold(SELDOM)
    code = main()
    gc.freeze()
    return code


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Errors raised on purpose become one sentence on stderr; tracebacks only with LLMGWCTL_DEBUG=1."""
    try:
        code = _run(argv)
    except KeyboardInterrupt:  # while this program was still being loaded, too
        code = _said("interrupted", INTERRUPTED)
    except BrokenPipeError:
        code = 0
    except Exception as e:
        if debugging():
            raise
        code = _said(*_sentence(e))
    from llmgwctl.cli.streams import flush

    _forget_ctrl_c()
    return flush() or code


def _forget_ctrl_c() -> None:
    """Python remembers a Ctrl-C that cut through a text which it was just running (each dataclass is one when it is
    made), whoever has dealt with it since, and at its end dies of it in place of our exit code. The next text clears
    it.
    """
    eval("None")  # noqa: S307


def _run(argv: Sequence[str] | None) -> int:
    from llmgwctl.cli.streams import settle

    settle()
    from llmgwctl.cli.app import app
    from llmgwctl.cli.signals import like_ctrl_c

    words = sys.argv[1:] if argv is None else list(argv)
    try:
        with like_ctrl_c():
            app(words)(args=words, prog_name="llmgwctl")
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else FAILED if e.code else 0
        if code == INTERRUPTED:  # typer has taken a KeyboardInterrupt, and says nothing
            raise KeyboardInterrupt from None
        return code
    return 0


def _sentence(error: Exception) -> tuple[str, int]:
    """What is said of an error, and the exit code."""
    from llmgwctl.cli.streams import unwritten
    from llmgwctl.model.errors import LlmgwError

    if isinstance(error, LlmgwError):
        return str(error), error.exit_code
    lost = unwritten(error)
    if lost:
        return lost, FAILED
    return f"this is a bug of llmgwctl: {type(error).__name__}: {error} (LLMGWCTL_DEBUG=1 shows where)", FAILED


def debugging() -> bool:
    return os.environ.get("LLMGWCTL_DEBUG") == "1"


def _said(text: str, code: int) -> int:
    from llmgwctl.render.visible import lines

    with contextlib.suppress(OSError):
        print(f"llmgwctl: {lines(text)}", file=sys.stderr)
    return code
