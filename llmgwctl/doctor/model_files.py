"""The model's folder on one host: there, whole, and how large; by names and sizes, since a hash would read it all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files

from llmgwctl.doctor.base import ModelFolder
from llmgwctl.doctor.names import few

WEIGHTS = (".safetensors", ".bin", ".pt", ".gguf")
POINTER_BYTES = 1024  # a Git LFS pointer is some 130 bytes, and no weights are that small
MIB = 1 << 20


def script() -> str:
    return files("llmgwctl.doctor").joinpath("model_files.sh").read_text(encoding="utf-8")


def read(text: str, path: str) -> ModelFolder:
    """What the script printed. Output that ends early says that it could not be told."""
    lines = text.replace("\r", "").split("\n")
    kind = next((line.removeprefix("path ") for line in lines if line.startswith("path ")), "")
    if "end" not in lines or not kind:
        return ModelFolder(unknown=f"{path} could not be looked at within its limit")
    if kind in ("absent", "unreadable"):
        return ModelFolder(why=f"{path} is not there" if kind == "absent" else f"{path} cannot be read by this account")
    sizes = dict(_sized(lines))
    indexed = [line.removeprefix("indexed ") for line in lines if line.startswith("indexed ")]
    return _whole(path, sizes, indexed, kind == "folder")


def _sized(lines: Sequence[str]) -> list[tuple[str, int]]:
    found = []
    for line in lines:
        words = line.split(" ", 2)
        if len(words) == 3 and words[0] == "file" and words[1].isascii() and words[1].isdigit():
            found.append((words[2], int(words[1])))
    return found


def _whole(path: str, sizes: Mapping[str, int], indexed: Sequence[str], folder: bool) -> ModelFolder:
    weights = {n: s for n, s in sizes.items() if n.endswith(WEIGHTS)}
    made = ModelFolder(len(weights), sum(weights.values()) // MIB)
    lacking = sorted(n for n in indexed if n not in sizes)
    pointers = sorted(n for n, s in weights.items() if s < POINTER_BYTES)
    gguf = any(n.endswith(".gguf") for n in weights)
    if lacking:
        return ModelFolder(why=f"{path} lacks {few(lacking)}, which its index lists")
    if pointers:
        return ModelFolder(why=f"{path}: {few(pointers)} is no larger than an LFS pointer")
    if folder and not weights:
        return ModelFolder(why=f"{path} holds no weights")
    if folder and "config.json" not in sizes and not gguf:
        return ModelFolder(why=f"{path} holds no config.json")
    return made
