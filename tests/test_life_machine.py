"""The life of replicas against a model: whatever operators and hosts do, in any order, the hosts agree with it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule
from local_hosts import Local, kill_tree, life, make_host, of_tree, prepared, set_boot, sh, until

from llmgwctl.collect import collect
from llmgwctl.launch.claim import ClaimHeld, claim
from llmgwctl.launch.start import start
from llmgwctl.launch.state import replicas, targets_of
from llmgwctl.launch.stop import stop_replica
from llmgwctl.probe import PROBES

HOSTS = 3
PROBE = [p for p in PROBES if p.field == "life"]


class Life(RuleBasedStateMachine):
    """The model: which launch holds which hosts, which of them runs, and which hosts answer."""

    launches = Bundle("launches")

    def __init__(self) -> None:
        super().__init__()
        self.base = Path(tempfile.mkdtemp(prefix="llmgw-life-"))
        self.hosts = [make_host(self.base, f"n{i}", order=i) for i in range(HOSTS)]
        self.local = Local()
        self.loop = asyncio.new_event_loop()
        self.holds: dict[str, tuple[str, set[int]]] = {}  # launch -> (replica, hosts)
        self.runs: set[str] = set()
        self.dead: set[str] = set()  # a rank of it was killed, or its host rebooted
        self.number = 0

    def teardown(self) -> None:
        self.loop.close()
        kill_tree(self.base)
        shutil.rmtree(self.base, ignore_errors=True)

    def do(self, work):
        return self.loop.run_until_complete(work)

    def states(self):
        snapshot = self.do(collect(self.hosts, self.local, PROBE))
        return snapshot, {r.launch: r for r in replicas(snapshot)}

    def taken(self) -> set[int]:
        return {h for _, hosts in self.holds.values() for h in hosts}

    # --- what operators do

    @rule(target=launches, which=st.sets(st.integers(0, HOSTS - 1), min_size=1, max_size=2))
    def claims(self, which):
        """Who comes second gets nothing at all, whichever of the hosts it is about."""
        self.number += 1
        shards = prepared(
            [self.hosts[i] for i in sorted(which)], sh("main", "exec sleep 600"), replica=f"p-{self.number}"
        )
        launch = shards[0].launch.id
        try:
            self.do(claim(shards, self.local))
        except ClaimHeld:
            assert which & self.taken()
            return (launch, None)
        assert not which & self.taken()
        self.holds[launch] = (shards[0].replica, set(which))
        return (launch, shards)

    @rule(one=launches)
    def starts(self, one):
        launch, shards = one
        if shards is None or launch not in self.holds or launch in self.runs:
            return
        self.do(start(shards, self.local))
        self.runs.add(launch)

    @rule(one=consumes(launches))
    def stops(self, one):
        """Also what never was, and what has ended: nothing of it is left, and nothing else is touched."""
        launch, _ = one
        snapshot, found = self.states()
        if launch in found:
            assert all(x.gone for x in self.do(stop_replica(targets_of(snapshot, found[launch]), self.local)))
        self.holds.pop(launch, None)
        self.runs.discard(launch)
        self.dead.discard(launch)

    # --- what happens to hosts

    @precondition(lambda self: self.runs - self.dead)
    @rule(data=st.data())
    def a_rank_dies(self, data):
        launch = data.draw(st.sampled_from(sorted(self.runs - self.dead)))
        replica, hosts = self.holds[launch]
        name = self.hosts[min(hosts)].name
        pids = [
            p for p in of_tree(self.base) if f"LLMGWCTL_SHARD={replica}.r0.{launch}".encode() in environ(p)
        ]  # the command of rank 0, not its supervisor
        for pid in pids:
            kill(pid)
        self.dead.add(launch)
        until(lambda: self.states()[1][launch].state == "failed", 20)
        assert name in self.states()[1][launch].why

    @precondition(lambda self: self.runs - self.dead)
    @rule(host=st.integers(0, HOSTS - 1))
    def a_host_reboots(self, host):
        """All that ran there is gone; its claims no longer bind."""
        there = [launch for launch, (_, hosts) in self.holds.items() if host in hosts]
        if len(there) != 1 or there[0] not in self.runs - self.dead:
            return
        kill_tree(Path(self.hosts[host].root_prefix))
        for folder in ("run/lock/llmgwctl", "dev/shm/llmgwctl"):
            shutil.rmtree(Path(self.hosts[host].root_prefix, folder), ignore_errors=True)
        self.number += 1
        set_boot(self.hosts[host].root_prefix, f"b-{self.number}")
        self.dead.add(there[0])
        replica, hosts = self.holds[there[0]]
        self.holds[there[0]] = (replica, hosts - {host})

    # --- what is always true

    @invariant()
    def the_hosts_agree_with_the_model(self):
        _, found = self.states()
        assert set(found) >= {launch for launch, (_, hosts) in self.holds.items() if hosts or launch in self.runs}
        for launch, state in found.items():
            if launch in self.dead:
                assert state.state == "failed", state
            elif launch in self.runs:
                assert state.state == "starting", state
                assert not state.stuck
            else:
                assert state.stuck, state

    @invariant()
    def no_gpu_is_claimed_twice_and_none_for_nobody(self):
        for i, host in enumerate(self.hosts):
            there = life(host)
            owners = {c.launch for c in there.claims}
            assert len(owners) <= 1
            assert owners <= {launch for launch, (_, hosts) in self.holds.items() if i in hosts} | self.dead


def environ(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def kill(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, 9)


TestLife = Life.TestCase
TestLife.settings = settings(
    max_examples=6,
    stateful_step_count=10,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
