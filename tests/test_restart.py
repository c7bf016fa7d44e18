"""restart, and ensure --restart-changed: what would refuse the new replica is found before the old one is stopped."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from test_beforehand import fill
from test_life_cli import Cli

from llmgwctl.rack import nvl72, serve

PROFILE = "[profiles.sim-nvl]\n"
SIM = PROFILE + 'engine = "sim"\n'
VLLM = PROFILE + 'engine = "vllm"\nmodel_path = "/models/deepseek-r1"\n'  # sim reads no model
SPARED = "sim-nvl-0 was not stopped: it is left as it is"


@pytest.fixture
async def cli(tmp_path: Path) -> AsyncIterator[Cli]:
    """A rack of two trays, and a replica that takes all of it."""
    async with serve(nvl72(2, hgx=0), tmp_path / "rack") as rack:
        made = Cli(rack, tmp_path / "home")
        yield made
        await made("stop", "--all")
        assert made.processes() == []


async def running(cli: Cli) -> dict[str, Any]:
    (replica,) = (await cli.json("ps"))["replicas"]
    assert replica["state"] == "ready"
    return dict(replica)


async def test_a_replica_that_fills_the_rack_makes_way_for_itself(cli: Cli) -> None:
    """Its own claims and ports do not stand in its way: the same name and place, another launch."""
    assert (await cli("place", "sim-nvl"))[0] == 0
    before = await running(cli)
    code, out, err = await cli("restart", "sim-nvl-0")
    assert code == 0, err
    assert "sim-nvl-0 is stopped" in out
    assert SPARED not in err
    after = await running(cli)
    assert after["launch"] != before["launch"]
    assert [s["host"] for s in after["shards"]] == ["r1-t01", "r1-t02"]
    code, out, err = await cli("--json", "restart", "sim-nvl-0")
    assert code == 0, err
    assert json.loads(out)["replicas"][0]["state"] == "ready"
    assert (await running(cli))["launch"] != after["launch"]


async def test_a_replica_whose_model_is_gone_runs_on(cli: Cli) -> None:
    """The doctor's finding with its id, the exit code of `place`, and what was left alone; also as JSON."""
    assert (await cli("place", "sim-nvl"))[0] == 0
    before = await running(cli)
    cli.change(SIM, VLLM)
    cli.rack.set("r1-t02", "model-missing")
    code, out, err = await cli("restart", "sim-nvl-0")
    assert (code, out) == (4, "")
    assert "LG913 on r1-t02: The model is not whole on a host of the replica: /models/deepseek-r1 is not there" in err
    assert SPARED in err
    code, out, err = await cli("--json", "restart", "sim-nvl-0")
    told = json.loads(out)
    assert (code, [f["id"] for f in told["findings"]], SPARED in told["warnings"]) == (4, ["LG913"], True)
    assert (await running(cli))["launch"] == before["launch"]


async def test_a_replica_without_a_place_for_the_next_runs_on(cli: Cli) -> None:
    """A host was cordoned since: the reasons host by host, and it serves."""
    assert (await cli("place", "sim-nvl"))[0] == 0
    before = await running(cli)
    assert (await cli("hosts", "cordon", "r1-t02", "--reason", "DIMM"))[0] == 0
    code, out, err = await cli("restart", "sim-nvl-0")
    assert code == 4
    assert "sim-nvl: no placement fits" in out
    assert "cordoned: DIMM" in out
    assert SPARED in err
    code, out, _ = await cli("--json", "restart", "sim-nvl-0")
    told = json.loads(out)
    assert (code, told["replicas"], told["warnings"]) == (4, [], [SPARED])
    assert (await running(cli))["launch"] == before["launch"]


async def test_what_has_failed_is_stopped_first(cli: Cli) -> None:
    """There is nothing to lose, and what is left of it may be what stands in the way."""
    cli.change(PROFILE, PROFILE + 'args = ["--die-after", "1"]\n')
    await cli("place", "sim-nvl", "--no-wait")
    while (await cli.json("ps"))["replicas"][0]["state"] != "failed":
        pass
    fill(cli, "r1-t02")
    code, out, err = await cli("restart", "sim-nvl-0")
    assert code == 4, err
    assert "sim-nvl-0 is stopped" in out
    assert SPARED not in err
    assert (await cli.json("ps"))["replicas"] == []


async def test_a_changed_profile_that_cannot_start_replaces_nothing(cli: Cli) -> None:
    """ensure --restart-changed says what refuses it and that the old one is left; mended, it is replaced."""
    assert (await cli("place", "sim-nvl"))[0] == 0
    before = await running(cli)
    cli.change(SIM, VLLM)
    cli.rack.set("r1-t02", "model-missing")
    code, out, err = await cli("--json", "ensure", "--restart-changed", "sim-nvl")
    (action,) = json.loads(out)["profiles"][0]["actions"]
    assert (code, action["do"], action["done"]) == (4, "place", False), err
    assert [f["id"] for f in action["findings"]] == ["LG913"]
    assert action["why"].endswith(SPARED)
    assert (await running(cli))["launch"] == before["launch"]
    cli.change(VLLM, SIM + 'args = ["--nccl", "nvlink"]\n')
    for words, done in ((("--dry-run",), False), ((), True)):
        code, out, err = await cli("--json", "ensure", "--restart-changed", "sim-nvl", *words)
        actions = json.loads(out)["profiles"][0]["actions"]
        assert (code, [a["do"] for a in actions]) == (0, ["stop", "place"]), err
        (replica,) = (await cli.json("ps"))["replicas"]
        assert (replica["launch"] != before["launch"]) == done


async def test_a_launch_of_that_name_whose_host_is_dark_keeps_none_from_its_restart(cli: Cli) -> None:
    """Nothing of it can be ended, and it may live on as before; the one that is seen makes way for the next."""
    assert (await cli("place", "sim-small"))[0] == 0
    (old,) = (await cli.json("ps"))["replicas"]
    cli.rack.set(old["shards"][0]["host"], "refused")
    assert (await cli("place", "sim-small"))[0] == 0
    seen = {r["launch"]: r for r in (await cli.json("ps"))["replicas"]}
    assert {r["id"] for r in seen.values()} == {"sim-small-0"}
    assert len(seen) == 2
    code, _, err = await cli("restart", "sim-small-0")
    assert code == 0, err
    now = {r["launch"]: r["state"] for r in (await cli.json("ps"))["replicas"]}
    assert sorted(now.values()) == ["ready", "unknown"]
    assert now[old["launch"]] == "unknown"
    assert len(now.keys() - seen.keys()) == 1
    cli.rack.clear(old["shards"][0]["host"])
