"""The pages: what they say of every host, that they need nothing else, and that no host can break out of them."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from facts import HEALTHY, OTHER_UUID, UUID, hgx, joined, rack, snapshot, unreachable, with_gpu
from hypothesis import given, settings
from hypothesis import strategies as st
from pages import dropped, fleet, outside, seven_faults, whole

from llmgwctl.fabric import fabric_map
from llmgwctl.launch.state import replicas
from llmgwctl.model.host import Host
from llmgwctl.model.reading import absent, broken
from llmgwctl.render.html import MAX_DETAILS, node_page, rack_page

VOID = {"meta", "link", "input", "br", "img", "hr"}


class Page(HTMLParser):
    """A page as a browser would take it: elements with classes, text by tray, scripts, links."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.trays: dict[str, str] = {}
        self.chips: dict[str, list[tuple[str, str]]] = {}
        self.order: list[str] = []
        self._tray: str | None = None
        self.text = ""
        self._skip = False
        self._all = ""  # what is said of all chips of a tray at once
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = {k: v or "" for k, v in attrs}
        self.tags.append((tag, given))
        self._skip = tag in ("style", "script") or (self._skip and tag not in ("body",))
        if tag in ("li", "div") and "t" in given.get("class", "").split():
            self._tray = given["id"].partition("-")[2]
            self.order.append(given["id"])
            self.trays.setdefault(self._tray, "")
            self.chips.setdefault(self._tray, [])
        if tag == "details":
            self._tray = None
        if tag == "span" and "g" in given.get("class", "").split():
            self._all = given.get("aria-label", "")
        if tag == "i" and self._tray and (given.get("role") == "img" or self._all):
            self.chips[self._tray].append((given["class"], given.get("aria-label", self._all)))

    def handle_endtag(self, tag):
        if tag in ("style", "script"):
            self._skip = False

    def handle_data(self, data):
        if self._skip:
            return
        self.text += data
        if self._tray:
            self.trays[self._tray] += data


def page(snap=None, **more) -> Page:
    snap = snap or fleet()
    return Page(rack_page(fabric_map(snap), snap, replicas(snap), **more))


@pytest.fixture(scope="module")
def sick() -> Page:
    return page()


@pytest.mark.parametrize(
    ("host", "index", "letter", "label"),
    [
        ("r1-t01", 0, "j s", "all 4 GPUs joined, with a shard"),
        ("r1-t04", 0, "j", "all 4 GPUs joined"),
        ("r1-t03", 1, "n", "GPU 1 not joined"),
        ("r1-t03", 2, "j", "GPU 2 joined"),
        ("r1-t05", 0, "j", "all 4 GPUs joined"),
        ("r1-t07", 3, "d", "GPU 3 joined, bandwidth degraded"),
        ("r1-t09", 0, "u", "GPU 0 joined, not healthy"),
        ("r1-t12", 3, "x", "a GPU not readable"),
        ("r1-t17", 2, "q", "GPU 2 unknown whether joined"),
        ("h100-001", 7, "o", "all 8 GPUs present, its NVLink stays in the machine"),
        ("h100-002", 5, "n", "GPU 5 not joined"),
    ],
)
def test_each_gpu_is_drawn_as_what_it_is(sick, host, index, letter, label):
    """Its class and its name for a screen reader say the same."""
    assert sick.chips[host][index] == (letter, label)


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("r1-t01", ["deepseek-r1-0 rank 0", "IMEX up", "eligible", "20:26:40Z"]),
        ("r1-t03", ["GPU 1 has not joined the NVLink fabric: State In Progress"]),
        ("r1-t05", ["IMEX down", "IMEX is down (unit nvidia-imex is failed)"]),
        ("r1-t07", ["GPU 3: NVLink bandwidth degraded"]),
        ("r1-t09", ["GPU 0: route unhealthy"]),
        ("r1-t10", ["missing: not reachable: refused", "IMEX unknown"]),
        ("r1-t12", ["3 of 4 GPUs readable: GPU is lost"]),
        ("r1-t14", ["in another partition, nvl:5e1fab1e….2"]),
        ("r1-t16", ["no IMEX channel"]),
        ("r1-t17", ["does not print whether it has joined"]),
        ("h100-001", ["its NVLink does not leave the machine", "IMEX not applicable"]),
        ("h100-003", ["timeout: h100-003: no answer"]),
    ],
)
def test_each_tray_says_in_words_what_keeps_it_out(sick, host, words):
    for said in words:
        assert said in sick.trays[host]


def test_trays_stand_in_physical_order_with_the_missing_among_them():
    """Platform Info decides; a tray of which nothing is known stands where the inventory has it."""
    found = [i for i in page().order if "-r1-t" in i and not i.startswith("u-")]
    assert [i.partition("-")[2] for i in found[:18]] == [f"r1-t{i:02d}" for i in range(1, 19)]
    assert [i for i in found if i.startswith("e-")] == ["e-r1-t14", "e-r1-t15"]
    assert found[18:] == ["h-r1-t14", "h-r1-t15"]


def test_order_by_the_inventory_where_no_place_is_printed():
    hosts = rack(4)
    for name in hosts:
        for g in range(4):
            hosts[name] = with_gpu(
                hosts[name], g, platform=replace(hosts[name].gpus.value.gpus[0].platform, tray=None, slot=None)
            )
    hosts["r1-t02"] = unreachable(hosts["r1-t02"])
    shuffled = {n: hosts[n] for n in ("r1-t03", "r1-t01", "r1-t04", "r1-t02")}
    assert [i for i in page(snapshot(shuffled)).order if i.startswith("h-")] == [f"h-r1-t0{i}" for i in range(1, 5)]


def test_counts(sick):
    """How many of the expected are there; trays of another partition are counted once."""
    assert "65 of 72 GPUs joined" in sick.text
    assert "14 of 18 trays" in sick.text
    assert "12 of 18 trays joined · 57 of 64 GPUs · 8 eligible" in sick.text
    assert "rack r1, partition 2" in sick.text
    assert "a partition of the same chassis as" in sick.text


def test_a_whole_rack_says_so():
    said = page(snapshot(whole()))
    assert "18 of 18 trays joined · 72 of 72 GPUs · 18 eligible" in said.text
    assert "Nothing keeps a tray out." in said.text
    assert "What keeps hosts out" not in said.text


def test_a_rack_that_dropped_at_once_is_still_there():
    """Its switches are dark, every chip is out, and one line says it for all its trays."""
    said = page(snapshot(dropped()))
    assert [c for c, _ in said.chips["r1-t18"]] == ["n"] * 4
    assert "no tray can be used" in said.text
    assert "r1-t[01-18]18 hosts" in said.text.replace(" ", "").replace("18hosts", "18 hosts")
    assert any("dark" in a.get("class", "").split() for t, a in said.tags if t == "section")


def test_a_rack_of_which_no_tray_answers_is_drawn_dark():
    """In its place, with why each tray is missing; a group of hosts that need not be a domain is only listed."""
    dead = {n: unreachable(f) for n, f in rack(3, "r2", OTHER_UUID, net=2).items()}
    lone = {n: unreachable(replace(f, host=replace(f.host, rack="x"))) for n, f in hgx(2).items()}
    said = page(snapshot(rack(3), dead, lone))
    assert [n for n in said.trays if n.startswith("r2-")] == list(dead)
    assert all("missing: not reachable: connection refused" in said.trays[n] for n in dead)
    assert "5 not reachable" in said.text
    assert "2 racks" in said.text
    assert "0 of 3 trays joined · 0 of 12 GPUs · 0 eligible" in said.text
    assert ("section", "rk bad dark") in [(t, a.get("class")) for t, a in said.tags]


def test_hosts_that_do_not_answer_are_never_left_out():
    """Not where all of them are dead either."""
    hosts = {n: unreachable(f) for n, f in hgx(3).items()}
    said = page(snapshot(hosts))
    assert set(said.trays) == set(hosts)
    assert "3 not reachable" in said.text
    assert "No multi-host NVLink domain was seen." in said.text


def test_outside_hosts_stand_by_their_fabric():
    islands = hgx(2) | hgx(2, "other", net=8, prefix="fec0:0000:0000:0001")
    alone = {n: replace(f, hcas=absent()) for n, f in hgx(1, "lone", net=7).items()}
    said = page(snapshot(islands, alone)).text
    first, second, last = (said.index(n) for n in ("h100-001", "other-001", "lone-001"))
    assert first < second < last
    assert len(re.findall(r"InfiniBand, probable\s+2 hosts", said)) == 2
    assert "no scale-out fabric" in said


def test_age_of_the_data_and_of_a_host_that_was_read_earlier():
    """Without a script too: when it was read, how long before the page, and which host is older than that."""
    hosts = whole()
    snap = snapshot(hosts)
    hosts["r1-t04"] = replace(hosts["r1-t04"], taken_at=snap.taken_at - 7200)
    said = page(snapshot(hosts), made_at=snap.taken_at + 42)
    assert "2026-05-28 20:26:40 UTC" in said.text
    assert "42 s before this page was made" in said.text
    assert "2 h older than this page" in said.trays["r1-t04"]
    assert "older" not in said.trays["r1-t05"]


def test_details_are_folded_in_for_all_hosts_up_to_twenty_racks():
    assert sum(t == "details" for t, _ in page(snapshot(whole())).tags) == 18


def test_beyond_twenty_racks_only_hosts_with_a_problem_have_details():
    racks = [rack(18, f"r{i}", f"5e1fab1e-0000-4000-8000-{i:012x}", net=i) for i in range(1, 23)]
    racks[4]["r5-t02"] = replace(racks[4]["r5-t02"], imex=broken("timed out"))
    said = page(snapshot(*racks))
    assert sum(t == "details" for t, _ in said.tags) == 1
    assert "details of r5-t02" in said.text
    assert any(a.get("aria-label") == "Racks at a glance" for t, a in said.tags if t == "nav")


def test_links_to_node_pages_only_in_a_site(sick):
    assert not [a for t, a in sick.tags if t == "a" and not a["href"].startswith("#")]
    inside = page(node_href="nodes/{}.html")
    assert {"href": "nodes/r1-t05.html"} in [a for t, a in inside.tags if t == "a"]


def test_every_link_in_the_page_has_its_target(sick):
    ids = [a["id"] for _, a in sick.tags if "id" in a]
    assert len(ids) == len(set(ids))
    assert {a["href"][1:] for t, a in sick.tags if t == "a"} <= set(ids)


def test_refresh_only_when_asked(sick):
    assert not [a for t, a in sick.tags if t == "meta" and a.get("http-equiv") == "refresh"]
    assert [a["content"] for t, a in page(refresh_s=60).tags if a.get("http-equiv") == "refresh"] == ["60"]


@pytest.mark.parametrize("text", ["rack", "node"])
def test_the_policy_allows_this_style_and_this_script_and_no_more(text):
    """No handler in an attribute, no style in one, nothing loaded from anywhere."""
    snap = fleet()
    fmap = fabric_map(snap)
    raw = rack_page(fmap, snap) if text == "rack" else node_page("r1-t05", fmap, snap)
    said = Page(raw)
    (policy,) = [a["content"] for _, a in said.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    for tag in ("style", "script"):
        body = re.search(rf"<{tag}>(.*?)</{tag}>", raw, re.DOTALL).group(1)
        digest = b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    for tag, attributes in said.tags:
        assert tag not in ("link", "img", "iframe", "object", "form", "base")
        assert not [k for k in attributes if k.startswith("on") or k in ("style", "src")]
    assert "url(" not in raw
    assert "@import" not in raw


EVIL = "\"><script>alert(1)</script>'&<!--\u202e\x00\x1b[31m</style></li>"


def evil_snapshot(text):
    hosts = rack(2)
    one = with_gpu(hosts["r1-t01"], 0, uuid=f"GPU{text}", name=f"NVIDIA GB200{text}")
    hosts["r1-t01"] = replace(one, imex=broken(f"no {text}"), hcas=broken(text))
    hosts["r1-t02"] = unreachable(hosts["r1-t02"], f"refused {text}")
    return snapshot(hosts, {n: replace(f, gpus=broken(text)) for n, f in hgx(1).items()})


def test_what_a_host_says_cannot_break_out():
    """Tags, quotes and ends of elements are text; control and direction signs are shown, not obeyed."""
    snap = evil_snapshot(EVIL)
    fmap = fabric_map(snap)
    for raw in (rack_page(fmap, snap), node_page("r1-t01", fmap, snap)):
        said = Page(raw)
        assert sum(t == "script" for t, _ in said.tags) == 1
        assert "alert(1)" in said.text
        assert not set("\u202e\x00\x1b") & set(raw)
        assert "\\x1b" in raw


@settings(max_examples=40, deadline=None)
@given(st.text())
def test_any_text_from_a_host_leaves_the_page_as_it_is(text):
    """The same elements in the same order, whatever a host says."""
    snap = evil_snapshot(text)
    plain = evil_snapshot("x")
    shape = [t for t, _ in Page(rack_page(fabric_map(snap), snap)).tags]
    assert shape == [t for t, _ in Page(rack_page(fabric_map(plain), plain)).tags]


def test_the_node_page_has_everything_about_a_host():
    snap = fleet()
    said = Page(node_page("r1-t01", fabric_map(snap), snap, replicas(snap), home_href="../index.html")).text
    for words in (f"nvl:{UUID}.32766", "580.173.02", "GPU-r1-t01-3", "Completed / Success", "deepseek-r1-0 rank 0",
                  "mlx5_3:1", "10.1.0.18", "Connectivity table", "not read", "vllm running"):  # fmt: skip
        assert words in said, words


def test_the_node_page_of_a_host_that_does_not_answer():
    snap = fleet()
    said = Page(node_page("r1-t10", fabric_map(snap), snap)).text
    assert "not reachable: refused" in said
    with pytest.raises(KeyError):
        node_page("nosuch", fabric_map(snap), snap)


def test_twenty_thousand_hosts_fit():
    """Under 12 MB: what a rack costs, 1,112 times, with the details that have room; and 20,000 hosts in no rack."""

    def size(count: int, sick: int) -> int:
        racks = [rack(18, f"r{i:04d}", f"5e1fab1e-0000-4000-8000-{i:012x}", net=i) for i in range(count)]
        for hosts in racks[:sick]:
            name = next(iter(hosts))
            hosts[name] = replace(hosts[name], imex=broken("timed out after 30 s"))
        snap = snapshot(*racks)
        return len(rack_page(fabric_map(snap), snap).encode())

    def outside(count: int) -> int:
        snap = snapshot(hgx(count))
        return len(rack_page(fabric_map(snap), snap).encode())

    assert (outside(500) - outside(400)) / 100 * 20_000 < 12e6
    plain = size(30, 0)
    one_rack = (plain - size(25, 0)) / 5
    one_problem = (size(30, 10) - plain) / 10
    assert one_rack * 1112 + one_problem * MAX_DETAILS < 12e6


def test_a_host_alone_needs_no_rack():
    """A page without any domain still has every host."""
    snap = snapshot({"solo": replace(hgx(1)["h100-001"], host=Host("solo"))})
    assert "solo" in page(snap).trays


def test_a_second_rack_has_its_own_place():
    said = page(snapshot(rack(2), rack(2, "r2", OTHER_UUID, net=2), outside()))
    assert [a["id"] for t, a in said.tags if t == "section" and a.get("id", "").startswith("rack-")] == [
        "rack-1",
        "rack-2",
    ]


def test_the_seven_faults_are_seven():
    """What the browser tests look at."""
    assert len([f for f in fabric_map(snapshot(seven_faults())).verdicts.values() if f.reasons]) == 8


def test_a_card_whose_health_cannot_be_read_is_drawn_as_unknown():
    """Its chip is not that of a joined card, and its host's page shows the word that was not understood."""
    strange = joined(health=replace(HEALTHY, bandwidth=None, unread=("Bandwidth: Something new",)))
    one = with_gpu(rack(2)["r1-t01"], 1, fabric=strange)
    snap = snapshot(rack(2) | {"r1-t01": one})
    assert page(snap).chips["r1-t01"][1] == ("q", "GPU 1 fabric health not known")
    assert "not known: Bandwidth: Something new" in node_page("r1-t01", fabric_map(snap), snap)
