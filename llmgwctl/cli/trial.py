"""Where a test of `doctor --deep` has its place: on exactly these hosts, claimed, looked at again, ended, verified."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime
from secrets import token_hex
from typing import TYPE_CHECKING

from llmgwctl.cli.common import Session
from llmgwctl.model.fact import fact
from llmgwctl.model.host import HostFacts, Snapshot
from llmgwctl.model.profile import Profile
from llmgwctl.render.letters import clean

if TYPE_CHECKING:
    from llmgwctl.engines.base import Build, Engine
    from llmgwctl.launch.place import Place
    from llmgwctl.model.plan import ReplicaPlan

PORTS = (21000, 21099)  # of a launch's own range
LIMIT_S = 180  # of one test; what it starts ends by itself before


@fact
class Ready:
    """A test that has a place, and what starts it."""

    replica: ReplicaPlan
    profile: Profile
    engine: Engine
    builds: Mapping[str, Build] = field(default_factory=dict)


def profile(name: str, engine: str, hosts: Sequence[HostFacts]) -> Profile:
    """All GPUs of these hosts, which are alike. `engine` is the one whose build it uses, "" for none."""
    first = hosts[0]
    return Profile(
        f"{name}-{first.host.name.replace('.', '-')}"[:60],
        engine,
        pool=first.host.pool,
        nodes=len(hosts),
        gpus_per_node=len(first.gpus.value.gpus) if first.gpus.value is not None else 1,
        allow_degraded=True,
        port_min=PORTS[0],
        port_max=PORTS[1],
        ready_timeout_s=LIMIT_S,
        stop_grace_s=5,
    )


def placed(
    s: Session,
    snapshot: Snapshot,
    hosts: Sequence[HostFacts],
    wanted: Profile,
    engine: Engine,
) -> Ready | str:
    """As `place` would on these hosts alone, or why not. A cordon is no reason: a mended host is tested before it."""
    from llmgwctl.fabric import fabric_map
    from llmgwctl.placement import plan

    alone = Snapshot(snapshot.taken_at, tuple(hosts))
    made = plan(fabric_map(alone, s.inventory.fabrics), alone, wanted, engine.ports(wanted))
    return Ready(made.replicas[0], wanted, engine) if made.replicas else made.why_not


def place_of(s: Session, hosts: Sequence[HostFacts], ready: Ready) -> Place:
    from llmgwctl.cli.job import operator
    from llmgwctl.cli.placing import logs_folder
    from llmgwctl.launch.place import Place
    from llmgwctl.launch.prepare import Launch, prepare

    now = datetime.now(UTC)
    launch = Launch(f"{now:%Y%m%dT%H%M%S}-{token_hex(4)}", f"{now:%Y-%m-%dT%H:%M:%SZ}", operator())
    by_name = {f.host.name: f.host for f in hosts}
    prepared = prepare(ready.replica, ready.profile, ready.engine, by_name, launch, builds=ready.builds)
    timeout_s = ready.profile.ready_timeout_s
    return Place(prepared, s.transport, logs_folder(ready.replica.id, launch.id), timeout_s=timeout_s)


async def taken(s: Session, place: Place) -> str:
    """Why one of its hosts is not idle any more; the claims that stand there are ours."""
    from llmgwctl.collect import collect
    from llmgwctl.doctor.deep import held

    fresh = await collect([p.host for p in place.prepared], s.transport)
    for facts in fresh.hosts:
        report = facts.gpus.value
        if why := held(report) if report is not None else facts.gpus.why:
            return f"{facts.host.name} is not idle any more: {why}"
    return ""


async def ended(s: Session, places: Sequence[Place]) -> None:
    """Stopped and seen to be gone, whatever happened before; what is left is named."""
    from llmgwctl.launch.stop import stop_replica

    targets = [t for p in places for t in p.targets]
    stopped = await asyncio.gather(*(stop_replica([t], s.transport) for t in targets))
    for one in (x for ranks in stopped for x in ranks if not x.gone):
        where = f"{one.target.replica} on {one.target.host.name}"
        s.note(f"{where} is left: {clean(one.why)} (`llmgwctl stop` ends it)")
