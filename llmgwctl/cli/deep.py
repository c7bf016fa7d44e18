"""`doctor --deep`: bounded active tests on idle hosts, started and ended by the same hands as any replica."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from llmgwctl.cli import trial
from llmgwctl.cli.common import Session, progress
from llmgwctl.doctor.base import AllReduce, Deep
from llmgwctl.model.errors import LlmgwError, NoPlacement, Unreachable, UsageError
from llmgwctl.model.host import HostFacts, Snapshot

if TYPE_CHECKING:
    from llmgwctl.launch.ask import Asker
    from llmgwctl.launch.place import Place

MAX_HOSTS = 36
LISTENER_S = 60
CONNECT_S = 10
NCCL_TESTS_S = 120


def refuse(chosen: Sequence[HostFacts], asked_alone: bool) -> None:
    """Never on a fleet by accident, never on more than is meant, never where something runs."""
    from llmgwctl.doctor.deep import busy

    if not asked_alone or len(chosen) > MAX_HOSTS:
        raise UsageError(f"--deep runs programs on the hosts: say on which, at most {MAX_HOSTS}, with -w or --profile")
    taken = [f"{f.host.name}: {why}" for f in chosen if (why := busy(f))]
    if taken:
        raise UsageError(f"--deep is for idle hosts only; {'; '.join(taken[:5])}")


async def tested(s: Session, snapshot: Snapshot, chosen: Sequence[HostFacts]) -> Deep:
    """TCP from each host to each, the all-reduce within each, then across them. What was started is ended, verified."""
    from llmgwctl.cli.across import across

    tcp = await _tcp(s, snapshot, chosen)
    with progress("all-reduce", len(chosen), quiet=s.asked.quiet) as step:

        async def one(facts: HostFacts) -> AllReduce:
            made = await _all_reduce(s, snapshot, facts)
            step(facts.host.name)
            return made

        found = await asyncio.gather(*(one(f) for f in chosen))
    inside = {f.host.name: r for f, r in zip(chosen, found, strict=True)}
    return replace(tcp, all_reduce=inside, across=await across(s, snapshot, chosen))


async def _all_reduce(s: Session, snapshot: Snapshot, facts: HostFacts) -> AllReduce:
    """Within one host, under a claim of all its GPUs, so that nobody places anything on them in between."""
    from llmgwctl.engines.all_reduce import HOLDER

    hosts = (facts,)
    ready = trial.placed(s, snapshot, hosts, trial.profile("doctor-inside", "", hosts), HOLDER)
    if isinstance(ready, str):
        return AllReduce(why=ready)
    place = trial.place_of(s, hosts, ready)
    try:
        await place.claim()
        why = await trial.taken(s, place)
        return AllReduce(why=why) if why else await _perf(s, facts)
    except LlmgwError as e:
        return AllReduce(why=str(e).splitlines()[0])
    finally:
        await trial.ended(s, (place,))


async def _perf(s: Session, facts: HostFacts) -> AllReduce:
    from llmgwctl.doctor.deep import read, script
    from llmgwctl.probe.base import Section, failure

    host, report = facts.host, facts.gpus.value
    count = str(len(report.gpus)) if report is not None else "0"
    section = Section(
        "nccl-tests", "gpu", NCCL_TESTS_S, text=script(), args=(host.root_prefix, host.state_dir, "", count)
    )
    said = (await s.transport.read(host, (section,)))[section.name]
    why = failure(said)
    return AllReduce(why=why) if why else read(said.stdout)


# --- TCP: a listener of sim on each host, asked from each other one -------------------------------------------------


async def _tcp(s: Session, snapshot: Snapshot, chosen: Sequence[HostFacts]) -> Deep:
    from llmgwctl.launch.ask import Asker

    if len(chosen) < 2:
        return Deep()
    listeners: dict[str, Place] = {}
    untested: dict[str, str] = {}
    try:
        for facts in chosen:
            try:
                listeners[facts.host.name] = _listener(s, snapshot, facts)
            except NoPlacement as e:
                untested[facts.host.name] = str(e)
        with progress("listeners", len(listeners), quiet=s.asked.quiet) as step:
            failed = await asyncio.gather(*(_up(name, place, step) for name, place in listeners.items()))
        untested |= {name: why for name, why in zip(listeners, failed, strict=True) if why}
        up = {n: p for n, p in listeners.items() if n not in untested}
        return await _asked(s, Asker(s.transport), chosen, up, untested)
    finally:
        await trial.ended(s, tuple(listeners.values()))


def _listener(s: Session, snapshot: Snapshot, facts: HostFacts) -> Place:
    """A sim shard without GPUs on this host alone; where a scheduler runs it takes nothing from it."""
    from llmgwctl.engines import engine_of

    shared = (replace(facts, host=replace(facts.host, shared_with_scheduler=True)),)
    wanted = replace(trial.profile("doctor", "sim", shared), gpus_per_node=0, ready_timeout_s=LISTENER_S)
    ready = trial.placed(s, snapshot, shared, wanted, engine_of("sim"))
    if isinstance(ready, str):
        raise NoPlacement(ready)
    return trial.place_of(s, (facts,), ready)


async def _up(name: str, place: Place, step: Callable[[str], None]) -> str:
    """Claimed, started and serving; else why not."""
    try:
        await place.claim()
        await place.start()
        await place.serve()
    except LlmgwError as e:
        return str(e).splitlines()[0]
    step(name)
    return ""


async def _asked(
    s: Session, asker: Asker, chosen: Sequence[HostFacts], up: dict[str, Place], untested: dict[str, str]
) -> Deep:
    from llmgwctl.launch.ask import NotProved

    hosts = {f.host.name: f.host for f in chosen}
    where = {n: _endpoint(p) for n, p in up.items()}

    async def one(a: str, b: str) -> str | None:
        if hosts[a].name in asker.refused:
            return None
        try:
            async with asyncio.timeout(CONNECT_S):
                reached = await asker.accepts(hosts[a], *where[b], None)
        except TimeoutError:
            return f"no answer within {CONNECT_S} s"
        except (NotProved, Unreachable) as e:
            untested[a] = str(e)
            return None
        return "" if reached else "no connection"

    pairs = [(a, b) for a in hosts for b in up if a != b]
    found = await asyncio.gather(*(one(a, b) for a, b in pairs))
    told = {pair: why for pair, why in zip(pairs, found, strict=True) if why is not None}
    if told:
        s.note(f"TCP: {len(told)} ways between {len(hosts)} hosts tried, {sum(map(bool, told.values()))} failed")
    return Deep(told, {n: port for n, (_, port) in where.items()}, {}, untested)


def _endpoint(place: Place) -> tuple[str, int]:
    ports = place.prepared[0].spec["ports"]
    return place.prepared[0].shard.address, int(ports["http"]) if isinstance(ports, dict) else 0
