"""Whether the weights of a model would fit: an estimate, said as one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from llmgwctl.engines.base import Problem
from llmgwctl.engines.checks import label
from llmgwctl.model.gpu import Gpu
from llmgwctl.model.profile import Profile

MIB = 1 << 20


def share_mib(profile: Profile, weights_bytes: int) -> int:
    """MiB of weights on each GPU at the least: split over tp x pp, and over all GPUs where experts are spread too."""
    ways = (
        profile.nodes * profile.gpus_per_node if profile.ep or profile.engine == "llamacpp" else profile.tp * profile.pp
    )
    return weights_bytes // max(ways, 1) // MIB


def check(profile: Profile, gpus: Sequence[Gpu], weights_bytes: int, host: str = "") -> Iterable[Problem]:
    """GPUs with less free memory than the weights alone take; a GPU that does not say passes."""
    need = share_mib(profile, weights_bytes)
    for g in gpus:
        if g.memory_total_mib is None:
            continue
        free = g.memory_total_mib - (g.memory_used_mib or 0)
        if free < need:
            where = f" of {host}" if host else ""
            has = f"profile {profile.name}: {label(g)}{where} has {free} MiB free"
            what = f"{has}, and the weights alone take about {need} MiB"
            estimate = f"{what} of it (an estimate from the size of the files)"
            yield Problem(estimate, "more GPUs, or a smaller model", (host,) if host else ())
