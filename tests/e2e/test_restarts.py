"""sshd restarts on real hosts while they are read: what goes on answers, what is lost has a name, nothing stays."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fcntl import LOCK_EX, flock

import pytest
from netns import Bed, Done
from test_faults import until
from test_reading import cli, replaced

from llmgwctl.rack import nvl72

RACK = nvl72(4, hgx=0)
KEPT, HALF, EARLY, QUIET = (m.name for m in RACK.machines)
"""Whose listener restarts; who is cut off within its answer, and before it; where nothing happens."""
PID, LOG, GATE = "run/listener.pid", "run/listener.log", "run/gate"
LISTEN = f"/usr/sbin/sshd -f /etc/llmgw-e2e/sshd_config -p 22 -o PidFile=/{PID} -E /{LOG}"
WAIT = f"flock -s /{GATE} true\n"
END = f"read -r pid </{PID} && kill -%s $pid && while [ -e /proc/$pid ]; do sleep 0.1; done; rm -f /{PID}"
SESSIONS = "pkill -KILL -f '^sshd(-session)?: ops'"
LIMIT_S = 130  # the deadline of a host and what stands around it: beyond it a run hangs


@dataclass(frozen=True, slots=True)
class Seen:
    """The answers before, in between and after; what was left of the one in between, by host; logins of it at KEPT."""

    before: Done
    interrupted: Done
    left: dict[str, str]
    logins: int
    after: Done


def inside(bed: Bed, host: str, script: str) -> str:
    done = bed.inside(host, "sh", "-c", script)
    assert done.code == 0, f"{host}: {script}: {done.err}"
    return done.out


def listen(bed: Bed, host: str) -> None:
    """Start sshd as a daemon; it writes its pid once it listens."""
    inside(bed, host, LISTEN)
    until((bed.directory / host / PID).exists)


def runs(bed: Bed, host: str, program: str) -> bool:
    return bed.inside(host, "pgrep", "-u", "ops", "-x", program).code == 0


def at_rest(bed: Bed, host: str) -> bool:
    """Every process of the reading waits for another: what could be said before nvidia-smi has answered is said."""
    states = bed.inside(host, "ps", "-u", "ops", "-o", "stat=").out.split()
    return all(state.startswith("S") for state in states)


def processes(bed: Bed) -> dict[str, str]:
    """All that runs for the account that reads: sshd's own, the framer, what that runs."""
    return {host: bed.inside(host, "pgrep", "-u", "ops", "-a").out for host in bed.hosts}


def left(bed: Bed, host: str) -> str:
    """Files of a framer, and its lock where somebody holds it."""
    files = "find /run /tmp /dev/shm -name 'llmgwctl-probe.*'"
    return inside(bed, host, f"{files}; flock -n /run/lock/llmgwctl/probe.lock true || echo the lock is held")


@contextmanager
def shut(bed: Bed) -> Iterator[None]:
    """The gates of all hosts, which open together."""
    with ExitStack() as gates:
        for host in bed.hosts:
            flock(gates.enter_context((bed.directory / host / GATE).open("w")), LOCK_EX)
        yield


@contextmanager
def slow(bed: Bed) -> Iterator[None]:
    """nvidia-smi, and on EARLY the login shell, wait at a gate: no restart comes too late."""
    profile = bed.home(EARLY) / ".bashrc"
    profile.write_text(WAIT)
    with ExitStack() as programs:
        for host in bed.hosts:
            real = (bed.directory / host / "tree/usr/bin/nvidia-smi").read_text()
            programs.enter_context(replaced(bed, host, "nvidia-smi", WAIT + real))
        yield
    profile.unlink()


def restarts(bed: Bed) -> None:
    """On KEPT as systemd does it: the listener alone, what it accepted are other processes. On others all of it."""
    inside(bed, KEPT, END % "TERM")
    for host in (HALF, EARLY):
        inside(bed, host, END % "KILL")
        inside(bed, host, SESSIONS)
    for host in (KEPT, HALF, EARLY):
        listen(bed, host)


def interrupted(bed: Bed) -> Done:
    with slow(bed):
        with shut(bed):
            run = bed.popen(sys.executable, "-m", "llmgwctl", "-i", str(bed.inventory), "--json", "nvlink")
            until(lambda: all(runs(bed, host, "bash" if host == EARLY else "nvidia-smi") for host in bed.hosts))
            until(lambda: at_rest(bed, HALF) and at_rest(bed, HALF))
            restarts(bed)
        out, err = run.communicate(timeout=LIMIT_S)
        until(lambda: not any(processes(bed).values()))
    return Done(run.returncode, out, err)


@pytest.fixture(scope="module")
def seen(module_bed: Bed) -> Seen:
    """One run that is interrupted between two that are not. A listener that can end: the first process cannot."""
    bed = module_bed
    for host in bed.hosts:
        config = bed.directory / host / "etc/llmgw-e2e/sshd_config"
        config.write_text(config.read_text().replace("Port 22\n", "Port 2222\n"))
        bed.boot(host)
        listen(bed, host)
    before = cli(bed, "--json", "nvlink")
    log = bed.directory / KEPT / LOG
    earlier = log.read_text().count("Accepted")
    between = interrupted(bed)
    remains = {host: left(bed, host) for host in bed.hosts}
    logins = log.read_text().count("Accepted") - earlier
    return Seen(before, between, remains, logins, cli(bed, "--json", "nvlink"))


def trays(done: Done) -> dict[str, dict]:
    """What the map says of each host of the one domain."""
    (domain,) = json.loads(done.out)["domains"]
    return {h["name"]: h for h in domain["hosts"]}


def test_a_session_outlives_the_listener_that_accepted_it(seen: Seen):
    """The answer is right, from that one login, as is that of the host where nothing happened."""
    assert seen.before.code == 0, seen.before.err
    healthy = trays(seen.before)
    assert set(healthy) == {KEPT, HALF, EARLY, QUIET}
    assert trays(seen.interrupted) == {name: healthy[name] for name in (KEPT, QUIET)}
    assert seen.logins == 1


def test_hosts_that_are_cut_off_are_named_and_the_run_ends(seen: Seen):
    """Before its answer: connection-lost. Within it: what came counts, the GPUs are not known. Exit code 3."""
    document = json.loads(seen.interrupted.out)
    (early,) = document["unreachable"]
    (half,) = document["outside"]
    assert (early["name"], early["why"].split(":")[0]) == (EARLY, "connection-lost")
    assert (half["name"], "GPUs could not be read" in half["why"]) == (HALF, True)
    assert document["domains"][0]["missing"] == [HALF, EARLY]
    assert seen.interrupted.code == 3
    said = seen.interrupted.err.splitlines()
    assert all(any(host in line for line in said) for host in (HALF, EARLY))
    assert "Traceback" not in seen.interrupted.err


def test_what_a_broken_off_answer_lacks_is_told_as_lost(seen: Seen):
    """Not as a hanging nvidia-smi, for which a reboot is the remedy."""
    (half,) = json.loads(seen.interrupted.out)["outside"]
    assert "the connection was lost" in half["why"]
    assert "within its limit" not in half["why"]


def test_nothing_is_left_and_the_next_run_is_right(seen: Seen):
    """No process, no file and no lock of the interrupted run; then every host answers as before."""
    assert seen.left == dict.fromkeys((KEPT, HALF, EARLY, QUIET), "")
    assert seen.after.code == 0, seen.after.err
    assert trays(seen.after) == trays(seen.before)
