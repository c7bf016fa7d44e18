"""Checks that several engines share: numbers that must fit, and arguments that fight what is generated."""

from __future__ import annotations

from collections.abc import Iterable

from llmgwctl.engines.base import Problem
from llmgwctl.model.profile import Profile


def parallel_fits(profile: Profile, world: int, formula: str) -> Iterable[Problem]:
    """GPUs of the replica against the engine's own arithmetic."""
    have = profile.nodes * profile.gpus_per_node
    if have != world:
        what = f"profile {profile.name}: nodes x gpus_per_node is {have}, {formula} is {world}"
        yield Problem(what, "make the two equal")


def fighting_args(profile: Profile, generated: Iterable[str]) -> Iterable[Problem]:
    """Arguments of the profile that say again what the placement decides."""
    names = set(generated)
    for arg in profile.args:
        flag = arg.split("=", 1)[0]
        if flag in names:
            what = f"profile {profile.name}: args has {flag}, which llmgwctl generates"
            yield Problem(what, "take it out and use the profile's own keys (tp, pp, dp, nodes, port ...)")
