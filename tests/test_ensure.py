"""ensure: what it decides, row by row, and what it does on a simulated rack."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
from local_hosts import life, make_host, run_script, set_boot, set_uptime
from test_life_cli import Cli, cli  # noqa: F401 (a fixture)
from test_life_state import READY, claim, dead, facts, record, seen, spec

from llmgwctl.launch.ensure import BackOff, back_off_of, decide, of_profile, to_judge
from llmgwctl.launch.prepare import fingerprint
from llmgwctl.launch.state import replicas
from llmgwctl.launch.witness import SCHEMA, note_name, witnesses
from llmgwctl.model.host import Host
from llmgwctl.model.life import Note
from llmgwctl.model.profile import Profile
from llmgwctl.model.reading import ok

P = Profile("p", "sim", replicas=1, ready_timeout_s=100)


def states(*hosts):
    return of_profile(replicas(seen(*hosts)), P)


def todo(*hosts, profile=P, back_off=BackOff(), **how):  # noqa: B008 (frozen)
    return decide(profile, states(*hosts), back_off, **how)


def alone(replica, launch, host):
    """The spec of a replica of one rank."""
    one = [{"rank": 0, "host": host, "gpus": [0]}]
    return spec(0, replica=replica, launch=launch, shards=one, profile_fingerprint=fingerprint(P))


def did(t):
    return [r.id for r, _ in t.remove], t.place


WHOLE = [facts("n0", [record(0, ready=READY)]), facts("n1", [record(1)])]


def noted(facts_, *notes):
    return replace(facts_, life=facts_.life.map(lambda v: replace(v, notes=notes)))


def remembers(age=50.0, **more):
    told = {**spec(0), "schema": SCHEMA, **more}
    return Note(note_name("p-0", "L"), json.dumps(told), age)


ROWS = {
    "nothing: one is placed": ([facts("n0")], ([], 1)),
    "ready: nothing to do": (WHOLE, ([], 0)),
    "one rank dead: removed, and another placed": (
        [facts("n0", [record(0, ready=READY)]), facts("n1", [record(1, "exited")])],
        (["p-0"], 1),
    ),
    "one rank unreachable: left alone": ([facts("n0", [record(0, ready=READY)]), dead("n1")], ([], 0)),
    "all unreachable, and remembered: left alone": (
        [dead("n0"), dead("n1"), noted(facts("n2"), remembers())],
        ([], 0),
    ),
    "remembered, and its hosts say that it is gone: placed": (
        [facts("n0"), facts("n1"), noted(facts("n2"), remembers())],
        ([], 1),
    ),
    "rebooted: removed": (
        [facts("n0", [record(0, ready=READY, boot_matches=False)]), facts("n1", [record(1)])],
        (["p-0"], 1),
    ),
    "starting: left to it": ([facts("n0", [record(0, age_s=20)]), facts("n1", [record(1, age_s=20)])], ([], 0)),
    "starting for too long: removed": (
        [facts("n0", [record(0, age_s=101)]), facts("n1", [record(1, age_s=101)])],
        (["p-0"], 0),  # its start has failed, so the next one backs off
    ),
    "claims of a run that may live: left to it": ([facts("n0", claims=[claim()])], ([], 0)),
    "claims that are old: removed": ([facts("n0", claims=[replace(claim(), uptime_s=1)])], (["p-0"], 1)),
    "another account's: counted, never touched": ([facts("n0", claims=[claim(account="bob", alive=True)])], ([], 0)),
}


@pytest.mark.parametrize("row", ROWS)
def test_what_is_done(row):
    hosts, want = ROWS[row]
    assert did(todo(*hosts)) == want


def test_what_runs_is_asked_only_while_nobody_has_seen_it_serve():
    assert to_judge(states(*WHOLE)) == ()
    assert len(to_judge(states(facts("n0", [record(0)]), facts("n1", [record(1)])))) == 1
    assert to_judge(states(facts("n0", [record(0)]), dead("n1"))) == ()


def test_an_unreachable_replica_is_replaced_only_when_the_profile_says_after_how_long():
    """By the clock of a host that remembers it; without any, never."""
    hosts = [dead("n0"), dead("n1"), noted(facts("n2"), remembers(age=3600.0))]
    assert did(todo(*hosts)) == ([], 0)
    assert did(todo(*hosts, profile=replace(P, replace_unreachable_after_s=3601))) == ([], 0)
    assert did(todo(*hosts, profile=replace(P, replace_unreachable_after_s=3600))) == ([], 1)
    hosts = [dead("n0"), dead("n1"), noted(facts("n2"), remembers(age=None))]
    assert did(todo(*hosts, profile=replace(P, replace_unreachable_after_s=60))) == ([], 0)


def test_failed_starts_back_off_from_a_minute_to_an_hour():
    """Doubled each time; a replica that had served is replaced at once."""
    assert [BackOff(n).wait_s for n in (0, 1, 2, 3, 7, 500)] == [0, 60, 120, 240, 3600, 3600]
    assert BackOff(1, 59).wait_s == 1
    assert BackOff(1, 60).wait_s == 0
    assert todo(facts("n0"), back_off=BackOff(2, 30)).place == 0
    assert todo(facts("n0"), back_off=BackOff(2, 121)).place == 1
    died = [facts("n0", [record(0)]), facts("n1", [record(1, "exited")])]
    assert (todo(*died).died_at_start, todo(*died).place, todo(*died).wait_s) == (1, 0, 60)
    served = [facts("n0", [record(0, ready=READY)]), facts("n1", [record(1, "exited")])]
    assert (todo(*served).died_at_start, todo(*served).place) == (0, 1)


HALF = {
    "stopped, not cleaned": [facts("n0", [record(0, stopping=True)]), facts("n1", [record(1, "exited")])],
    "the leader cleaned": [facts("n0"), facts("n1", [record(1, "exited")])],
    "a host that did not answer": [facts("n0"), facts("n1", [record(1)])],
}


@pytest.mark.parametrize("row", HALF)
def test_what_is_half_stopped_has_not_failed_at_its_start(row):
    """Whether it ever served lay with the leader, and a leader that is stopped takes the others along."""
    found = todo(*HALF[row])
    assert (did(found), found.died_at_start, found.wait_s) == ((["p-0"], 1), 0, 0)
    assert found.remove[0][1].startswith("half stopped, the rest is ended: rank ")


def test_what_only_a_dark_host_may_have_is_replaced_and_not_ended_again_and_again():
    """The others of its hosts have nothing of it: it is half stopped, and each run would end it once more."""
    half = [noted(facts("n0"), remembers()), dead("n1"), facts("n2")]
    assert states(*half)[0].half_stopped
    assert did(todo(*half)) == ([], 1)
    late = [*half[:2], facts("n2", [record(0, ready=READY, spec=alone("p-0", "M", "n2"))])]
    assert did(todo(*late)) == ([], 0)
    back = [half[0], facts("n1", [record(1, "exited")]), late[2]]
    assert did(todo(*back)) == (["p-0"], 0)


def test_changed_profiles_are_reported_and_replaced_one_at_a_time():
    """Only when all is well otherwise, so that no more than one is missing."""
    now = Profile("p", "sim", replicas=2, args=("--new",))
    two = [
        facts("n0", [record(0, ready=READY, spec=alone("p-0", "L", "n0"))]),
        facts("n1", [record(0, ready=READY, spec=alone("p-1", "M", "n1"))]),
    ]
    found = decide(now, states(*two))
    assert ([r.id for r in found.changed], found.restart) == (["p-0", "p-1"], None)
    found = decide(now, states(*two), restart_changed=True)
    assert found.restart is not None
    assert found.restart.id == "p-0"
    one_starts = [two[0], facts("n1", [record(0, spec=alone("p-1", "M", "n1"))])]
    assert decide(now, states(*one_starts), restart_changed=True).restart is None


def test_a_fingerprint_is_of_what_runs():
    """Neither the number of replicas nor a key that a new version knows changes it; an argument does."""
    assert fingerprint(replace(P, replicas=9, spare_trays=2, replace_unreachable_after_s=60)) == fingerprint(P)
    assert fingerprint(replace(P, args=("x",))) != fingerprint(P)


def test_more_than_wanted_are_reported_and_left():
    other = record(0, ready=READY, spec=alone("p-7", "M", "n2"))
    found = todo(*WHOLE, facts("n2", [other]))
    assert (found.extra, did(found)) == (1, ([], 0))


# --- what lies on hosts ---------------------------------------------------------------------------------------------


def test_notes_have_an_age_by_the_hosts_own_uptime_and_none_after_a_reboot(tmp_path):
    host = make_host(tmp_path, "n0", uptime_s=1000)
    assert run_script(host, "notes.sh", "put", "backoff.p", stdin=b'{"failures": 3}').exit_code == 0
    set_uptime(host.root_prefix, 1090)
    (note,) = life(host).notes
    assert (note.name, note.text.strip(), note.age_s) == ("backoff.p", '{"failures": 3}', 90)
    snapshot = seen(replace(facts("n0"), life=ok(life(host))))
    assert back_off_of(snapshot, "p") == BackOff(3, 90)
    assert back_off_of(snapshot, "q") == BackOff()
    set_boot(host.root_prefix, "b-2")
    (note,) = life(host).notes
    assert note.age_s is None
    assert run_script(host, "notes.sh", "drop", "backoff.p", "never.was").exit_code == 0
    assert life(host).notes == ()


@pytest.mark.parametrize("name", ["../x", "", ".hidden", "a/b", "a b"])
def test_a_note_lies_where_notes_lie(tmp_path, name):
    assert run_script(make_host(tmp_path, "n0"), "notes.sh", "put", name, stdin=b"x").exit_code == 2


@pytest.mark.parametrize("text", ["", "x", "[]", '{"failures": "many"}', '{"failures": -3}', "[" * 9000])
def test_an_odd_note_is_no_back_off_and_no_replica(text):
    host = noted(facts("n0"), Note("backoff.p", text, 1.0), Note("seen.p-0.L", text, 1.0))
    assert back_off_of(seen(host), "p").failures == 0
    assert replicas(seen(host)) == ()


def test_witnesses_are_of_the_same_pool_and_none_of_its_own():
    hosts = [Host(n, pool=p, order=i) for i, (n, p) in enumerate((("a", "x"), ("b", "y"), ("c", "y"), ("d", "y")))]
    assert [h.name for h in witnesses(hosts, ["b"], "y")] == ["c", "d"]
    assert [h.name for h in witnesses(hosts, ["b", "c", "d"], "y")] == ["a"]


# --- at the command line --------------------------------------------------------------------------------------------


async def told(cli, *words):  # noqa: F811
    code, out, err = await cli("--json", "ensure", *words)
    assert out, err
    (one,) = json.loads(out)["profiles"]
    return code, one, [(a["do"], a["replica"]) for a in one["actions"]]


async def until_ready(cli, *words):  # noqa: F811
    for _ in range(60):
        code, one, actions = await told(cli, *words)
        if one["ready"] == one["wanted"]:
            return code, one, actions
        await asyncio.sleep(0.5)
    raise AssertionError(one)


async def test_it_starts_and_returns_and_the_next_run_judges(cli: Cli) -> None:  # noqa: F811
    """Dry, nothing happens; then it is started; a later run says that it serves, and ps shows it; again: nothing."""
    code, _, actions = await told(cli, "sim-small", "--dry-run")
    assert (code, actions) == (0, [("place", "sim-small-0")])
    assert (await cli.json("ps"))["replicas"] == []
    code, _, actions = await told(cli, "sim-small")
    assert (code, actions) == (0, [("place", "sim-small-0")])
    code, _, actions = await until_ready(cli, "sim-small")
    assert (code, [a for a, _ in actions]) == (0, [])
    (replica,) = (await cli.json("ps"))["replicas"]
    assert replica["state"] == "ready"
    assert (await told(cli, "sim-small"))[2] == []


async def test_two_at_once_start_no_more_than_is_wanted(cli: Cli) -> None:  # noqa: F811
    """From two workstations, which share no lock: the claims decide."""
    other = Cli(cli.rack, cli.home.with_name("other"))
    await asyncio.gather(cli("ensure", "sim-small"), other("ensure", "sim-small"))
    await asyncio.gather(cli("ensure", "sim-small"), other("ensure", "sim-small"))
    assert len((await cli.json("ps"))["replicas"]) == 1


async def test_what_dies_at_start_backs_off_and_is_shown(cli: Cli) -> None:  # noqa: F811
    """Exit 1 while it does; the last words are saved; nothing of the failed start is left."""
    cli.change("[profiles.sim-small]\n", '[profiles.sim-small]\nargs = ["--refuse", "x"]\n')
    assert (await cli("ensure", "sim-small"))[0] in (0, 1)
    code, one, actions = await told(cli, "sim-small")
    assert code == 1
    assert "back off" in [a for a, _ in actions]
    assert 0 < one["back_off_s"] <= 60
    assert (await cli.json("ps"))["replicas"] == []
    assert list((cli.home / "llmgwctl/logs").iterdir())
    assert (await told(cli, "sim-small"))[2] == [("back off", "")]


async def test_a_stop_that_was_not_finished_is_no_failed_start(cli: Cli) -> None:  # noqa: F811
    """A host did not answer the stop. ps says half stopped and how to go on; ensure ends the rest, and places."""
    assert (await cli("place", "sim-nvl"))[0] == 0
    cli.rack.set("r1-t02", "refused")
    assert (await cli("stop", "sim-nvl-0"))[0] == 3
    cli.rack.clear("r1-t02")
    while (await cli.json("ps"))["replicas"][0]["shards"][1]["state"] != "exited":
        pass
    (shown,) = (await cli.json("ps"))["replicas"]
    assert (shown["state"], shown["half_stopped"]) == ("failed", True)
    assert "`llmgwctl stop sim-nvl-0`" in shown["what_to_do"]
    text = (await cli("ps"))[1]
    assert "failed (half stopped)" in text
    assert "restart" not in text
    code, one, actions = await told(cli, "sim-nvl")
    assert (code, actions, one["back_off_s"]) == (0, [("stop", "sim-nvl-0"), ("place", "sim-nvl-0")], 0)
    assert (await until_ready(cli, "sim-nvl"))[0] == 0


async def test_what_took_the_place_of_a_half_stopped_replica_is_left_in_peace(cli: Cli) -> None:  # noqa: F811
    """Under the same name, and its leader on the same host: neither while the rest of the old one is dark, nor when
    that is ended later."""
    assert (await cli("place", "sim-nvl"))[0] == 0
    cli.rack.set("r1-t02", "refused")
    assert (await cli("stop", "sim-nvl-0"))[0] == 3
    assert (await told(cli, "sim-nvl"))[::2] == (0, [("place", "sim-nvl-0")])
    await until_ready(cli, "sim-nvl")
    (ready,) = [r for r in (await cli.json("ps"))["replicas"] if r["state"] == "ready"]
    assert [s["host"] for s in ready["shards"]] == ["r1-t01", "r1-t03"]
    assert (await told(cli, "sim-nvl"))[::2] == (0, [])
    cli.rack.clear("r1-t02")
    assert (await told(cli, "sim-nvl"))[2] == [("stop", "sim-nvl-0")]
    (left,) = (await cli.json("ps"))["replicas"]
    assert (left["state"], left["launch"]) == ("ready", ready["launch"])


async def test_a_replica_on_a_dead_host_is_not_doubled_until_the_profile_says_so(cli: Cli) -> None:  # noqa: F811
    """It is shown as unknown by what other hosts remember; when its host is back it is what it was."""
    assert (await cli("place", "sim-small"))[0] == 0
    (replica,) = (await cli.json("ps"))["replicas"]
    host = replica["shards"][0]["host"]
    cli.rack.set(host, "refused")
    (shown,) = (await cli.json("ps"))["replicas"]
    assert (shown["id"], shown["state"]) == ("sim-small-0", "unknown")
    code, _, actions = await told(cli, "sim-small")
    assert (code, actions) == (3, [("leave", "sim-small-0")])
    cli.rack.clear(host)
    assert (await told(cli, "sim-small"))[::2] == (0, [])
    assert (await cli.json("ps"))["replicas"][0]["state"] == "ready"


async def test_cron_has_nothing_to_mail_where_nothing_was_to_do(cli: Cli) -> None:  # noqa: F811
    """With -q a run is silent unless it did something or could not; without, it shows what it found."""
    code, out, _ = await cli("ensure", "-q", "sim-small")
    assert (code, "place sim-small-0" in out) == (0, True), out
    await until_ready(cli, "sim-small")
    assert await cli("ensure", "-q", "sim-small") == (0, "", "")
    assert "sim-small" in (await cli("ensure", "sim-small"))[1]
    host = (await cli.json("ps"))["replicas"][0]["shards"][0]["host"]
    cli.rack.set(host, "refused")
    code, out, _ = await cli("ensure", "-q", "sim-small")
    cli.rack.clear(host)
    assert (code, "leave sim-small-0" in out) == (3, True), out


async def test_where_most_hosts_are_dark_nothing_is_done(cli: Cli) -> None:  # noqa: F811
    for host in ("r1-t01", "r1-t02"):
        cli.rack.set(host, "refused")
    code, _, err = await cli("ensure", "sim-small")
    assert code == 3
    assert "2 of 3 hosts" in err
    assert (await cli.json("ps"))["replicas"] == []


async def test_it_counts_on_all_hosts_or_not_at_all(cli: Cli) -> None:  # noqa: F811
    """With a part of them a replica on another would be missing, and doubled."""
    for some in (("-w", "r1-t01"), ("--pool", "default")):
        code, _, err = await cli("ensure", "sim-small", *some)
        assert code == 2
        assert "neither -w nor --pool" in err


async def test_restart_takes_the_profile_as_it_is_now(cli: Cli) -> None:  # noqa: F811
    """Under its name; a profile that is gone from the inventory is an error before anything is stopped."""
    assert (await cli("place", "sim-small"))[0] == 0
    (before,) = (await cli.json("ps"))["replicas"]
    code, _, err = await cli("restart", "sim-small-0")
    assert code == 0, err
    (after,) = (await cli.json("ps"))["replicas"]
    assert (after["id"], after["state"]) == ("sim-small-0", "ready")
    assert after["launch"] != before["launch"]
    cli.change("[profiles.sim-small]", "[profiles.other]")
    assert (await cli("restart", "sim-small-0"))[0] == 2
    assert (await cli.json("ps"))["replicas"][0]["state"] == "ready"
    assert (await cli("restart", "nope-0"))[0] == 2


async def test_restart_changed_replaces_what_runs_with_another_profile(cli: Cli) -> None:  # noqa: F811
    assert (await cli("place", "sim-small"))[0] == 0
    cli.change("[profiles.sim-small]\n", '[profiles.sim-small]\nargs = ["--nccl", "tcp"]\n')
    _, one, actions = await told(cli, "sim-small")
    assert (one["changed"], actions) == (["sim-small-0"], [])
    _, _, actions = await told(cli, "sim-small", "--restart-changed")
    assert actions == [("stop", "sim-small-0"), ("place", "sim-small-0")]
    assert (await until_ready(cli, "sim-small"))[1]["changed"] == []


async def test_a_start_that_was_undone_is_not_remembered(cli: Cli) -> None:  # noqa: F811
    """Else it would come back as unknown when one of its hosts is away."""
    cli.change("[profiles.sim-small]\n", '[profiles.sim-small]\nargs = ["--refuse", "x"]\n')
    assert (await cli("place", "sim-small"))[0] == 1
    cli.rack.set("r1-t01", "refused")
    assert (await cli.json("ps"))["replicas"] == []
