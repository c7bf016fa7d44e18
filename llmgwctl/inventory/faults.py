"""What is wrong with an inventory, each fault with its file, line, key and the nearest key that is known."""

from __future__ import annotations

from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from llmgwctl.inventory.locate import Path, line_of, locate
from llmgwctl.inventory.schema import Document
from llmgwctl.inventory.suggest import nearest
from llmgwctl.model.errors import InventoryError

MAX_SHOWN = 20


class Faults:
    """Collects faults, so that one run of the editor repairs them all."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.lines = locate(text)
        self.found: list[tuple[int, str]] = []

    def add(self, path: Path, what: str) -> None:
        line = self.line(path)
        self.found.append((line, f"{self.file}:{line}: {shown(path)}: {what}"))

    def line(self, path: Path) -> int:
        return line_of(self.lines, path)

    def schema(self, error: ValidationError) -> None:
        for e in error.errors(include_url=False):
            self.add(*_explained(e))

    def raise_if_any(self) -> None:
        if not self.found:
            return
        texts = list(dict.fromkeys(text for _, text in sorted(self.found, key=lambda f: f[0])))
        more = [f"... and {len(texts) - MAX_SHOWN} more"] if len(texts) > MAX_SHOWN else []
        raise InventoryError("\n".join(texts[:MAX_SHOWN] + more))


def shown(path: Path) -> str:
    """A path as people write it: hosts[1].expect.gpus (the second [[hosts]] block is [1])."""
    out = ""
    for part in path:
        out += f"[{part}]" if isinstance(part, int) else f".{_quoted(part)}" if out else _quoted(part)
    return out or "the file"


def _quoted(part: str) -> str:
    return part if part.replace("-", "").replace("_", "").isalnum() and part.isascii() else f'"{part[:80]}"'


def _explained(e: ErrorDetails) -> tuple[Path, str]:
    path: Path = tuple(p for p in e["loc"] if p != "[key]")
    kind = e["type"]
    if kind == "extra_forbidden":
        return path, f"unknown key; {nearest(str(path[-1]), _known(path[:-1]))}"
    if kind == "missing":
        return path, "is required"
    if kind == "value_error":
        return path, str(e["ctx"]["error"])
    what = e["msg"].replace("Input should be", "should be").replace("dictionary", "table")
    if kind == "literal_error":
        return path, f"{what}, not {_toml(e['input'])}"
    return path, f"{what} (it is {_toml(e['input'])}){_brackets(kind, path, e['input'])}"


def _brackets(kind: str, path: Path, value: Any) -> str:
    """[x] and [[x]] are easily taken for each other."""
    if kind == "list_type" and isinstance(value, dict):
        return f": write [[{shown(path)}]]"
    if kind in ("model_type", "dict_type") and isinstance(value, list):
        return f": write [{shown(path)}]"
    return ""


def _toml(value: Any) -> str:
    """A wrong value by its TOML type; only short plain ones are repeated."""
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    if isinstance(value, str):
        return f"the string {value!r}" if len(value) <= 40 else "a long string"
    if isinstance(value, int | float):
        return f"the number {value}" if abs(value) < 1e15 else "a huge number"
    return "a table" if isinstance(value, dict) else "an array" if isinstance(value, list) else "a date or time"


def _known(path: Path) -> list[str]:
    """The keys of the table at a path, found by walking the models."""
    kind: Any = Document
    for part in path:
        kind = _inside(kind, part)
    model = _model(kind)
    return list(model.model_fields) if model else []


def _inside(kind: Any, part: str | int) -> Any:
    model = _model(kind)
    if model:
        field = model.model_fields.get(str(part))
        return field.annotation if field else None
    return get_args(kind)[-1] if get_origin(kind) in (dict, list) else kind


def _model(kind: Any) -> type[BaseModel] | None:
    if get_origin(kind) in (Union, UnionType):
        return next((m for m in map(_model, get_args(kind)) if m), None)
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None
