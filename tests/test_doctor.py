"""The doctor as a whole: one cause one message, suppressions, changes, documents, launch checks, and real captures."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from doctor_racks import but, changed, fields, gpus, healthy, process, said, seen
from facts import HEALTHY, IN_PROGRESS, joined, snapshot, with_cells
from test_doctor_checks import HGX, ONE, T, cells, many, unreachable, unread

from llmgwctl.cli import main
from llmgwctl.doctor import CHECKS, before_launch, diagnose
from llmgwctl.doctor.base import Check, Deep, Launch, View
from llmgwctl.doctor.changes import changes, document, read, state
from llmgwctl.doctor.choose import at_least, chosen, on_hosts, strangers, suppress
from llmgwctl.doctor.deep import busy
from llmgwctl.doctor.deep import read as read_perf
from llmgwctl.doctor.xid import XIDS, recovery_word, same_gpu
from llmgwctl.fabric import fabric_map
from llmgwctl.model.finding import FAMILIES, SEVERITIES, Suppression, next_actions
from llmgwctl.model.host import Host, HostFacts, Snapshot
from llmgwctl.model.life import Claim, HostLife
from llmgwctl.model.profile import Profile
from llmgwctl.model.reading import Reading, broken, ok
from llmgwctl.model.weights import ModelFiles
from llmgwctl.placement import plan
from llmgwctl.probe import PROBES, assemble
from llmgwctl.probe.base import NOT_SAVED, Output
from llmgwctl.render import doctor as render
from llmgwctl.render.html_doctor import doctor_page

ROOT = Path(__file__).parents[1]
CHECKS_MD = (ROOT / "docs/checks.md").read_text()
CAPTURES = ROOT / "../shared/captures"


# --- checks as data ---------------------------------------------------------------------------------------------------


def test_ids_are_permanent_names():
    """LG, the digit of the family, two more; each once, each in its family, in order within it."""
    ids = [c.id for c in CHECKS]
    assert all(re.fullmatch(r"LG[0-9]\d\d", i) for i in ids)
    assert len(set(ids)) == len(ids)
    for digit in FAMILIES:
        mine = [i for i in ids if i[2] == digit]
        assert mine == sorted(mine)


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.id)
def test_every_check_says_what_to_do(check: Check):
    """Title, command, action, who; the readings that it needs are there; what it hides exists; nothing hides itself."""
    assert check.title
    assert check.seen
    assert check.action
    assert check.severity in SEVERITIES
    known = {f for f in HostFacts.__slots__ if f not in ("host", "taken_at")}
    assert set(check.needs) | set(check.explains) <= known
    for start in check.hides:
        assert any(c.id.startswith(start) for c in CHECKS), start
        assert not check.id.startswith(start)


def test_every_reason_of_the_verdict_has_a_check():
    """What keeps a host out is named by the doctor too: each code of the verdict stands in exactly one family of it."""
    codes = set(
        re.findall(r'Reason\(\s*"([a-z-]+)"', "".join(p.read_text() for p in (ROOT / "llmgwctl/fabric").glob("*.py")))
    )
    codes |= {"unhealthy", "degraded"}
    texts = "".join(p.read_text() for p in (ROOT / "llmgwctl/doctor").glob("*.py"))
    assert len(codes) > 20
    # "one-machine" is a machine's nature; "unreachable" is told by LG001 from the reading itself
    assert {c for c in codes if f'"{c}"' not in texts} <= {"one-machine", "unreachable"}


def test_docs_and_checks_are_in_step():
    """A reader who searches docs/checks.md for an id finds its section, in order, with title, command and action."""
    assert re.findall(r"(?m)^## (LG\d+)$", CHECKS_MD) == [c.id for d in FAMILIES for c in CHECKS if c.id[2] == d]
    for check in CHECKS:
        section = CHECKS_MD.split(f"## {check.id}\n")[1].split("\n## ")[0]
        for words in (check.title, check.seen, check.action, check.who, f"({check.severity})"):
            assert words in section, (check.id, words)
    assert "# What is not checked, and why" in CHECKS_MD
    assert set(re.findall(r"LG\d{3}", CHECKS_MD)) == {c.id for c in CHECKS}


def test_xids_are_a_table():
    """Each number once; addresses of the kernel log and of nvidia-smi mean the same card."""
    assert len({x.code for x in XIDS}) == len(XIDS)
    assert same_gpu("0009:06:00", "00000009:06:00.0")
    assert same_gpu("0000:1b:00.0", "00000000:1B:00.0")
    assert not same_gpu("0008:06:00", "00000009:06:00.0")
    assert not same_gpu("nonsense", "00000009:06:00.0")
    line = "Xid (PCI:0009:06:00): 154, GPU recovery action changed from 0x0 (None) to 0x5 (Recover IMEX Domain)"
    assert recovery_word(line) == "Recover IMEX Domain"


# --- one cause, one message -------------------------------------------------------------------------------------------


def test_a_dark_rack_is_one_line():
    """All trays wait: one finding for the rack, IMEX and channels of it folded under it, one action."""
    fleet = many(T, lambda f: but(f, gpus=gpus(fabric=IN_PROGRESS), imex=fields(state="DOWN", channels=())))
    _, report = seen(fleet)
    (finding,) = report.findings
    assert (finding.id, finding.hosts) == ("LG103", T)
    assert {"LG301", "LG401"} <= set(finding.folded)
    (first,) = next_actions(report)
    assert (first.hosts, first.who) == (T, "rack operator")


def test_what_needs_the_gpus_is_folded_under_why_they_cannot_be_read():
    """A hung nvidia-smi is one finding; no check says that it could not be made."""
    _, report = seen(unread("nvidia-smi (pid 311) hangs in D state"))
    (finding,) = report.findings
    assert finding.id == "LG601"
    assert {"LG003", "LG203", "LG504"} <= set(finding.folded)
    assert report.unknown == ()


def test_a_host_that_did_not_answer_is_said_once():
    """Its readings are no troubles of their own."""
    _, report = seen(unreachable(ONE))
    (told,) = report.unknown
    assert [c.id for c in told.checks] == ["LG001"]
    assert report.findings == ()
    (first,) = next_actions(report)
    assert first.action == "start sshd on the host, or correct the port"


def test_equal_findings_are_one_line_and_the_gravest_comes_first():
    """Two hosts with the same words share a line; a third with other words has its own."""
    fleet = healthy()
    for name, index in ((T[0], 2), (T[1], 2), (T[2], 1)):
        fleet[name] = but(fleet[name], gpus=gpus(index, fabric=IN_PROGRESS))
    fleet[T[3]] = but(fleet[T[3]], gpus=gpus(0, remap_pending=True))
    _, report = seen(fleet)
    assert [(f.id, f.hosts) for f in report.findings] == [("LG101", T[:2]), ("LG101", (T[2],)), ("LG505", (T[3],))]
    assert [(n.hosts, n.severity) for n in next_actions(report)] == [(T[:3], "block"), ((T[3],), "warn")]


def test_a_check_that_crashes_has_said_nothing():
    """One broken check costs its own answer: unknown, and the others are made."""

    def crash(_: View):
        raise ZeroDivisionError("oh")

    bad = replace(CHECKS[2], id="LG099", problems=crash, needs=())
    snapshot, _ = seen(healthy())
    report = diagnose(snapshot, fabric_map(snapshot), checks=(*CHECKS, bad))
    (told,) = report.unknown
    assert "ZeroDivisionError" in told.why
    assert report.code(strict=True) == 3


def test_a_mixed_answer_of_imex_names_who_is_to_blame():
    """All complain of one: that one. One complains of one: the one that cannot. Both: both."""
    assert said(seen(cells({(0, 1): "N", (2, 1): "N", (3, 1): "N", (1, 0): "N", (1, 2): "N", (1, 3): "N"}))[1]) == {
        "LG305": (ONE,)
    }
    assert said(seen(cells({(0, 1): "R"}))[1]) == {"LG305": (T[0],)}
    words = seen(cells({(2, 0): "N"}))[1].findings[0].values[0]
    assert words == "never connected (N) to r1-t01, which is connected to it"


def test_a_host_that_has_just_booted_is_given_time():
    """In Progress and IMEX that waits are warnings in the first minutes."""
    young = {"uptime_s": 100.0}
    for change in ({"gpus": gpus(fabric=IN_PROGRESS)}, {"imex": fields(state="WAITING_FOR_PEERS", table=None)}):
        _, report = seen(changed(ONE, system=fields(**young), **change))
        assert {f.severity for f in report.findings} <= {"warn", "info"}
        assert any("wait and read again" in f.action for f in report.findings)


# --- choosing, suppressing, remembering -------------------------------------------------------------------------------


def test_checks_are_chosen_by_id_and_family():
    """Ids, beginnings of ids, words of a family; a word that names nothing is told."""
    assert {c.id[2] for c in chosen(CHECKS, ("LG3",))} == {"3"}
    assert {c.family for c in chosen(CHECKS, ("channel",))} == {"IMEX channel"}
    assert "LG301" not in {c.id for c in chosen(CHECKS, (), ("lg301",))}
    assert strangers(("LG301", "imex", "nonsense", "LG77"), CHECKS) == ("nonsense", "LG77")


def test_severity_decides_what_counts():
    """Milder findings are neither shown nor counted."""
    _, report = seen(changed(ONE, gpus=gpus(0, remap_pending=True)))
    assert report.code() == 1
    assert at_least(report, "degrade").code() == 0


def test_a_suppression_covers_its_hosts_until_its_day():
    """The covered host is set aside with the reason, the other still counts; the day after, both do."""
    fleet = healthy()
    for name in T[:2]:
        fleet[name] = but(fleet[name], gpus=gpus(0, remap_pending=True))
    _, report = seen(fleet)
    known = (Suppression("LG505", "ticket 7", date(2026, 12, 1), frozenset({T[0]})),)
    quiet = suppress(report, known, date(2026, 12, 1))
    assert said(quiet) == {"LG505": (T[1],)}
    assert [(f.id, f.hosts, f.suppressed) for f in quiet.suppressed] == [
        ("LG505", (T[0],), "ticket 7 (until 2026-12-01)")
    ]
    assert said(suppress(report, known, date(2026, 12, 2))) == {"LG505": T[:2]}
    assert (quiet.ended, suppress(report, known, date(2026, 12, 2)).ended) == ((), tuple(known))
    everywhere = (Suppression("LG505", "fine", date(2026, 12, 1)),)
    assert suppress(report, everywhere, date(2026, 1, 1)).code() == 0


def test_changes_are_new_worse_and_gone():
    """What was known is not told again; what got worse is; what is gone is; nothing is told when nothing changed."""
    soft = seen(changed(HGX, gpus=gpus(0, mig_enabled=True, remap_pending=True)))[1]
    first = changes(soft, {})
    assert {f.id for f in first.report.findings} == {"LG503", "LG505"}
    before = read(json.dumps(document(state(soft, {}), "now")))
    assert not changes(soft, before).any
    worse = seen(changed(HGX, gpus=gpus(0, mig_enabled=True, remap_failed=True)))[1]
    now = changes(worse, before)
    assert {f.id for f in now.report.findings} == {"LG504"}
    assert [(g.id, g.hosts, g.severity) for g in now.gone] == [("LG505", (HGX,), "warn")]
    as_warning = {HGX: {"LG503": "warn"}}
    assert {f.id for f in changes(soft, as_warning).report.findings} == {"LG503", "LG505"}


def test_a_suppression_that_ends_is_news():
    """What was set aside is not gone, and the day after its last day it is told as new; mended under it, it is no
    news."""
    sick = seen(changed(HGX, gpus=gpus(0, remap_pending=True)))[1]
    known = (Suppression("LG505", "ticket 7", date(2026, 12, 1)),)
    quiet = suppress(sick, known, date(2026, 12, 1))
    assert not changes(quiet, state(sick, {})).any
    before = read(json.dumps(document(state(quiet, state(sick, {})), "now")))
    assert not changes(quiet, before).any
    assert {f.id for f in changes(suppress(sick, known, date(2026, 12, 2)), before).report.findings} == {"LG505"}
    dark = state(seen(unreachable(HGX))[1], before)
    assert {f.id for f in changes(sick, dark).report.findings} == {"LG505"}
    assert not changes(suppress(seen(healthy())[1], known, date(2026, 12, 1)), before).gone


def test_what_is_not_seen_any_more_is_not_gone():
    """A host that does not answer, or was not asked, keeps what was known of it."""
    sick = seen(changed(ONE, gpus=gpus(0, remap_pending=True)))[1]
    before = state(sick, {})
    dark = seen(unreachable(ONE))[1]
    assert changes(dark, before).gone == ()
    after = state(dark, before)
    assert after[ONE]["LG505"] == "warn"
    others = {n: f for n, f in healthy().items() if n != ONE}
    assert state(seen(others)[1], before)[ONE] == before[ONE]
    assert not changes(sick, after).report.findings


def test_what_is_found_of_a_profiles_hosts_and_others_together_is_remembered_of_all():
    """`--profile --state`: a finding about hosts together names some that the report is not about."""
    fleet = healthy()
    names = sorted(n for n in fleet if n.startswith("r1"))
    older = snapshot(fleet | {n: _older(fleet[n]) for n in names[:2]})
    report = on_hosts(diagnose(older, fabric_map(older)), {names[0]}.__contains__)
    now = state(report, {names[3]: {"LG001": "block"}})
    assert now[names[0]]["LG010"] == now[names[1]]["LG010"]
    assert now[names[3]]["LG001"] == "block"
    assert changes(report, now).report.findings == ()


def _older(facts: HostFacts) -> HostFacts:
    return replace(facts, gpus=facts.gpus.map(lambda r: replace(r, driver="570.1.2")))


def test_a_state_of_somebody_else_is_refused():
    for text in ('{"schema": "x"}', "[]", '{"schema": "llmgwctl.doctor-state/v1", "hosts": 3}'):
        with pytest.raises(ValueError, match=r"schema|not whole"):
            read(text)


# --- documents --------------------------------------------------------------------------------------------------------


@pytest.fixture
def sick():
    fleet = changed(ONE, imex=fields(state="DOWN", table=None))
    fleet[T[2]] = but(fleet[T[2]], gpus=gpus(3, name='NVIDIA GB200 <script>"&\x1b[31m', remap_pending=True))
    fleet[HGX] = replace(fleet[HGX], clock=broken("not measured"))
    return seen(fleet)


def test_the_document_has_the_keys_that_others_build_on(sick):
    """llmgwctl.doctor/v1: findings with id, severity, hosts, value, action, who; unknown with id, hosts, why."""
    snapshot, report = sick
    made = json.loads(json.dumps(render.document(report, snapshot.taken_at)))
    assert made["schema"] == "llmgwctl.doctor/v1"
    assert {"id", "severity", "hosts", "value", "action", "who"} <= set(made["findings"][0])
    assert {(f["id"], tuple(f["hosts"])) for f in made["findings"]} >= {("LG301", (ONE,)), ("LG505", (T[2],))}
    assert {"id": "LG801", "hosts": [HGX], "why": "clock: not measured", "counts": False, "action": ""} in made[
        "unknown"
    ]


def test_the_terminal_groups_by_severity_and_ends_with_what_to_do(sick):
    """Hosts folded, values cleaned, one action a host at the end, and a last line with the counts."""
    snapshot, report = sick
    text = render.text(report, {f.host.name: f.host for f in snapshot.hosts})
    assert text.index("Must not be used") < text.index("Will bite later") < text.index("What to do first")
    assert "IMEX is down" in text
    assert "\x1b" not in text
    assert text.rstrip().splitlines()[-1].startswith("10 hosts, ")


def test_junit_is_xml_with_a_case_a_check(sick):
    """Failures for what counts, skipped for what could not be told, nothing of a host's text unescaped."""
    root = ET.fromstring(render.junit(sick[1], CHECKS))  # noqa: S314 - our own text
    cases = {c.attrib["name"].split()[0]: c for c in root.iter("testcase")}
    assert set(cases) == {c.id for c in CHECKS}
    assert cases["LG301"].find("failure") is not None
    assert cases["LG801"].find("skipped") is not None
    assert list(cases["LG404"]) == []
    assert int(root.attrib["failures"]) == sum(c.find("failure") is not None for c in cases.values())


def test_the_page_is_one_file_and_obeys_no_host(sick):
    """Everything inside, escaped; every finding and its command is there."""
    page = doctor_page(sick[1], sick[0], made_at=sick[0].taken_at + 60)
    assert "<script>&quot;" not in page
    assert '<script>"' not in page.split("</style>")[1].split("<footer")[0]
    assert "LG301" in page
    assert "nvidia-imex-ctl -q" in page
    assert "http" not in re.sub(r"http-equiv", "", page)


# --- a launch ---------------------------------------------------------------------------------------------------------


def placed(fleet, profile: Profile, **models: ModelFiles):
    snapshot, _ = seen(fleet)
    fmap = fabric_map(snapshot)
    made = plan(fmap, snapshot, profile)
    assert made.replicas, made.why_not
    return snapshot, fmap, tuple(Launch(r, profile, models) for r in made.replicas)


MODEL = ModelFiles({"config.json": 9, "a.safetensors": 600_000})
NVL = Profile("m", "vllm", "/models/m", pool="prod", gpu_class="GB200", tp=8, nodes=2, gpus_per_node=4)


def launched(fleet, profile=NVL, models=None):
    snapshot, fmap, launches = placed(fleet, profile)
    launches = tuple(replace(one, models=models or {}) for one in launches)
    hosts = [s.host for one in launches for s in one.replica.shards]
    return said(diagnose(snapshot, fmap, launches)), hosts


def test_a_launch_on_a_healthy_fleet_meets_nothing():
    whole = dict.fromkeys(T, MODEL)
    assert launched(healthy(), models=whole)[0] == {}


def test_what_others_have_among_each_other_is_nothing_to_a_replica():
    """A pair of trays that IMEX keeps apart is no matter of two other trays."""
    found, hosts = launched(cells({(2, 3): "N", (3, 2): "N"}))
    assert set(hosts) == set(T[:2])
    assert found == {}


def test_a_model_must_be_whole_and_alike_on_its_hosts():
    """Missing on one host; of another size than the leader's on one; and one that could not be asked."""
    assert launched(healthy(), models={T[0]: MODEL, T[1]: ModelFiles(kind="absent")})[0] == {"LG913": (T[1],)}
    other = replace(MODEL, sizes={**MODEL.sizes, "a.safetensors": 500_000})
    assert launched(healthy(), models={T[0]: MODEL, T[1]: other})[0] == {"LG913": (T[1],)}
    snapshot, fmap, launches = placed(healthy(), NVL)
    dark = tuple(replace(one, models={T[0]: "no answer"}) for one in launches)
    report = diagnose(snapshot, fmap, dark)
    assert [c.id for u in report.unknown for c in u.checks] == ["LG913"]


@pytest.mark.parametrize(
    ("env", "severity"),
    [
        ({"NCCL_HOSTID": "x"}, "block"),
        ({"GLOO_SOCKET_IFNAME": "^lo"}, "block"),
        ({"NCCL_IB_HCA": "mlx5_1"}, "degrade"),
        ({"NCCL_CUMEM_ENABLE": "0"}, "degrade"),
        ({"NVSHMEM_HCA_LIST": "mlx5_0"}, "degrade"),
    ],
)
def test_a_profiles_env_that_undoes_the_placement_is_told(env, severity):
    profile = replace(NVL, env=tuple(env.items()))
    snapshot, fmap, launches = placed(healthy(), profile)
    (finding,) = diagnose(snapshot, fmap, launches).findings
    assert (finding.id, finding.severity) == ("LG914", severity)
    assert next(iter(env)) in finding.values[0]


def refused(snapshot, fmap, launches) -> list[tuple[str, tuple[str, ...]]]:
    return [(f.id, f.hosts) for f in before_launch(snapshot, fmap, launches).findings]


def rooms(path: str, **change):
    return changed(T[0], resources=lambda r: replace(
        r, rooms=tuple(replace(x, **change) if x.path == path else x for x in r.rooms)))  # fmt: skip


def test_a_launch_is_refused_by_what_concerns_its_tier():
    """Room for a shard counts for all; a subnet manager only where InfiniBand carries it; a sick neighbour never."""
    assert refused(*placed(healthy(), NVL)) == []
    full = changed(T[0], resources=lambda r: replace(r, rooms=(replace(r.rooms[1], free_mib=1),)))
    assert refused(*placed(full, NVL)) == [("LG804", (T[0],))]
    keys = many(T, lambda f: but(f, hcas=lambda h: tuple(
        replace(a, ports=(replace(a.ports[0], pkeys=("0x7fff",)),)) for a in h)))  # fmt: skip
    assert refused(*placed(keys, NVL)) == []
    rdma = replace(NVL, fabric="require-rdma")
    assert [i for i, _ in refused(*placed(keys, rdma))] == ["LG707"]
    neighbour = with_cells(healthy()[T[3]], {(3, 2): "N"})
    assert refused(*placed(healthy() | {T[3]: neighbour}, NVL)) == []


def test_shared_memory_counts_where_an_engine_maps_it():
    """NCCL and the engines that use it map it; a drill, or an engine without it, is not kept from a host for that."""
    small = rooms("/dev/shm", free_mib=64)
    snapshot, fmap, launches = placed(small, NVL)
    assert refused(snapshot, fmap, launches) == [("LG805", (T[0],))]
    assert refused(snapshot, fmap, tuple(replace(one, shm=False) for one in launches)) == []


def test_what_was_not_read_before_a_launch_is_no_refusal_and_is_told():
    """Of the hosts of the replica alone, and of the checks alone that could have refused it."""
    why = broken("not asked in this run")
    dark = many(T, lambda f: replace(f, kernel_log=why, resources=why, links=why))
    report = before_launch(*placed(dark, NVL))
    assert report.findings == ()
    told = {c.id: u.hosts for u in report.unknown for c in u.checks}
    assert {"LG511", "LG806", "LG807"} <= set(told)
    assert {c.severity for u in report.unknown for c in u.checks} == {"block"}
    assert set(told.values()) == {T[:2]}


def test_a_health_row_that_cannot_be_read_is_told_as_unknown():
    """No finding and no all-clear: LG202 says of which host it could not tell, and the word."""
    fabric = joined(health=replace(HEALTHY, route_unhealthy=None, unread=("Route Unhealthy: ERR!",)))
    _, report = seen(changed(ONE, gpus=gpus(1, fabric=fabric)))
    (told,) = report.unknown
    assert (said(report), [c.id for c in told.checks], told.hosts) == ({}, ["LG202"], (ONE,))
    assert "Route Unhealthy: ERR!" in told.why


def test_a_taken_port_and_a_dead_interface_are_told():
    """HTTP's port on the leader, one of the engine's own on any host; the interface of a shard."""
    _, _, (launch,) = placed(healthy(), NVL)
    port = dict(launch.replica.ports)["http"]
    leader = launch.replica.leader.host
    busy = changed(leader, network=fields(listening=(22, port)))
    again = seen(busy)[0]
    assert said(diagnose(again, fabric_map(again), (launch,))) == {"LG911": (leader,)}
    other = launch.replica.shards[1].host
    rpc = replace(launch, replica=replace(launch.replica, ports=(("http", port), ("rpc", 21000))))
    for number, blamed in ((port, {}), (21000, {"LG911": (other,)})):
        taken = seen(changed(other, network=fields(listening=(number,))))[0]
        assert said(diagnose(taken, fabric_map(taken), (rpc,))) == blamed

    def down(network):
        return replace(network, interfaces=tuple(replace(i, up=i.name != "eth0") for i in network.interfaces))

    cut = seen(changed(leader, network=down))[0]
    assert said(diagnose(cut, fabric_map(cut), (launch,))) == {"LG912": (leader,)}


# --- real machines ----------------------------------------------------------------------------------------------------


def _captures() -> list[Path]:
    if not CAPTURES.exists():
        return []
    healthy = [*CAPTURES.glob("nvidia-smi-q/exporter_*_q.txt"), *CAPTURES.glob("nvidia-smi-q/gpud_*.valid*")]
    real = [p for p in CAPTURES.glob("nvidia-smi-q-xml/**/qx-*.xml") if not re.search("injected|degraded|lost", p.name)]
    return sorted([*healthy, *real])


@pytest.mark.skipif(not CAPTURES.exists(), reason="the captures are not here")
@pytest.mark.parametrize("path", _captures(), ids=lambda p: p.name)
def test_no_healthy_machine_is_blocked(path: Path):
    """What real machines print, with nothing else saved: much is unknown, and nothing of it must not be used."""
    text = path.read_text(encoding="utf-8", errors="replace")
    outputs = {s.name: NOT_SAVED for p in PROBES for s in p.sections} | {"nvidia-smi-q": Output(stdout=text)}
    facts = assemble(Host("one"), outputs, 0.0, 0.1)
    assert facts.gpus.ok, facts.gpus.why
    snapshot = Snapshot(0.0, (facts,))
    report = diagnose(snapshot, fabric_map(snapshot))
    assert [f for f in report.findings if f.severity == "block"] == []
    assert report.unknown


SLOWED = {
    "nvidia-smi-q/gpud_nvidia-smi-query.535.161.08.out.0.valid": ("LG524", "degrade"),  # H100s at 86 MHz, power brake
    "nvidia-smi-q-xml/k8s-test-infra-hardware/qx-t4.xml": ("LG526", "info"),  # slots that are wired with eight lanes
    "nvidia-smi-q-xml/k8s-test-infra-hardware/qx-l40s.xml": ("LG526", "info"),
}


@pytest.mark.skipif(not CAPTURES.exists(), reason="the captures are not here")
@pytest.mark.parametrize("path", _captures(), ids=lambda p: p.name)
def test_what_slows_real_machines(path: Path):
    """Of all real machines exactly those that are held down by something are said to be; idle links are no fault."""
    text = path.read_text(encoding="utf-8", errors="replace")
    outputs = {s.name: NOT_SAVED for p in PROBES for s in p.sections} | {"nvidia-smi-q": Output(stdout=text)}
    snapshot = Snapshot(0.0, (assemble(Host("one"), outputs, 0.0, 0.1),))
    found = diagnose(snapshot, fabric_map(snapshot), checks=chosen(CHECKS, ("LG507", "LG508", "LG509", "LG52")))
    mine = [(f.id, f.severity) for f in found.findings]
    name = str(path.relative_to(CAPTURES))
    heat = "gpud_nvidia-smi-query.535.183.01.out.0.valid" in name  # one GPU of eight: power brake and heat
    assert mine == ([SLOWED[name]] if name in SLOWED else [("LG524", "degrade")] if heat else [])


@pytest.mark.skipif(not CAPTURES.exists(), reason="the captures are not here")
def test_the_healthy_captures_are_really_read():
    assert len(_captures()) > 25


# --- the command line -------------------------------------------------------------------------------------------------


def test_explain_and_list_read_nothing(capsys, tmp_path, monkeypatch):
    """They need no inventory; an id that is not there is told with what is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["doctor", "--explain", "lg301"]) == 0
    assert "IMEX daemon does not run" in capsys.readouterr().out
    assert main(["doctor", "--list", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["checks"]) == len(CHECKS)
    assert main(["doctor", "--explain", "LG999"]) == 2
    assert "LG9" in capsys.readouterr().err
    assert main(["doctor", "--only", "nonsense"]) == 2
    assert main(["doctor", "--severity", "bad"]) == 2
    assert main(["doctor", "--changed"]) == 2


def test_a_report_of_many_hosts_is_quick():
    """Checks look at each host a bounded number of times: 20 racks cost no more than 20 times one."""
    from facts import rack, snapshot

    fleet = {}
    for i in range(20):
        fleet |= rack(18, f"r{i}", f"5e1fab1e-0000-4000-8000-0000000000{i:02x}", net=i)
    found = snapshot(fleet)
    report = diagnose(found, fabric_map(found))
    assert report.findings == ()
    assert len(report.hosts) == 360


def test_readings_keep_their_type():
    """A need that is no reading would make a check blind."""
    facts = healthy()[ONE]
    for check in CHECKS:
        for need in check.needs:
            assert isinstance(getattr(facts, need), Reading)
    assert ok(1).ok


# --- active tests -----------------------------------------------------------------------------------------------------

PERF = """# nThread 1 nGpus 4 minBytes 67108864 maxBytes 536870912 step: 2(factor) warmup iters: 5 iters: 20
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
    67108864      16777216     float     sum      -1    310.1  216.40  {slow}      0    309.9  216.54  {slow}      0
   536870912 134217728 float sum -1 1507.2 356.20 {fast} {wrong} 1503.8 357.01 {fast} N/A
# Avg bus bandwidth    : 429.25
end
"""


def deep(**tests):
    snapshot, _ = seen(healthy())
    return diagnose(snapshot, fabric_map(snapshot), (), CHECKS, Deep(**tests))


def test_all_reduce_is_held_to_the_floor_of_its_product():
    """Fast is quiet, slow is found, a wrong value blocks, and what is not installed is only not told."""
    fast = read_perf(PERF.format(slow=324.6, fast=534.3, wrong=0))
    assert (fast.bus_gbps, fast.wrong) == (534.3, 0)
    assert deep(all_reduce={ONE: fast}).code() == 0
    slow = read_perf(PERF.format(slow=90.1, fast=99.9, wrong=0))
    assert said(deep(all_reduce={ONE: slow})) == {"LG922": (ONE,)}
    (wrong,) = deep(all_reduce={ONE: read_perf(PERF.format(slow=324.6, fast=534.3, wrong=3))}).findings
    assert wrong.severity == "block"
    missing = deep(all_reduce={ONE: read_perf("absent\n")})
    assert [c.id for u in missing.unknown for c in u.checks] == ["LG922"]
    assert missing.code() == 0
    assert read_perf("all_reduce_perf: Test NCCL failure common.cu:958\nend\n").why.endswith("common.cu:958")
    assert read_perf("").why


def test_a_host_that_nobody_reaches_is_named_and_else_the_one_that_cannot():
    """Its firewall, or the other's way out; what could not be tried is unknown."""
    ways = {(a, b): "" for a in T for b in T if a != b}
    assert deep(tcp=ways).code() == 0
    shut = ways | {(a, ONE): "no connection" for a in T if a != ONE}
    assert said(deep(tcp=shut)) == {"LG921": (ONE,)}
    one = ways | {(T[0], T[3]): "no connection"}
    assert said(deep(tcp=one)) == {"LG921": (T[0],)}
    dark = deep(tcp=ways, untested={T[2]: "it does not forward"})
    assert [u.hosts for u in dark.unknown] == [(T[2],)]


def test_only_idle_hosts_are_tested():
    """A process, a claim, memory in use, a GPU that cannot be read, a host that does not answer: never."""
    idle = healthy()[ONE]
    assert busy(idle) == ""
    claim = Claim("gpu-x", "m-0", 0, "l1")
    for fleet in (
        changed(ONE, gpus=gpus(1, processes=process())),
        changed(ONE, gpus=gpus(1, memory_used_mib=30_000)),
        changed(ONE, life=ok(HostLife((claim,)))),
        unread("another probe is at work"),
        unreachable(ONE),
    ):
        assert busy(fleet[ONE])
    drawn = changed(ONE, gpus=gpus(1, processes=(*process(7, "G"), *process(8))))
    assert "pid 8" in busy(drawn[ONE])
