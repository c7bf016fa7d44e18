"""What a launch would meet: the replicas that would be placed, with the model's files on their hosts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llmgwctl.cli.common import Session
    from llmgwctl.doctor.base import Launch, ModelFolder
    from llmgwctl.model.fabric import FabricMap
    from llmgwctl.model.host import Host, Snapshot
    from llmgwctl.model.plan import Plan
    from llmgwctl.model.profile import Profile

MODEL_LIMIT_S = 20


def planned(s: Session, snapshot: Snapshot, fmap: FabricMap, profile: Profile) -> Plan:
    from llmgwctl.engines import engine_of
    from llmgwctl.placement import plan

    engine = engine_of(profile.engine)
    return plan(fmap, snapshot, profile, engine.ports(profile), profile.replicas or 1)


def launches(plan: Plan, profile: Profile) -> tuple[Launch, ...]:
    from llmgwctl.doctor.base import Launch

    return tuple(Launch(replica, profile) for replica in plan.replicas)


async def with_models(s: Session, placed: Sequence[Launch]) -> tuple[Launch, ...]:
    """Every host of the replicas is asked once for the model; a name that is to be fetched is nobody's folder."""
    path = placed[0].profile.model_path if placed else ""
    if not path.startswith("/"):
        return tuple(placed)
    names = {shard.host for one in placed for shard in one.replica.shards}
    hosts = [h for h in s.hosts if h.name in names]
    found = dict(zip((h.name for h in hosts), await asyncio.gather(*(_model(s, h, path) for h in hosts)), strict=True))
    return tuple(replace(one, models=found) for one in placed)


async def _model(s: Session, host: Host, path: str) -> ModelFolder:
    from llmgwctl.doctor.base import ModelFolder
    from llmgwctl.doctor.model_files import read, script
    from llmgwctl.model.errors import Unreachable
    from llmgwctl.probe.base import Section, failure

    words = (host.root_prefix, host.state_dir, "", path)
    section = Section("model-files", "sys", MODEL_LIMIT_S, text=script(), args=words)
    try:
        said = (await s.transport.read(host, (section,)))[section.name]
    except Unreachable as e:
        return ModelFolder(unknown=f"{path}: {e}")
    why = failure(said)
    return ModelFolder(unknown=f"{path}: {why}") if why else read(said.stdout, path)
