"""What is said of replicas and their transport, from facts alone; and the least HTTP that asks a server."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgwctl.launch.ask import Url
from llmgwctl.launch.http import MAX_BYTES, BadReply, compose, exchange
from llmgwctl.launch.logs import split
from llmgwctl.launch.state import replicas, targets_of
from llmgwctl.launch.verify import verdict
from llmgwctl.launch.wait import generated, model_names
from llmgwctl.model.host import Host, HostFacts, Snapshot, System
from llmgwctl.model.life import SPEC_SCHEMA, Claim, HostLife, Process, ShardRecord
from llmgwctl.model.reading import broken, ok
from llmgwctl.probe.base import Output
from llmgwctl.probe.life import PROBE
from llmgwctl.render import life as render


def spec(rank, ranks=2, **more):
    shards = [{"rank": r, "host": f"n{r}", "gpus": [0, 1]} for r in range(ranks)]
    told = {"schema": SPEC_SCHEMA, "replica": "p-0", "rank": rank, "launch": "L", "profile": "p", "gpus": [0, 1]}
    return {**told, "endpoint": "http://10.0.0.1:8000", "fabric": "nvl:x.1", "shards": shards, **more}


def record(rank, state="running", alive=True, ready=None, **more):
    pid = None if state == "waiting" else 100 + rank
    processes = (Process("main", pid, state, 7 if state == "exited" else None),)
    ended = (("name", "main"), ("code", "7")) if state == "exited" else ()
    made = {"spec": spec(rank), "processes": processes, "supervisor_alive": alive, "ended": ended, "ready": ready}
    return ShardRecord(directory=f"/s/p-0.r{rank}", **{**made, **more})


READY = {"endpoint": "http://10.0.0.1:8000", "transport": "nvlink"}


def facts(name, shards=(), claims=(), account="ops"):
    life = HostLife(tuple(claims), tuple(shards), uptime_s=1000, boot_id="b")
    return HostFacts(Host(name), ok(1.0), system=ok(System(name, "b", 1000, "6.1", account)), life=ok(life))


def dead(name):
    return HostFacts(Host(name), broken("timeout: no answer"), life=broken("host not read: timeout"))


def seen(*hosts):
    return Snapshot(0.0, hosts)


def only(*hosts):
    (state,) = replicas(seen(*hosts))
    return state


def claim(rank=0, account="ops", **more):
    return Claim(f"gpu-{rank}", "p-0", rank, "L", "ann", "desk", account, "2026-12-01T06:00:00Z", "b", 900, **more)


ROWS = {
    "ready": ([facts("n0", [record(0, ready=READY)]), facts("n1", [record(1)])], "ready", ["running", "running"]),
    "not yet": ([facts("n0", [record(0)]), facts("n1", [record(1)])], "starting", ["running", "running"]),
    "a command waits": (
        [facts("n0", [record(0, "waiting")]), facts("n1", [record(1)])],
        "starting",
        ["starting", "running"],
    ),
    "one exited": (
        [facts("n0", [record(0, ready=READY)]), facts("n1", [record(1, "exited")])],
        "failed",
        ["running", "exited"],
    ),
    "one unreachable": ([facts("n0", [record(0, ready=READY)]), dead("n1")], "unknown", ["running", "unknown"]),
    "one not asked": ([facts("n0", [record(0, ready=READY)])], "unknown", ["running", "unknown"]),
    "leader unreachable": ([dead("n0"), facts("n1", [record(1)])], "unknown", ["unknown", "running"]),
    "dead beats unreachable": ([dead("n0"), facts("n1", [record(1, "exited")])], "failed", ["unknown", "exited"]),
    "one has nothing": ([facts("n0", [record(0, ready=READY)]), facts("n1")], "failed", ["running", "gone"]),
    "rebooted": (
        [facts("n0", [record(0, ready=READY)]), facts("n1", [record(1, boot_matches=False)])],
        "failed",
        ["running", "rebooted"],
    ),
    "supervisor killed": (
        [facts("n0", [record(0, ready=READY)]), facts("n1", [record(1, alive=False, carried=True)])],
        "failed",
        ["running", "gone"],
    ),
    "being stopped": (
        [facts("n0", [record(0, ready=READY)]), facts("n1", [record(1, stopping=True)])],
        "failed",
        ["running", "stopping"],
    ),
    "claims alone": ([facts("n0", claims=[claim()]), facts("n1", claims=[claim(1)])], "starting", ["claimed"] * 2),
    "a stop that left only claims": (
        [facts("n0", claims=[claim()]), facts("n1", claims=[claim(1, stopping=True)])],
        "failed",
        ["claimed", "stopping"],
    ),
    "a stranger's word that ours is stopped": (
        [facts("n0", claims=[claim(), claim(account="bob", stopping=True)])],
        "starting",
        ["claimed"],
    ),
    "written and never started": (
        [facts("n0", [record(0, alive=False, processes=())]), facts("n1", [record(1)])],
        "starting",
        ["claimed", "running"],
    ),
    "one started, one claimed": (
        [facts("n0", [record(0)]), facts("n1", claims=[claim(1)])],
        "starting",
        ["running", "claimed"],
    ),
    "another account's": ([facts("n0", claims=[claim(account="bob", alive=True)])], "unknown", ["running"]),
}


@pytest.mark.parametrize("row", ROWS)
def test_state_of_a_replica(row):
    """One dead rank fails it, one unseen leaves it unknown, claims alone are a start that is stuck."""
    hosts, state, shards = ROWS[row]
    found = only(*hosts)
    assert found.state == state, found
    assert [s.state for s in found.shards] == shards
    assert bool(found.why) is (state in ("failed", "unknown") or "claimed" in shards)


def test_a_ready_replica_tells_all_that_others_need():
    """Endpoint, fabric, transport, pids and GPUs."""
    found = only(*ROWS["ready"][0])
    assert (found.endpoint, found.fabric, found.transport) == ("http://10.0.0.1:8000", "nvl:x.1", "nvlink")
    assert [(s.pid, s.gpus) for s in found.shards] == [(100, (0, 1)), (101, (0, 1))]


def test_two_launches_of_one_name_are_two_rows():
    """Neither hides the other, so that both can be stopped."""
    other = record(0, spec=spec(0, ranks=1, launch="M"))
    found = replicas(seen(facts("n0", [record(0)]), facts("n1", [record(1)]), facts("n2", [other])))
    assert [(r.id, r.launch) for r in found] == [("p-0", "L"), ("p-0", "M")]


def test_targets_are_the_ranks_that_can_be_reached_with_their_stop_rule():
    """An unreachable rank is left out; a rank of which only a claim is seen takes the rule of another."""
    rule = {"stop": {"leader_first": False, "signal": "INT", "grace_s": 9}}
    snapshot = seen(facts("n0", [record(0, spec=spec(0, 3, **rule))]), facts("n1", claims=[claim(1)]), dead("n2"))
    found = targets_of(snapshot, replicas(snapshot)[0])
    assert [(t.host.name, t.rank, t.signal, t.grace_s, t.leader_first) for t in found] == [
        ("n0", 0, "INT", 9, False),
        ("n1", 1, "INT", 9, False),
    ]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_no_spec_is_too_odd_to_be_shown(value):
    """A spec lies on a host where anything may have been written: it never ends the run."""
    told = dict.fromkeys(spec(0), value)
    found = replicas(seen(facts("n0", [ShardRecord("/s", told), ShardRecord("/t", {"replica": "x", "shards": value})])))
    assert render.ps(found)
    assert json.dumps(render.ps_document(found))


@given(st.text())
def test_no_answer_of_a_host_ends_the_life_probe(text):
    """Garbage is a broken reading or nothing at all."""
    assert PROBE.read({"life": Output(text)}).state == "broken"
    whole = f"boot_id b\nuptime_s 1.0\n{text}"
    assert PROBE.read({"life": Output(whole)}).state in ("ok", "broken")


# --- transport ------------------------------------------------------------------------------------------------------

# Lines in the shape that NCCL gives them; hosts, ids and numbers are invented.
NVLINK = """tray1:811:811 [0] NCCL INFO MNNVL 1 cliqueId 7ffe cliqueSize 8 cliqueRank 0
tray1:811:902 [0] NCCL INFO Channel 00/0 : 0[0] -> 4[0] via P2P/MNNVL"""
IB = """gpu1:5:5 [0] NCCL INFO Using network IB
gpu1:5:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA"""
TCP = """gpu1:5:5 [0] NCCL INFO Using network Socket
gpu1:5:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0"""
LINES = {
    "nvlink": NVLINK,
    "ib": IB,
    "tcp": TCP,
    "tcp: one rank fell back": f"{IB}\n{TCP}",
    "ib: a domain that is left for another host": f"{NVLINK}\n{IB}",
    "nvlink: with a network that nothing uses": f"{NVLINK}\nx NCCL INFO Using network IB",
    "ib: lazy connect": "x NCCL INFO Using network IB",
    "tcp: lazy connect": "x NCCL INFO Using network Socket",
    "not proved: data only": "x NCCL INFO MNNVL busId 0x1 fabric UUID ab.cd cliqueId 0x7ffe state 3 healthMask 0x0",
    "not proved: inside one host": "x NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
    "not proved: nothing": "serving at 127.0.0.2",
    "not proved: a summary of zero": "x NCCL INFO comm 0x1 rank 0 nRanks 8 MNNVL 0",
}


@pytest.mark.parametrize("case", LINES)
def test_the_transport_is_what_nccl_says_that_it_uses(case):
    """The weakest link between ranks counts, and what only could be used proves nothing."""
    assert verdict(LINES[case].split("\n")) == case.split(":")[0]


# --- http -----------------------------------------------------------------------------------------------------------


async def answered(data):
    """The reply to a request whose server says these bytes and closes."""

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(data)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        streams = await asyncio.open_connection(*server.sockets[0].getsockname())
        return await exchange(streams, compose("GET", "/x", "h", {}), 5)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\nhello",
        b"HTTP/1.1 200 OK\ncontent-length: 5\n\nhello",
    ],
)
async def test_every_way_to_say_where_a_body_ends(data):
    """Length, chunks, or the end of the connection."""
    reply = await answered(data)
    assert (reply.status, reply.text) == (200, "hello")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 300 + b"\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a" * 100_000,
        b"HTTP/1.1 200 OK\r\n\r\n" + b"a" * (MAX_BYTES + 1),
    ],
)
async def test_what_is_no_answer_is_a_bad_reply(data):
    """Whatever listens there, it costs neither memory nor time, and is not taken for a server."""
    with pytest.raises(BadReply):
        await answered(data)


def test_a_key_cannot_smuggle_a_header():
    """A line break in it is refused on both ways."""
    url = Url("10.0.0.1", 8000, "/v1/models", "k\r\nX: y")
    for make in (url.request, url.curl):
        with pytest.raises(ValueError, match="line break"):
            make(None)
    assert "k" not in repr(Url("h", 1, "/", "k"))


def test_curl_gets_the_same_words_in_its_own_quoting():
    """Quotes and backslashes of a key or a body arrive as they are."""
    told = Url("10.0.0.1", 8000, "/x", 'a"b\\c').curl({"p": 'q"'})
    assert 'header = "Authorization: Bearer a\\"b\\\\c"' in told
    assert 'data-raw = "{\\"p\\": \\"q\\\\\\"\\"}"' in told
    assert str(Url("fe80::1", 8000, "/x")) == "http://[fe80::1]:8000/x"


@pytest.mark.parametrize(
    ("text", "yes"),
    [
        ('{"choices": [{"text": "x"}], "usage": {"completion_tokens": 1}}', True),
        ('{"choices": [{"text": "x"}]}', True),
        ('{"choices": [{"text": ""}], "usage": {"completion_tokens": 0}}', False),
        ('{"choices": []}', False),
        ('{"error": {}}', False),
        ("[]", False),
        ("<html>", False),
    ],
)
def test_a_token_must_have_been_made(text, yes):
    """A 200 with no choice, or with none counted, is no generation."""
    assert generated(text) is yes


def test_model_names_of_whatever_answers():
    """What is no list of models names none."""
    assert model_names('{"data": [{"id": "a"}, {"id": "b"}]}') == ("a", "b")
    assert model_names('{"data": [{}]}') == model_names("x") == model_names("[]") == ()


def test_parts_of_a_log_are_told_apart_by_the_secret_word():
    """A log that looks like a frame is still a log."""
    text = "\nN main 12\nx\nM other 3\ny\n\nN supervisor 0\n"
    assert split(text, "N") == [("main", "x\nM other 3\ny\n", 12, 0), ("supervisor", "", 0, 0)]


# --- for people -----------------------------------------------------------------------------------------------------


def test_control_characters_of_a_host_never_reach_the_terminal():
    """Neither from a claim nor from a log."""
    evil = "\x1b[2J\x07\u202e"
    stuck = Claim("gpu-0", "p-0", 0, "L", evil, evil, "ops", "now", "b", 900)
    shown = render.ps(replicas(seen(facts("n0", claims=[stuck])))) + render.log_lines([("r0 main", f"a\n{evil}\rb")])
    assert not set(shown) & {"\x1b", "\x07", "\u202e", "\r"}
    assert "a\nr0 main | \\x1b[2J" in shown


def test_the_ps_document_has_the_keys_that_others_build_on():
    """llmgwctl.ps/v1, key by key."""
    document = render.ps_document(replicas(seen(*ROWS["ready"][0])))
    assert document["schema"] == "llmgwctl.ps/v1"
    (replica,) = document["replicas"]
    assert {"id", "profile", "state", "endpoint", "fabric", "transport", "shards"} <= replica.keys()
    assert [s["rank"] for s in replica["shards"]] == [0, 1]
    assert {"rank", "host", "state", "pid", "gpus"} <= replica["shards"][0].keys()
    assert replica["shards"][0]["gpus"] == [0, 1]


def test_ps_for_people():
    """One line a replica; of one that is not ready also who, which rank and why."""
    shown = render.ps(replicas(seen(*ROWS["one exited"][0])))
    assert "p-0      failed" in shown
    assert "main exited with code 7" in shown
    assert "n1" in shown
    assert render.ps(()) == "no replica runs, and nothing is claimed"


def test_that_nothing_runs_is_not_said_of_hosts_that_nobody_could_read():
    """Unknown is never fine: the sentence is held to the hosts that answered, and counts the others."""
    told = "no replica runs, and nothing is claimed on the hosts that answered; what runs on 2 others is not known"
    assert render.ps((), unseen=2) == told
