"""Two first claimers on a host that has no place for claims yet: whatever they may write where, one of them wins."""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from local_hosts import claim_words, command, kill_tree, life, make_host, prepared, sh, until

from llmgwctl.transport.base import Script

HELD = 10
SYSTEM = "/usr/sbin:/usr/bin:/sbin:/bin"
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
STOPPER = """#!/bin/sh
# Stands before the real program on the PATH: at the call that is to be held it says so, and waits to be let go.
name=${0##*/}
echo >>"$HOOKS/$WHO.$name"
if [ "$HOLD" = "$name.$(grep -c '' "$HOOKS/$WHO.$name")" ]; then
    : >"$HOOKS/$WHO.reached"
    until [ -e "$HOOKS/$WHO.go" ]; do sleep 0.05; done
fi
PATH=/usr/sbin:/usr/bin:/sbin:/bin
exec "$name" "$@"
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs a second account")


@dataclass
class Claimer:
    """A claim of one account that is held at a call: "mkdir.1" before its first place is made, "mktemp.1" with the
    locks held and nobody found, before it writes."""

    who: str
    process: subprocess.Popen
    hooks: Path

    def reached(self) -> bool:
        return (self.hooks / f"{self.who}.reached").exists()

    def go(self) -> None:
        (self.hooks / f"{self.who}.go").touch()

    def ended_or_waits(self) -> bool:
        """Its flock stands in the kernel's list as one that waits, or all is over."""
        return self.process.poll() is not None or any(self._is_mine(pid) for pid in waiting())

    def _is_mine(self, pid: int) -> bool:
        try:
            return os.getsid(pid) == self.process.pid
        except ProcessLookupError:
            return False

    def end(self) -> tuple[int, str]:
        said, _ = self.process.communicate(timeout=60)
        return self.process.returncode, said.decode()


def waiting() -> list[int]:
    """Processes that wait for a lock: `1: -> FLOCK ADVISORY WRITE PID ...`."""
    rows = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return [int(row[5]) for row in rows if row[1] == "->"]


@pytest.fixture
def host():
    with tempfile.TemporaryDirectory() as base:
        Path(base).chmod(0o711)
        host = make_host(Path(base), "n1")
        Path(host.root_prefix, "dev/shm").chmod(0o1777)
        hooks = Path(base, "hooks")
        hooks.mkdir()
        hooks.chmod(0o1777)
        for name in ("mkdir", "mktemp"):
            (hooks / name).write_text(STOPPER)
            (hooks / name).chmod(0o755)
        yield host
        kill_tree(Path(base))


def claimer(host, who: str, account: str, hold: str = "") -> Claimer:
    p = prepared([host], sh("main", "exec sleep 300"), replica=f"{who}-0", gpus=1)[0]
    hooks = Path(host.root_prefix).parent / "hooks"
    argv, data = command(Script("claims.sh", (host.root_prefix, host.state_dir, "claim", *claim_words(p))))
    process = subprocess.Popen(
        [*(NOBODY if account == "nobody" else ()), *argv],
        env={"PATH": f"{hooks}:{SYSTEM}", "HOOKS": str(hooks), "WHO": who, "HOLD": hold},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdin is not None
    process.stdin.write(data)
    process.stdin.flush()
    return Claimer(who, process, hooks)


ACCOUNTS = [("root", "root"), ("nobody", "root"), ("root", "nobody"), ("nobody", "nobody")]
FIRST_TIME = [
    *((early, late, 0o1777, "mkdir.1") for early, late in ACCOUNTS),
    *((early, late, 0o755, "mkdir.1") for early, late in ACCOUNTS),
    *((early, "nobody", 0o755, "mkdir.2") for early in ("root", "nobody")),
]


@pytest.mark.parametrize(("early", "late", "mode", "held_at"), FIRST_TIME)
def test_of_two_who_claim_first_one_wins(host, early, late, mode, held_at):
    """The late one has found no place for claims and is about to make one (`mode`: of /run/lock); then the early one
    makes its own, locks it and finds the GPU free. However they go on, the late one learns of it."""
    Path(host.root_prefix, "run/lock").chmod(mode)
    second = claimer(host, "late", late, held_at)
    until(second.reached)
    first = claimer(host, "early", early, "mktemp.1")
    until(first.reached)
    second.go()
    until(second.ended_or_waits)
    first.go()
    codes = first.end(), second.end()
    assert [code for code, _ in codes] == [0, HELD], codes
    assert "held\tgpu-GPU-n1-0\tearly-0" in codes[1][1]
    assert [c.replica for c in life(host).claims] == ["early-0"]


@pytest.mark.parametrize(("early", "late"), ACCOUNTS)
def test_a_place_that_comes_later_does_not_part_them(host, early, late):
    """Claims lie in /dev/shm, since /run/lock could not be written; then somebody makes that place too."""
    places = [Path(host.root_prefix, name) for name in ("dev/shm/llmgwctl", "run/lock/llmgwctl")]
    made(places[0])
    first = claimer(host, "early", early, "mktemp.1")
    until(first.reached)
    made(places[1])
    second = claimer(host, "late", late)
    until(second.ended_or_waits)
    first.go()
    assert [first.end()[0], second.end()[0]] == [0, HELD]


def made(place: Path) -> None:
    place.mkdir()
    place.chmod(0o1777)
