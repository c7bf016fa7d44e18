"""What people and programs are shown says what is true of the facts, and nothing of a host is obeyed."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import replace

import pytest
from facts import IN_PROGRESS, OTHER_UUID, hgx, joined, rack, snapshot, unreachable, with_gpu, with_imex
from hypothesis import given
from hypothesis import strategies as st

from llmgwctl.fabric import fabric_map
from llmgwctl.model.gpu import FabricHealth
from llmgwctl.model.host import Host, HostFacts, Snapshot
from llmgwctl.model.launch import EnvVar
from llmgwctl.model.numbers import ranges
from llmgwctl.model.plan import Candidate, LeftOut, Plan, ReplicaPlan, ShardPlan
from llmgwctl.model.reading import broken, ok
from llmgwctl.placement.fleet import _by_holder
from llmgwctl.render import fleet, plan
from llmgwctl.render import json as documents
from llmgwctl.render import rack as racks
from llmgwctl.render.fold import alike, fold
from llmgwctl.render.text import PLAIN, Look, clean, draw, table
from llmgwctl.render.words import condensed, counted, short_domain, together

DEGRADED = FabricHealth("Limited Capacity", "Degraded")


def sick() -> dict[str, HostFacts]:
    """A rack with one fault of each kind."""
    found = rack(8)
    found["r1-t02"] = with_imex(found["r1-t02"], state="DOWN")
    found["r1-t03"] = with_gpu(found["r1-t03"], 2, fabric=IN_PROGRESS)
    found["r1-t04"] = with_gpu(found["r1-t04"], 1, fabric=joined(health=DEGRADED))
    found["r1-t05"] = unreachable(found["r1-t05"])
    report = found["r1-t06"].gpus.value
    assert report is not None
    found["r1-t06"] = replace(found["r1-t06"], gpus=ok(replace(report, gpus=report.gpus[:3], lost=("GPU is lost",))))
    return found


def drawn(s: Snapshot, look: Look = PLAIN, **more: bool) -> str:
    return racks.racks(fabric_map(s), s, look, **more)


def line_of(text: str, name: str) -> str:
    """The line of a tray in the drawing, or of a range in a table."""
    return next(line for line in text.split("\n") if name in line)


@pytest.mark.parametrize(
    ("host", "chips", "words"),
    [
        ("r1-t01", "■■■■", "eligible"),
        ("r1-t02", "■■■■", "IMEX is down"),
        ("r1-t03", "■■□■", "GPU 2 has not joined"),
        ("r1-t04", "■▣■■", "degraded"),
        ("r1-t05", "····", "connection refused"),
        ("r1-t06", "■■■✕", "3 of 4 GPUs readable"),
    ],
)
def test_each_tray_shows_its_state(host: str, chips: str, words: str) -> None:
    """A tray's line has a sign a GPU, and what keeps it out in words."""
    line = line_of(drawn(snapshot(sick()), Look(110)), host)
    assert chips in line
    assert words in line


def test_a_card_whose_health_cannot_be_read_is_drawn_as_unknown() -> None:
    """Not as a good one, and its line says which word was not understood."""
    hosts = rack(2)
    strange = joined(health=FabricHealth("Healthy", unread=("Bandwidth: Something new",)))
    hosts["r1-t01"] = with_gpu(hosts["r1-t01"], 1, fabric=strange)
    line = line_of(drawn(snapshot(hosts), Look(140)), "r1-t01")
    assert "■?■■" in line
    assert "Bandwidth: Something new" in line


def test_head_of_a_rack() -> None:
    """The head counts trays: joined of expected, and eligible."""
    assert "5 of 8 trays joined   3 eligible" in drawn(snapshot(sick()))


def test_the_drawing_fits_its_width() -> None:
    """No line is wider than the terminal, whatever the reasons are."""
    for width in (60, 80, 120):
        assert max(map(len, drawn(snapshot(sick(), hgx()), Look(width)).split("\n"))) <= width


def test_hosts_outside_are_grouped() -> None:
    """Hosts of no domain stand once, as a range, with their fabric; their nature is not called a fault."""
    text = drawn(snapshot(rack(2), hgx(3)), Look(120))
    assert "h100-[001-003]" in text
    assert "ib:" in line_of(text, "h100-")


def test_color_only_where_wanted() -> None:
    """Colours are escapes: they are there with colour and not without, and the text is the same."""
    import re

    plain, colored = drawn(snapshot(sick())), drawn(snapshot(sick()), Look(80, color=True))
    assert "\x1b[" not in plain
    assert "\x1b[" in colored
    assert [x.rstrip() for x in re.sub(r"\x1b\[[0-9;]*m", "", colored).split("\n")] == plain.split("\n")


def test_ascii_terminals() -> None:
    """A terminal without other letters gets none, and a GPU that joined still differs from one that did not."""
    text = drawn(snapshot(sick()), Look(80, unicode=False))
    assert text.isascii()
    assert "##o#" in line_of(text, "r1-t03")


def test_many_racks_are_folded() -> None:
    """With many racks, trays that say the same stand on one line; --all unfolds them."""
    many = snapshot(*(rack(4, f"r{i}", OTHER_UUID[:-2] + f"{i:02d}", net=i) for i in range(1, 9)))
    assert "r3-t[01-04]" in drawn(many)
    assert "r3-t[01-04]" not in drawn(many, every_tray=True)


def test_nvlink_document() -> None:
    """The JSON document has the keys that others build on, and the truth of each tray."""
    s = snapshot(sick(), hgx(1))
    made = documents.nvlink(fabric_map(s), s)
    assert made["schema"] == "llmgwctl.nvlink/v1"
    assert made["taken_at"] == "2026-05-28T20:26:40Z"
    (domain,) = made["domains"]
    assert set(domain) >= {
        "id",
        "cluster_uuid",
        "clique_id",
        "rack",
        "expected_hosts",
        "joined_hosts",
        "eligible_hosts",
    }
    assert (domain["expected_hosts"], domain["joined_hosts"], domain["eligible_hosts"]) == (8, 5, 3)
    tray = {h["name"]: h for h in domain["hosts"]}
    assert tray["r1-t02"]["imex"] == {"state": "down"}
    assert not tray["r1-t02"]["eligible"]
    assert tray["r1-t02"]["reasons"]
    assert [g["joined"] for g in tray["r1-t03"]["gpus"]] == [True, True, False, True]
    assert tray["r1-t04"]["gpus"][1]["bandwidth"] == "degraded"
    assert set(tray["r1-t01"]["gpus"][0]) == {"index", "uuid", "joined", "healthy", "bandwidth", "state", "status"}
    assert [u["name"] for u in made["unreachable"]] == ["r1-t05"]
    assert [o["name"] for o in made["outside"]] == ["h100-001"]
    json.dumps(made)


def test_dropped_rack_has_no_pair() -> None:
    """A rack of which no tray is joined is a domain with a null ClusterUUID."""
    found = rack(2)
    for name in found:
        for i in range(4):
            found[name] = with_gpu(found[name], i, fabric=IN_PROGRESS)
    made = documents.nvlink(fabric_map(snapshot(found)), snapshot(found))
    assert [(d["cluster_uuid"], d["eligible_hosts"], len(d["hosts"])) for d in made["domains"]] == [(None, 0, 2)]


def test_probe_folds_equal_hosts() -> None:
    """Equal hosts stand on one line by range; the one that differs, the dead one and the unreadable stand apart."""
    found = rack(6)
    found["r1-t02"] = with_imex(found["r1-t02"], state="UNAVAILABLE")
    found["r1-t04"] = unreachable(found["r1-t04"])
    found["r1-t05"] = replace(found["r1-t05"], hcas=broken("permission denied"))
    text = fleet.probed(snapshot(found), Look(120))
    assert "4x GB200" in line_of(text, "r1-t[01,03,06]")
    assert "UNAVAILABLE" in line_of(text, "r1-t02")
    assert "connection refused" in line_of(text, "r1-t04")
    assert "hcas" in text.split("Could not be read")[1]
    assert "permission denied" in text


def test_hosts_are_shown_with_their_addresses() -> None:
    """Folded, as they are reached: never a word that stands for an address."""
    found = [
        *(Host(f"r1-t0{n}", f"10.1.1.{n}", user="ops", port=2222) for n in (1, 2)),
        *(Host(f"h{n}", user="ops", proxy_jump="bastion") for n in (1, 2)),
        Host("six", "2001:db8::1", port=22),
    ]
    lines = [line.split() for line in fleet.hosts(found, look=Look(width=160)).splitlines()[1:]]
    assert [" ".join(words[4:]) for words in lines] == [
        "ops@10.1.1.[1-2]:2222",
        "ops@h[1-2] via bastion",
        "2001:db8::1 port 22",
    ]


def test_probe_document_has_every_reading() -> None:
    """Each reading is there with its state: the value when ok, the reason when not."""
    found = snapshot({"h": replace(rack(1)["r1-t01"], hcas=broken("no /sys"))}, hgx(1))
    tray, board = documents.probe(found)["hosts"]
    assert set(tray["readings"]) >= {"reachable", "system", "gpus", "imex", "hcas", "network", "life"}
    assert tray["readings"]["hcas"] == {"state": "broken", "why": "no /sys"}
    assert board["readings"]["imex"]["state"] == "absent"
    assert tray["readings"]["gpus"]["value"]["gpus"][0]["fabric"]["clique_id"] == 32766
    assert tray["readings"]["imex"]["value"]["table"]["cells"]["0,0"] == "C"
    json.dumps(tray)


def shard(rank: int) -> ShardPlan:
    return ShardPlan(rank, f"r1-t0{rank + 1}", (0, 1), ("u0", "u1"), ("mlx5_0:1",), "eth0", f"10.1.0.{rank + 1}")


PLANNED = ReplicaPlan("big-0", "big", "vllm", "nvlink", "nvl:x", (shard(0), shard(1)), (("http", 8000),))
LAUNCHES: documents.Launches = {
    ("big-0", rank): (
        [
            EnvVar("HOST_IP", f"10.1.0.{rank + 1}", "own address"),
            EnvVar("NCCL_DEBUG", "WARN", "profile", overrides="INFO"),
            EnvVar("TOKEN", "s3cret", "of the profile", secret=True),
        ],
        [("serve", ("vllm", "serve", "/a b"))],
    )
    for rank in (0, 1)
}
MADE = Plan(
    "big",
    "nvlink",
    "nvl:x",
    (PLANNED,),
    (LeftOut("r1-t03", ("IMEX is down",)), LeftOut("r1-t04", ("IMEX is down",))),
    (Candidate("nvlink", "nvl:x", ("r1-t01", "r1-t02"), True, "the fullest"),),
    warnings=("falls to TCP",),
)


def test_plan_for_people() -> None:
    """Variables that all ranks share stand once, the others by rank; what the profile replaced is said."""
    text = plan.plan(MADE, LAUNCHES, Look(100))
    assert line_of(text, "NCCL_DEBUG").startswith("all")
    assert "replaces INFO" in line_of(text, "NCCL_DEBUG")
    assert line_of(text, "HOST_IP=10.1.0.2").startswith("1 ")
    assert "IMEX is down" in line_of(text, "r1-t[03-04]")
    assert "! falls to TCP" in text
    assert "vllm serve '/a b'" in text


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_a_plan_is_whole_at_any_width(width: int) -> None:
    """No line is wider than the terminal; addresses, adapters and variables are never broken."""
    text = plan.plan(MADE, LAUNCHES, Look(width))
    assert max(map(len, text.split("\n"))) <= width
    for word in ("10.1.0.1", "mlx5_0:1", "NCCL_DEBUG=WARN", "HOST_IP=10.1.0.2"):
        assert any(word in line for line in text.split("\n")), word


def test_a_table_that_finds_no_room_stands_in_lines() -> None:
    """A column is never squeezed to a letter or left out; an empty cell needs no line."""
    rows = [("replica-0", "ready", "http://10.0.0.1:8000"), ("b-1", "", "-")]
    made = table(("NAME", "STATE", "WHERE"), rows, keep=(0, 2))
    wide = "NAME       STATE  WHERE\nreplica-0  ready  http://10.0.0.1:8000\nb-1               -\n"
    narrow = "replica-0\n  STATE  ready\n  WHERE  http://10.0.0.1:8000\nb-1\n  WHERE  -\n"
    assert (draw([made], Look(60)), draw([made], Look(30))) == (wide, narrow)


def test_gpus_of_one_holder_are_said_once() -> None:
    """Four GPUs that one replica holds are one reason."""
    assert _by_holder({2: "a", 0: "a", 1: "b"}) == {"a": [0, 2], "b": [1]}


def test_several_silent_hosts_share_a_line_and_one_keeps_its_address() -> None:
    """HOST and ADDRESS stand in for names only where there are several."""
    a, b = Host("a", address="10.0.0.1"), Host("b", address="10.0.0.2")
    both = [("a", "10.0.0.1: refused", a), ("b", "10.0.0.2: refused", b)]
    assert together(both) == [(["a", "b"], "ADDRESS: refused")]
    assert together(both[:1]) == [(["a"], "10.0.0.1: refused")]
    assert (counted(1, "host"), counted(0, "host"), counted(2, "host")) == ("1 host", "0 hosts", "2 hosts")


def test_secrets_are_never_shown() -> None:
    """A secret's value is in no text, no document and no lines for a shell."""
    variables = LAUNCHES["big-0", 0][0]
    shown = (
        plan.plan(MADE, LAUNCHES),
        json.dumps(documents.plan(MADE, LAUNCHES)),
        json.dumps(documents.env("big", PLANNED, 0, variables)),
        plan.environment(variables),
        plan.shell(variables),
    )
    assert all("s3cret" not in text and "TOKEN" in text for text in shown)


def test_plan_document() -> None:
    """The plan as JSON has the keys that others build on."""
    made = documents.plan(MADE, LAUNCHES)
    assert made["schema"] == "llmgwctl.plan/v1"
    assert (made["profile"], made["tier"], made["fabric"]) == ("big", "nvlink", "nvl:x")
    second = made["replicas"][0]["shards"][1]
    assert (second["rank"], second["host"], second["gpus"], second["hcas"]) == (1, "r1-t02", [0, 1], ["mlx5_0:1"])
    assert second["env"]["HOST_IP"] == "10.1.0.2"
    assert second["commands"] == [{"name": "serve", "argv": ["vllm", "serve", "/a b"]}]
    assert made["left_out"][0] == {"host": "r1-t03", "reasons": ["IMEX is down"]}


def test_no_placement_says_why() -> None:
    """A plan without a replica says so first, with the reason, and lists every host's."""
    text = plan.plan(Plan("big", None, "", (), MADE.left_out, why_not="too few hosts fit"), {})
    assert text.startswith("big: no placement fits: too few hosts fit")
    assert "r1-t[03-04]" in text


def test_shell_lines_are_quoted() -> None:
    """What --shell prints can be sourced whatever a value holds."""
    assert plan.shell([EnvVar("A", "x; rm -rf '/'", "")]) == "export A='x; rm -rf '\"'\"'/'\"'\"''\n"


@given(st.text(st.characters(codec=None), max_size=80))
def test_host_text_cannot_move_the_terminal(text: str) -> None:
    """Whatever a host says, what is shown has no control character, no direction mark and no line break."""
    shown = clean(text)
    assert not any(unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"} for c in shown)
    shown.encode()


def test_host_text_is_not_markup() -> None:
    """Brackets of a host are not taken for rich's markup, and escapes are shown as such."""
    text = draw([table(("A",), [("[red]x[/red] \x1b[31mred\n:smile:",)])], Look(80))
    assert "[red]x[/red] \\x1b[31mred\\n:smile:" in text


@given(st.lists(st.integers(0, 99), max_size=8), st.lists(st.sampled_from("ab"), min_size=1, max_size=8))
def test_folding_loses_nobody(numbers: list[int], stems: list[str]) -> None:
    """A folded range names exactly the hosts that went in."""
    from ClusterShell.NodeSet import NodeSet

    names = {f"{s}{n:02d}" for s in stems for n in numbers}
    assert set(NodeSet(fold(names))) == names if names else fold(names) == ""


def test_alike_keeps_order() -> None:
    """Groups come in the order of their first host."""
    assert alike([("b", 1), ("a", 2), ("c", 1)]) == [(["b", "c"], 1), (["a"], 2)]


def test_the_same_reason_is_said_once() -> None:
    """Reasons that differ by the GPU alone are one sentence."""
    said = ["GPU 0 has not joined: x", "GPU 1 has not joined: x", "IMEX is down", "GPU 3: degraded"]
    assert condensed(said) == ("GPUs 0-1 have not joined: x", "IMEX is down", "GPU 3: degraded")
    assert ranges([3, 0, 1, 2, 7]) == "0-3,7"


def test_short_domains() -> None:
    """A ClusterUUID is shortened to its first group, with its clique; other ids are left alone."""
    assert short_domain("nvl:5e1fab1e-0000-4000-8000-00000000000a.32766") == "nvl:5e1fab1e….32766"
    assert short_domain("chassis:1820") == "chassis:1820"
