"""The crontab of docs/metrics.md, line by line, against a simulated rack that is fine, then sick, then fine again."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/metrics.md"


def crontab() -> tuple[dict[str, str], list[str]]:
    """Its variables and its commands, as they stand in the page."""
    (block,) = re.findall(r"```crontab\n(.*?)```", PAGE.read_text(), re.DOTALL)
    variables = dict(line.split("=", 1) for line in block.splitlines() if re.match(r"[A-Z_]+=", line))
    commands = [re.sub(r"^(\S+\s+){5}", "", line) for line in block.splitlines() if re.match(r"[*\d]", line)]
    return variables, commands


@contextmanager
def simulated(directory: Path, *faults: str) -> Iterator[Path]:
    """The inventory of a rack of two trays, while it runs."""
    words = [w for f in faults for w in ("--fault", f)]
    argv = [
        sys.executable,
        "-m",
        "llmgwctl",
        "rack",
        "nvl72",
        "--trays",
        "2",
        "--hgx",
        "0",
        "--dir",
        str(directory),
        *words,
    ]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        yield Path(server.stdout.readline().strip())
        server.send_signal(signal.SIGINT)
        server.wait(30)


@pytest.fixture
def cron(tmp_path):
    """cron(inventory): the output of each command, as cron would mail it, with its exit code."""
    variables, commands = crontab()
    places = {name: str(tmp_path / name.lower()) for name in ("PROM", "STATE", "WWW")}
    for name in ("PROM", "STATE"):
        Path(places[name]).mkdir()
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "llmgwctl").write_text(f'#!/bin/sh\nexec {sys.executable} -m llmgwctl "$@"\n')
    (tools / "llmgwctl").chmod(0o755)
    assert set(variables) == {"LLMGWCTL_INVENTORY", "MAILTO", *places}

    def run(inventory: Path) -> list[tuple[int, str]]:
        env = {"PATH": f"{tools}:/usr/bin:/bin", "HOME": str(tmp_path), "LLMGWCTL_INVENTORY": str(inventory), **places}
        env |= {k: v for k, v in os.environ.items() if k == "PYTHONPATH"}
        done = [
            subprocess.run(["/bin/sh", "-c", c], env=env, capture_output=True, text=True, check=False) for c in commands
        ]
        return [(d.returncode, d.stdout + d.stderr) for d in done]

    run.commands, run.places = commands, {k: Path(v) for k, v in places.items()}
    return run


def test_the_crontab(cron, tmp_path):
    """Quiet while all is well; one mail when it gets worse; the files are there and follow."""
    assert [c.split()[1] for c in cron.commands] == ["metrics", "watch", "site", "doctor"]
    rack = tmp_path / "rack"
    rack.mkdir()
    with simulated(rack) as inventory:
        first, second = cron(inventory), cron(inventory)
    assert [said for _, said in first[:3]] == ["", "", ""]
    assert [said for _, said in second] == [""] * 4
    assert [code for code, _ in second[:3]] == [0, 0, 0]
    prom = cron.places["PROM"] / "llmgw.prom"
    assert "llmgw_gpu_nvlink_joined" in prom.read_text()
    assert (cron.places["WWW"] / "index.html").exists()
    assert json.loads((cron.places["STATE"] / "replicas.json").read_text()) == []

    shutil.rmtree(rack)
    rack.mkdir()
    with simulated(rack, "r1-t01:gpu-not-joined:2") as inventory:
        codes, mails = zip(*cron(inventory), strict=True)
    assert codes[:3] == (0, 1, 0)
    assert mails[0] == mails[2] == ""
    assert "worse: r1-t01: GPU 2 left NVLink domain" in mails[1]
    assert 'gpu="2",host="r1-t01"' in next(
        line
        for line in prom.read_text().splitlines()
        if line.startswith("llmgw_gpu_nvlink_joined") and line.endswith(" 0.0")
    )
    assert "GPU 2 not joined" in (cron.places["WWW"] / "index.html").read_text()
