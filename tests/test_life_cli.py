"""place, ps, logs and stop on a simulated rack over SSH: what they print and the codes with which they end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from llmgwctl.rack import Rack, nvl72, serve
from llmgwctl.rack.processes import of_host


@dataclass
class Cli:
    rack: Rack
    home: Path

    async def begin(self, *words: str) -> asyncio.subprocess.Process:
        argv = (sys.executable, "-m", "llmgwctl", "-i", str(self.rack.inventory), *words)
        env = {
            **os.environ,
            "HOME": str(self.home),
            "XDG_STATE_HOME": str(self.home),
            "NO_COLOR": "1",
            "COLUMNS": "160",
        }
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(*argv, env=env, stdout=pipe, stderr=pipe)

    async def __call__(self, *words: str) -> tuple[int | None, str, str]:
        """(exit code, stdout, stderr)"""
        process = await self.begin(*words)
        out, err = await process.communicate()
        return process.returncode, out.decode(), err.decode()

    async def json(self, *words: str) -> dict:
        return json.loads((await self("--json", *words))[1])

    def processes(self) -> list[int]:
        return [pid for host in sorted(self.rack.inventory.parent.glob("hosts/*")) for pid in of_host(host)]

    def change(self, old: str, new: str) -> None:
        text = self.rack.inventory.read_text()
        assert old in text
        self.rack.inventory.write_text(text.replace(old, new))


@pytest.fixture
async def cli(tmp_path: Path) -> AsyncIterator[Cli]:
    async with serve(nvl72(3, hgx=0), tmp_path / "rack") as rack:
        made = Cli(rack, tmp_path / "home")
        yield made
        await made("stop", "--all")
        assert made.processes() == []


async def test_a_life_from_place_to_stop(cli: Cli) -> None:
    """Placed, ready, asked for by --check, its words read, stopped, and stopped again without harm."""
    code, out, err = await cli("place", "sim-nvl")
    assert code == 0, err
    (replica,) = (await cli.json("ps"))["replicas"]
    assert out == f"sim-nvl-0 serves sim-nvl at {replica['endpoint']}\n"
    assert (replica["state"], [s["host"] for s in replica["shards"]]) == ("ready", ["r1-t01", "r1-t02"])
    assert (await cli("ps", "--check", "sim-nvl-0"))[0] == 0
    code, out, _ = await cli("logs", "sim-nvl-0", "--rank", "1")
    address = replica["endpoint"].removeprefix("http://").split(":")[0]
    assert (code, out) == (0, f"r1 sim | rank 1 of 2 has joined {address}\n")
    code, out, err = await cli("stop", "sim-nvl-0")
    assert (code, out) == (0, "sim-nvl-0 is stopped; nothing of it is left on 2 hosts\n"), err
    assert cli.processes() == []
    code, _, err = await cli("stop", "sim-nvl-0")
    assert code == 0
    assert "nothing of it" in err
    assert (await cli("ps", "--check", "sim-nvl-0"))[0] == 1


async def test_without_waiting_it_becomes_ready_for_nobody_yet(cli: Cli) -> None:
    """--no-wait starts and returns: ps says starting, since nobody has seen it serve."""
    code, out, _ = await cli("place", "sim-small", "--no-wait")
    assert code == 0
    assert out.startswith("sim-small-0 was started: sim-small at http://")
    assert (await cli.json("ps"))["replicas"][0]["state"] == "starting"


async def test_a_death_before_readiness_is_exit_1_with_the_last_words(cli: Cli) -> None:
    """Rank, host, code, the engine's words; the folder of the logs; no process and no claim."""
    cli.change("[profiles.sim-nvl]\n", '[profiles.sim-nvl]\nargs = ["--die-after", "0.1", "--die-rank", "1"]\n')
    cli.change('["--die-after"', '["--never-ready", "--die-after"')
    code, out, err = await cli("place", "sim-nvl")
    assert (code, out) == (1, "")
    assert "sim-nvl-0 rank 1 on r1-t02: sim exited with code 1" in err
    assert "  rank 1 dies, as it was told to" in err
    (folder,) = (cli.home / "llmgwctl/logs").iterdir()
    assert str(folder) in err
    assert {"r0.r1-t01.sim.log", "r1.r1-t02.sim.log"} <= {p.name for p in folder.iterdir()}
    assert cli.processes() == []
    assert (await cli.json("ps"))["replicas"] == []


async def test_interrupted_while_waiting_it_is_left_running(cli: Cli) -> None:
    """Ctrl-C then: exit 3, how to follow and how to end it; and it runs."""
    cli.change("[profiles.sim-nvl]\n", '[profiles.sim-nvl]\nargs = ["--never-ready"]\n')
    process = await cli.begin("place", "sim-nvl", "-v")
    assert process.stderr is not None
    async for line in process.stderr:
        if b"/health says 503" in line:
            break
    process.send_signal(signal.SIGINT)
    _, err = await process.communicate()
    assert process.returncode == 3, err
    assert b"llmgwctl stop sim-nvl-0" in err
    assert (await cli.json("ps"))["replicas"][0]["state"] == "starting"


async def test_a_host_that_is_not_read_may_carry_what_is_not_seen(cli: Cli) -> None:
    """Exit 3 and never 1: nobody knows that nothing runs, and the sentence says so."""
    cli.rack.set("r1-t02", "refused")
    code, out, _ = await cli("ps", "--check")
    assert (code, "what runs on 1 other is not known" in out) == (3, True), out
    assert (await cli("ps", "--check", "-w", "r1-t01"))[0] == 1


async def test_an_unreachable_host_leaves_its_replica_unknown(cli: Cli) -> None:
    """ps ends with 3 and so does stop, which names what it could not clean; once the host is back, stop cleans it.
    Nor is it known of any other replica that it is not there."""
    assert (await cli("place", "sim-nvl"))[0] == 0
    cli.rack.set("r1-t02", "refused")
    code, out, err = await cli("ps")
    assert code == 3
    assert "sim-nvl-0  unknown" in out
    assert "r1-t02: refused" in err
    assert (await cli("ps", "--check", "sim-nvl-0"))[0] == 3
    assert (await cli("ps", "--check", "sim-any-0"))[0] == 3
    assert (await cli("stop", "sim-nvl-0"))[0] == 3
    cli.rack.clear("r1-t02")
    assert (await cli.json("ps"))["replicas"][0]["state"] == "failed"
    assert (await cli("stop", "sim-nvl-0"))[0] == 0
    assert cli.processes() == []


async def test_two_at_once_never_share_a_gpu(cli: Cli) -> None:
    """Three trays, two operators for two trays each: one gets them; the other is told who has them, and exits 4."""
    done = await asyncio.gather(*(cli("--json", "place", "sim-nvl") for _ in range(2)))
    assert sorted(code for code, _, _ in done) == [0, 4]
    loser = next(d for d in done if d[0] == 4)
    assert "sim-nvl-0" in loser[1] + loser[2]
    (replica,) = (await cli.json("ps"))["replicas"]
    assert replica["state"] == "ready"


async def test_no_placement_is_exit_4_with_reasons(cli: Cli) -> None:
    """What `plan` would say, and nothing is claimed."""
    for host in ("r1-t01", "r1-t02"):
        cli.rack.set(host, "imex-down")
    code, out, _ = await cli("place", "sim-nvl")
    assert code == 4
    assert "IMEX is down" in out
    assert (await cli.json("ps"))["replicas"] == []


async def test_wrong_words_are_exit_2(cli: Cli) -> None:
    """Unknown profile, unknown replica, stop without a name, an API key file that is not there."""
    cli.change("[profiles.sim-small]\n", '[profiles.sim-small]\napi_key_file = "/no/such/key"\n')
    for words in (("place", "nope"), ("logs", "nope-0"), ("stop",), ("stop", "x-0", "--all"), ("place", "sim-small")):
        code, _, err = await cli(*words)
        assert code == 2, words
    line = cli.rack.inventory.read_text().splitlines().index('api_key_file = "/no/such/key"') + 1
    assert f"{cli.rack.inventory}:{line}: profiles.sim-small.api_key_file: " in err


async def test_what_an_engine_prints_of_a_secret_is_not_shown(cli: Cli) -> None:
    """Neither in the logs, nor in the last words of a failed start, nor in the files that are saved here."""
    cli.change("[profiles.sim-small]\n", '[profiles.sim-small]\nenv = { HF_TOKEN = "tok-1234567" }\n')
    cli.change("[profiles.sim-small]\n", '[profiles.sim-small]\nargs = ["--refuse", "tok-1234567"]\n')
    code, _, err = await cli("place", "sim-small")
    assert code == 1
    assert "***" in err
    saved = "".join(p.read_text() for p in (cli.home / "llmgwctl/logs").glob("*/*.log"))
    assert "***" in saved
    cli.change('"--refuse", "tok-1234567"', "")
    cli.change('tok-1234567"', 'serving"')
    assert (await cli("place", "sim-small"))[0] == 0
    _, out, _ = await cli("logs", "sim-small-0")
    assert "***" in out
    assert "tok-1234567" not in err + saved
    assert "serving" not in out
