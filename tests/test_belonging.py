"""A host speaks for a rank only where the launch's own shards name it; what else it says changes no other replica."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_life_state import READY, claim, dead, facts, only, record, seen, spec

from llmgwctl.cli.life import chosen
from llmgwctl.launch.belonging import MAX_RANKS, endpoint
from llmgwctl.launch.state import replicas, targets_of
from llmgwctl.model.errors import UsageError
from llmgwctl.model.life import SPEC_SCHEMA, ShardRecord

GOOD = (facts("n0", [record(0, ready=READY)]), facts("n1", [record(1)]))
EVIL_READY = {"endpoint": "http://evil:1", "transport": "tcp"}


def evil(rank, **more):
    return ShardRecord("/s/x", {**spec(rank), "endpoint": "http://evil:1", **more}, supervisor_alive=True)


def good(states):
    return next(s for s in states if {x.host for x in s.shards} == {"n0", "n1"})


LIES = {
    "a rank below zero": facts("n9", [replace(evil(-5), ready=EVIL_READY)]),
    "the rank of another": facts("n9", [replace(evil(0), ready=EVIL_READY)]),
    "a rank beside": facts("n9", [evil(2)]),
    "an own list of shards": facts("n9", [evil(0, shards=[{"rank": 0, "host": "n9"}, {"rank": 1, "host": "n1"}])]),
    "a claim": facts("n9", claims=[claim(0, account="evil", alive=True)]),
    "a claim of a new rank": facts("n9", claims=[claim(7, account="evil")]),
    "many ranks": facts("n9", [evil(r) for r in range(2, 400)]),
    "a newer schema": facts("n9", [evil(1, schema="llmgwctl.shard/v9")]),
    "that it was exited": facts("n9", [record(1, "exited")]),
    "processes alone": facts("n9", [ShardRecord("", {**spec(1), "shards": None}, carried=True)]),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("first", [True, False])
def test_another_host_changes_nothing_of_a_replica(lie, first):
    """Same replica, same launch: state, endpoint, transport, shards and what stop reaches stay as they were."""
    hosts = (LIES[lie], *GOOD) if first else (*GOOD, LIES[lie])
    (alone,) = replicas(seen(*GOOD))
    mine = good(replicas(seen(*hosts)))
    assert mine == alone
    assert mine.state == "ready"
    assert targets_of(seen(*hosts), mine) == targets_of(seen(*GOOD), alone)


@pytest.mark.parametrize("lie", LIES)
def test_what_it_says_reaches_no_honest_host(lie):
    """A stop of what it made up does not end the rank of another, which has that name and launch in its own words."""
    hosts = seen(*GOOD, LIES[lie])
    for state in replicas(hosts):
        if state != good(replicas(hosts)):
            assert {t.host.name for t in targets_of(hosts, state)} <= {"n9"}


def test_a_claim_decides_whose_it_is_only_where_there_is_no_record():
    """Another account may have left a claim with our launch's id on our own host."""
    hosts = (facts("n0", [record(0, ready=READY)]), facts("n1", claims=[claim(1, account="evil")]))
    assert [s.account for s in only(*hosts).shards] == ["ops", ""]
    assert [s.account for s in only(facts("n0", claims=[claim(account="bob")])).shards] == ["bob"]


def test_the_endpoint_is_the_leaders_word():
    assert only(*GOOD).endpoint == "http://10.0.0.1:8000"
    assert only(dead("n0"), facts("n1", [record(1)])).endpoint == ""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://10.0.0.1:8000", True),
        ("http://[fd00::1]:8000", True),
        ("https://n1.example:1", True),
        ("javascript:alert(1)", False),
        ("http://a@b:1", False),
        ("http://10.0.0.1:8000/x?y", False),
        ("http://a\x1b[2J:1", False),
        ("http://a b:1", False),
        ("", False),
    ],
)
def test_an_endpoint_is_an_address(text, shown):
    assert endpoint(text) == (text if shown else "")


@pytest.mark.parametrize(
    "host", ["x[1-99999999]", "[red]", "../x", "a b", "", "n1\n", "-x", "@all", "a,b", "a&b", "x" * 300, 1, None]
)
def test_a_spec_names_hosts(host):
    """Ranges and markup are no names: they never reach what folds names, or a page."""
    shards = [{"rank": 0, "host": "n0"}, {"rank": 1, "host": host}]
    found = only(facts("n0", [ShardRecord("/s", {**spec(0), "shards": shards})]))
    assert [s.host for s in found.shards] == ["n0"]


def test_ranks_are_bounded():
    shards = [{"rank": r, "host": f"h{r}"} for r in range(100_000)]
    found = only(facts("h0", [ShardRecord("/s", {**spec(0), "shards": shards})]))
    assert len(found.shards) == MAX_RANKS
    for rank in (-1, MAX_RANKS, True, 1.5, "0"):
        assert (
            len(only(facts("n0", [ShardRecord("/s", {**spec(0), "shards": [{"rank": rank, "host": "x"}]})])).shards)
            == 1
        )


def test_hosts_under_other_names_are_seen_as_before():
    """Another inventory may call the hosts otherwise: the replica is one, and stop reaches its ranks."""
    hosts = seen(facts("a0", [record(0)]), facts("a1", [record(1)]))
    (found,) = replicas(hosts)
    assert {s.host for s in found.shards} == {"a0", "a1", "n0", "n1"}
    assert {t.host.name for t in targets_of(hosts, found)} == {"a0", "a1"}


def test_a_lost_directory_belongs_to_its_launch():
    """Of rank 1 only processes are left: it is a rank of the replica that names that host."""
    left = ShardRecord("", {"schema": SPEC_SCHEMA, "replica": "p-0", "rank": 1, "launch": "L"}, carried=True)
    found = only(facts("n0", [record(0)]), facts("n1", [left]))
    assert [(s.rank, s.state) for s in found.shards] == [(0, "running"), (1, "gone")]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
)


@given(st.lists(st.dictionaries(st.sampled_from(["replica", "launch", "rank", "shards", "gpus", "endpoint"]), JSON)))
def test_any_spec_gives_states(specs):
    """Whatever a host writes there: states and targets, no exception."""
    hosts = seen(*GOOD, facts("n9", [ShardRecord("/s", s) for s in specs]))
    for state in replicas(hosts):
        targets_of(hosts, state)


def test_a_stop_by_name_ends_what_is_ours():
    """One host that tells of another of that name, another account's or of a newer llmgwctl, is no obstacle."""
    foreign = facts("n9", claims=[replace(claim(account="evil"), launch="M")])
    newer = facts("n8", [ShardRecord("/s", {**spec(0), "launch": "N", "shards": [], "schema": "llmgwctl.shard/v9"})])
    notes = []
    session = SimpleNamespace(note=notes.append)
    found = chosen(session, seen(*GOOD, foreign, newer), ["p-0"])
    assert [r.launch for r in found] == ["L"]
    assert len(notes) == 2
    with pytest.raises(UsageError, match="evil"):
        chosen(session, seen(foreign), ["p-0"])
