"""Stories of a fleet, minute by minute, and what watch says of each minute."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from facts import IN_PROGRESS, OTHER_UUID, UUID, hgx, joined, rack, snapshot, unreachable, with_gpu, with_imex
from hypothesis import given
from hypothesis import strategies as st

from llmgwctl.fabric import fabric_map
from llmgwctl.model.fabric import FabricMap
from llmgwctl.model.gpu import FabricHealth
from llmgwctl.model.reading import absent, broken, ok
from llmgwctl.model.replica import ReplicaState, ShardState
from llmgwctl.watch import BadState, Seen, dumps, loads, step

START = 1_780_000_000.0
DEGRADED = FabricHealth("Limited Capacity", "Degraded", False, False, False, "None", None)
NEW_UUID = "5e1fab1e-0000-4000-8000-0000000000ff"


class Story:
    """One look a minute; the state goes through its file each time."""

    def __init__(self):
        self.seen: Seen | None = None
        self.minute = 0

    def look(self, *groups, replicas=(), minutes=1):
        snap = replace(snapshot(*groups), taken_at=START + 60 * self.minute)
        self.minute += minutes
        before = loads(dumps(self.seen)) if self.seen else None
        self.seen, found = step(before, fabric_map(snap), snap, replicas)
        assert loads(dumps(self.seen)) == self.seen
        return found

    def says(self, *groups, **more):
        return [(t.kind, t.severity, t.text) for t in self.look(*groups, **more)]


def all_gpus(hosts, fabric):
    made = dict(hosts)
    for name, facts in hosts.items():
        for g in facts.gpus.value.gpus:
            made[name] = with_gpu(made[name], g.index, fabric=fabric)
    return made


def one_gpu(hosts, name, index, fabric):
    return hosts | {name: with_gpu(hosts[name], index, fabric=fabric)}


def replica(state, *hosts, why="", name="deepseek-r1-0"):
    shards = tuple(ShardState(i, h, "running") for i, h in enumerate(hosts or ("r1-t01", "r1-t02")))
    return ReplicaState(name, "l1", state, shards, why=why)


def test_the_first_look_and_a_look_like_it_are_quiet():
    """Transitions, not states: a rack with faults is not reported again and again."""
    story = Story()
    sick = one_gpu(rack(), "r1-t02", 1, IN_PROGRESS)
    assert story.says(sick) == []
    assert story.says(sick) == []


def test_a_gpu_leaves_and_rejoins():
    """Each once, with the card and the domain."""
    story = Story()
    story.look(rack())
    gone = one_gpu(rack(), "r1-t03", 1, IN_PROGRESS)
    assert story.says(gone) == [("gpu-left", "worse", "r1-t03: GPU 1 left NVLink domain nvl:5e1fab1e….32766")]
    assert story.says(gone) == []
    assert story.says(rack()) == [
        ("gpu-rejoined", "better", "r1-t03: GPU 1 rejoined NVLink domain nvl:5e1fab1e….32766")
    ]


def test_a_tray_that_leaves_is_one_message():
    """Four cards of one host, and two hosts alike: one line each way."""
    story = Story()
    story.look(rack(4))
    sick = rack(4)
    sick |= all_gpus({n: sick[n] for n in ("r1-t02", "r1-t03")}, IN_PROGRESS)
    assert [t for _, _, t in story.says(sick)] == ["r1-t[02-03]: GPUs 0-3 left NVLink domain nvl:5e1fab1e….32766"]


def test_a_fabric_manager_restart_is_one_message_and_not_seventy_two():
    """All cards of a domain drop at once; minutes later it is back, first in part; then whole."""
    story = Story()
    whole, dropped = rack(18), all_gpus(rack(18), IN_PROGRESS)
    story.look(whole)
    (told,) = story.look(dropped)
    assert (told.kind, told.severity) == ("domain-dropped", "worse")
    assert told.text == (
        "NVLink domain nvl:5e1fab1e….32766 (rack r1): all 72 GPUs dropped at once (fabric manager restart suspected)"
    )
    assert len(told.gpus) == 72
    assert len(told.hosts) == 18
    assert story.says(dropped) == []
    late = whole | all_gpus({"r1-t18": whole["r1-t18"]}, IN_PROGRESS)
    assert story.says(late) == [
        ("domain-back", "better", "NVLink domain nvl:5e1fab1e….32766 (rack r1) is back: 68 GPUs joined, 4 not: r1-t18")
    ]
    assert [k for k, _, _ in story.says(whole)] == ["gpu-rejoined"]
    assert story.says(whole) == []


def test_a_restart_with_a_tray_that_does_not_answer_is_still_one_message():
    """What is not seen neither hides the drop nor is counted in it."""
    story = Story()
    story.look(rack(6))
    dropped = all_gpus(rack(6), IN_PROGRESS)
    dropped["r1-t04"] = unreachable(dropped["r1-t04"])
    said = story.says(dropped)
    assert [k for k, _, _ in said] == ["domain-dropped", "host-gone"]
    assert "all 20 GPUs dropped at once" in said[0][2]


def test_a_domain_that_drops_tray_by_tray_says_so_at_the_end():
    story = Story()
    whole = rack(4)
    story.look(whole)
    half = whole | all_gpus({n: whole[n] for n in ("r1-t01", "r1-t02")}, IN_PROGRESS)
    assert [k for k, _, _ in story.says(half)] == ["gpu-left"]
    ((kind, severity, text),) = story.says(all_gpus(whole, IN_PROGRESS))
    assert (kind, severity) == ("domain-dropped", "worse")
    assert "the last 8 GPUs have dropped" in text


@pytest.mark.parametrize("dropped_between", [True, False])
def test_a_domain_with_a_new_uuid_is_re_identified_not_lost(dropped_between):
    """After a restart (seen or not) the same cards are in another ClusterUUID: one message, and nothing got worse."""
    story = Story()
    story.look(rack(18))
    if dropped_between:
        assert [k for k, _, _ in story.says(all_gpus(rack(18), IN_PROGRESS))] == ["domain-dropped"]
    ((kind, severity, text),) = story.says(rack(18, uuid=NEW_UUID))
    assert (kind, severity) == ("domain-reidentified", "changed")
    assert text.endswith("re-identified, not lost")
    assert story.says(rack(18, uuid=NEW_UUID)) == []


def test_stragglers_of_a_re_identified_domain_rejoin_the_new_one():
    """The trays that come later, and the one that could not be read meanwhile, do not re-identify it again."""
    story = Story()
    story.look(rack(4))
    new = rack(4, uuid=NEW_UUID)
    part = new | all_gpus({"r1-t04": new["r1-t04"]}, IN_PROGRESS)
    part["r1-t03"] = unreachable(new["r1-t03"])
    said = story.says(part)
    assert [k for k, _, _ in said] == ["host-gone", "gpu-left", "domain-reidentified"]
    assert "not yet" in said[2][2]
    assert [k for k, _, _ in story.says(new)] == ["host-back", "gpu-rejoined"]
    assert story.says(new) == []


def test_trays_in_another_partition_are_named_as_such():
    """Some trays move to another clique while the rest stays: they are split off, and that is worse."""
    story = Story()
    story.look(rack(4))
    split = rack(4)
    split |= all_gpus({n: split[n] for n in ("r1-t03", "r1-t04")}, joined(UUID, 2))
    ((kind, severity, text),) = story.says(split)
    assert (kind, severity) == ("gpu-moved", "worse")
    assert text.startswith("r1-t[03-04]: GPUs 0-3 moved")


def test_two_racks_do_not_mix():
    """Each domain has its own message."""
    story = Story()
    other = rack(4, "r2", OTHER_UUID, net=2)
    story.look(rack(4), other)
    said = story.says(all_gpus(rack(4), IN_PROGRESS), all_gpus(other, IN_PROGRESS))
    assert [k for k, _, _ in said] == ["domain-dropped", "domain-dropped"]
    assert "rack r1" in said[0][2]
    assert "rack r2" in said[1][2]


def test_imex_down_everywhere_is_one_message():
    story = Story()
    story.look(rack(18))
    down = {n: with_imex(f, state="DOWN") for n, f in rack(18).items()}
    assert story.says(down) == [("imex-down", "worse", "r1-t[01-18]: IMEX is down")]
    assert story.says(rack(18)) == [("imex-up", "better", "r1-t[01-18]: IMEX is up again")]


def test_imex_that_cannot_be_asked_is_no_transition():
    """Unknown is neither up nor down: what was known stays."""
    story = Story()
    story.look(rack(2))
    mute = rack(2)
    mute["r1-t01"] = replace(mute["r1-t01"], imex=broken("timed out after 30 s"))
    assert story.says(mute) == []
    assert story.says(rack(2)) == []


def test_degraded_bandwidth_and_an_unhealthy_route():
    story = Story()
    story.look(rack(2))
    slow = one_gpu(rack(2), "r1-t01", 2, joined(health=DEGRADED))
    assert story.says(slow) == [("bandwidth-degraded", "worse", "r1-t01: NVLink bandwidth of GPU 2 is degraded")]
    bad = FabricHealth("Unhealthy", "Full", False, True, False, "None", None)
    said = story.says(one_gpu(rack(2), "r1-t01", 2, joined(health=bad)))
    assert [k for k, _, _ in said] == ["gpu-unhealthy", "bandwidth-restored"]
    assert story.says(rack(2)) == [("gpu-healthy", "better", "r1-t01: NVLink fabric healthy again for GPU 2")]


def test_a_driver_that_prints_no_health_changes_nothing():
    """A row that is not printed is unknown, and unknown is no transition."""
    story = Story()
    story.look(rack(2))
    assert story.says(one_gpu(rack(2), "r1-t01", 2, joined(health=FabricHealth()))) == []


def test_a_health_row_that_cannot_be_read_ends_no_fault():
    """Neither worse nor well again: what was known of the card stays until its rows can be read."""
    story = Story()
    story.look(rack(2))
    strange = joined(health=FabricHealth("Healthy", "Full", unread=("Route Unhealthy: ERR!",)))
    assert story.says(one_gpu(rack(2), "r1-t01", 2, strange)) == []
    bad = FabricHealth("Unhealthy", "Full", False, True, False, "None", None)
    story.look(one_gpu(rack(2), "r1-t01", 2, joined(health=bad)))
    assert story.says(one_gpu(rack(2), "r1-t01", 2, strange)) == []
    assert [k for k, _, _ in story.says(rack(2))] == ["gpu-healthy"]


def test_a_host_that_does_not_answer_has_not_lost_its_gpus():
    """Gone is one message; what it was is remembered, and what has changed meanwhile is told when it is back."""
    story = Story()
    story.look(rack(3))
    gone = rack(3)
    gone["r1-t02"] = unreachable(gone["r1-t02"], "timeout: r1-t02: no answer within 10 s")
    assert story.says(gone) == [("host-gone", "worse", "r1-t02: not reachable: timeout")]
    assert story.says(gone) == []
    back = one_gpu(rack(3), "r1-t02", 0, IN_PROGRESS)
    assert [k for k, _, _ in story.says(back)] == ["gpu-left", "host-back"]


def test_a_rack_without_power_is_one_message():
    story = Story()
    story.look(rack(18))
    dead = {n: unreachable(f, f"timeout: {n}: no answer") for n, f in rack(18).items()}
    assert story.says(dead) == [("host-gone", "worse", "r1-t[01-18]: not reachable: timeout")]


def test_a_hanging_nvidia_smi_is_told_and_loses_no_gpu():
    story = Story()
    story.look(rack(2))
    hung = rack(2)
    hung["r1-t01"] = replace(hung["r1-t01"], gpus=broken("timed out after 60 s"))
    assert [k for k, _, _ in story.says(hung)] == ["gpus-unread"]
    assert [k for k, _, _ in story.says(rack(2))] == ["gpus-read"]


def test_a_card_that_fell_off_the_bus_and_one_that_was_replaced():
    story = Story()
    story.look(rack(2))
    facts = rack(2)["r1-t01"]
    report = facts.gpus.value
    lost = rack(2) | {"r1-t01": replace(facts, gpus=ok(replace(report, gpus=report.gpus[:3], lost=("GPU is lost",))))}
    assert story.says(lost) == [("gpu-lost", "worse", "r1-t01: GPU 3 cannot be read any more")]
    assert story.says(lost) == []
    new = with_gpu(facts, 3, uuid="GPU-new")
    assert [k for k, _, _ in story.says(rack(2) | {"r1-t01": new})] == ["gpu-replaced"]


def test_a_host_that_comes_back_without_a_driver_has_lost_its_gpus():
    """It is read, and nothing is there: that is no host that could not be read, of which the last known stays."""
    story = Story()
    story.look(rack(2))
    bare = rack(2)
    bare["r1-t01"] = replace(bare["r1-t01"], gpus=absent("no NVIDIA driver (4 NVIDIA cards on the PCI bus)"))
    told = story.says(bare)
    assert ("gpu-lost", "worse", "r1-t01: GPUs 0-3 cannot be read any more") in told
    assert story.says(bare) == []
    assert [k for k, _, _ in story.says(rack(2))] == ["gpu-back"]


def test_lost_cards_that_come_back_elsewhere_while_the_rest_drops_are_told():
    """Their move is told as a return, so that the old domain is renamed without a card that moved."""
    story = Story()
    story.look(rack(2))
    bare = rack(2)
    bare["r1-t01"] = replace(bare["r1-t01"], gpus=absent("no NVIDIA driver"))
    story.look(bare)
    moved, left = all_gpus(rack(2), joined(NEW_UUID))["r1-t01"], all_gpus(rack(2), IN_PROGRESS)["r1-t02"]
    assert [k for k, _, _ in story.says({"r1-t01": moved, "r1-t02": left})] == ["domain-dropped", "gpu-back"]


def test_hosts_that_come_and_go_in_the_inventory_are_no_transition():
    story = Story()
    story.look(rack(2))
    assert story.says(rack(2), hgx()) == []
    assert story.says(rack(2)) == []


def test_a_replica_that_fails_and_is_replaced():
    """It says which rank and why; one that is merely not seen has not failed."""
    story = Story()
    story.look(rack(2), replicas=[replica("ready")])
    why = "rank 1 on r1-t02: vllm exited with code 1"
    assert story.says(rack(2), replicas=[replica("failed", why=why)]) == [
        ("replica-failed", "worse", f"deepseek-r1-0: failed: {why}")
    ]
    both = [replica("failed", why=why), replica("ready")]
    assert story.says(rack(2), replicas=both) == [("replica-ready", "better", "deepseek-r1-0: ready")]
    assert story.says(rack(2), replicas=[]) == [("replica-gone", "changed", "deepseek-r1-0: stopped")]


def test_a_replica_on_a_host_that_is_not_read_has_not_stopped():
    story = Story()
    story.look(rack(2), replicas=[replica("ready", "r1-t01")])
    gone = rack(2)
    gone["r1-t01"] = unreachable(gone["r1-t01"])
    assert [k for k, _, _ in story.says(gone)] == ["host-gone"]
    assert [k for k, _, _ in story.says(rack(2), replicas=[replica("ready", "r1-t01")])] == ["host-back"]


def test_flapping_is_said_once_and_then_when_it_has_settled():
    """Down, up, down, up within half an hour: after that quiet, until ten minutes without a change."""
    story = Story()
    good, bad = rack(3), one_gpu(rack(3), "r1-t02", 0, IN_PROGRESS)
    story.look(good)
    kinds = [[k for k, _, _ in story.says(bad if i % 2 == 0 else good)] for i in range(8)]
    assert kinds == [["gpu-left"], ["gpu-rejoined"], ["gpu-left"], ["flapping"], [], [], [], []]
    quiet = [story.says(good) for _ in range(9)]
    assert quiet == [[]] * 9
    assert story.says(good) == [("settled", "better", "r1-t02: GPU 0 has settled, and is well")]
    assert [k for k, _, _ in story.says(bad)] == ["gpu-left"]


@pytest.mark.parametrize(("sick", "at_once"), [(IN_PROGRESS, False), (joined(health=DEGRADED), True)])
def test_a_flapping_card_that_is_taken_out_is_no_host(sick, at_once):
    """It is told once: with its host where the card was not kept quiet itself, else by its UUID, and of no host."""
    story = Story()
    good, bad = rack(3), one_gpu(rack(3), "r1-t02", 0, sick)
    story.look(good)
    for i in range(6):
        story.look(bad if i % 2 == 0 else good)
    out = rack(3)
    report = out["r1-t02"].gpus.value
    out["r1-t02"] = replace(out["r1-t02"], gpus=ok(replace(report, attached=3, gpus=report.gpus[1:])))
    uuid = report.gpus[0].uuid
    told = [t for _ in range(12) for t in story.look(out)]
    text, hosts = ("r1-t02: GPU 0 taken out", ("r1-t02",)) if at_once else (f"{uuid}: taken out", ())
    assert [(t.kind, t.text, t.hosts, t.gpus) for t in told] == [("gpu-replaced", text, hosts, (uuid,))]


def test_a_flapping_card_does_not_hide_a_domain_that_drops():
    story = Story()
    good, bad = rack(3), one_gpu(rack(3), "r1-t02", 0, IN_PROGRESS)
    story.look(good)
    for i in range(6):
        story.look(bad if i % 2 == 0 else good)
    ((kind, _, text),) = story.says(all_gpus(rack(3), IN_PROGRESS))
    assert kind == "domain-dropped"
    assert "11 GPUs" in text


def test_a_domain_that_flaps_is_one_message():
    story = Story()
    good, bad = rack(4), all_gpus(rack(4), IN_PROGRESS)
    story.look(good)
    kinds = [[k for k, _, _ in story.says(bad if i % 2 == 0 else good)] for i in range(6)]
    assert kinds == [["domain-dropped"], ["domain-back"], ["domain-dropped"], ["flapping"], [], []]


def test_slow_changes_are_not_flapping():
    """Four changes over an hour are four messages."""
    story = Story()
    good, bad = rack(3), one_gpu(rack(3), "r1-t02", 0, IN_PROGRESS)
    story.look(good, minutes=15)
    assert [len(story.look(bad if i % 2 == 0 else good, minutes=15)) for i in range(6)] == [1] * 6


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"schema": "llmgwctl.watch/v2"}', '{"schema": "llmgwctl.watch/v1"}', "[" * 100_000]
)
def test_a_state_that_is_none_is_refused(text):
    """Half a file, another program's, a newer one's: never taken for a fleet without hosts."""
    with pytest.raises(BadState):
        loads(text)


@given(st.text())
def test_any_text_is_a_state_or_none(text):
    with pytest.raises(BadState):
        loads(text)


def test_the_document_of_a_transition():
    story = Story()
    story.look(rack(2))
    (told,) = story.look(one_gpu(rack(2), "r1-t01", 0, IN_PROGRESS))
    assert told.document() == {
        "schema": "llmgwctl.transition/v1",
        "at": "2026-05-28T20:27:40Z",
        "kind": "gpu-left",
        "severity": "worse",
        "text": "r1-t01: GPU 0 left NVLink domain nvl:5e1fab1e….32766",
        "domain": f"nvl:{UUID}.32766",
        "replica": None,
        "hosts": ["r1-t01"],
        "gpus": ["GPU-r1-t01-0"],
    }


def test_an_empty_fleet_is_quiet():
    assert step(Seen(START), FabricMap((), (), (), ()), snapshot(), ())[1] == ()


def test_every_kind_is_explained():
    """docs/watch.md has a line for each word that can be said, and for no other."""
    docs = Path(__file__).parents[1] / "docs"
    kinds = json.loads((docs / "schema/transition.v1.json").read_text())["properties"]["kind"]["enum"]
    said = re.findall(r"^\| `([a-z-]+)` \|", (docs / "watch.md").read_text(), re.MULTILINE)
    assert said == sorted(set(said), key=said.index)
    assert set(said) == set(kinds)
