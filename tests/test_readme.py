"""The README shows commands with what they print, and what it shows is what they print."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from llmgwctl.cli.demo import FAULTS
from llmgwctl.rack import nvl72, serve

README = Path(__file__).parents[1] / "README.md"
FAULTS_BY_HOST = {host: [fault] for host, _, fault in (f.partition(":") for f in FAULTS)}
BLOCK = re.compile(r"(?ms)^```console\n(.*?)^```\n")


def commands(block: str) -> list[str]:
    return [line[2:] for line in block.splitlines() if line.startswith("$ ")]


def settled(text: str) -> str:
    """Without what differs from run to run: times, and the loopback network that was free."""
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "2026-12-01T09:30:00Z", text)
    text = re.sub(r"\b127\.\d+\.(\d+\.\d+)", r"127.77.\1", text)
    text = re.sub(r"(?m)(  ready  )(\d+s +)", lambda m: m[1] + "3s".ljust(len(m[2])), text)
    return "\n".join(line.rstrip() for line in text.splitlines())


async def run(command: str, inventory: Path) -> str:
    """What a person would see, stdout and stderr together, in a terminal of 100 columns without colour."""
    words = [sys.executable, "-m", *shlex.split(command)]
    env = {**os.environ, "LLMGWCTL_INVENTORY": str(inventory), "COLUMNS": "100", "NO_COLOR": "1", "LANG": "C.UTF-8"}
    pipe, both = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT
    process = await asyncio.create_subprocess_exec(*words, stdout=pipe, stderr=both, env=env)
    out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()
    return out.decode()


async def test_commands_print_what_the_readme_says(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Each `$ llmgwctl` line is run in order on the demo's rack; --update-golden writes the README anew."""
    text = README.read_text()
    made = {}
    async with serve(nvl72(18, hgx=2, faults=FAULTS_BY_HOST), tmp_path, net="127.61") as rack:
        for block in BLOCK.findall(text):
            told = [f"$ {c}\n{settled(await run(c, rack.inventory))}\n" for c in commands(block)]
            if told:
                made[block] = "".join(told)
    assert len(made) >= 4
    if request.config.getoption("--update-golden"):
        for block, new in made.items():
            text = text.replace(block, new)
        README.write_text(text)
    for block, new in made.items():
        assert block == new


def test_the_rack_that_is_shown_can_be_served() -> None:
    """The command that serves it has the faults of the demo, and the rest finds its inventory."""
    text = README.read_text().replace("\\\n", " ")
    (line,) = re.findall(r"(?m)^llmgwctl rack .*$", text)
    words = shlex.split(line)
    assert tuple(v for w, v in pairwise(words) if w == "--fault") == FAULTS
    assert f"export LLMGWCTL_INVENTORY={words[words.index('--dir') + 1]}/inventory.toml\n" in text
    assert ". .venv/bin/activate\n" in text


def test_the_two_commands_that_set_everything_up_are_targets() -> None:
    """`make demo` and `make test` stand in the README, and make knows them."""
    text = README.read_text()
    for target in ("demo", "test"):
        assert f"make {target}" in text
        asked = ["make", "-n", target, "PYTHON=python3"]
        assert subprocess.run(asked, cwd=README.parent, capture_output=True, check=False).returncode == 0
