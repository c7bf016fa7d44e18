"""`llmgwctl demo` does the whole main job and leaves nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from llmgwctl.cli import demo


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What the demo printed, and the folder in which it had its files."""
    place = tmp_path_factory.mktemp("demo")
    env = {**os.environ, "TMPDIR": str(place), "HOME": str(place), "COLUMNS": "110"}
    done = subprocess.run(
        [sys.executable, "-m", "llmgwctl", "demo"], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, place


def part(shown: tuple[str, Path], command: str) -> str:
    """What one command printed."""
    return shown[0].split(f"\n$ llmgwctl {command}\n")[1].split("\n$ ")[0]


def test_every_fault_keeps_its_tray_out(shown: tuple[str, Path]) -> None:
    """The rack is drawn with 14 of 18 trays eligible, and each of the four faults beside its tray."""
    drawn = part(shown, "nvlink")
    assert "14 eligible" in drawn
    for fault, words in zip(demo.FAULTS, ("IMEX is down", "not joined", "degraded", "3 of 4 GPUs"), strict=True):
        assert words in next(line for line in drawn.split("\n") if f" {fault.split(':')[0]} " in line)


def test_a_replica_lives_and_ends(shown: tuple[str, Path]) -> None:
    """A replica of two trays is placed in the domain, answers, is shown ready, is stopped, and is gone."""
    assert "in tier nvlink" in part(shown, f"plan {demo.PROFILE}")
    served = part(shown, f"place {demo.PROFILE}")
    assert f"{demo.REPLICA} serves" in served
    assert f"> {demo.QUESTION}\n" in served
    assert "ready" in next(x for x in part(shown, "ps").split("\n") if x.startswith(demo.REPLICA))
    assert "is stopped" in part(shown, f"stop {demo.REPLICA}")
    assert "no replica runs" in shown[0].split(f"stop {demo.REPLICA}")[1]


def test_nothing_is_left(shown: tuple[str, Path]) -> None:
    """No file in the folder of temporary files, and no process that knows of it."""
    place = shown[1]
    assert not [f for f in place.rglob("*") if f.is_file()]
    left = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(place).encode() in (process / "environ").read_bytes():
                left.append((process / "cmdline").read_bytes())
        except OSError:
            continue
    assert left == []
