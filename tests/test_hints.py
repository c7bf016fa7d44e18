"""What is left running, or may live on, is named with commands that can be typed as they stand."""

from __future__ import annotations

import asyncio
import re
import shlex
from types import SimpleNamespace

import pytest

import llmgwctl.launch.state
import llmgwctl.launch.stop
import llmgwctl.launch.witness
from llmgwctl.cli import placing
from llmgwctl.cli.life import end_all
from llmgwctl.cli.placing import Detached, _served, begun_rows
from llmgwctl.launch.claim import ClaimHeld, Holder
from llmgwctl.launch.place import PlaceFailed, RolledBack
from llmgwctl.launch.stop import Stopped, Target, Turns
from llmgwctl.model.errors import ContactLost
from llmgwctl.model.host import Host
from llmgwctl.model.replica import ReplicaState, ShardState

NAMES = ("big-0", "big-1")
JOB = SimpleNamespace(session=SimpleNamespace(asked=SimpleNamespace(quiet=True)))


def bringing(error: BaseException):
    async def end():
        raise error

    return [SimpleNamespace(prepared=[SimpleNamespace(replica=n)], begin=end, serve=end) for n in ("big-0", "big-1")]


@pytest.mark.parametrize("waits", [True, False])
async def test_lost_contact_says_how_to_look_and_how_to_end_it(waits):
    some = bringing(ContactLost("n1: no contact for 60 s"))
    with pytest.raises(ContactLost, match="n1: no contact for 60 s; it may live on and nothing was stopped") as lost:
        await (_served(JOB, None, some) if waits else begun_rows(JOB, some))
    assert [shlex.split(c) for c in re.findall("`([^`]*)`", str(lost.value))] == [
        ["llmgwctl", "ps"],
        ["llmgwctl", "stop", "big-0", "big-1"],
    ]


async def test_the_others_have_ended_before_one_that_failed_is_told():
    """What is undone then is not started by anybody at the same moment."""
    began, ended = asyncio.Event(), []

    async def waiting():
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("big-1")

    async def lost():
        await began.wait()
        raise ContactLost("n1")

    some = bringing(ContactLost(""))
    some[0].begin, some[1].begin = lost, waiting
    with pytest.raises(ContactLost):
        await begun_rows(JOB, some)
    assert ended == ["big-1"]


def all_are_being_stopped(monkeypatch, module, count, left=()):
    """Stopping one ends only when all of them are being stopped."""
    begun, all_of_them = [], asyncio.Event()

    async def stop_replica(targets, _transport):
        begun.append(targets)
        if len(begun) == count:
            all_of_them.set()
        await all_of_them.wait()
        return tuple(Stopped(t, gone=not left, left=left) for t in targets)

    monkeypatch.setattr(module, "stop_replica", stop_replica)


async def test_replicas_are_stopped_at_once(monkeypatch, capsys):
    """Each may take its whole grace: a hundred of them take no longer than one."""
    monkeypatch.setattr(
        llmgwctl.launch.state, "targets_of", lambda _snapshot, r: [Target(Host(r.shards[0].host), r.id, 0, "L")]
    )
    monkeypatch.setattr(llmgwctl.launch.witness, "forget", lambda *_: asyncio.sleep(0))
    all_are_being_stopped(monkeypatch, llmgwctl.launch.stop, 2)
    session = SimpleNamespace(asked=SimpleNamespace(json=False), transport=None)
    states = [ReplicaState(n, "L", "ready", (ShardState(0, f"n{i}", "running"),)) for i, n in enumerate(NAMES)]
    async with asyncio.timeout(20):
        ended = await end_all(session, None, states)
    assert [x.target.replica for x in ended] == ["big-0", "big-1"]
    assert capsys.readouterr().out.count("is stopped") == 2


async def test_what_undoing_leaves_is_told_with_what_it_is_and_what_ends_it(monkeypatch):
    notes = []
    job = SimpleNamespace(session=SimpleNamespace(note=notes.append, transport=None))
    touched = [SimpleNamespace(targets=[Target(Host(f"n{i}"), n, 0, "L")]) for i, n in enumerate(NAMES)]
    all_are_being_stopped(monkeypatch, placing, 2, left=("411 python3",))
    async with asyncio.timeout(20):
        await placing._undo(job, touched)
    assert sorted(notes) == [
        f"{n} rank 0 on n{i} is left: 411 python3: `llmgwctl stop {n}` ends it" for i, n in enumerate(NAMES)
    ]


async def test_what_is_left_of_a_replica_that_failed_is_told_once(monkeypatch):
    """As it is after the last attempt, with what ends it."""
    notes = []
    job = SimpleNamespace(session=SimpleNamespace(note=notes.append, transport=None))
    target = Target(Host("n0"), "big-0", 0, "L")
    failed = PlaceFailed("died", RolledBack(stopped=(Stopped(target, gone=False, left=("411 python3",)),)))
    some = bringing(failed)[:1]
    some[0].targets = [target]
    all_are_being_stopped(monkeypatch, placing, 1, left=("411 python3",))
    with pytest.raises(PlaceFailed):
        await begun_rows(job, some)
    assert notes == ["big-0 rank 0 on n0 is left: 411 python3: `llmgwctl stop big-0` ends it"]


async def test_claims_that_could_not_be_given_back_are_told(monkeypatch):
    """A claim that failed gives back what it got; where that was not possible is said, with what does it later."""
    notes = []
    job = SimpleNamespace(session=SimpleNamespace(note=notes.append, transport=None), guard=None)

    async def held():
        error = ClaimHeld([Holder("n1", "gpu-GPU-1", "other-0")])
        error.add_note("n0: claims may be left: no answer")
        raise error

    place = SimpleNamespace(prepared=[SimpleNamespace(replica="big-0")], claim=held)
    monkeypatch.setattr(placing, "_place", lambda *_: place)
    with pytest.raises(ClaimHeld):
        await placing.start_all(job, SimpleNamespace(replicas=[None]), None, {})
    assert notes == ["n0: claims may be left: no answer: `llmgwctl stop big-0` ends it"]


async def test_on_one_host_they_take_turns():
    """What two share is enough; nobody waits for somebody who waits for him."""
    turns, busy = Turns(), set()

    async def one(*hosts):
        async with turns.on_hosts([Target(Host(h), "r", 0, "L") for h in hosts]):
            assert busy.isdisjoint(hosts)
            busy.update(hosts)
            await asyncio.sleep(0.01)
            busy.difference_update(hosts)

    async with asyncio.timeout(20):
        await asyncio.gather(one("a", "b"), one("b", "c"), one("c", "a"), one("b"))


async def test_ctrl_c_while_waiting_names_the_command_that_ends_all_of_them():
    with pytest.raises(Detached, match="`llmgwctl stop big-0 big-1` ends it"):
        await _served(JOB, None, bringing(asyncio.CancelledError()))
