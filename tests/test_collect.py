"""collect: all hosts into one snapshot, whatever one of them does."""

from __future__ import annotations

import asyncio

import pytest

from llmgwctl.collect import collect
from llmgwctl.model.errors import LlmgwError, Unreachable
from llmgwctl.model.host import Host, HostFacts
from llmgwctl.probe import FABRIC_SET, PROBES
from llmgwctl.probe.base import Output
from llmgwctl.transport.replay import Replay

HOSTS = tuple(Host(f"t{i:02}", address=f"10.0.0.{i}", order=i) for i in range(6))


class Fleet:
    """A transport whose hosts do what the test says; the others answer with empty sections."""

    def __init__(self, **does) -> None:
        self.does = does
        self.asked: dict[str, list[str]] = {}
        self.cancelled: list[str] = []

    async def read(self, host, sections):
        self.asked[host.name] = [s.name for s in sections]
        does = self.does.get(host.name)
        try:
            if isinstance(does, Exception):
                raise does
            if does is not None:
                await asyncio.sleep(does)
        except asyncio.CancelledError:
            self.cancelled.append(host.name)
            raise
        return {s.name: Output() for s in sections}

    async def run(self, host, script, limit_s):
        raise AssertionError

    async def connect(self, host, address, port):
        raise AssertionError

    async def close(self) -> None: ...


def whys(facts: HostFacts) -> list[str]:
    return [getattr(facts, p.field).why for p in PROBES]


async def test_rows_come_in_the_order_of_the_hosts():
    """However late one answers; and each is reported when it comes."""
    seen: list[str] = []
    snapshot = await collect(HOSTS, Fleet(t00=0.2), on_host=lambda f: seen.append(f.host.name))
    assert [f.host for f in snapshot.hosts] == list(HOSTS)
    assert seen == [*(h.name for h in HOSTS[1:]), "t00"]
    assert all(f.reachable.ok for f in snapshot.hosts)


async def test_a_sick_host_costs_one_row():
    """Its named end state stands in its row and in every reading; a bug of ours costs that row too."""
    fleet = Fleet(t01=Unreachable("10.0.0.1: connection refused", "refused"), t02=RuntimeError("oops"), t03=60)
    snapshot = await collect(HOSTS, fleet, deadline_s=0.2)
    assert [f.reachable.ok for f in snapshot.hosts] == [True, False, False, False, True, True]
    refused, bug, slow = snapshot.hosts[1:4]
    assert refused.reachable.why == "refused: 10.0.0.1: connection refused"
    assert set(whys(refused)) == {"host not read: refused"}
    assert bug.reachable.why == "internal-error: t02: RuntimeError: oops"
    assert slow.reachable.why.startswith("deadline: t03")
    assert refused.taken_at > 0


async def test_the_fabric_set_is_asked_unless_told():
    fleet = Fleet()
    await collect(HOSTS[:1], fleet)
    assert fleet.asked["t00"] == [s.name for p in FABRIC_SET for s in p.sections]


async def test_what_was_not_asked_is_not_absent():
    """A run with one probe: the other readings are broken, and say why."""
    fleet = Fleet()
    snapshot = await collect(HOSTS[:1], fleet, PROBES[:1])
    assert fleet.asked["t00"] == [s.name for s in PROBES[0].sections]
    for probe in PROBES[1:]:
        reading = getattr(snapshot.hosts[0], probe.field)
        assert reading.broken, probe.field


async def test_no_hosts_no_rows():
    assert (await collect((), Fleet())).hosts == ()


async def test_cancelling_reaches_every_host():
    fleet = Fleet(**{h.name: 60 for h in HOSTS})
    task = asyncio.create_task(collect(HOSTS, fleet))
    while len(fleet.asked) < len(HOSTS):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(fleet.cancelled) == [h.name for h in HOSTS]


async def test_a_saved_run_replays_as_it_was(tmp_path):
    """Rows, readings, clock and seconds; hosts that did not answer included."""
    fleet = Fleet(t01=Unreachable("10.0.0.1: connection refused", "refused"))
    live = await collect(HOSTS, fleet, save=tmp_path)
    again = await collect(HOSTS, Replay(tmp_path))
    for before, after in zip(live.hosts, again.hosts, strict=True):
        assert (after.reachable.state, after.reachable.why) == (before.reachable.state, before.reachable.why)
        assert after.taken_at == pytest.approx(before.taken_at, abs=1e-3)
        assert whys(after) == whys(before)
        if before.reachable.ok:
            assert after.reachable.value == pytest.approx(before.reachable.value, abs=1e-3)
    assert again.taken_at == pytest.approx(live.taken_at, abs=1e-3)


async def test_a_disk_that_is_full_ends_the_run(tmp_path):
    """That is no host's fault, and the hosts that are still being read are let go."""
    (tmp_path / "file").write_text("")
    fleet = Fleet(t05=60)
    with pytest.raises(LlmgwError, match="cannot be saved"):
        await collect(HOSTS, fleet, save=tmp_path / "file")
    assert fleet.cancelled == ["t05"]
