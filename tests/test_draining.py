"""hosts drain: who uses a host, and their move or their end; what cannot be moved is not stopped."""

from __future__ import annotations

import json
import signal
import tomllib
from types import SimpleNamespace
from typing import Any

import pytest
import tomli_w
from test_life_cli import Cli, cli  # noqa: F401 (a fixture)
from test_schema import check

from llmgwctl.cli import draining, placing, restarting
from llmgwctl.cli.common import Asked
from llmgwctl.model.errors import ContactLost, LlmgwError
from llmgwctl.model.replica import ReplicaState, ShardState

EXTRA = """
[profiles.sim-extra]
engine = "sim"
gpus_per_node = 1
port = "8200-8299"
"""


async def test_drain_says_who_uses_a_host_and_moves_them(cli: Cli) -> None:  # noqa: F811
    """Without a word nothing changes; moved, the replica serves elsewhere under its name; stopped, it is gone."""
    assert (await cli("place", "sim-small"))[0] == 0
    (before,) = (await cli.json("ps"))["replicas"]
    host = before["shards"][0]["host"]
    told = await cli.json("hosts", "drain", host)
    assert [r["id"] for r in told["replicas"]] == ["sim-small-0"]
    assert f"nothing was changed: `llmgwctl hosts drain {host} --move`" in (await cli("hosts", "drain", host))[2]
    assert (await cli.json("ps"))["replicas"][0]["launch"] == before["launch"]
    code, _, err = await cli("hosts", "drain", host, "--move", "--reason", "fan")
    assert code == 0, err
    (after,) = (await cli.json("ps"))["replicas"]
    assert (after["id"], after["state"]) == ("sim-small-0", "ready")
    assert after["shards"][0]["host"] != host
    assert (await cli("hosts", "drain", after["shards"][0]["host"], "--stop"))[0] == 0
    assert (await cli.json("ps"))["replicas"] == []
    assert json.loads((await cli("--json", "hosts", "drain", host))[1])["replicas"] == []
    assert (await cli("hosts", "drain", host, "--stop", "--move"))[0] == 2


async def test_a_pool_narrows_what_is_emptied(cli: Cli) -> None:  # noqa: F811
    """What runs on hosts of the NODESET that are of another pool is neither told nor touched."""
    assert (await cli("place", "sim-small"))[0] == 0
    before = await launches(cli)
    (host,) = before["sim-small-0"][2]
    told = tomllib.loads(cli.rack.inventory.read_text())
    (block,) = told["hosts"]
    others = ",".join(n for n in cli.rack.hosts if n != host)
    addresses = ",".join(cli.rack.address(n) for n in cli.rack.hosts if n != host)
    told["hosts"] = [
        block | {"name": host, "address": cli.rack.address(host)},
        block | {"name": others, "address": addresses, "pool": "other"},
    ]
    cli.rack.inventory.write_text(tomli_w.dumps(told))
    code, out, err = await cli("hosts", "drain", "r1-t[01-03]", "--pool", "other", "--stop")
    assert (code, out.splitlines()[-1]) == (0, "no replica uses them"), err
    assert await launches(cli) == before
    assert (await cli("hosts", "drain", host, "-w", others))[0] == 2
    _, _, err = await cli("hosts", "drain", "r1-t[01-03]", "--pool", "prod")
    assert "`llmgwctl hosts drain 'r1-t[01-03]' --pool prod --move`" in err


async def launches(cli: Cli) -> dict[str, tuple[str, str, list[str]]]:  # noqa: F811
    """By replica: its launch, its state, its hosts."""
    found = (await cli.json("ps"))["replicas"]
    return {r["id"]: (r["launch"], r["state"], [s["host"] for s in r["shards"]]) for r in found}


async def test_what_has_no_place_elsewhere_runs_on(cli: Cli) -> None:  # noqa: F811
    """Exit code 4 with the reasons host by host; it was never stopped. Room made, it moves."""
    assert (await cli("place", "sim-nvl"))[0] == 0
    before = await launches(cli)
    assert before["sim-nvl-0"][2] == ["r1-t01", "r1-t02"]
    assert (await cli("hosts", "cordon", "r1-t03", "--reason", "DIMM 3"))[0] == 0
    code, out, err = await cli("hosts", "drain", "r1-t02", "--move", "--reason", "fan")
    assert code == 4, err
    assert "sim-nvl: no placement fits" in out
    assert "cordoned: DIMM 3" in out
    assert "cordoned: fan" in out
    assert "is stopped" not in out + err
    assert "sim-nvl-0 was not stopped: it is left as it is" in err
    assert await launches(cli) == before
    assert (await cli("hosts", "uncordon", "r1-t03"))[0] == 0
    code, out, err = await cli("hosts", "drain", "r1-t02", "--move", "--reason", "fan")
    assert code == 0, err
    assert (await launches(cli))["sim-nvl-0"][1:] == ("ready", ["r1-t01", "r1-t03"])


async def test_each_replica_is_moved_or_left_by_itself(cli: Cli) -> None:  # noqa: F811
    """As one document: the one without a place is left, the other is moved, whoever comes first."""
    inventory = cli.rack.inventory
    plain = inventory.read_text()
    inventory.write_text(plain + EXTRA)
    for profile in ("sim-extra", "sim-small"):
        assert (await cli("place", profile))[0] == 0
    before = await launches(cli)
    assert before["sim-extra-0"][2] == before["sim-small-0"][2]
    (host,) = before["sim-small-0"][2]
    inventory.write_text(plain + EXTRA + 'gpu_class = "H100"\n')
    code, out, err = await cli("--json", "hosts", "drain", host, "--move")
    told = json.loads(out)
    check(told)
    assert code == 4, err
    assert told["done"] == [
        {"replica": "sim-extra-0", "did": "left", "code": 4},
        {"replica": "sim-small-0", "did": "moved", "code": 0},
    ]
    assert "no placement fits" in err
    inventory.write_text(plain)  # now nobody knows what sim-extra was
    code, _, err = await cli("hosts", "drain", host, "--move")
    assert code == 2
    assert "sim-extra-0: not moved: " in err
    after = await launches(cli)
    assert after["sim-extra-0"] == before["sim-extra-0"]
    assert (after["sim-small-0"][1], after["sim-small-0"][2] != [host]) == ("ready", True)


async def test_nobody_goes_on_after_ctrl_c(cli: Cli) -> None:  # noqa: F811
    """While the first replica is waited for in its new place: it is left running there, and the second one as it is."""
    inventory = cli.rack.inventory
    plain = inventory.read_text()
    inventory.write_text(plain + EXTRA)
    for profile in ("sim-extra", "sim-small"):
        assert (await cli("place", profile))[0] == 0
    before = await launches(cli)
    (host,) = before["sim-small-0"][2]
    assert before["sim-extra-0"][2] == [host]
    inventory.write_text(plain + EXTRA + 'args = ["--never-ready"]\n')
    process = await cli.begin("hosts", "drain", host, "--move", "-v")
    assert process.stderr is not None
    async for line in process.stderr:
        if b"/health says 503" in line:
            break
    process.send_signal(signal.SIGINT)
    _, err = await process.communicate()
    assert process.returncode == 3, err
    assert b"sim-extra-0 is left running" in err
    assert b"not placed again" not in err
    after = await launches(cli)
    assert after["sim-small-0"] == before["sim-small-0"]
    assert (after["sim-extra-0"][1], after["sim-extra-0"][2] != [host]) == ("starting", True)


async def test_what_is_stopped_without_a_host_that_is_dark_is_not_known_to_be_gone(cli: Cli) -> None:  # noqa: F811
    """Exit code 3, as `stop` has it, also where the dark host is none of those that are drained."""
    assert (await cli("place", "sim-nvl"))[0] == 0
    cli.rack.set("r1-t02", "refused")
    code, out, err = await cli("--json", "hosts", "drain", "r1-t01", "--stop")
    assert (code, json.loads(out)["done"]) == (3, [{"replica": "sim-nvl-0", "did": "stopped", "code": 0}]), err
    assert "rank 1 on r1-t02: its host did not answer" in err
    cli.rack.clear("r1-t02")


@pytest.mark.parametrize(
    ("gone", "raised", "did", "code", "said"),
    [
        (False, None, "not-gone", 1, ""),
        (True, None, "moved", 0, ""),
        (True, LlmgwError("no room"), "lost", 1, "it is stopped, and was not placed again: no room"),
        (True, ContactLost("it may live on"), "unknown", 3, "how it is could not be told: it may live on"),
    ],
)
async def test_what_became_of_a_replica_is_said_as_it_is(monkeypatch, gone, raised, did, code, said):
    """What is half stopped was not left as it was, and what may live on elsewhere is not lost."""
    notes: list[str] = []

    async def sure(*_: Any) -> None: ...

    async def made_way(*_: Any) -> bool:
        return gone

    async def bring_up(*_: Any) -> None:
        if raised:
            raise raised

    monkeypatch.setattr(restarting, "sure_of_the_next", sure)
    monkeypatch.setattr(restarting, "made_way", made_way)
    monkeypatch.setattr(placing, "bring_up", bring_up)
    s: Any = SimpleNamespace(asked=Asked(), note=notes.append)
    snapshot: Any = SimpleNamespace(hosts=())
    replica = ReplicaState("p-0", "l", "ready", (ShardState(0, "n1", "running"),), profile="p")
    done = await draining.moved(s, snapshot, replica)
    assert (done.did, done.code) == (did, code)
    assert said in "".join(notes)
