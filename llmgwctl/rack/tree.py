"""A directory tree that follows a description: only what changed is written, each file at once or not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from llmgwctl.model.fact import fact


@fact
class File:
    text: str | bytes
    mode: int = 0o644

    @property
    def data(self) -> bytes:
        return self.text if isinstance(self.text, bytes) else self.text.encode()


@fact
class Link:
    target: str


Entry = File | Link


class Tree:
    """`root` and the entries (by relative path) that were written into it last. Other files in it are left alone."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._written: dict[str, Entry] = {}
        self._spare = root / ".new"  # same file system, seen by nobody who lists the real places
        self._spare.mkdir(parents=True, exist_ok=True)

    def write(self, entries: Mapping[str, Entry]) -> None:
        """Make the tree like this. New and changed entries first, so that a reader never misses one that stays."""
        for path, entry in entries.items():
            if self._written.get(path) != entry:
                self._place(path, entry)
        for path in self._written.keys() - entries.keys():
            self._remove(path)
        self._written = dict(entries)

    def _place(self, path: str, entry: Entry) -> None:
        target, new = self.root / path, self._spare / "entry"
        if path not in self._written:
            target.parent.mkdir(parents=True, exist_ok=True)
        new.unlink(missing_ok=True)
        if isinstance(entry, Link):
            new.symlink_to(entry.target)
        else:
            new.write_bytes(entry.data)
            new.chmod(entry.mode)
        new.replace(target)

    def _remove(self, path: str) -> None:
        target = self.root / path
        target.unlink(missing_ok=True)
        for parent in target.parents:
            if parent == self.root:
                break
            try:
                os.rmdir(parent)
            except OSError:  # something else lives there
                break
