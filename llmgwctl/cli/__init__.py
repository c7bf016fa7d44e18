"""The command line: the only place where sentences for people and exit codes are made."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import TextIO

INTERRUPTED = 130
FAILED = 1


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point. Errors raised on purpose become one sentence on stderr; tracebacks only with LLMGWCTL_DEBUG=1."""
    from llmgwctl.cli.app import app
    from llmgwctl.model.errors import LlmgwError

    _any_text_may_be_printed()
    try:
        app(args=None if argv is None else list(argv), prog_name="llmgwctl")
        code = 0
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else FAILED if e.code else 0
    except KeyboardInterrupt:
        code = _said("interrupted", INTERRUPTED)
    except LlmgwError as e:
        if debugging():
            raise
        code = _said(str(e), e.exit_code)
    except BrokenPipeError:
        code = 0
    except Exception as e:
        if debugging():
            raise
        code = _said(f"this is a bug of llmgwctl: {type(e).__name__}: {e} (LLMGWCTL_DEBUG=1 shows where)", FAILED)
    _flush()
    return code


def debugging() -> bool:
    return os.environ.get("LLMGWCTL_DEBUG") == "1"


def _said(text: str, code: int) -> int:
    with contextlib.suppress(OSError):
        print(f"llmgwctl: {text}", file=sys.stderr)
    return code


def _any_text_may_be_printed() -> None:
    """A terminal that lacks a letter shows its escape; it never ends the program."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _flush() -> None:
    """A reader that has seen enough (| head) is no error: what is left goes nowhere, quietly."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (BrokenPipeError, ValueError):
            forget(stream)


def forget(stream: TextIO) -> None:
    """Point a broken stream at nothing, so that Python does not complain about it at its end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
