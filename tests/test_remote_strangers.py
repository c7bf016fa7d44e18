"""Other accounts of a host: what they put where everybody may write is never written through, waited for, or obeyed."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import tempfile
from importlib.resources import files
from pathlib import Path

import pytest
from local_hosts import (
    BOOT,
    SHELL,
    claim_and_start,
    claim_words,
    clean,
    command,
    directory,
    kill_tree,
    life,
    make_host,
    of_tree,
    prepared,
    run_script,
    sh,
    started,
    stop,
    until,
    words,
)

from llmgwctl.model.life import HostLife
from llmgwctl.probe.base import Output
from llmgwctl.probe.base import script_text as probe_script
from llmgwctl.probe.life import LIMIT, PROBE
from llmgwctl.remote import script_text
from llmgwctl.transport.base import Script

HELD, REFUSED = 10, 13
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs a second account")


@pytest.fixture
def host(tmp_path):
    yield make_host(tmp_path, "n1")
    kill_tree(tmp_path)


@pytest.fixture
def shared():
    """A host whose tree another account may enter."""
    with tempfile.TemporaryDirectory() as base:
        Path(base).chmod(0o711)
        host = make_host(Path(base), "n1")
        for place in ("run/lock", "dev/shm"):
            Path(host.root_prefix, place).chmod(0o1777)
        yield host
        kill_tree(Path(base))


def shard(host, replica="p-0", gpus=2, **kwargs):
    return prepared([host], sh("main", "exec sleep 300"), replica=replica, gpus=gpus, **kwargs)[0]


def claim(p):
    return run_script(p.host, "claims.sh", "claim", *claim_words(p))


def first(host) -> Path:
    return Path(host.root_prefix, "run/lock/llmgwctl")


def second(host) -> Path:
    return Path(host.root_prefix, "dev/shm/llmgwctl")


def sticky(path: Path) -> Path:
    path.mkdir()
    path.chmod(0o1777)
    return path


NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


def as_nobody(argv, **more):
    return subprocess.run([*NOBODY, *argv], capture_output=True, check=False, **more)


def nobody_claims(p):
    argv, data = command(Script("claims.sh", (p.host.root_prefix, p.host.state_dir, "claim", *claim_words(p))))
    return as_nobody(argv, input=data)


# --- nothing of ours is written through their links ----------------------------------------------------------------


@pytest.mark.parametrize(("script", "verb"), [("claims.sh", "claim"), ("cordon.sh", "set")])
def test_a_name_that_can_be_guessed_is_not_written(host, tmp_path, script, verb):
    """Links under the names that a number of a process gives lie there: no file of ours changes, nor its mode."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    victim.chmod(0o600)
    place = sticky(first(host))
    args = claim_words(shard(host)) if verb == "claim" else ("ann", "now", "-", "-")
    text = script_text(script).encode()
    lay = f'for n in .new .cordon; do ln -s "{victim}" "{place}/$n.$$"; done; exec "$@"'
    words = [SHELL, "-c", BOOT, "llmgwctl", str(len(text)), host.root_prefix, host.state_dir, verb, *args]
    done = subprocess.run(["sh", "-c", lay, "sh", *words], input=text + b"why", capture_output=True, check=False)
    assert done.returncode == 0, done
    assert (victim.read_text(), victim.stat().st_mode & 0o777) == ("mine", 0o600)


@pytest.mark.parametrize("kind", ["link", "hard link"])
@pytest.mark.parametrize("end", ["stop", "by itself"])
def test_a_claim_that_became_something_else_is_not_appended_to(host, tmp_path, kind, end):
    """Whoever made the directory may put a link in the place of a claim: marks and ends go nowhere then."""
    p = started(host, sh("main", f"until [ -e {tmp_path}/now ]; do sleep 0.1; done"))
    (file,) = first(host).glob("gpu-*")
    victim = tmp_path / "victim"
    victim.write_text(file.read_text())
    file.unlink()
    if kind == "link":
        file.symlink_to(victim)
    else:
        file.hardlink_to(victim)
    before = victim.read_text()
    if end == "stop":
        assert stop(p).exit_code == 0
    (tmp_path / "now").touch()
    until(lambda: not of_tree(tmp_path))
    assert victim.read_text() == before


def test_a_copy_of_a_claim_holds_nothing_else(host, tmp_path):
    """A claim is copied to come back when it is removed; what a link in its place shows is not."""
    p = shard(host, gpus=1)
    assert claim(p).exit_code == 0
    (file,) = first(host).glob("gpu-*")
    file.write_text(file.read_text() + "-----BEGIN KEY-----\nsecret\nproc=1:\x1b[2J\n")
    assert claim_and_start(p).exit_code == 0
    (copy,) = directory(p).glob("claim.*")
    assert "secret" not in copy.read_text()
    assert "KEY" not in copy.read_text()
    assert "\x1b" not in copy.read_text()
    assert f"launch={p.launch.id}" in copy.read_text()
    stop(p)


# --- claims are not hidden -----------------------------------------------------------------------------------------


@root_only
def test_a_spoilt_directory_is_refused_and_not_passed_over(shared):
    """Its owner took the right to write away: another account does not claim the same GPU in another place."""
    assert claim(shard(shared)).exit_code == 0
    first(shared).chmod(0o755)
    done = nobody_claims(shard(shared, "q-0"))
    assert done.returncode == REFUSED
    assert b"is not mode 1777" in done.stderr
    assert not second(shared).exists()


def test_claims_in_both_places_count(host):
    """A GPU was claimed in /dev/shm before there was a directory in /run/lock."""
    old = shard(host)
    sticky(second(host))
    assert claim(old).exit_code == 0
    sticky(first(host))
    Path(host.root_prefix, "run/lock/llmgwctl/claims.lock").touch()
    said = claim(shard(host, "q-0"))
    assert said.exit_code == HELD
    assert "p-0" in said.stdout
    assert run_script(host, "claims.sh", "release", *words(old)).stdout.count("released") == 2
    assert life(host).claims == ()


def test_a_spoilt_second_place_is_refused_too(host):
    """What lies in it cannot be told."""
    sticky(first(host))
    second(host).mkdir(mode=0o755)
    assert claim(shard(host)).exit_code == REFUSED


@root_only
def test_a_claim_of_another_account_with_our_launch_is_none_of_ours(shared):
    """Whoever knows the launch's id may write it anywhere."""
    p = shard(shared, gpus=1)
    assert nobody_claims(p).returncode == 0
    assert claim(p).exit_code == HELD


# --- nor a stop held up --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trick", ["held", "pipe", "link", "mode"])
def test_a_stop_ends_what_runs_whatever_lies_beside_the_claims(host, tmp_path, trick):
    """Lock held, lock a pipe or a link, directory spoilt: all processes end, and it is said what could not be done."""
    p = started(host, sh("main", "exec sleep 300"))
    lock = first(host) / "claims.lock"
    with lock.open() as held:
        if trick == "held":
            fcntl.flock(held, fcntl.LOCK_EX)
        elif trick == "mode":
            first(host).chmod(0o755)
        else:
            lock.unlink()
            os.mkfifo(lock) if trick == "pipe" else lock.symlink_to(tmp_path / "x")
        said = stop(p)
        assert said.exit_code == 0, said
        assert "blocked\t" in said.stdout
        assert trick != "held" or f"was not free for 5 s: held by pid {os.getpid()} (" in said.stdout
        assert not of_tree(tmp_path)
        said = clean(p)
        assert said.exit_code == 0, said
        assert "blocked\t" in said.stdout
    assert not directory(p).exists()
    assert not list(first(host).glob("gpu-*"))


def holders(lock: Path, *account: str) -> str:
    """What is said of a lock that could not be had."""
    lib = files("llmgwctl.remote").joinpath("lib.sh").read_text()
    argv = [*account, SHELL, "-c", f'{lib}\nlock_holders "$3"', "lib", "", "/nowhere", str(lock)]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


@root_only
@pytest.mark.parametrize("handed_on", [False, True], ids=["by-the-locker", "handed-on"])
def test_who_holds_a_lock_is_named(shared, handed_on):
    """With pid and account; where only root could tell, the command for root."""
    lock = sticky(first(shared)) / "claims.lock"
    lock.touch()
    with lock.open() as held:
        if handed_on:  # as our own runs do: the process that asked for the lock is gone
            subprocess.run(["flock", str(held.fileno())], pass_fds=[held.fileno()], check=True)
        else:
            fcntl.flock(held, fcntl.LOCK_EX)
        me = f"pid {os.getpid()} ({Path('/proc/self/comm').read_text().strip()}) of root"
        assert holders(lock) == me
        nobody = holders(lock, *NOBODY)
        assert nobody == (f"another account's process, which root can name: fuser -v {lock}" if handed_on else me)


# --- nor anything of theirs ended ----------------------------------------------------------------------------------


def test_processes_of_others_do_not_crowd_out_ours(tmp_path):
    """Root sees what every account carries: however many there are, this account's are told, and the rest ends."""
    (tmp_path / "proc/sys/kernel/random").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text("b-1\n")
    (tmp_path / "proc/uptime").write_text("5000.00 1.00\n")
    for pid in (*range(1001, 2201), 9001):
        process = tmp_path / f"proc/{pid}"
        process.mkdir()
        (process / "environ").write_bytes(f"A=1\0LLMGWCTL_SHARD=p-{pid}.r0.x\0".encode())
        uid = os.getuid() if pid == 9001 else 65534
        (process / "status").write_text(f"Name:\tUid: {os.getuid()}\nTgid:\t{pid}\nUid:\t{uid}\t0\t0\t0\nGid:\t0\n")
    text = probe_script("life.sh").replace("/proc/", f"{tmp_path}/proc/")
    said = subprocess.run(
        [*SHELL.split(), "-c", text, "sh", "", str(tmp_path)], capture_output=True, text=True, check=True
    ).stdout.split("\n")
    assert [line for line in said if line.startswith("carrier")] == ["carrier 9001 p-9001.r0.x"]
    assert sum(line.startswith("bearer") for line in said) == 1024


def test_a_marker_with_a_rank_that_is_none_is_named():
    """A replica has a thousand ranks at most, and none of a rank beyond is made."""
    said = "boot_id b\nuptime_s 5\ncarrier 7 p-0.r999999.x\ncarrier 8 p-0.r\u0663.x\ncarrier 9 p-0.r1023.x\n"
    found = PROBE.read({"life": Output(said, "", 0)}).value
    assert [s.rank for s in found.shards] == [1023]
    assert found.unreadable == ("process 7 carries p-0.r999999.x: no replica has so many ranks",)


@root_only
def test_root_ends_no_process_of_another_account(shared):
    """Any account may carry our marker: root sees it, shows no shard of it, and lets it be."""
    p = started(shared, sh("main", "exec sleep 300"))
    env = {"LLMGWCTL_SHARD": f"p-0.r0.{p.launch.id}", "LLMGWCTL_ROOT": shared.root_prefix, "PATH": os.environ["PATH"]}
    ghost = {**env, "LLMGWCTL_SHARD": "ghost-0.r0.x"}
    theirs = [
        subprocess.Popen(["setpriv", "--reuid=65534", "--clear-groups", "sleep", "300"], env=e) for e in (env, ghost)
    ]
    try:
        until(lambda: all(Path(f"/proc/{x.pid}/comm").read_text() == "sleep\n" for x in theirs))
        assert {s.replica for s in life(shared).shards} == {"p-0"}
        said = stop(p)
        assert said.exit_code == 0, said
        assert [x.poll() for x in theirs] == [None, None]
        assert clean(p).exit_code == 0
    finally:
        for x in theirs:
            x.kill()
            x.wait()


# --- nor the reading broken -----------------------------------------------------------------------------------------


def test_a_claim_file_of_any_size_is_read_to_its_bound(host):
    """Of three gigabytes only the beginning; a process beyond it is not looked at."""
    place = sticky(first(host))
    p = shard(host, gpus=1)
    assert claim(p).exit_code == 0
    (file,) = place.glob("gpu-GPU-n1-0")
    own = Path("/proc/self/stat").read_text().rsplit(") ", 1)[1].split()[19]
    with file.open("a") as f:
        f.write(f"{'x' * 9000}\nproc={os.getpid()}:{own}\n")
    os.truncate(file, 3 * 2**30)
    (found,) = life(host).claims
    assert (found.replica, found.alive) == ("p-0", False)


def test_thousands_of_claim_files_hide_nothing_of_ours(host):
    """256 of others are shown and that there are more; ours are shown whatever names the others have."""
    place = sticky(first(host))
    for n in range(3000):
        (place / f"gpu-{n}").write_text("x\n")
        if os.geteuid() == 0:
            os.chown(place / f"gpu-{n}", 65534, 65534)
    assert claim(shard(host)).exit_code == 0
    found = life(host)
    assert len(found.claims) <= 512
    assert any("more than 256 of claim" in text for text in found.unreadable)
    if os.geteuid() == 0:
        assert {c.key for c in found.claims if c.replica} == {"gpu-GPU-n1-0", "gpu-GPU-n1-1"}


@pytest.mark.parametrize("rank", [-5, 1024, True, 1.5, "0", None])
def test_a_spec_with_a_rank_that_is_none_is_named(host, rank):
    """And nothing else of it is believed."""
    p = started(host, sh("main", "exec sleep 300"))
    spec = directory(p) / "spec.json"
    spec.write_text(json.dumps({**json.loads(spec.read_text()), "rank": rank}))
    found = life(host)
    assert [s.directory for s in found.shards if s.directory] == []
    assert any("its spec is not whole" in text for text in found.unreadable)
    stop(p)


def test_what_the_probe_prints_is_bounded():
    """Hundreds of thousands of lines of one host cost it its own row, and are not kept."""
    head = "boot_id b\nuptime_s 5\n"
    for line in ("carrier 1 p-0.r0.{}\n", "bearer 1 p-0.r0.{}\n", "claim gpu-{} owner=x\n", "shard /s/{} boot=b\n"):
        said = head + "".join(line.format(n) for n in range(50_000))
        value = PROBE.read({"life": Output(said, "", 0)}).value
        assert isinstance(value, HostLife)
        assert len(value.claims) <= LIMIT
        assert len(value.shards) <= LIMIT
        assert len(value.unreadable) <= 2 * LIMIT + 1
