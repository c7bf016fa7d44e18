"""A replica from claim to stop, through the real scripts on hosts that are folders."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from pathlib import Path

import pytest
from local_hosts import (
    Local,
    directory,
    engine,
    kill_tree,
    life,
    make_host,
    of_tree,
    prepared,
    run_script,
    set_boot,
    set_uptime,
    sh,
    until,
    words,
)

from llmgwctl.collect import collect
from llmgwctl.engines import sim
from llmgwctl.engines.base import Stop, Wait
from llmgwctl.launch import ask, watch
from llmgwctl.launch.claim import ClaimHeld, claim
from llmgwctl.launch.logs import fetch_logs
from llmgwctl.launch.place import Place, PlaceFailed
from llmgwctl.launch.state import replicas, targets_of
from llmgwctl.launch.stop import Target, stop_replica
from llmgwctl.model.errors import ContactLost
from llmgwctl.model.profile import Profile
from llmgwctl.probe import PROBES


@pytest.fixture
def hosts(tmp_path):
    yield [make_host(tmp_path, f"n{i}", order=i) for i in range(3)]
    kill_tree(tmp_path)


@pytest.fixture
def local():
    return Local()


def http_port():
    with socket.socket() as a, socket.socket() as b:
        a.bind(("127.0.0.2", 0))
        port = a.getsockname()[1]
        b.bind(("127.0.0.2", port + 1))
        return port


def sim_shards(hosts, *args, replica="p-0", **kwargs):
    profile = Profile("p", "sim", nodes=len(hosts), served_model_name="m", stop_grace_s=3, args=args)
    return prepared(hosts, using=sim.ENGINE, profile=profile, replica=replica, gpus=0, http=http_port(), **kwargs)


def place(shards, local, tmp_path, **kwargs):
    return Place(shards, local, tmp_path / "logs", **kwargs)


async def states(hosts, local):
    probes = [p for p in PROBES if p.field == "life"]
    snapshot = await collect(hosts, local, probes)
    return snapshot, replicas(snapshot)


async def the_state(hosts, local):
    (found,) = (await states(hosts, local))[1]
    return found


async def brought_up(shards, local, tmp_path, **kwargs):
    p = place(shards, local, tmp_path, **kwargs)
    await p.claim()
    await p.start()
    return p, await p.serve()


def nothing_is_left(hosts, tmp_path):
    found = [life(h) for h in hosts]
    return not of_tree(tmp_path) and not any(f.claims or f.shards or f.unreadable for f in found)


# --- the good case --------------------------------------------------------------------------------------------------


async def test_a_replica_comes_up_is_seen_and_is_stopped(hosts, local, tmp_path):
    """Claimed, started, served, recorded on its host, shown as ready by anybody who asks, stopped without a trace."""
    shards = sim_shards(hosts[:2])
    _, placed = await brought_up(shards, local, tmp_path)
    assert placed.proved
    assert placed.transport is not None
    assert placed.transport.kind == "not proved"
    snapshot, (found,) = await states(hosts, local)
    assert (found.id, found.state, found.endpoint, found.model) == ("p-0", "ready", placed.endpoint, "m")
    assert [(s.rank, s.host, s.state) for s in found.shards] == [(0, "n0", "running"), (1, "n1", "running")]
    assert all(s.pid for s in found.shards)
    logs = await fetch_logs(targets_of(snapshot, found), local)
    assert "all 2 ranks have joined" in next(x.text for x in logs if x.rank == 0 and x.command == "sim")
    ended = await stop_replica(targets_of(snapshot, found), local)
    assert [e.gone for e in ended] == [True, True]
    assert sum(e.killed for e in ended) == 0
    assert nothing_is_left(hosts, tmp_path)
    assert [e.gone for e in await stop_replica(targets_of(snapshot, found), local)] == [True, True]


async def test_the_leader_is_stopped_before_the_others_are_told(hosts, local, tmp_path):
    """An engine that says leader first gets it; one that does not is told on all ranks at once."""
    shards = sim_shards(hosts[:2])
    await brought_up(shards, local, tmp_path)
    local.calls.clear()
    await stop_replica([Target.of(p) for p in shards], local)
    assert [c for c in local.calls if c[2] == "stop"] == [("n0", "shard.sh", "stop"), ("n1", "shard.sh", "stop")]


async def test_an_api_key_is_used_and_stands_nowhere_readable(hosts, local, tmp_path):
    """It reaches the engine in its 0600 environment; readiness asks with it; no argument list, spec or log has it."""
    shards = sim_shards(hosts[:1], api_key="planted-s3cret")
    await brought_up(shards, local, tmp_path, api_key="planted-s3cret")
    holding = [f for f in directory(shards[0]).rglob("*") if f.is_file() and b"planted-s3cret" in f.read_bytes()]
    assert [f.name for f in holding] == ["env"]
    for pid in of_tree(tmp_path):
        assert b"planted-s3cret" not in Path(f"/proc/{pid}/cmdline").read_bytes()


async def test_without_forwarding_the_host_asks(hosts, local, tmp_path):
    """sshd that forwards nothing: the port from /proc/net/tcp, the rest with the host's curl, key and all."""
    local.no_forwarding = {"n0", "n1"}
    shards = sim_shards(hosts[:2], api_key='k"e\\y')
    _, placed = await brought_up(shards, local, tmp_path, api_key='k"e\\y')
    assert placed.proved


async def test_without_forwarding_and_curl_it_is_not_proved(hosts, local, tmp_path, monkeypatch):
    """Nobody can ask: that is said, and not called ready for sure."""
    local.no_forwarding = {"n0"}

    async def no_curl(self, *args):
        raise ask.NotProved("n0 does not forward and has no curl")

    monkeypatch.setattr(ask.Asker, "_curl", no_curl)
    _, placed = await brought_up(sim_shards(hosts[:1]), local, tmp_path)
    assert not placed.proved
    assert "no curl" in placed.why


@pytest.mark.parametrize("forwards", [True, False])
async def test_a_command_is_let_go_when_the_port_accepts(hosts, local, tmp_path, forwards):
    """The leader's second command waits for rank 1's port, whichever way that can be seen."""
    local.no_forwarding = set() if forwards else {"n0", "n1"}
    port = http_port()
    (shard,) = prepared(
        hosts[:1],
        sh("server", f"sleep 0.3; exec python3 -m http.server --bind 127.0.0.2 {port}"),
        sh("after", "echo let go; exec sleep 300", Wait("127.0.0.2", port)),
    )
    p = place([shard], local, tmp_path, timeout_s=20)
    await p.claim()
    await p.start()
    waiting = asyncio.ensure_future(p.serve())
    log = directory(shard) / "cmd.1/log"
    await asyncio.to_thread(until, lambda: log.exists() and log.read_text() == "let go\n", 15)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert of_tree(tmp_path)  # cancelled while waiting: left running


# --- failures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 7])
async def test_an_early_death_is_reported_and_rolled_back(hosts, local, tmp_path, code):
    """Rank, host, exit code and the engine's own last lines; everything stopped; every rank's words saved."""
    shards = sim_shards(hosts[:2], "--never-ready", "--die-after", "0.1", "--die-rank", "1", "--exit-code", str(code))
    with pytest.raises(PlaceFailed) as failed:
        await brought_up(shards, local, tmp_path)
    said = str(failed.value)
    assert f"p-0 rank 1 on n1: sim exited with code {code}" in said
    assert "rank 1 dies, as it was told to" in said
    assert failed.value.exit_code == 1
    assert failed.value.rolled_back.unclean == ()
    assert nothing_is_left(hosts, tmp_path)
    saved = {p.name: p.read_text() for p in (tmp_path / "logs").iterdir()}
    assert "all 2 ranks" in saved["r0.n0.sim.log"]
    assert "as it was told to" in saved["r1.n1.sim.log"]
    assert all(p.stat().st_mode & 0o077 == 0 for p in (tmp_path / "logs").iterdir())


async def test_a_refused_flag_is_reported_at_once_in_the_engines_words(hosts, local, tmp_path):
    """The usual mistake: code 2 and the usage line."""
    with pytest.raises(PlaceFailed) as failed:
        await brought_up(sim_shards(hosts[:2], "--no-such-flag"), local, tmp_path)
    assert "exited with code 2" in str(failed.value)
    assert "unrecognized arguments: --no-such-flag" in str(failed.value)
    assert nothing_is_left(hosts, tmp_path)


async def test_the_time_limit_says_what_was_seen_last(hosts, local, tmp_path):
    """Never ready: stopped, and the message tells how far it came."""
    with pytest.raises(PlaceFailed, match=r"not ready within 2 s: /health says 503"):
        await brought_up(sim_shards(hosts[:1], "--never-ready"), local, tmp_path, timeout_s=2)
    assert nothing_is_left(hosts, tmp_path)


async def test_a_server_that_is_healthy_and_cannot_generate_is_not_ready(hosts, local, tmp_path):
    """A green /health and the right model name are not enough: one token is asked for."""
    port = http_port()
    server = f"""
import http.server, json
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
        self.wfile.write(json.dumps({{"data": [{{"id": "p"}}]}}).encode())
    def do_POST(self):
        self.send_response(500); self.end_headers()
http.server.HTTPServer(("127.0.0.2", {port}), H).serve_forever()
"""
    shards = prepared(
        hosts[:1], sh("main", "exec python3 server.py"), using=engine(sh("main", "exec python3 server.py"),
        files={"server.py": server}), http=port,
    )  # fmt: skip
    with pytest.raises(PlaceFailed, match=r"/v1/completions gives no token: 500"):
        await brought_up(shards, local, tmp_path, timeout_s=3)
    assert nothing_is_left(hosts, tmp_path)


async def test_another_model_is_not_ours(hosts, local, tmp_path):
    """Something else answers at that port: its model's name tells."""
    shards = sim_shards(hosts[:1])
    shards[0].spec["model"] = "other"
    with pytest.raises(PlaceFailed, match="does not name the model 'other'"):
        await brought_up(shards, local, tmp_path, timeout_s=3)


async def test_losing_contact_is_no_death(hosts, local, tmp_path, monkeypatch):
    """A host that does not answer any more: nothing is stopped, and it is not called failed."""
    monkeypatch.setattr(watch, "POLL_S", 1)
    monkeypatch.setattr(watch, "RETRY_S", 0.2)
    shards = sim_shards(hosts[:2], "--never-ready")
    p = place(shards, local, tmp_path, contact_s=0.5)
    await p.claim()
    await p.start()
    waiting = asyncio.ensure_future(p.serve())
    await asyncio.sleep(0.5)
    local.gone = {"n1"}
    with pytest.raises(ContactLost, match="n1"):
        await waiting
    found = await the_state(hosts, local)
    assert (found.state, found.shards[1].state) == ("unknown", "unknown")
    local.gone = set()
    assert (await the_state(hosts, local)).state == "starting"
    assert len({d.name for h in hosts[:2] for d in Path(h.state_dir, h.name).iterdir()}) == 2


async def test_a_host_that_cannot_be_reached_keeps_its_entry_until_the_next_stop(hosts, local, tmp_path):
    """The clean-up says which; afterwards stop cleans it."""
    shards = sim_shards(hosts[:2])
    await brought_up(shards, local, tmp_path)
    local.gone = {"n1"}
    ended = await stop_replica([Target.of(p) for p in shards], local)
    assert [e.gone for e in ended] == [True, None]
    local.gone = set()
    snapshot, (found,) = await states(hosts, local)
    assert found.state == "failed"  # rank 0 is gone, and rank 1 broke with it
    assert all(e.gone for e in await stop_replica(targets_of(snapshot, found), local))
    assert nothing_is_left(hosts, tmp_path)


async def test_a_start_that_one_host_cannot_do_is_undone_on_all(hosts, local, tmp_path):
    """A state directory that is not ours on the second host: nothing runs on the first either."""
    Path(hosts[1].state_dir).symlink_to(tmp_path)
    shards = sim_shards(hosts[:2])
    p = place(shards, local, tmp_path)
    await p.claim()
    with pytest.raises(PlaceFailed, match=r"n1: .* symbolic link"):
        await p.start()
    assert not of_tree(tmp_path)
    assert not any(c for h in hosts for c in life(h).claims)


async def test_cancelling_the_start_rolls_back(hosts, local, tmp_path):
    """Ctrl-C while starting: what was under way on the hosts ends first, then all of it is undone."""
    p = place(sim_shards(hosts[:2]), local, tmp_path)
    await p.claim()
    starting = asyncio.ensure_future(p.start())
    await asyncio.sleep(0.05)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert nothing_is_left(hosts, tmp_path)


async def test_cancelling_while_waiting_leaves_it_running(hosts, local, tmp_path):
    """Ctrl-C while waiting: it goes on without us and becomes ready for whoever asks next."""
    p = place(sim_shards(hosts[:2], "--never-ready"), local, tmp_path)
    await p.claim()
    await p.start()
    waiting = asyncio.ensure_future(p.serve())
    await asyncio.sleep(0.3)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (await the_state(hosts, local)).state == "starting"


# --- claims of several hosts ----------------------------------------------------------------------------------------


async def test_claims_are_all_or_none_over_hosts(hosts, local, tmp_path):
    """The second host is held: the first one is free again, and the holder is named."""
    await claim(sim_shards(hosts[1:2], replica="p-1"), local)
    other = prepared(hosts[:2], sh("main", "true"), operator="bob")
    await claim(prepared(hosts[1:2], sh("main", "true"), replica="q-0"), local)
    with pytest.raises(ClaimHeld) as held:
        await claim(other, local)
    assert [(h.host, h.replica, h.operator) for h in held.value.holders] == [("n1", "q-0", "ann")]
    assert not life(hosts[0]).claims


async def test_what_could_not_be_given_back_goes_with_the_error(hosts, local, tmp_path):
    """The claim is lost over the second host, and by then the first one does not answer any more."""
    await claim(prepared(hosts[1:2], sh("main", "true"), replica="q-0"), local)
    run = local.run

    async def first_goes_away(host, script, limit_s):
        if (host.name, script.args[2]) == ("n0", "release"):
            local.gone.add("n0")
        return await run(host, script, limit_s)

    local.run = first_goes_away
    with pytest.raises(ClaimHeld) as held:
        await claim(prepared(hosts[:2], sh("main", "true"), operator="bob"), local)
    (left,) = held.value.__notes__
    assert left.startswith("n0: claims may be left: ")
    assert life(hosts[0]).claims


async def test_of_concurrent_places_one_wins_and_losers_are_told(hosts, local, tmp_path):
    """Four operators, the same three hosts, each in another rank order: one has all, three have nothing."""
    orders = [hosts, hosts[::-1], hosts[1:] + hosts[:1], hosts]
    contenders = [prepared(o, sh("main", "true"), replica=f"r-{i}", gpus=2) for i, o in enumerate(orders)]
    done = await asyncio.gather(*(claim(c, local) for c in contenders), return_exceptions=True)
    assert sum(d == () for d in done) == 1
    winner = contenders[done.index(())][0].replica
    assert all(winner in str(d) for d in done if d != ())
    claims = [c for h in hosts for c in life(h).claims]
    assert {c.replica for c in claims} == {winner}
    assert len(claims) == 6


async def test_a_stale_claim_is_taken_over_and_named(hosts, local):
    """Whose it was is told to whoever takes it."""
    await claim(prepared(hosts[:1], sh("main", "true"), replica="old-0"), local)
    set_uptime(hosts[0].root_prefix, 6000)
    (taken,) = await claim(prepared(hosts[:1], sh("main", "true"), replica="new-0", operator="bob"), local)
    assert (taken.replica, taken.operator) == ("old-0", "ann")


# --- what ps says ---------------------------------------------------------------------------------------------------


async def test_claims_without_a_start_are_shown_as_stuck_and_stop_cleans_them(hosts, local, tmp_path):
    """An llmgwctl that was killed after its claims: nothing unnamed, nothing that stays."""
    await claim(sim_shards(hosts[:2]), local)
    snapshot, (found,) = await states(hosts, local)
    assert (found.state, found.stuck) == ("starting", True)
    assert found.operator == "ann"
    assert all(e.gone for e in await stop_replica(targets_of(snapshot, found), local))
    assert nothing_is_left(hosts, tmp_path)


async def test_one_dead_rank_is_a_failed_replica(hosts, local, tmp_path):
    """Killed after it was ready: failed, which rank, and why."""
    shards = sim_shards(hosts[:2])
    await brought_up(shards, local, tmp_path)
    os.kill((await the_state(hosts, local)).shards[1].pid, 9)
    await asyncio.to_thread(until, (directory(shards[0]) / "exit").exists)
    found = await the_state(hosts, local)
    assert found.state == "failed"
    assert "rank 1 on n1: sim exited with code 137" in found.why


async def test_a_rebooted_host_is_a_failed_replica(hosts, local, tmp_path):
    """Another boot id: whatever ran there does not run."""
    shards = sim_shards(hosts[:2])
    await brought_up(shards, local, tmp_path)
    set_boot(hosts[1].root_prefix, "b-2")
    found = await the_state(hosts, local)
    assert found.state == "failed"
    assert found.shards[1].state == "rebooted"


async def test_a_rank_of_which_nothing_is_left_is_gone(hosts, local, tmp_path):
    """Its host answers and has neither directory nor claim."""
    shards = sim_shards(hosts[:2])
    await brought_up(shards, local, tmp_path)
    await stop_replica([Target.of(shards[1])], local)
    found = await the_state(hosts, local)
    assert found.state == "failed"
    assert [s.state for s in found.shards][1] == "gone"


async def test_what_was_recorded_as_ready_is_seen_by_everybody(hosts, local, tmp_path):
    """The record lies on the leader's host."""
    shards = sim_shards(hosts[:2])
    _, placed = await brought_up(shards, local, tmp_path)
    told = json.loads((directory(shards[0]) / "ready").read_text())
    assert told["endpoint"] == placed.endpoint
    assert run_script(hosts[0], "shard.sh", "status", *words(shards[0]), "0").stdout.splitlines()[2] == "ready"


def test_the_stop_rule_travels_with_the_spec(hosts):
    """Another workstation stops it the way its engine wants, whatever nonsense a host may say."""
    (p,) = prepared(hosts[:1], sh("main", "true"), using=engine(sh("main", "true"), stop=Stop(False, 2)))
    t = Target.of(p)
    assert (t.signal, t.grace_s, t.leader_first) == ("INT", 5, False)
    odd = Target.from_spec(hosts[0], "p-0", 0, "x", {"stop": {"signal": "TERM; rm -rf /", "grace_s": "1e9"}})
    assert (odd.signal, odd.grace_s, odd.leader_first) == ("TERM", 30, True)
