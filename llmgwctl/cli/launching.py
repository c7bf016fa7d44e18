"""What a launch would meet: the replicas that would be placed, with the model's files on the hosts that read them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llmgwctl.cli.common import Session
    from llmgwctl.doctor.base import Launch
    from llmgwctl.engines.base import Engine
    from llmgwctl.model.fabric import FabricMap
    from llmgwctl.model.host import Host, Snapshot
    from llmgwctl.model.plan import Plan
    from llmgwctl.model.profile import Profile
    from llmgwctl.model.weights import ModelFiles
    from llmgwctl.probe.base import Output, Section

MODEL, MODEL_LIMIT_S = "model-files", 20


def planned(s: Session, snapshot: Snapshot, fmap: FabricMap, profile: Profile) -> Plan:
    from llmgwctl.engines import engine_of
    from llmgwctl.placement import plan

    engine = engine_of(profile.engine)
    return plan(fmap, snapshot, profile, engine.ports(profile), profile.replicas or 1)


def launches(plan: Plan, profile: Profile) -> tuple[Launch, ...]:
    from llmgwctl.doctor.base import Launch
    from llmgwctl.engines import engine_of

    shm = shares_memory(engine_of(profile.engine))
    return tuple(Launch(replica, profile, shm=shm) for replica in plan.replicas)


def shares_memory(engine: Engine) -> bool:
    """A drill plays what NCCL is told, and maps nothing."""
    return engine.uses_nccl and engine.needs_build


async def with_models(s: Session, placed: Sequence[Launch]) -> tuple[Launch, ...]:
    """Every host that reads the model is asked once; a name that is to be fetched is nobody's folder."""
    from llmgwctl.engines import engine_of

    if not placed or not placed[0].profile.model_path.startswith("/"):
        return tuple(placed)
    profile = placed[0].profile
    reads = engine_of(profile.engine).reads_model
    names = {shard.host for one in placed for shard in one.replica.shards if reads(shard.rank)}
    hosts = [h for h in s.hosts if h.name in names]
    answers = await asyncio.gather(*(_model(s, h, profile) for h in hosts))
    found = dict(zip((h.name for h in hosts), answers, strict=True))
    return tuple(replace(one, models=found) for one in placed)


async def _model(s: Session, host: Host, profile: Profile) -> ModelFiles | str:
    from llmgwctl.model.errors import Unreachable

    try:
        said = await s.transport.read(host, (model_section(host, profile),))
    except Unreachable as e:
        return f"{profile.model_path}: {e}"
    return model_files(said[MODEL], profile)


def model_section(host: Host, profile: Profile) -> Section:
    from llmgwctl.doctor.model_files import folder_of, script
    from llmgwctl.probe.base import Section

    words = (host.root_prefix, host.state_dir, "", folder_of(profile.model_path))
    return Section(MODEL, "sys", MODEL_LIMIT_S, text=script(), args=words)


def model_files(said: Output, profile: Profile) -> ModelFiles | str:
    """What a host has at the model's path, or why that could not be told."""
    from llmgwctl.doctor.model_files import read
    from llmgwctl.probe.base import failure

    why, found = failure(said), read(said.stdout, profile.model_path)
    if found is not None and why is None:
        return found
    return f"{profile.model_path}: {why or 'the list of its files ends early'}"
