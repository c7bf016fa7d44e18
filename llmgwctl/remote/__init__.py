"""The POSIX sh that runs on hosts, as files that shellcheck and tests can run where they lie."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def script_text(name: str) -> str:
    """A script as it is sent: a line `. ./FILE` is replaced by that file, so that what goes over is one text."""
    lines = files(__name__).joinpath(name).read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(script_text(line.split("/")[1].strip()) if line.startswith(". ./") else line for line in lines)
