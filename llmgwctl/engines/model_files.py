"""A model's files on the hosts of a replica: there, whole and the same, by names and sizes, without hashing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from llmgwctl.engines.base import Problem
from llmgwctl.model.profile import Profile

WEIGHTS = (".safetensors", ".bin", ".pt", ".gguf")


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
