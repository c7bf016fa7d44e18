"""A shard ends, with the real scripts: by itself, when told, verified, by identity, and without a trace."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from local_hosts import (
    claim_words,
    clean,
    command,
    directory,
    ended,
    environ,
    kill_tree,
    life,
    make_host,
    of_tree,
    prepared,
    record,
    run_script,
    set_boot,
    sh,
    started,
    status,
    stop,
    until,
    words,
)

from llmgwctl.engines.base import Command
from llmgwctl.model.profile import Profile
from llmgwctl.transport.base import Script

ALIVE = 12
REFUSED = 13
GONE = 14


@pytest.fixture
def host(tmp_path):
    yield make_host(tmp_path, "n1")
    kill_tree(tmp_path)


# --- ends -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 7, 137])
def test_any_exit_of_the_command_ends_the_shard_with_its_code(host, code):
    """Exit code 0 is an end like any other; the probe and the status say so."""
    p = started(host, sh("main", f"echo last words; exit {code}"))
    assert ended(p)["name"] == "main"
    assert ended(p)["code"] == str(code)
    said = status(p, wait=10).stdout
    assert f"exit code={code}" in said
    until(lambda: not record(host).supervisor_alive)
    assert dict(record(host).ended)["code"] == str(code)
    assert record(host).processes[0].exit_code == code


def test_a_killed_command_is_recorded_with_its_signal(host):
    """SIGKILL from outside reads 137."""
    p = started(host, sh("main", "exec sleep 300"))
    until(lambda: record(host).processes[0].state == "running")
    os.kill(record(host).processes[0].pid, 9)
    assert ended(p)["code"] == "137"


def test_a_dead_sidecar_ends_the_others(host, tmp_path):
    """Every command is watched: when the first of two dies, the second is ended too."""
    p = started(host, sh("head", "sleep 0.5; exit 3"), sh("server", "exec sleep 300"))
    assert (ended(p)["name"], ended(p)["code"]) == ("head", "3")
    until(lambda: not of_tree(tmp_path))
    states = {x.name: (x.state, x.exit_code) for x in record(host).processes}
    assert states == {"head": ("exited", 3), "server": ("exited", 143)}


def test_what_ignores_term_and_what_left_the_session_is_killed_too(host, tmp_path):
    """After the grace time everything that carries the marker goes, wherever it has fled."""
    text = "trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep 301' & setsid nohup sleep 302 & sleep 0.5; exit 9"
    p = started(host, sh("main", text), profile=Profile("p", "fake", stop_grace_s=1))
    assert ended(p)["code"] == "9"
    until(lambda: not of_tree(tmp_path))


def test_a_command_that_does_not_exist_is_an_exit(host):
    """127, with the words of whoever could not start it."""
    p = started(host, Command("main", ("no-such-program-here", "x")))
    assert ended(p)["code"] == "127"
    until(lambda: "no-such-program-here" in (directory(p) / "cmd.0/log").read_text())


def test_a_directory_that_is_taken_away_ends_the_shard(host, tmp_path):
    """rm -rf of the state directory leaves no process that nobody can name."""
    p = started(host, sh("main", "exec sleep 300"))
    until(lambda: record(host).processes[0].state == "running")
    subprocess.run(["rm", "-rf", str(directory(p))], check=True)
    until(lambda: not of_tree(tmp_path))


def test_a_supervisor_that_is_told_to_end_ends_its_shard(host, tmp_path):
    """At logout or shutdown somebody sends TERM to all: the shard ends and says why."""
    p = started(host, sh("main", "exec sleep 300"))
    until(lambda: record(host).processes[0].state == "running")
    os.kill(int((directory(p) / "pids").read_text().split()[1]), 15)
    assert ended(p)["name"] == "supervisor"
    until(lambda: not of_tree(tmp_path))


def test_a_killed_supervisor_is_seen(host):
    """The engine runs on unwatched: the probe says that the supervisor is gone and that processes live."""
    p = started(host, sh("main", "exec sleep 300"))
    until(lambda: record(host).processes[0].state == "running")
    os.kill(int((directory(p) / "pids").read_text().split()[1]), 9)
    until(lambda: not record(host).supervisor_alive)
    assert record(host).carried
    assert "supervisor gone" in status(p).stdout
    assert stop(p).exit_code == 0
    assert not record(host).carried


# --- stop and clean -------------------------------------------------------------------------------------------------


def test_stop_ends_everything_and_clean_takes_the_traces(host, tmp_path):
    """Also what fled; afterwards there is no process, no directory and no claim. Again and again: no harm."""
    p = started(host, sh("main", "setsid sleep 301 & setsid nohup sleep 302 & wait"))
    until(lambda: len(of_tree(tmp_path)) >= 5)
    assert clean(p).exit_code == ALIVE
    for _ in range(2):
        assert stop(p, grace=1).exit_code == 0
        assert not of_tree(tmp_path)
    for _ in range(2):
        assert clean(p).exit_code == 0
        assert stop(p).exit_code == 0
    assert not directory(p).exists()
    assert life(host).claims == life(host).shards == ()


def test_what_nobody_listens_to_is_cleaned_to_its_end(host):
    """The link is lost, or llmgwctl was killed: every claim is given back all the same."""
    p = started(host, sh("main", "exec sleep 300"), gpus=4)
    assert stop(p).exit_code == 0
    argv, data = command(Script("shard.sh", (host.root_prefix, host.state_dir, "clean", *words(p))))
    ear, mouth = os.pipe()
    os.close(ear)
    subprocess.run(argv, input=data, stdout=mouth, stderr=mouth, check=False)
    os.close(mouth)
    assert life(host).claims == life(host).shards == ()


def test_stop_asks_the_last_command_first_and_kills_what_ignores_it(host, tmp_path):
    """The order is the engine's; within the grace time, not after each command anew."""
    deaf = "trap '' TERM; echo deaf; while :; do sleep 300; done"
    p = started(host, sh("head", "exec sleep 300"), sh("server", deaf))
    until(lambda: [x.state for x in record(host).processes] == ["running"] * 2)
    until(lambda: (directory(p) / "cmd.1/log").read_text() == "deaf\n")
    said = stop(p, grace=2)
    assert said.exit_code == 0
    asked = [line.split("\t")[1] for line in said.stdout.splitlines() if line.startswith("asked")]
    assert asked == ["server", "head"]
    assert "killed" in said.stdout
    assert not of_tree(tmp_path)


def test_an_orderly_stop_is_not_recorded_as_a_failure(host):
    """The supervisor lets the stop end its commands and records how each went."""
    p = started(host, sh("main", "exec sleep 300"))
    until(lambda: record(host).processes[0].state == "running")
    stop(p)
    assert record(host).stopping
    assert record(host).ended == ()
    assert record(host).processes[0].exit_code == 143


def test_a_process_that_lost_its_environment_is_found_by_its_session(host):
    """Programs may overwrite what /proc shows of their environment; the session still names them."""
    p = started(host, sh("main", "env -i sleep 303 & echo $!; exec sleep 300"))
    log = directory(p) / "cmd.0/log"
    until(lambda: log.exists() and log.read_text().endswith("\n"))
    lost = int(log.read_text())
    until(lambda: Path(f"/proc/{lost}/comm").read_text() == "sleep\n")
    assert not environ(lost)
    assert stop(p, grace=1).exit_code == 0
    until(lambda: not Path(f"/proc/{lost}/cmdline").exists() or not Path(f"/proc/{lost}/cmdline").read_bytes())


def test_stop_touches_nothing_of_another_launch(host):
    """A marker is compared whole: neither a longer launch id nor another rank is ours."""
    a = started(host, sh("main", "exec sleep 300"))
    other = subprocess.Popen(["sleep", "300"], env={**os.environ, "LLMGWCTL_SHARD": f"p-0.r0.{a.launch.id}x"})
    try:
        assert stop(a).exit_code == 0
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_reused_pid_is_never_signalled(host):
    """The record's start time differs: whoever has that pid now is left alone."""
    p = started(host, sh("main", "exec sleep 300"))
    until(lambda: record(host).processes[0].state == "running")
    stop(p)
    bystander = subprocess.Popen(["sleep", "300"])
    pids = directory(p) / "pids"
    supervisor = pids.read_text().splitlines()[0]
    pids.write_text(f"{supervisor}\n0 main {bystander.pid} 12345\n")
    assert stop(p, grace=1).exit_code == 0
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


def test_a_shard_of_another_boot_is_only_cleaned(host):
    """After a reboot its pids mean nothing: no signal is sent, its directory goes."""
    p = started(host, sh("main", "exec sleep 300"))
    until(lambda: record(host).processes[0].state == "running")
    stop(p)
    bystander = subprocess.Popen(["sleep", "300"])
    begun = Path(f"/proc/{bystander.pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    (directory(p) / "pids").write_text(f"0 main {bystander.pid} {begun}\n")
    set_boot(host.root_prefix, "b-2")
    assert not record(host).boot_matches
    assert "another-boot" in stop(p, grace=1).stdout
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()
    assert clean(p).exit_code == 0
    assert life(host).shards == ()


def test_a_newer_schema_is_never_touched(host):
    """What a newer llmgwctl wrote is shown, and neither stopped nor removed nor replaced."""
    p = started(host, sh("main", "exec sleep 300"))
    until(lambda: record(host).processes[0].state == "running")
    spec = directory(p) / "spec.json"
    spec.write_text(spec.read_text().replace("llmgwctl.shard/v1", "llmgwctl.shard/v2"))
    assert stop(p).exit_code == clean(p).exit_code == REFUSED
    assert record(host).spec["schema"] == "llmgwctl.shard/v2"
    assert record(host).processes[0].state == "running"


def test_a_start_after_a_stop_is_refused(host, tmp_path):
    """A start that was under way when somebody stopped the replica comes too late."""
    p = prepared([host], sh("main", "exec sleep 300"))[0]
    run_script(host, "claims.sh", "claim", *claim_words(p))
    assert stop(p).exit_code == 0
    assert run_script(host, "shard.sh", "start", *words(p), *p.keys, stdin=p.payload).exit_code == GONE
    assert not of_tree(tmp_path)


def test_processes_without_a_directory_are_named_and_can_be_stopped(host, tmp_path):
    """An orphan of ours is a shard without a directory: ps shows it and stop finds it by its marker."""
    p = started(host, sh("main", "exec sleep 300"))
    until(lambda: record(host).processes[0].state == "running")
    os.kill(int((directory(p) / "pids").read_text().split()[1]), 9)
    subprocess.run(["rm", "-rf", str(directory(p))], check=True)
    found = record(host)
    assert (found.replica, found.rank, found.launch, found.directory) == ("p-0", 0, p.launch.id, "")
    assert stop(p).exit_code == 0
    assert not of_tree(tmp_path)


def test_a_claim_that_a_stop_has_marked_says_so(host):
    """Nothing of it starts any more: what is left when its stop does not come to its end is no start."""
    p = prepared([host], sh("main", "exec sleep 300"))[0]
    run_script(host, "claims.sh", "claim", *claim_words(p))
    assert {c.stopping for c in life(host).claims} == {False}
    assert stop(p).exit_code == 0
    assert {c.stopping for c in life(host).claims} == {True}


def test_a_half_written_directory_is_named(host):
    """A start that was killed midway leaves something that is shown and cleaned, and is no shard."""
    p = prepared([host], sh("main", "exec sleep 300"))[0]
    half = Path(host.state_dir, "n1", f".new.p-0.r0.{p.launch.id}")
    half.mkdir(parents=True, mode=0o700)
    Path(host.state_dir).chmod(0o700)
    half.parent.chmod(0o700)
    assert life(host).unreadable == (str(half),)
    assert clean(p).exit_code == 0
    assert life(host).unreadable == ()


def test_claims_come_back_when_something_removed_them(host):
    """Some systems empty /dev/shm when an account's last login ends: the supervisor writes its claims again."""
    p = started(host, sh("main", "exec sleep 300"))
    until(lambda: record(host).processes[0].state == "running")
    for path in Path(host.root_prefix, "run/lock/llmgwctl").glob("gpu-*"):
        path.unlink()
    assert life(host).claims == ()
    until(lambda: len(life(host).claims) == 1, limit_s=20)
    (claim,) = life(host).claims
    assert claim.alive
    assert claim.launch == p.launch.id


@pytest.mark.parametrize("end", ["stop", "death", "reboot"])
def test_what_outlives_processes_is_taken_away(host, tmp_path, end):
    """The engine's own command for that runs when the processes are gone, with the shard's environment."""
    left = tmp_path / "left"
    after = ("sh", "-c", f'test "$ODD" = yes && rmdir {left}')
    main = Command("main", ("sh", "-c", f"mkdir {left}; exec sleep 300"), after=after)
    p = started(host, main, profile=Profile("p", "fake", env=(("ODD", "yes"),)))
    until(left.exists)
    if end == "death":
        os.kill(record(host).processes[0].pid, 9)
    else:
        assert stop(p).exit_code == 0
    if end == "reboot":
        left.mkdir()
        set_boot(host.root_prefix, "b-2")
        assert clean(p).exit_code == 0
    until(lambda: not left.exists())


def test_the_end_of_a_launch_ends_nothing_of_a_later_one_of_that_name(host):
    """Its host was silent when it was replaced: `stop` and `clean` of the old launch find the directory of the new."""
    p = started(host, sh("main", "sleep 300"))
    until(lambda: [x.state for x in record(host).processes] == ["running"])
    replica, rank, launch = words(p)
    for verb in (
        ("stop", replica, rank, "20200101T000000-00000000", "KILL", "0"),
        ("clean", replica, rank, "20200101T0-0"),
    ):
        said = run_script(host, "shard.sh", *verb)
        assert (said.exit_code, said.stdout) == (0, "")
    assert [x.state for x in record(host).processes] == ["running"]
    assert record(host).supervisor_alive
    assert not record(host).stopping
    assert (record(host).launch, directory(p).is_dir()) == (launch, True)
