"""`doctor --deep` across hosts: who is tested with whom, started like a replica, ended and verified like one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from llmgwctl.cli import trial
from llmgwctl.cli.common import Session, progress
from llmgwctl.doctor.base import Across
from llmgwctl.model.errors import LlmgwError
from llmgwctl.model.fact import fact
from llmgwctl.model.host import HostFacts, Snapshot

if TYPE_CHECKING:
    from llmgwctl.engines.base import Build, Engine
    from llmgwctl.launch.place import Place
    from llmgwctl.launch.watch import Death
    from llmgwctl.model.fabric import FabricMap
    from llmgwctl.model.plan import ReplicaPlan

Path = Literal["nvlink", "scale-out"]
PATHS: tuple[Path, ...] = ("nvlink", "scale-out")
CONTACT_S = 30.0
BASES = ("vllm", "sglang")  # engines whose Python has torch
WISH: dict[Path, Literal["require-nvlink", "require-rdma"]] = {"nvlink": "require-nvlink", "scale-out": "require-rdma"}
INSTALL = "install vLLM or SGLang on them, or run all_reduce_perf of nccl-tests under mpirun by hand"


@fact
class Group:
    """Hosts that one test takes, all GPUs of each."""

    path: Path
    hosts: tuple[HostFacts, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f.host.name for f in self.hosts)

    def untold(self, why: str, *, absent: bool = False) -> Across:
        return Across(self.path, self.names, untold=why, absent=absent)


async def across(s: Session, snapshot: Snapshot, chosen: Sequence[HostFacts]) -> tuple[Across, ...]:
    """One path after the other, since both take the same GPUs; groups of one path have no host in common."""
    fmap = s.map(snapshot)
    made: list[Across] = []
    for path in PATHS:
        groups = groups_of(path, fmap, chosen)
        with progress(f"all-reduce over {path}", len(groups), quiet=s.asked.quiet) as step:
            made += await asyncio.gather(*(_tested(s, snapshot, group, step) for group in groups))
    for test in made:
        if test.bus_gbps:
            s.note(f"all-reduce over {test.path}, {len(test.hosts)} hosts, {test.world} GPUs: {test.bus_gbps:.1f} GB/s")
    return (*made, *_alone(chosen, {name for test in made for name in test.hosts}))


def _alone(chosen: Sequence[HostFacts], tested: set[str]) -> Iterator[Across]:
    """Hosts that were named beside others, and share with none of them a path that could be tested."""
    with_gpus = [f.host.name for f in chosen if f.gpus.value is not None and f.gpus.value.gpus]
    left = tuple(n for n in with_gpus if n not in tested)
    if left and len(with_gpus) > 1:
        why = "no NVLink domain and no scale-out fabric that it shares with another one of its kind here"
        yield Across("scale-out", left, untold=why, absent=True)


def groups_of(path: Path, fmap: FabricMap, chosen: Sequence[HostFacts]) -> tuple[Group, ...]:
    """Chosen hosts of one domain or one scale-out fabric that are alike: same pool, product and number of GPUs."""
    from llmgwctl.doctor.fleet import kind

    where = {n: d.id for d in fmap.domains for n in d.names} if path == "nvlink" else {}
    for fabric in fmap.scale_out if path == "scale-out" else ():
        where = dict.fromkeys(fabric.hosts, fabric.id) | where
    groups: dict[tuple[object, ...], list[HostFacts]] = {}
    for facts in chosen:
        report = facts.gpus.value
        if facts.host.name in where and report is not None:
            groups.setdefault((where[facts.host.name], kind(facts), len(report.gpus)), []).append(facts)
    return tuple(Group(path, tuple(hosts)) for hosts in groups.values() if len(hosts) > 1)


# --- one test -------------------------------------------------------------------------------------------------------


async def _tested(s: Session, snapshot: Snapshot, group: Group, step: Callable[[str], None]) -> Across:
    """Placed, started, heard, ended. What keeps it from being placed keeps it from being told."""
    from llmgwctl.engines.all_reduce import ranks_of

    ready = _ready(s, snapshot, group)
    if isinstance(ready, Across):
        return ready
    place = trial.place_of(s, group.hosts, ready)
    world = sum(len(x.gpus) for x in ready.replica.shards)
    rails = min(_rails(f, ready.replica) for f in group.hosts)
    test = Across(group.path, group.names, world=world, rails_gbps=rails)
    try:
        return await _run(s, place, test, ranks_of(ready.replica))
    except LlmgwError as e:
        return replace(test, untold=str(e).splitlines()[0])
    finally:
        await trial.ended(s, (place,))
        step(group.names[0])


def _ready(s: Session, snapshot: Snapshot, group: Group) -> trial.Ready | Across:
    from llmgwctl.engines.all_reduce import tester

    base, builds, why = _base(s, group)
    if base is None:
        return group.untold(why, absent=True)
    engine = tester(base)
    profile = replace(trial.profile(f"doctor-{group.path}", base.name, group.hosts), fabric=WISH[group.path])
    ready = trial.placed(s, snapshot, group.hosts, profile, engine)
    if isinstance(ready, str):
        return group.untold(ready)
    refused = engine.refuse(ready.replica, profile, dict(builds))
    return group.untold(str(refused[0])) if refused else replace(ready, builds=builds)


def _base(s: Session, group: Group) -> tuple[Engine | None, Mapping[str, Build], str]:
    """The first engine that is on all of them with torch, and with one NCCL."""
    from llmgwctl.engines import engine_of
    from llmgwctl.engines.versions import nccl_of

    why = f"no engine with torch is on all of them: {INSTALL}"
    for name in BASES:
        told = {f.host.name: _versions(f, name) for f in group.hosts}
        if not all(v.get("torch") for v in told.values()):
            continue
        versions = {h: nccl_of(v) for h, v in told.items()}
        if len(set(versions.values())) > 1:
            why = f"NCCL of {name} is not the same on all of them ({', '.join(sorted(set(versions.values())))})"
            continue
        builds = {f.host.name: s.inventory.build_for(name, f.host) for f in group.hosts}
        return engine_of(name), {h: replace(b, nccl=b.nccl or versions[h]) for h, b in builds.items()}, ""
    return None, {}, why


def _versions(facts: HostFacts, engine: str) -> dict[str, str]:
    return next((dict(e.versions) for e in facts.engines.value or () if e.engine == engine), {})


def _rails(facts: HostFacts, replica: ReplicaPlan) -> float:
    """What the adapters that its shard uses carry, in GB/s."""
    used = next(x.hcas for x in replica.shards if x.host == facts.host.name)
    ports = {f"{h.name}:{p.number}": p.rate_gbps or 0 for h in facts.hcas.value or () for p in h.ports}
    return sum(ports.get(name, 0) for name in used) / 8


async def _run(s: Session, place: Place, test: Across, ranks: Mapping[str, range]) -> Across:
    """Claimed first, looked at again, then started: no GPU that somebody took in between is touched."""
    from llmgwctl.doctor.across import read
    from llmgwctl.engines.all_reduce import MARK
    from llmgwctl.launch.logs import fetch_logs
    from llmgwctl.launch.verify import proof, short_of

    await place.claim()
    if why := await trial.taken(s, place):
        return replace(test, untold=why)
    await place.start()
    await _ends(place)
    logs = await fetch_logs(place.targets, s.transport)
    if lost := next((x for x in logs if x.why), None):
        return replace(test, untold=f"{lost.host}: its log could not be read: {lost.why}")
    said = {name: "\n".join(x.text for x in logs if x.host == name) for name in test.hosts}
    made = read(test, MARK, said, ranks)
    used = proof((line for text in said.values() for line in text.split("\n")), test.world)
    short = short_of(test.path, used) if used.kind != "not proved" else ""
    return replace(made, other=short)


async def _ends(place: Place) -> None:
    """Until every rank has ended, or the first has failed, or the time is up: what they said decides then."""
    from llmgwctl.launch.watch import until_death

    watches: set[asyncio.Future[Death]] = {
        asyncio.ensure_future(until_death(p, place.transport, CONTACT_S)) for p in place.prepared
    }
    waiting = watches
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(trial.LIMIT_S):
                while waiting:
                    done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                    if any(w.result().code != 0 for w in done):
                        break
    finally:
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
