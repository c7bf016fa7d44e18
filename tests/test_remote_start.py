"""A shard starts, with the real scripts: detached, private, with exactly its environment, and only where it may."""

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
    ended,
    engine,
    environ,
    kill_tree,
    make_host,
    of_tree,
    prepared,
    record,
    run_script,
    sh,
    started,
    stop,
    until,
    words,
)

import llmgwctl.remote
from llmgwctl.engines.base import Build, Command, Wait
from llmgwctl.model.profile import Profile
from llmgwctl.remote import script_text

ALIVE = 12
REFUSED = 13
GONE = 14


@pytest.fixture
def host(tmp_path):
    yield make_host(tmp_path, "n1")
    kill_tree(tmp_path)


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
    until(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n")
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


# --- logs -----------------------------------------------------------------------------------------------------------


def test_a_log_keeps_its_beginning_and_its_newest_part(host):
    """However much is printed: bounded, with the first words and the last ones."""
    text = "echo first words; i=0; while [ $i -lt 3000 ]; do echo line $i of many; i=$((i+1)); done; echo last words"
    p = started(host, sh("main", text), log_bytes=4096)
    ended(p)
    until(lambda: not record(host).supervisor_alive)
    kept = sorted((directory(p) / "cmd.0").glob("log*"), key=lambda k: int(k.suffix[1:] or 0))
    assert len(kept) == 3
    assert [int(k.suffix[1:] or 0) + 1 for k in kept[1:]] == [int(kept[2].suffix[1:]), int(kept[2].suffix[1:]) + 1]
    assert kept[0].read_text().startswith("first words\n")
    assert "".join(k.read_text() for k in kept).endswith("line 2999 of many\nlast words\n")
    assert all(k.stat().st_size <= 4096 for k in kept)
    assert record(host).log_bytes == sum(k.stat().st_size for k in kept)


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
    assert said.count("\ns3cret ") == 4  # the clock of the host, both commands, the supervisor
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
