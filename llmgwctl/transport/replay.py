"""The other side of the seam: a saved bundle answers in place of the fleet."""

from __future__ import annotations

import asyncio
import errno
import os
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NoReturn

from llmgwctl.model.errors import NotLive, Unreachable
from llmgwctl.model.host import Host
from llmgwctl.model.names import is_address, is_name
from llmgwctl.probe import PROBES
from llmgwctl.probe.base import NOT_SAVED, Output, Section
from llmgwctl.transport.base import Script
from llmgwctl.transport.bundle import META, HostMeta, folder_name, read_meta

MAX_FILE_BYTES = 16 * 1024 * 1024
# What one file of one host holds when a bundle is no more than a folder of them.
FLAT_SECTION = "nvidia-smi-q"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_SUFFIXES = (".txt", ".xml")
_SMI = re.compile(rb"(?i)nvidia|nvsmi|nvml|no devices")


def _sections_files() -> Iterator[str]:
    for probe in PROBES:
        for section in probe.sections:
            yield from (section.file, *section.alternatives)


_FILES = frozenset((META, *_sections_files()))


def _sealed(folder: Path) -> bool:
    return not os.access(folder, os.R_OK | os.X_OK)


def _of_a_host(folder: Path) -> bool:
    """A folder of which a file is one of ours; one that must not be looked into may well be."""
    return folder.is_dir() and (_sealed(folder) or any(f.name in _FILES for f in folder.iterdir()))


def _said_by_smi(file: Path) -> bool:
    """Whether a file by itself is what nvidia-smi said, be it that it failed: a folder of notes is no fleet."""
    try:
        with file.open("rb") as f:
            return _SMI.search(f.read(4096)) is not None
    except OSError:
        return False


class Replay:
    """Answers from DIR/HOST/SECTION.txt with DIR/HOST/meta.json, or from DIR/HOST.txt (what nvidia-smi -q said)."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._root = directory.resolve()

    def empty(self) -> bool:
        """Whether there is no host in it. OSError: it cannot be read, itself or all that could be a host."""
        with os.scandir(self.directory):
            maybe = [f for f in self._children() if _of_a_host(f)]
        if self._flat or any(not _sealed(f) for f in maybe):
            return False
        if maybe:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return True

    def hosts(self) -> tuple[Host, ...]:
        """The hosts that are there, by name: what stands in for an inventory."""
        found = dict.fromkeys(self._flat) | self._folders
        addresses = {n: meta.address for n, meta in found.items() if meta is not None and is_address(meta.address)}
        return tuple(Host(name, address=addresses.get(name, ""), order=i) for i, name in enumerate(sorted(found)))

    async def read(self, host: Host, sections: Sequence[Section]) -> dict[str, Output]:
        folder = self._folder(host)
        if folder is None and host.name not in self._flat:
            raise Unreachable(f"{host.name} is not in {self.directory}", "not-saved")
        if folder is not None and _sealed(folder):
            raise Unreachable(f"{folder} cannot be read: permission denied", "bundle-broken")
        meta = read_meta(folder) if folder else None
        if meta is not None and meta.unreachable is not None:
            kind, why = meta.unreachable
            raise Unreachable(why, kind)
        if folder is None:
            return {s.name: self._flat_output(host, s) for s in sections}
        return {s.name: self._output(folder, meta, s) for s in sections}

    def when(self, host: Host) -> tuple[float, float]:
        """When this host was read (seconds since the epoch) and how long that took."""
        folder = self._folder(host)
        if folder is not None and _sealed(folder):
            return folder.stat().st_mtime, 0.0
        try:
            meta = read_meta(folder) if folder else None
        except Unreachable:
            meta = None
        if meta is not None:
            return meta.epoch_s, meta.seconds
        files = [f for f in folder.iterdir() if f.is_file()] if folder else [self._flat.get(host.name, self.directory)]
        return max((f.stat().st_mtime for f in files if f.exists()), default=0.0), 0.0

    async def run(self, host: Host, script: Script, limit_s: float) -> Output:
        self._not_live(host)

    async def connect(self, host: Host, address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self._not_live(host)

    async def close(self) -> None:
        """Nothing is open."""

    def _not_live(self, host: Host) -> NoReturn:
        raise NotLive(f"{host.name} is answered from {self.directory}: that can be read, and nothing can run there")

    @cached_property
    def _folders(self) -> dict[str, HostMeta | None]:
        """Folders of hosts by the host's name, which meta.json may know better than the folder.

        Pages and files are named after it, so it is believed only where an inventory could have said it.
        """
        found: dict[str, HostMeta | None] = {}
        for folder in self._children():
            if not _of_a_host(folder):
                continue
            try:
                meta = read_meta(folder)
            except (Unreachable, OSError):
                meta = None
            found[_host_of(folder, meta)] = meta
        return found

    @cached_property
    def _flat(self) -> dict[str, Path]:
        return {f.stem: f for f in self._children() if f.suffix in _SUFFIXES and _said_by_smi(f)}

    def _children(self) -> list[Path]:
        """Entries with plain names that do not lead out of the bundle."""
        if not self.directory.is_dir():
            return []
        return [f for f in sorted(self.directory.iterdir()) if _NAME.fullmatch(f.name) and self._inside(f)]

    def _inside(self, file: Path) -> bool:
        return file.resolve().is_relative_to(self._root)

    def _folder(self, host: Host) -> Path | None:
        folder = self.directory / folder_name(host.name)
        return folder if folder.is_dir() and self._inside(folder) else None

    def _flat_output(self, host: Host, section: Section) -> Output:
        if section.name != FLAT_SECTION:
            return NOT_SAVED
        text, truncated = self._text(self._flat[host.name])
        return Output(stdout=text, truncated=truncated)

    def _output(self, folder: Path, meta: HostMeta | None, section: Section) -> Output:
        """A section's files with what meta.json knows of it; files alone were a command that went well."""
        known = meta.sections.get(section.name) if meta is not None else None
        names = (section.file, *section.alternatives)
        file = next((folder / n for n in names if (folder / n).is_file() and self._inside(folder / n)), None)
        if file is None and (known is None or known.state == "ran"):
            return NOT_SAVED
        stdout, truncated = self._text(file)
        stderr, _ = self._text(folder / f"{section.name}.stderr.txt")
        if known is None:
            return Output(stdout=stdout, stderr=stderr, truncated=truncated)
        return Output(
            stdout=stdout,
            stderr=stderr,
            exit_code=known.exit_code,
            ms=known.ms,
            state=known.state,
            note=known.note,
            truncated=known.truncated or truncated,
        )

    def _text(self, file: Path | None) -> tuple[str, bool]:
        """The text of a file, and whether it is longer than what we take."""
        if file is None or not file.is_file() or not self._inside(file):
            return "", False
        with file.open("rb") as f:
            data = f.read(MAX_FILE_BYTES + 1)
        return data[:MAX_FILE_BYTES].decode("utf-8", "replace"), len(data) > MAX_FILE_BYTES


def _host_of(folder: Path, meta: HostMeta | None) -> str:
    if meta is not None and is_name(meta.host) and folder_name(meta.host) == folder.name:
        return meta.host
    return folder.name
