"""cordons.toml beside the inventory: written by llmgwctl alone, whole or not at all."""

from __future__ import annotations

import fcntl
import math
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import tomli_w
from pydantic import Field, ValidationError

from llmgwctl.inventory.schema import Line, Name, Table, Text
from llmgwctl.model.errors import InventoryError
from llmgwctl.model.life import Cordon

NAME = "cordons.toml"
Cordons = dict[str, tuple[Cordon, ...]]


class CordonTable(Table):
    reason: Text
    until: float | None = None
    by: Line = ""
    at: Line = ""
    gpus: list[Annotated[int, Field(ge=0, le=63)]] = Field([])


class CordonFile(Table):
    schema_: Literal["llmgwctl.cordons/v1"] = Field(alias="schema")
    hosts: dict[Name, CordonTable] = Field({})


def beside(inventory: Path | None) -> Path | None:
    return inventory.with_name(NAME) if inventory is not None else None


def load(path: Path | None) -> Cordons:
    """Host -> its cordons; without a file none. A file that cannot be read is an error: it may keep a host out."""
    if path is None:
        return {}
    try:
        raw = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as e:
        raise InventoryError(f"{path}: cannot be read: {e}") from None
    try:
        file = CordonFile.model_validate(tomllib.loads(raw))
    except (ValueError, ValidationError) as e:
        raise InventoryError(f"{path}: is not what `llmgwctl hosts cordon` writes: {_first(e)}") from None
    return {name: (_cordon(table),) for name, table in file.hosts.items()}


def _first(error: ValueError) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return str(error)


def _cordon(table: CordonTable) -> Cordon:
    until = table.until if table.until is not None and math.isfinite(table.until) else None
    return Cordon(table.reason, until, table.by, table.at, tuple(table.gpus))


def change(path: Path, how: Callable[[Cordons], Cordons]) -> None:
    """Read, change, write: one run after the other, and a reader sees the old file or the new one."""
    with _alone(path.parent):
        document = dumps(how(load(path)))
        fresh = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with fresh.open("w", encoding="utf-8") as f:
                f.write(document)
                f.flush()
                os.fsync(f.fileno())
            fresh.replace(path)
        except OSError as e:
            fresh.unlink(missing_ok=True)
            raise InventoryError(f"{path}: cannot be written: {e.strerror or e}") from None


def dumps(cordons: Mapping[str, tuple[Cordon, ...]]) -> str:
    rows = {name: _row(found[0]) for name, found in sorted(cordons.items()) if found}
    head = "# Written by `llmgwctl hosts cordon` and `llmgwctl hosts uncordon`.\n"
    return head + tomli_w.dumps({"schema": "llmgwctl.cordons/v1", "hosts": rows})


def _row(cordon: Cordon) -> dict[str, object]:
    row: dict[str, object] = {"reason": cordon.reason, "by": cordon.by, "at": cordon.at}
    if cordon.until is not None:
        row["until"] = float(cordon.until)
    if cordon.gpus:
        row["gpus"] = list(cordon.gpus)
    return row


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """The lock is on the folder itself: no file of it stays behind."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as e:
        raise InventoryError(f"{folder}: {e.strerror or e}") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
