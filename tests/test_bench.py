"""The pieces of `make bench`: what it measures with has to be right before any figure is. No times are asserted."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from dataclasses import replace

import pytest
from bench import lightfleet, profiling, tools
from bench.hosts import build, can_build, light_hosts
from bench.measure import Spread, measured, ratio
from bench.report import Bar, Case, case, number, spread, table

from llmgwctl.model.errors import Unreachable
from llmgwctl.model.host import Host
from llmgwctl.probe import FABRIC_SET, assemble
from llmgwctl.transport.known_hosts import KnownHosts, Names, parse_key
from llmgwctl.transport.settings import SshSettings
from llmgwctl.transport.ssh import Ssh

SECTIONS = tuple(s for p in FABRIC_SET for s in p.sections)


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """The first tray's marked answer; the other trays' are made in the same way."""
    first = lightfleet.fleet(lightfleet.TRAYS)[0].machine
    peers = {h.address: h.machine for h in lightfleet.fleet(lightfleet.TRAYS)}
    said = lightfleet.read_tree(tmp_path_factory.mktemp("tree") / first.name, first, peers)
    return {name: lightfleet.with_marks(o, lightfleet.ids(first)) for name, o in said.items()}


# --- light hosts ----------------------------------------------------------------------------------------------------


def test_a_template_becomes_the_answer_of_another_host(template):
    """A tray of another rack says its own name, rack, GPUs and peers, and nothing of the tray that was read."""
    first, other = lightfleet.fleet(2 * lightfleet.TRAYS)[0], lightfleet.fleet(2 * lightfleet.TRAYS)[lightfleet.TRAYS]
    own = lightfleet.values(other.machine)
    outputs = {n: replace(o, stdout=lightfleet.filled(o.stdout, own)) for n, o in template.items()}
    facts = assemble(Host(other.name), outputs, 0.0, 1.0)
    report, imex = facts.gpus.value, facts.imex.value
    assert [(g.uuid, g.fabric.cluster_uuid) for g in report.gpus] == [(g.uuid, g.cluster) for g in other.machine.gpus]
    assert report.all_readable
    assert all(g.fabric.joined and g.fabric.healthy for g in report.gpus)
    assert facts.system.value.node_name == other.name
    assert tuple(n.host for n in imex.table.nodes) == other.machine.imex.nodes
    assert other.address in [n.host for n in imex.table.nodes]
    told = "".join(o.stdout for o in outputs.values())
    assert not [name for name, value in lightfleet.ids(first.machine).items() if value in told]


def test_every_section_that_is_asked_has_an_answer_of_about_the_size_of_a_real_one(template):
    """50 KB of nvidia-smi -q, as the figures say."""
    assert {s.name for s in SECTIONS} <= template.keys()
    assert 45_000 < len(template["nvidia-smi-q"].stdout) < 60_000


@pytest.mark.parametrize("hashed", [False, True])
def test_known_hosts_vouch_for_the_hosts_and_for_nobody_else(hashed):
    """What ten thousand hosts are checked against is what their keys are."""
    one, two = lightfleet.fleet(2)
    known = KnownHosts([lightfleet.known_hosts([one, two], hashed=hashed)])
    names = Names.of([one.address], lightfleet.PORT)
    verdicts = [known.judge(names, parse_key(*h.public_key.split()).blob) for h in (one, two)]
    assert verdicts == ["known", "changed"]


def test_sick_hosts_are_spread_and_counted():
    """One in a hundred of each kind."""
    from bench.cases import sick_places

    modes = sick_places(500)
    assert sorted(modes.values()) == sorted(["dead", "silent", "hanging"] * 5)
    assert all(0 <= place < 500 for place in modes)


@pytest.mark.skipif(not can_build(), reason="no Go with golang.org/x/crypto here")
async def test_light_hosts_answer_as_hosts_do(template, tmp_path):
    """Through the real transport: the right facts, each kind of sickness by its name, and nothing left open after."""
    hosts = lightfleet.fleet(4, {1: "dead", 2: "silent", 3: "hanging"})
    program = await asyncio.to_thread(build, tmp_path)
    with light_hosts(program, tmp_path / "fleet", hosts, [template] * lightfleet.TRAYS, port=free_port()) as fleet:
        await check_light_hosts(fleet, hosts)


async def check_light_hosts(fleet, hosts):
    known = (str(fleet.directory / "known_hosts"),)
    settings = SshSettings("ops", str(fleet.directory / "id_ed25519"), known, connect_timeout_s=1, login_timeout_s=2)
    ssh = Ssh(replace(settings, config_file=""))
    asked = [Host(h.name, address=h.address, port=fleet.port) for h in hosts]
    try:
        outputs = await ssh.read(asked[0], SECTIONS)
        facts = assemble(asked[0], outputs, 0.0, 1.0)
        assert [g.uuid for g in facts.gpus.value.gpus] == [g.uuid for g in hosts[0].machine.gpus]
        for host, end in zip(asked[1:3], ("connect-timeout", "login-timeout"), strict=True):
            with pytest.raises(Unreachable) as why:
                await ssh.read(host, SECTIONS)
            assert why.value.kind == end
        waiting = asyncio.create_task(ssh.read(asked[3], SECTIONS))
        while not fleet.counts()["sessions"]:
            await asyncio.sleep(0.02)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    finally:
        await ssh.close()
    plain = ["ssh", "-F", str(fleet.directory / "ssh_config"), hosts[0].address, "nvidia-smi", "-q"]
    said = await asyncio.to_thread(subprocess.run, plain, capture_output=True, text=True, check=True)
    assert said.stdout == tools.wanted_texts(fleet)[hosts[0].address]
    left = await asyncio.to_thread(fleet.settled)
    assert (left["connections"], left["sessions"], left["unknown"]) == (0, 0, 0)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


# --- what is measured -----------------------------------------------------------------------------------------------


def test_the_cost_of_a_command_is_that_of_its_whole_tree(tmp_path):
    """A tool that starts a process a host pays for each of them."""
    spin = "import time\nheld = bytearray(50_000_000)\nwhile time.process_time() < 0.3: pass"
    script = tmp_path / "spin.py"
    script.write_text(spin)
    run = measured(["sh", "-c", f"{sys.executable} {script}; echo done; exit 3"], tmp_path / "out")
    assert run.cpu_s >= 0.3
    assert run.peak_mib > 48
    assert (run.code, run.stdout.read_text()) == (3, "done\n")


def test_a_ratio_is_of_runs_of_one_round():
    """A round in which everything is twice as slow changes no ratio."""
    assert ratio([10, 20, 30], [2, 4, 5]) == Spread(5, 5, 6)


def test_an_answer_that_is_missing_or_not_the_hosts_own_ends_the_bench():
    """Fast and wrong is not fast."""
    wanted = {"127.2.1.1": "one\n\ntwo: x\n", "127.2.1.2": "three\n"}
    tools.check_texts("127.2.1.2: three\n127.2.1.1: one\n127.2.1.1: \n127.2.1.1: two: x\n", wanted, "pdsh")
    for text in ("127.2.1.1: one\n127.2.1.1: two: x\n", "127.2.1.1: one\n127.2.1.2: three\n", ""):
        with pytest.raises(tools.Wrong):
            tools.check_texts(text, wanted, "pdsh")


def test_a_document_is_right_only_with_every_host_and_its_own_gpus():
    """Two hosts that changed places, one that is missing, and one with another end than expected are all seen."""
    hosts = lightfleet.fleet(3)
    document = nvlink_of(hosts[:2], lost={hosts[2].name: "connect-timeout: no answer"})
    lost = {hosts[2].name: "connect-timeout"}
    tools.check_nvlink(json.dumps(document), hosts, lost)
    trays = document["domains"][0]["hosts"]
    wrong = [nvlink_of(hosts[:1], {hosts[2].name: "connect-timeout"}), nvlink_of(hosts[:2], {})]
    swapped = json.loads(json.dumps(document))
    swapped["domains"][0]["hosts"] = [trays[0] | {"gpus": trays[1]["gpus"]}, trays[1]]
    for bad in (*wrong, swapped, nvlink_of(hosts[:2], {hosts[2].name: "login-timeout"})):
        with pytest.raises(tools.Wrong):
            tools.check_nvlink(json.dumps(bad), hosts, lost)


def nvlink_of(hosts, lost):
    """The document of `nvlink --json`, with the keys that are looked at."""
    trays = [
        {
            "name": h.name,
            "address": h.address,
            "imex": {"state": "up"},
            "gpus": [{"uuid": g.uuid, "joined": True, "healthy": True} for g in h.machine.gpus],
        }
        for h in hosts
    ]
    domain = {"cluster_uuid": hosts[0].machine.gpus[0].cluster, "hosts": trays}
    return {"domains": [domain], "unreachable": [{"name": n, "why": why} for n, why in lost.items()]}


# --- what is written ------------------------------------------------------------------------------------------------


def test_a_case_is_written_with_its_bars():
    """Which bar is reached stands beside the figure; a figure has three digits and its spread."""
    bars = (Bar("CPU", 2.5, 2.4, "ms"), Bar("pdsh", 5, 4.2, "times", at_least=True))
    text = case(Case("9 hosts", ("", "ms"), [("a|b", spread(Spread(2.4, 2.25, 130)))], bars, ("A note.",)))
    assert "| a\\|b | 2.40 (2.25 to 130) |" in text
    assert "| CPU | at most 2.50 ms | 2.40 ms | reached |" in text
    assert "| pdsh | at least 5.00 times | 4.20 times | **not reached** |" in text
    assert text.startswith("## 9 hosts\n")
    assert text.endswith("A note.\n")


def test_a_row_that_does_not_fit_is_no_table():
    with pytest.raises(AssertionError):
        table(("a", "b"), [("one",)])


def test_figures_are_written_with_the_digits_that_they_have():
    assert [number(x) for x in (0, 0.004, 3.14159, 31.4159, 314.159)] == ["0", "0.00", "3.14", "31.4", "314"]


def test_a_profile_counts_what_is_written_in_c_for_its_caller():
    """Otherwise half of the time would belong to nobody."""
    caller = ("/x/llmgwctl/probe/imex.py", 1, "parse")
    decode = ("~", 0, "<decode>")
    stats = {caller: (1, 1, 2.0, 5.0, {}), decode: (1, 1, 3.0, 3.0, {caller: (1, 1, 3.0, 3.0)})}
    assert profiling.by_purpose(stats) == {"llmgwctl: parse": 5.0}


def test_imports_are_counted_by_package():
    text = (
        "import time: self [us] | cumulative | imported package\nimport time:       500 |        500 |   asyncssh.kex\n"
    )
    text += "import time:      1500 |       2000 | asyncssh\nimport time:        90 |         90 | llmgwctl.cli.app\n"
    assert profiling.imported(text) == ({"asyncssh": 2.0, "llmgwctl.cli": 0.09}, {"asyncssh": 2, "llmgwctl.cli": 1})
