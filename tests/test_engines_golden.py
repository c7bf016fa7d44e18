"""Commands and environment of every engine, byte for byte, for replicas placed on invented fleets."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_cases import BUILDS, FLEETS, cases, contexts, shown

from llmgwctl.engines import ENGINES
from llmgwctl.engines.env import environment

GOLDEN = Path(__file__).parent / "golden" / "engines"
CASES = cases()


@pytest.mark.parametrize("name", sorted({p.stem for p in GOLDEN.glob("*.txt")} | set(CASES)))
def test_golden(name, golden):
    """Each file is what the engine says now, and each case has its file; one that no case makes is a leftover."""
    assert name in CASES, f"{name}.txt is left over: no case makes it"
    golden(GOLDEN / f"{name}.txt", shown(*CASES[name]))


@pytest.mark.parametrize("name", CASES)
def test_nothing_stands_against_a_golden_case(name):
    """What is shown as the way to start is also accepted."""
    profile, fleet, build = CASES[name]
    gpus = tuple(g for f in fleet.values() for g in f.gpus.value.gpus)
    ranks = contexts(profile, fleet, build)
    used = {u for c in ranks for u in c.shard.gpu_uuids}
    engine = ENGINES[profile.engine]
    assert engine.validate(profile, tuple(g for g in gpus if g.uuid in used)) == ()
    assert engine.refuse(ranks[0].replica, profile, {c.shard.host: build for c in ranks}) == ()


def test_every_engine_is_shown_on_every_kind_of_fleet():
    """The engines that load a model, each on one host, in a domain, on InfiniBand, on RoCE and on four hosts."""
    wanted = {f"{e}-{f}" for e in BUILDS for f in FLEETS} - {"vllm-ray-one-host"}
    assert wanted <= set(CASES)
    assert {p.engine for p, _, _ in CASES.values()} == set(ENGINES) - {"sim"}


@pytest.mark.parametrize("name", CASES)
def test_a_command_is_of_plain_words(name):
    """One word a line is how commands and variables reach a host: no line break, no empty program, no key."""
    for ctx in contexts(*CASES[name]):
        engine = ENGINES[ctx.profile.engine]
        for command in engine.commands(ctx):
            words = (*command.argv, *command.after, *(v for pair in command.env for v in pair))
            assert command.argv[0]
            assert not [w for w in words if "\n" in w or "\0" in w]
        assert not [v for v in environment(ctx, engine) if "\n" in v.value]


@pytest.mark.parametrize("name", CASES)
def test_commands_of_a_shard_have_different_names(name):
    for ctx in contexts(*CASES[name]):
        names = [c.name for c in ENGINES[ctx.profile.engine].commands(ctx)]
        assert len(set(names)) == len(names)
