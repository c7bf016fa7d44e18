"""A shard on a host, with the real scripts: started detached, watched, ended by identity, cleaned."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
from local_hosts import (
    SHELL,
    claim_and_start,
    claim_words,
    directory,
    engine,
    kill_tree,
    life,
    make_host,
    of_tree,
    prepared,
    run_script,
    set_boot,
    sh,
    until,
    words,
)

import llmgwctl.remote
from llmgwctl.engines.base import Build, Command, Wait
from llmgwctl.model.profile import Profile
from llmgwctl.remote import script_text

LEFT, ALIVE, REFUSED, GONE = 11, 12, 13, 14


@pytest.fixture
def host(tmp_path):
    yield make_host(tmp_path, "n1")
    kill_tree(tmp_path)


def started(host, *commands, env=None, **kwargs):
    p = prepared([host], *commands, **kwargs)[0]
    said = claim_and_start(p, env)
    assert said.exit_code == 0, said
    return p


def status(p, wait=0):
    return run_script(p.host, "shard.sh", "status", *words(p), str(wait))


def stop(p, signal="TERM", grace=5):
    return run_script(p.host, "shard.sh", "stop", *words(p), signal, str(grace))


def clean(p):
    return run_script(p.host, "shard.sh", "clean", *words(p))


def ended(p):
    """What the shard recorded of its end; waits for it."""
    path = directory(p) / "exit"
    until(path.exists)
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


def record(host):
    (found,) = life(host).shards
    return found


def environ(pid):
    return dict(x.split("=", 1) for x in Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0") if "=" in x)


# --- start ----------------------------------------------------------------------------------------------------------


def test_a_shard_runs_detached_and_is_seen(host):
    """Its own session, no descriptor of the login, in its directory; the probe names its processes and its spec."""
    p = started(host, sh("main", "exec sleep 300"))
    until(lambda: record(host).processes[0].state == "running")
    found = record(host)
    assert (found.replica, found.rank, found.launch) == ("p-0", 0, p.launch.id)
    assert found.supervisor_alive
    assert [(x.name, x.state) for x in found.processes] == [("main", "running")]
    pid = found.processes[0].pid
    assert os.getsid(pid) != os.getsid(0)
    assert Path(f"/proc/{pid}/cwd").resolve() == directory(p).resolve()
    assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"
    assert sorted(os.listdir(f"/proc/{pid}/fd")) == ["0", "1", "2"]


def test_files_of_a_shard_are_private(host):
    """The directory is 0700 and every file 0600, whatever the account's umask is."""
    p = started(host, sh("main", "exec sleep 300"))
    assert directory(p).stat().st_mode & 0o777 == 0o700
    assert {f.stat().st_mode & 0o177 for f in directory(p).rglob("*") if f.is_file()} == {0}


def test_the_environment_is_exactly_what_was_prepared(host):
    """Inherited variables of the named families are gone, ours are there byte for byte, the rest is the login's own."""
    odd = "a b  'c' \"d\" $HOME `id` \\n =x; é "
    profile = Profile("p", "fake", env=(("NCCL_PROTO", "LL"), ("ODD", odd), ("EMPTY", "")))
    inherited = {"NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple", "RANK": "3", "RANKED": "stays", "LC_ALL": "C.UTF-8"}
    started(host, sh("main", "exec sleep 300"), env=inherited, profile=profile)
    until(lambda: record(host).processes[0].state == "running")
    pid = record(host).processes[0].pid
    until(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n")
    env = environ(pid)
    assert {k for k in env if k.startswith("NCCL_")} == {"NCCL_PROTO"}
    assert (env["NCCL_PROTO"], env["ODD"], env["EMPTY"]) == ("LL", odd, "")
    assert "RANK" not in env
    assert (env["RANKED"], env["LC_ALL"]) == ("stays", "C.UTF-8")
    assert env["LLMGWCTL_SHARD"].startswith("p-0.r0.t-")
    assert env["SPT_NOENV"] == "1"
    assert env["PATH"] == os.environ["PATH"]
    assert "LLMGWCTL_SUPERVISOR" not in env


def test_arguments_reach_the_program_as_they_are(host):
    """No shell looks at them: blanks, quotes, globs, an empty word and what looks like a variable."""
    odd = ("a b", "", "*", "$HOME", "`id`", "-n", "'", '"', "\\", "é", "x=y")
    p = started(host, Command("main", ("python3", "-c", "import sys; print(sys.argv[1:])", *odd)))
    until((directory(p) / "exit").exists)
    until(lambda: (directory(p) / "cmd.0/log").read_text() == f"{list(odd)!r}\n")


def test_a_source_file_comes_before_our_variables(host, tmp_path):
    """What the engine's file sets is there, bash words in it are understood, and ours win."""
    source = tmp_path / "it's env.sh"
    source.write_text("arr=(1 2); export FROM_FILE=${arr[1]} CUDA_VISIBLE_DEVICES=7; cd /; set -eu\n")
    text = "echo $FROM_FILE $CUDA_VISIBLE_DEVICES $PWD"
    p = started(host, sh("main", text), builds={"n1": Build(source=str(source))}, gpus=2)
    ended(p)
    until(lambda: (directory(p) / "cmd.0/log").read_text() == f"2 0,1 {directory(p)}\n")


def test_limits_are_raised(host):
    """Open files and locked memory to the hard limit, the stack 8 MiB."""
    p = started(host, sh("main", "ulimit -S -n; ulimit -H -n; ulimit -S -l; ulimit -H -l; ulimit -S -s"))
    ended(p)
    until(lambda: len((directory(p) / "cmd.0/log").read_text().split()) == 5)
    n, hard_n, memlock, hard_memlock, stack = (directory(p) / "cmd.0/log").read_text().split()
    assert (n, memlock, stack) == (hard_n, hard_memlock, "8192")


def test_interrupts_are_not_ignored(host):
    """A shell lets its background children ignore INT: an engine that stops by INT would never stop."""
    p = started(host, Command("main", ("python3", "-c", "import signal,time; print(1, flush=True); time.sleep(300)")))
    until(lambda: (directory(p) / "cmd.0/log").exists() and (directory(p) / "cmd.0/log").read_text())
    assert "asked" in stop(p, signal="INT").stdout
    until((directory(p) / "cmd.0/exit").exists)
    # Python says KeyboardInterrupt and then dies by it.
    assert "code=130" in (directory(p) / "cmd.0/exit").read_text()


def test_half_a_payload_starts_nothing(host, tmp_path):
    """The link died while the files were sent: no directory, no process."""
    p = prepared([host], sh("main", "exec sleep 300"))[0]
    run_script(host, "claims.sh", "claim", *claim_words(p))
    for cut in (10, len(p.payload) // 2, len(p.payload) - 4):
        said = run_script(host, "shard.sh", "start", *words(p), *p.keys, stdin=p.payload[:cut])
        assert said.exit_code == 1
    assert not of_tree(tmp_path)
    assert not list(Path(host.state_dir, "n1").iterdir())


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a b", "cmd.0/../../x"])
def test_a_payload_cannot_leave_the_directory(host, name):
    """A name with a way out of the shard's directory is refused."""
    p = prepared([host], sh("main", "exec sleep 300"))[0]
    run_script(host, "claims.sh", "claim", *claim_words(p))
    evil = b"file %s 1\nx" % name.encode() + p.payload
    assert run_script(host, "shard.sh", "start", *words(p), *p.keys, stdin=evil).exit_code == 1


def test_a_start_without_its_claim_is_refused(host, tmp_path):
    """Nothing runs on a GPU that nobody claimed."""
    p = prepared([host], sh("main", "exec sleep 300"))[0]
    said = run_script(host, "shard.sh", "start", *words(p), *p.keys, stdin=p.payload)
    assert said.exit_code == GONE
    assert not of_tree(tmp_path)


@pytest.mark.parametrize("part", ["", "n1", "n1/p-0.r0"])
def test_a_link_in_the_place_of_a_directory_is_refused(host, tmp_path, part):
    """In a shared state directory a stranger may have put a link: nothing is written where it points."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    path = Path(host.state_dir, part)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.symlink_to(elsewhere)
    p = prepared([host], sh("main", "exec sleep 300"))[0]
    said = claim_and_start(p)
    assert said.exit_code == REFUSED, said
    assert not list(elsewhere.iterdir())


def test_a_directory_that_others_may_write_is_refused(host):
    """Somebody else could change what we run."""
    Path(host.state_dir).mkdir()
    Path(host.state_dir).chmod(0o770)
    assert claim_and_start(prepared([host], sh("main", "exec sleep 300"))[0]).exit_code == REFUSED


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second account")
def test_a_directory_of_another_account_is_refused(host):
    """State that somebody else owns is not ours to fill."""
    Path(host.state_dir).mkdir(mode=0o700)
    os.chown(host.state_dir, 65534, 65534)
    assert claim_and_start(prepared([host], sh("main", "exec sleep 300"))[0]).exit_code == REFUSED


def test_a_live_launch_of_that_name_does_not_make_way_and_a_dead_one_does(host):
    """The same replica twice on one host: refused while it runs, replaced when it has ended."""
    first = started(host, sh("main", "exec sleep 300"))
    second = prepared([host], sh("main", "exec sleep 300"), gpus=2)[0]
    object.__setattr__(second, "keys", ("gpu-other",))
    assert claim_and_start(second).exit_code == ALIVE
    assert record(host).launch == first.launch.id
    stop(first)
    assert run_script(host, "shard.sh", "start", *words(second), *second.keys, stdin=second.payload).exit_code == 0
    assert record(host).launch == second.launch.id


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


# --- waits ----------------------------------------------------------------------------------------------------------


def test_a_command_with_waits_starts_when_it_is_let_go_and_in_order(host):
    """Neither it nor what comes after it starts before."""
    p = started(
        host,
        sh("head", "exec sleep 300"),
        sh("server", "exec sleep 300", Wait("127.0.0.1", 1)),
        sh("last", "sleep 300"),
    )
    until(lambda: record(host).processes[0].state == "running")
    time.sleep(0.6)
    assert [x.state for x in record(host).processes] == ["running", "waiting", "waiting"]
    assert run_script(host, "shard.sh", "go", *words(p), "1").exit_code == 0
    until(lambda: [x.state for x in record(host).processes] == ["running"] * 3)


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


def test_stop_asks_the_last_command_first_and_kills_what_ignores_it(host, tmp_path):
    """The order is the engine's; within the grace time, not after each command anew."""
    deaf = "trap '' TERM; while :; do sleep 300; done"
    p = started(host, sh("head", "exec sleep 300"), sh("server", deaf))
    until(lambda: [x.state for x in record(host).processes] == ["running"] * 2)
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
    p = started(host, sh("main", "env -i sleep 303 & exec sleep 300"))
    until(lambda: record(host).processes[0].state == "running")
    lost = int(subprocess.run(["pgrep", "-f", "^sleep 303"], capture_output=True, text=True, check=True).stdout)
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


# --- logs -----------------------------------------------------------------------------------------------------------


def test_a_log_keeps_its_beginning_and_its_newest_part(host):
    """However much is printed: bounded, with the first words and the last ones."""
    text = "echo first words; i=0; while [ $i -lt 3000 ]; do echo line $i of many; i=$((i+1)); done; echo last words"
    p = started(host, sh("main", text), log_bytes=4096)
    ended(p)
    until(lambda: not record(host).supervisor_alive)
    kept = [directory(p) / "cmd.0" / name for name in ("log", "log.old", "log.new")]
    assert kept[0].read_text().startswith("first words\n")
    assert "".join(k.read_text() for k in kept if k.exists()).endswith("line 2999 of many\nlast words\n")
    assert all(k.stat().st_size <= 4096 for k in kept if k.exists())
    assert record(host).log_bytes == sum(k.stat().st_size for k in kept if k.exists())


def test_each_line_is_there_at_once(host):
    """Nothing waits for a full buffer: the last words before a hang are seen."""
    p = started(host, sh("main", "echo alive; exec sleep 300"))
    until(lambda: (directory(p) / "cmd.0/log").exists() and (directory(p) / "cmd.0/log").read_text() == "alive\n")


def test_logs_are_framed_by_the_callers_word(host):
    """Whatever a log holds, it cannot pass for another command's."""
    p = started(
        host, sh("one", "printf 'x\\nNONCE two 5\\nfake'; exec sleep 300"), sh("two", "echo real; exec sleep 300")
    )
    until(lambda: all((directory(p) / f"cmd.{i}/log").exists() for i in (0, 1)))
    until(lambda: "real" in (directory(p) / "cmd.1/log").read_text())
    said = run_script(host, "logs.sh", "tail", *words(p), "s3cret", "1000").stdout
    assert said.count("\ns3cret ") == 3
    assert "\ns3cret two 5\nreal\n" in said


# --- the files ------------------------------------------------------------------------------------------------------


def test_the_engine_cannot_bring_a_file_that_is_ours(host):
    """Names of the scripts' own files are refused before anything is sent."""
    from llmgwctl.model.errors import InventoryError

    for name in ("spec.json", "env", "pids", "../x", "cmd.0", "claim.x", ".hidden"):
        with pytest.raises(InventoryError):
            prepared([host], using=engine(sh("main", "true"), files={name: "x"}))


@pytest.mark.parametrize("script", ["claims.sh", "shard.sh", "supervisor.sh", "command.sh", "logs.sh", "ask.sh"])
def test_scripts_are_posix_sh(script, tmp_path):
    """shellcheck has no word to say, and every shell here parses the text as it is sent."""
    whole = tmp_path / script
    whole.write_text(script_text(script))
    for shell in ("dash", "bash", SHELL):
        assert subprocess.run([shell, "-n", str(whole)], check=False).returncode == 0
    here = Path(llmgwctl.remote.__file__).parent
    said = subprocess.run(["shellcheck", "-x", script], cwd=here, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout


def test_the_probe_and_the_scripts_judge_alike():
    """The lines by which a process is known are the same in the probe, which cannot include the library."""
    from llmgwctl.probe.base import script_text as probe_text

    lib, probe = script_text("lib.sh"), probe_text("life.sh")
    part = lib[lib.index("# Sets p_state") : lib.index("# NAME=VALUE")]
    quiet = "    # shellcheck disable=SC2034 # the same lines stand in remote/lib.sh\n"
    assert part.strip() in probe.replace(quiet, "")
