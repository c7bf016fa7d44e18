"""stdout and stderr as they may be: closed, full, gone, or without the letters that we print."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Mapping
from typing import TextIO

FAILED = 1
FULL = (errno.ENOSPC, errno.EBADF, errno.EIO, errno.EDQUOT, errno.EFBIG)


def settle() -> None:
    """A descriptor that is closed gets a place holder, lest the next file or socket becomes our stdout. What the
    terminal's alphabet lacks is shown as its escape; it never ends the program."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # the lowest free number is this one; writing to the holder of stdout fails, as it should
            os.open(os.devnull, os.O_RDONLY if number == 1 else os.O_RDWR)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 (as long as we live)
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def letters(environ: Mapping[str, str], encoding: str | None) -> bool:
    """Whether there are more letters than ASCII. Python prints UTF-8 in the C locale too, and says so by its own
    LC_CTYPE: what the operator has set counts, and only where nothing is set what Python says."""
    ours = sys.flags.utf8_mode and not environ.get("LC_ALL") and environ.get("LC_CTYPE") == "C.UTF-8"
    names = ("LC_ALL", "LANG") if ours else ("LC_ALL", "LC_CTYPE", "LANG")
    locale = next((environ[n] for n in names if environ.get(n)), "")
    _, _, charset = locale.partition("@")[0].partition(".")
    if environ.get("TERM") == "dumb" or locale in ("C", "POSIX"):
        return False
    return (charset or encoding or "ascii").lower().replace("-", "").startswith("utf")


def unwritten(error: BaseException) -> str:
    """The sentence about a result that could not be written; "" for any other error."""
    if isinstance(error, OSError) and error.errno in FULL and error.filename is None:
        forget(sys.stdout)
        return f"stdout: the result could not be written: {error.strerror}"
    return ""


def flush() -> int:
    """The exit code of what is still in the buffers. A reader that has seen enough (| head) is no error."""
    code = 0
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (BrokenPipeError, ValueError):
            forget(stream)
        except OSError as e:
            forget(stream)
            if stream is sys.stdout:
                code = FAILED
                with contextlib.suppress(OSError):
                    print(f"llmgwctl: stdout: the result could not be written: {e.strerror}", file=sys.stderr)
    return code


def forget(stream: TextIO) -> None:
    """Point a broken stream at nothing, so that Python does not complain about it at its end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
