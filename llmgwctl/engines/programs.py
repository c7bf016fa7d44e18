"""Where the programs of a build are, and how an address is written beside a port."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from llmgwctl.engines.base import Build

_PYTHON = re.compile(r"python[0-9.]*\Z")


def program(build: Build, name: str) -> str:
    """The main program of a build: what PATH finds, the path itself, or that name in the folder which the path is."""
    if not build.path:
        return name
    return folder_of(build) + name if is_folder(build.path) else build.path


def beside(build: Build, name: str) -> str:
    """Another program of the same build: it lies beside the main one."""
    return folder_of(build) + name


def folder_of(build: Build) -> str:
    """With a "/" at its end; "" when the build is what PATH finds."""
    if is_folder(build.path):
        return build.path.rstrip("/") + "/"
    return build.path[: build.path.rfind("/") + 1]


def is_folder(path: str) -> bool:
    """By its spelling, since nothing is looked up here: a "/" at its end, or a folder called bin."""
    return path.endswith("/") or path.rpartition("/")[2] == "bin"


def is_python(path: str) -> bool:
    return _PYTHON.match(path.rpartition("/")[2]) is not None


def host_port(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


@cache
def script(name: str) -> str:
    """A script of this package that runs on hosts, as one text: a line `. ./FILE` is replaced by that file."""
    lines = files("llmgwctl.engines").joinpath(name).read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(script(line.split("/")[1].strip()) if line.startswith(". ./") else line for line in lines)
