"""A part of a host: NVLink neighbours on one NUMA node, parting as few of the rest as can be; unknown is said."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from math import comb
from pathlib import Path

import pytest
from facts import facts as make
from facts import gpu, hgx, rack, snapshot, with_gpu
from hypothesis import given
from hypothesis import strategies as st
from smi_matrix import Matrix

from llmgwctl.cli.reading import neighbours
from llmgwctl.fabric import fabric_map
from llmgwctl.model.gpu import Fabric, GpuProcess
from llmgwctl.model.host import Expect, Host
from llmgwctl.model.profile import Profile
from llmgwctl.model.reading import absent, broken, ok
from llmgwctl.placement import plan
from llmgwctl.placement.neighbours import MOST_SETS, Near, pick
from llmgwctl.probe import topology
from llmgwctl.render.json import plan as document
from llmgwctl.render.plan import explained
from llmgwctl.render.plan import plan as shown

CARDS = "NVIDIA A100 80GB PCIe"
PART = Profile("part", "vllm", "/models/x", pool="prod", port_max=8100)


def part(count: int) -> Profile:
    return replace(PART, tp=count, gpus_per_node=count)


def host(islands=(), nodes=(), name="a", product=CARDS, links=12, count=8, busy=(), far="SYS"):
    """A machine whose NVLink joins the GPUs of each island; `nodes`: the NUMA node of each GPU."""
    joined = {p for island in islands for p in combinations(sorted(island), 2)}
    cells = {(i, j): far for i in range(count) for j in range(count) if (min(i, j), max(i, j)) not in joined}
    found = topology.read_matrix(Matrix(tuple(range(count)), nvlinks=links, links=cells).tabs())
    found = replace(found, numa={})
    cards = tuple(gpu(i, product, Fabric(), name, numa_node=nodes[i] if nodes else None) for i in range(count))
    one = replace(make(name, "10.9.0.1", cards, absent()), topology=ok(found))
    for i in busy:
        one = with_gpu(one, i, processes=(GpuProcess(4711, "C", "python3", 1000, "eve"),))
    return {name: one}


def planned(profile, *groups, count=1):
    snap = snapshot(*groups)
    return plan(fabric_map(snap), snap, profile, (), count)


def chosen(profile, *groups, count=1):
    return [s.gpus for r in planned(profile, *groups, count=count).replicas for s in r.shards]


QUADS = ((0, 2, 4, 6), (1, 3, 5, 7))  # as two boards that are cabled across
PAIRS = ((0, 4), (1, 5), (2, 6), (3, 7))


@pytest.mark.parametrize(
    ("count", "busy", "expected"),
    [
        (4, (), (0, 2, 4, 6)),
        (4, (2,), (1, 3, 5, 7)),
        (2, (0, 1, 2), (4, 6)),  # what is left of the first island, and not two of the whole one
        (1, (0, 1, 2, 3, 6), (4,)),  # alone already; 5 and 7 stay together
        (3, (0,), (2, 4, 6)),
    ],
)
def test_two_islands_of_nvlink(count, busy, expected):
    """All in one island, and the smaller rest of an island before a whole one."""
    assert chosen(part(count), host(QUADS, busy=busy)) == [expected]


@pytest.mark.parametrize(
    ("count", "busy", "expected"),
    [
        (2, (), (0, 4)),
        (2, (0,), (1, 5)),
        (4, (), (0, 1, 4, 5)),  # two whole bridges
        (1, (5,), (1,)),  # its neighbour is taken: no other pair is parted
        (2, (0, 1, 6, 7), (2, 3)),  # no pair is whole: in order
    ],
)
def test_bridges_of_two(count, busy, expected):
    assert chosen(part(count), host(PAIRS, busy=busy)) == [expected]


def test_replicas_of_one_plan_share_out_the_islands():
    """Planned together they part no neighbours, and single GPUs go where a neighbour is gone already."""
    assert chosen(part(2), host(PAIRS), count=4) == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert chosen(part(1), host(PAIRS, busy=(3, 6)), count=2) == [(2,), (7,)]


def test_more_links_are_nearer():
    """The cube mesh of a DGX-1: GPU 0 has two links to 3 and 4, and one to 1 and 2."""
    one = host(((0, 1, 2, 3), (4, 5, 6, 7), (0, 4)), product="NVIDIA V100", links=1)["a"]
    wide = {(0, 3): "NV2", (3, 0): "NV2", (0, 4): "NV2", (4, 0): "NV2"}
    one = replace(one, topology=one.topology.map(lambda t: replace(t, links=t.links | wide)))
    assert chosen(part(2), {"a": one}) == [(0, 3)]
    assert chosen(part(4), {"a": one}) == [(0, 1, 2, 3)]


def test_all_joined_before_wide():
    """Three over single links, and not two over twelve with one beside them."""
    one = host(((0, 1), (2, 3, 4)), count=5, links=1)["a"]
    wide = {(0, 1): "NV12", (1, 0): "NV12"}
    one = replace(one, topology=one.topology.map(lambda t: replace(t, links=t.links | wide)))
    assert chosen(part(3), {"a": one}) == [(2, 3, 4)]
    assert chosen(part(2), {"a": one}) == [(0, 1)]


def test_a_link_that_one_end_does_not_see_is_none():
    one = host(((0, 1), (2, 3)), count=4)["a"]
    one = replace(one, topology=one.topology.map(lambda t: replace(t, links=t.links | {(1, 0): "SYS"})))
    assert chosen(part(2), {"a": one}) == [(2, 3)]


NODES = (0, 1, 0, 1, 0, 1, 0, 1)


def test_behind_an_nvswitch_the_numa_node_decides():
    """With the matrix and without: the product says that all are neighbours."""
    product = "NVIDIA H100 80GB HBM3"
    everyone = (tuple(range(8)),)
    told = host(everyone, NODES, product=product, links=18)
    assert chosen(part(4), told) == [(0, 2, 4, 6)]
    assert chosen(part(2), host(everyone, NODES, product=product, links=18, busy=(1, 3))) == [(5, 7)]
    untold = {"a": replace(told["a"], topology=broken("not saved"))}
    assert chosen(part(4), untold) == [(0, 2, 4, 6)]
    assert "NVLink between all (NV18); NUMA node 0" in words(part(4), told) == words(part(4), untold)


def test_nvlink_before_numa_and_numa_before_the_order():
    """An island over two nodes is better than one node without links; without links the node decides."""
    assert chosen(part(2), host(((0, 1), (2, 3)), (0, 1, 0, 1), count=4)) == [(0, 1)]
    assert chosen(part(2), host((), (0, 1, 0, 1), count=4)) == [(0, 2)]
    assert chosen(part(2), host((), (0, 1, 1, 1), count=4, busy=(0,))) == [(1, 2)]


def test_the_tightest_node_and_the_fewest_nodes():
    assert chosen(part(2), host((), (0, 0, 0, 1, 1), count=5)) == [(3, 4)]
    assert chosen(part(3), host((), (0, 1, 1, 2, 2), count=5)) == [(0, 1, 2)]
    assert chosen(part(3), host((), (2, 0, 1, 2, 1), count=5)) == [(0, 1, 3)]
    assert chosen(part(2), host((), (1, 2, 0, 0, 0, 0), count=6)) == [(2, 3)]


def test_without_nvlink_the_shorter_way():
    """Cards behind one PCIe switch before cards of one node."""
    one = host((), (0,) * 4, count=4, far="NODE", product="NVIDIA L40S")["a"]
    near = {(1, 3): "PIX", (3, 1): "PIX"}
    one = replace(one, topology=one.topology.map(lambda t: replace(t, links=t.links | near)))
    assert chosen(part(2), {"a": one}) == [(1, 3)]


def words(profile, *groups):
    snap = snapshot(*groups)
    made = plan(fabric_map(snap), snap, profile)
    return " ".join(explained(made, [f.host for f in snap.hosts]).split())


@pytest.mark.parametrize(
    ("group", "count", "expected"),
    [
        (host(QUADS, (0,) * 8), 4, "NVLink between all (NV12); NUMA node 0"),
        (host(PAIRS, (0, 1, 2, 3) * 2), 4, "NVLink between 2 of 6 pairs; NUMA nodes 0, 1"),
        (host((), NODES), 2, "no NVLink on this host; NUMA node 0"),
        (host((), NODES), 1, "(NUMA node 0)"),
        (host((), product="NVIDIA L40S", count=2), 2, "(all of the host)"),
    ],
)
def test_the_plan_says_what_joins_the_gpus(group, count, expected):
    assert expected in words(part(count), group)


def test_what_is_not_known_is_said():
    """By NUMA node where that is known, else in order; never as if it had been looked at."""
    one = host(QUADS, NODES)["a"]
    blind = replace(one, topology=broken("no answer within its limit (60 s)"))
    assert chosen(part(4), {"a": blind}) == [(0, 2, 4, 6)]
    told = "whether NVLink joins them is not known (no answer within its limit (60 s)); NUMA node 0"
    assert told in words(part(4), {"a": blind})
    dark = replace(host(QUADS)["a"], topology=broken("not saved"))
    assert chosen(part(4), {"a": dark}) == [(0, 1, 2, 3)]
    assert "(not saved); NUMA nodes not known, in order" in words(part(4), {"a": dark})
    short = one.topology.map(lambda t: replace(t, links={p: w for p, w in t.links.items() if 7 not in p}))
    assert "the matrix does not name all GPUs" in words(part(4), {"a": replace(one, topology=short)})


def test_what_was_not_looked_at_is_not_said_to_be_unknown():
    """A profile that takes every GPU leaves no choice: neither matrix nor NUMA nodes are asked for; `node` does."""
    whole = host(product="NVIDIA H100 80GB HBM3", count=8)["a"]
    told = words(part(8), {"a": replace(whole, topology=broken("not saved"))})
    assert "NVLink between all (NV18); all of the host, so NUMA nodes were not looked at (`llmgwctl node`" in told
    assert "not known" not in told
    known = host(product="NVIDIA H100 80GB HBM3", count=8, nodes=(0,) * 4 + (1,) * 4)["a"]
    assert "NUMA nodes 0, 1" in words(part(8), {"a": replace(known, topology=broken("not saved"))})


def test_a_host_whose_neighbours_are_free_comes_first():
    """The fuller host has no two neighbours left; among equals the fuller one is taken."""
    broken_up = host(PAIRS, name="a", busy=(0, 1, 2, 3))
    whole = host(PAIRS, name="b")
    assert [s.host for r in planned(part(2), broken_up, whole).replicas for s in r.shards] == ["b"]
    fuller = host(PAIRS, name="c", busy=(0, 4))
    assert [s.host for r in planned(part(2), whole, fuller).replicas for s in r.shards] == ["c"]
    assert [s.host for r in planned(part(1), whole, broken_up).replicas for s in r.shards] == ["a"]


def test_tensor_parallelism_that_leaves_nvlink_is_noted():
    """Only where the host has NVLink that others could have used, and only where tensors are split."""
    snap = snapshot(host(PAIRS))
    made = plan(fabric_map(snap), snap, part(4))
    assert "tensor parallelism takes PCIe" in shown(made, {("part-0", 0): ((), ())})
    for profile, group in (
        (replace(PART, gpus_per_node=4, dp=4), host(PAIRS)),
        (part(4), host(QUADS)),
        (part(4), host(())),
    ):
        assert (
            planned(profile, group).replicas[0].shards[0].notes == planned(part(1), group).replicas[0].shards[0].notes
        )


def test_the_document_has_it():
    made = planned(part(4), host(QUADS, (0, 1) * 4))
    shard = document(made, {("part-0", 0): ((), ())})["replicas"][0]["shards"][0]
    assert (shard["gpus"], shard["numa_nodes"]) == ([0, 2, 4, 6], [0])
    assert shard["gpus_why"] == "NVLink between all (NV12); NUMA node 0"
    schema = json.loads((Path(__file__).parents[1] / "docs/schema/plan.v1.json").read_text())
    known = schema["properties"]["replicas"]["items"]["properties"]["shards"]["items"]["properties"]
    assert {"gpus_why", "numa_nodes"} <= set(known)


def test_more_gpus_than_can_be_compared_are_taken_in_a_row():
    """Bounded, whatever a host says of itself; still on one NUMA node."""
    nodes = {i: i % 2 for i in range(64)}
    cards = tuple(gpu(i) for i in range(64))
    found = pick(Near({}, "", {}, nodes), cards, 16)
    assert comb(64, 16) > MOST_SETS
    assert [g.index for g in found] == list(range(0, 32, 2))


@given(st.data())
def test_what_is_picked_is_never_worse_than_any_other_choice(data):
    """As many NVLinked pairs as can be; always the same; always free GPUs, each once."""
    count = data.draw(st.integers(2, 8))
    pairs = list(combinations(range(count), 2))
    links = dict.fromkeys(data.draw(st.sets(st.sampled_from(pairs))), 4)
    nodes = data.draw(st.dictionaries(st.integers(0, count - 1), st.integers(0, 1)))
    free = tuple(gpu(i) for i in sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1))))
    wanted = data.draw(st.integers(1, len(free)))
    place = Near(links, "", {}, nodes)
    found = tuple(g.index for g in pick(place, free, wanted))
    assert found == tuple(g.index for g in pick(place, free, wanted))
    assert len(set(found)) == wanted
    assert set(found) <= {g.index for g in free}
    best = max(sum(p in links for p in combinations(some, 2)) for some in combinations([g.index for g in free], wanted))
    assert sum(p in links for p in combinations(found, 2)) == best


# --- what is asked for it ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpus", "gpu_class", "expect", "pool", "asked"),
    [
        (4, "GB200", Expect(), "prod", False),
        (2, "GB200", Expect(), "prod", True),
        (8, "H100", Expect(), "prod", False),
        (4, "H100", Expect(), "prod", True),
        (4, None, Expect(gpus=4), "prod", False),
        (4, None, Expect(gpus=8), "prod", True),
        (8, None, Expect(), "prod", True),
        (1, "A9999", Expect(), "prod", True),
        (0, None, Expect(), "prod", False),
        (2, None, Expect(), "other", False),
    ],
)
def test_the_matrix_is_asked_where_there_is_a_choice(gpus, gpu_class, expect, pool, asked):
    """Not of hosts that are taken whole: a fleet of trays is read as fast as before."""
    profile = replace(PART, gpus_per_node=gpus, gpu_class=gpu_class)
    names = [s.name for s in neighbours(profile)(Host("a", pool=pool, expect=expect))]
    assert names == (["numa", "nvidia-smi-topo-m"] if asked else [])


def test_racks_and_boards_are_as_before():
    """Nothing known but the fabric set: the packing of replicas that share a host is what it was."""
    assert chosen(part(2), hgx(1), count=3) == [(0, 1), (2, 3), (4, 5)]
    assert chosen(part(4), rack(2)) == [(0, 1, 2, 3)]
