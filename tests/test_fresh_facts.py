"""Between plan and start the facts may change: no shard ever starts on stale ones."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from llmgwctl.cli.common import Asked
from llmgwctl.cli.job import Wanted
from llmgwctl.cli.placing import bring_up
from llmgwctl.launch.place import Place
from llmgwctl.rack import Rack, nvl72, serve
from llmgwctl.rack.processes import of_host


@pytest.fixture
async def rack(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    async with serve(nvl72(3, hgx=0), tmp_path / "rack") as made:
        yield made


def once_claimed(monkeypatch, what):
    """Something that happens once, right after the first claim."""
    claim, done = Place.claim, []

    async def claimed(self):
        taken = await claim(self)
        if not done:
            done.append(True)
            what()
        return taken

    monkeypatch.setattr(Place, "claim", claimed)


def processes(rack: Rack) -> list[int]:
    return [pid for host in sorted(rack.inventory.parent.glob("hosts/*")) for pid in of_host(host)]


def started(rack: Rack) -> list[dict]:
    found = rack.inventory.parent.glob("hosts/*/**/sim-nvl-0.r*/spec.json")
    return [json.loads(Path(p).read_text()) for p in found]


async def test_a_fabric_manager_restart_means_a_new_plan(rack, monkeypatch, capsys):
    """All GPUs come back in another domain: it is read and planned again, and what starts is of the new one."""

    def restart():
        for host in ("r1-t01", "r1-t02", "r1-t03"):
            rack.set(host, "clique:9")

    once_claimed(monkeypatch, restart)
    await bring_up(Asked(inventory=rack.inventory), Wanted("sim-nvl", wait=False))
    assert "the chosen hosts have changed since they were read" in capsys.readouterr().err
    specs = started(rack)
    assert len(specs) == 2
    assert {s["fabric"].rpartition(".")[2] for s in specs} == {"9"}
    code = await asyncio.to_thread(_stop_all, rack)
    assert code == 0
    assert processes(rack) == []


def _stop_all(rack: Rack) -> int:
    argv = (sys.executable, "-m", "llmgwctl", "-i", str(rack.inventory), "stop", "--all")
    return subprocess.run(argv, capture_output=True, check=False).returncode


@pytest.mark.parametrize("fault", ["all-dropped", "refused", "mig:1"])
async def test_hosts_that_can_carry_it_no_longer_get_nothing(rack, monkeypatch, capsys, fault):
    """Exit code 4 (or 3 where nobody can tell), no process, and no claim is left on a host that answers."""

    def break_all():
        for host in ("r1-t01", "r1-t02", "r1-t03"):
            rack.set(host, fault)

    once_claimed(monkeypatch, break_all)
    with pytest.raises((typer.Exit, Exception)) as e:
        await bring_up(Asked(inventory=rack.inventory), Wanted("sim-nvl"))
    assert getattr(e.value, "exit_code", None) in (1, 3, 4), e.value
    assert processes(rack) == []
    assert started(rack) == []
    for host in ("r1-t01", "r1-t02", "r1-t03"):
        rack.clear(host)
    assert await asyncio.to_thread(_stop_all, rack) == 0
    capsys.readouterr()
    assert not list(rack.inventory.parent.glob("hosts/*/run/lock/llmgwctl/gpu-*"))
