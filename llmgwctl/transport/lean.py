"""Loads asyncssh without asking the machine's linker for a library that is not there."""

from __future__ import annotations

import ctypes.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from glob import glob
from importlib import import_module

_FOLDERS = ("/usr/lib*", "/usr/lib/*-linux-gnu*", "/lib*", "/lib/*-linux-gnu*", "/usr/local/lib*", "/opt/*/lib*")


def load() -> None:
    """While it is imported, asyncssh looks for liboqs by starting ldconfig and a compiler: a fifth of what importing
    it costs. Where some folder of libraries has a liboqs it is looked for as ever (it adds sntrup761)."""
    with _unless_there("oqs", "liboqs"):
        import_module("asyncssh")


@contextmanager
def _unless_there(*names: str) -> Iterator[None]:
    ask = ctypes.util.find_library

    def find(name: str) -> str | None:
        return None if name in names and not _lies_somewhere("liboqs") else ask(name)

    ctypes.util.find_library = find
    try:
        yield
    finally:
        ctypes.util.find_library = ask


def _lies_somewhere(library: str) -> bool:
    named = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    return any(glob(f"{folder}/{library}.*") for folder in (*_FOLDERS, *filter(None, named)))
