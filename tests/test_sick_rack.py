"""Four sick hosts among 18: each costs one row, named for what it is, and the other fourteen are read."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from llmgwctl.rack import nvl72, serve

SICK = {
    "r1-t04": ("dead", "connect-timeout"),
    "r1-t08": ("refused", "refused"),
    "r1-t12": ("silent", "login-timeout"),
    "r1-t15": ("garbage", "no-answer"),
}
LIMITS = "\nconnect_timeout_s = 2\nlogin_timeout_s = 3\n"


@pytest.mark.parametrize("command", ["nvlink", "probe"])
async def test_a_sick_host_costs_one_row_and_the_run_is_exit_3(tmp_path: Path, command: str) -> None:
    """The run ends although one host never answers, one refuses, one accepts and is silent, and one prints garbage."""
    async with serve(nvl72(18, hgx=0, faults={h: [f] for h, (f, _) in SICK.items()}), tmp_path) as rack:
        text = rack.inventory.read_text()
        rack.inventory.write_text(text.replace("[ssh]", "[ssh]" + LIMITS))
        argv = (sys.executable, "-m", "llmgwctl", "-i", str(rack.inventory), "--json", command)
        pipe = asyncio.subprocess.PIPE
        run = await asyncio.create_subprocess_exec(*argv, stdout=pipe, stderr=pipe)
        async with asyncio.timeout(60):
            out, err = await run.communicate()
    assert run.returncode == 3, err
    document = json.loads(out)
    good, bad = rows(document) if command == "nvlink" else probed(document)
    assert len(good) == 14
    assert set(good) & set(SICK) == set()
    assert set(bad) == set(SICK)
    for host, (_, kind) in SICK.items():
        assert kind in bad[host], (host, bad[host])


def rows(document: dict) -> tuple[list[str], dict[str, str]]:
    (domain,) = document["domains"]
    return [h["name"] for h in domain["hosts"]], {u["name"]: u["why"] for u in document["unreachable"]}


def probed(document: dict) -> tuple[list[str], dict[str, str]]:
    reached = {h["name"]: h["readings"]["reachable"] for h in document["hosts"]}
    good = [name for name, reading in reached.items() if reading["state"] == "ok"]
    return good, {name: reading["why"] for name, reading in reached.items() if name not in good}
