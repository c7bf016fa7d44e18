"""A model's files on the hosts of a replica: there, whole and the same, by names and sizes, without hashing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from llmgwctl.engines.base import Problem
from llmgwctl.model.profile import Profile

WEIGHTS = (".safetensors", ".bin", ".pt", ".gguf")
_FILE = re.compile(r"file (\d{1,18}) (.{1,255})")
_SPLIT = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf\Z")


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """What one host has at model_path. `sizes`: name -> bytes; `indexed`: names that the weights index lists."""

    sizes: Mapping[str, int] = field(default_factory=dict)
    indexed: frozenset[str] = frozenset()

    @property
    def weights_bytes(self) -> int:
        """Of the indexed files where there is an index: a folder often holds the same weights in a second format."""
        if self.indexed:
            return sum(self.sizes.get(n, 0) for n in self.indexed)
        for suffix in WEIGHTS:
            if found := [size for name, size in self.sizes.items() if name.endswith(suffix)]:
                return sum(found)
        return 0


def folder_of(path: str) -> str:
    """What is looked at: of a split .gguf its folder, where the other parts lie."""
    return path.rpartition("/")[0] or "/" if _SPLIT.match(path) else path


def read(text: str, path: str) -> ModelFiles | None:
    """What the script said of folder_of(path); empty: nothing is there; None: its words end early."""
    lines = text.replace("\r", "").split("\n")
    if "end" not in lines:
        return None
    sizes = {m[2]: int(m[1]) for line in lines if (m := _FILE.fullmatch(line))}
    indexed = frozenset(line.removeprefix("indexed ") for line in lines if line.startswith("indexed "))
    if (split := _SPLIT.match(path.rpartition("/")[2])) is not None:
        base, _, count = split.groups()
        indexed = frozenset(f"{base}-{i:05}-of-{count}.gguf" for i in range(1, min(int(count), 999) + 1))
        sizes = {n: s for n, s in sizes.items() if n in indexed}
    return ModelFiles(sizes, indexed)


def check(profile: Profile, hosts: Mapping[str, ModelFiles | None]) -> Iterable[Problem]:
    """`hosts`: those that read the model, in rank order; None where nothing is at the path."""
    where = f"profile {profile.name}: {profile.model_path}"
    missing = [h for h, files in hosts.items() if files is None]
    if missing:
        yield Problem(f"{where} is missing on {', '.join(missing)}", "copy the model there, or mount it")
    there = {h: files for h, files in hosts.items() if files is not None}
    for host, files in there.items():
        if lacking := sorted(n for n in files.indexed if not files.sizes.get(n)):
            more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
            yield Problem(f"{where} is incomplete on {host}: {lacking[0]}{more} not there or empty", "copy it again")
    if there:
        yield from _differing(where, there)


def _differing(where: str, hosts: Mapping[str, ModelFiles]) -> Iterable[Problem]:
    """Against the leader's: the name of the first file that is not the same."""
    leader, first = next(iter(hosts.items()))
    for host, files in hosts.items():
        names = {*first.sizes, *files.sizes}
        unlike = sorted(n for n in names if _counts(n) and first.sizes.get(n) != files.sizes.get(n))
        if unlike:
            yield Problem(f"{where} on {host} is not that of {leader}: {unlike[0]} differs", "copy one of them to all")


def _counts(name: str) -> bool:
    return name.endswith((*WEIGHTS, ".json", ".model"))
