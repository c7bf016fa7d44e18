"""A fabric manager restarts between plan and start: all GPUs drop, and come back in another domain. What is read last
counts. The moment is fixed by how many reports nvidia-smi has given, so every answer is the only right one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from netns import Bed, Change
from test_spine import ctl, doc, marked

from llmgwctl.rack import faults, nvl72
from llmgwctl.rack.machine import Machine

RACK = nvl72(4, hgx=0)
OTHER = "5e1fab1e-0000-4000-8000-0000000000ff"
CHOSEN, OTHERS = ("r1-t01", "r1-t02"), ("r1-t03", "r1-t04")


def as_it_was(m: Machine) -> Machine:
    return m


def dropped(m: Machine) -> Machine:
    """Every GPU says In Progress."""
    return faults.apply(m, ["all-dropped"])


def elsewhere(m: Machine) -> Machine:
    return replace(m, gpus=tuple(replace(g, cluster=OTHER) for g in m.gpus))


@pytest.fixture(autouse=True)
def nothing_left(bed: Bed) -> Iterator[None]:
    """And what `stop` is to leave."""
    yield
    bed.restore()
    assert ctl(bed, "stop", "--all").code == 0
    bare(bed)


def bare(bed: Bed) -> None:
    """No process, no claim, no directory of a shard, whole or half."""
    for name in bed.hosts:
        assert marked(bed, name) == {}, name
        listing = bed.inside(name, "sh", "-c", "ls -A /run/lock/llmgwctl; ls -A /home/ops/.local/state/llmgwctl/*/")
        assert not re.search(r"gpu-|slot-|\.new\.|\.r\d", listing.out), (name, listing.out)


def script(bed: Bed, chosen: tuple[Change, ...], others: tuple[Change, ...]) -> None:
    for name in bed.hosts:
        bed.script(name, *(chosen if name in CHOSEN else others))


def specs(bed: Bed) -> list[dict]:
    """What shards were started with, as it lies on the hosts."""
    found = []
    for name in bed.hosts:
        said = bed.inside(name, "sh", "-c", "cat /home/ops/.local/state/llmgwctl/*/*/spec.json 2>/dev/null")
        found += [json.loads(line) for line in said.out.splitlines() if line.strip()]
    return found


@pytest.mark.parametrize(
    ("words", "before"), [(("place", "sim-nvl"), 1), (("ensure", "sim-nvl"), 2)], ids=["place", "ensure"]
)
def test_gpus_that_drop_after_the_claim_carry_nothing(bed: Bed, words: tuple[str, ...], before: int):
    """`place` reads once before it claims and `ensure` twice; then all of the rack waits for its fabric manager.

    Nothing is started, the claim is given back, and what is said is what holds now."""
    stages = (*[as_it_was] * before, dropped)
    script(bed, stages, stages)
    done = ctl(bed, *words)
    assert done.code == 4, (done.out, done.err)
    assert "the chosen hosts have changed since they were read" in done.err
    said = " ".join(done.out.split())
    why = {
        "place": "have not joined the NVLink fabric: State In Progress",
        "ensure": "`llmgwctl plan sim-nvl`",
    }
    assert why[words[0]] in said, said
    assert "0 eligible hosts, 2 needed" in said
    assert doc(ctl(bed, "--json", "ps"))["replicas"] == []
    bare(bed)
    assert {bed.reports(name) for name in CHOSEN} == {before + (2 if words[0] == "place" else 3)}


@pytest.mark.parametrize("between", [(), (dropped,)], ids=["at-once", "after-a-while"])
def test_gpus_that_come_back_in_another_domain_are_planned_anew(bed: Bed, between: tuple[Change, ...]):
    """Whether the second look finds them dropped or already in the other domain: what starts is of that one alone."""
    script(bed, (as_it_was, *between, elsewhere), (as_it_was, elsewhere))
    done = ctl(bed, "--json", "place", "sim-nvl")
    assert done.code == 0, (done.out, done.err)
    assert done.err.count("the chosen hosts have changed since they were read") == 1
    (row,) = doc(ctl(bed, "--json", "ps"))["replicas"]
    assert (row["state"], row["fabric"]) == ("ready", f"nvl:{OTHER}.32766")
    found = specs(bed)
    assert sorted(s["rank"] for s in found) == [0, 1]
    assert {s["fabric"] for s in found} == {f"nvl:{OTHER}.32766"}
    assert len({s["launch"] for s in found}) == 1


def test_a_part_of_the_rack_that_drops_is_left_out(bed: Bed):
    """Only the chosen hosts drop: the replica goes to those that still are what they were."""
    script(bed, (as_it_was, dropped), (as_it_was,))
    done = ctl(bed, "place", "sim-nvl")
    assert done.code == 0, (done.out, done.err)
    assert "the chosen hosts have changed since they were read" in done.err
    (row,) = doc(ctl(bed, "--json", "ps"))["replicas"]
    assert [s["host"] for s in row["shards"]] == list(OTHERS)
    assert all(marked(bed, name) == {} for name in CHOSEN)
