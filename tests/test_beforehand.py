"""What the doctor says of the chosen hosts keeps a launch from starting, with its ids, wherever something is placed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from doctor_racks import healthy
from test_doctor_checks import T
from test_life_cli import Cli

from llmgwctl.cli import beforehand, preflight
from llmgwctl.cli.common import Asked, session
from llmgwctl.doctor import CHECKS
from llmgwctl.engines import ENGINES
from llmgwctl.engines.base import Build
from llmgwctl.model.errors import Unreachable
from llmgwctl.model.host import Host, Snapshot
from llmgwctl.model.profile import Profile
from llmgwctl.model.reading import absent, broken
from llmgwctl.placement import plan
from llmgwctl.probe import FABRIC_SET
from llmgwctl.probe.base import Output, Section
from llmgwctl.rack import nvl72, serve
from llmgwctl.transport.base import Transport

FULL = "1 MiB of 97 left"
EXPLAIN = "`llmgwctl doctor --explain LG804` says more"


@pytest.fixture
async def cli(tmp_path: Path) -> AsyncIterator[Cli]:
    async with serve(nvl72(2, hgx=0), tmp_path / "rack") as rack:
        made = Cli(rack, tmp_path / "home")
        yield made
        await made("stop", "--all")
        assert made.processes() == []


def program(cli: Cli, host: str, name: str, text: str) -> None:
    """A program of one host of the rack, in place of the real one."""
    file = cli.rack.inventory.parent / f"hosts/{host}/usr/bin/{name}"
    file.unlink(missing_ok=True)
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


def fill(cli: Cli, host: str) -> None:
    """The file systems of that host have next to no room left."""
    program(cli, host, "stat", '[ "$1" = -f ] || exec /usr/bin/stat "$@"\necho \'4096|25000|300|9000|8000|xfs\'')


async def test_a_full_disk_keeps_every_way_of_placing_from_it(cli: Cli) -> None:
    """place, its --json, plan, ensure and restart: the same id, host and value, exit 4, nothing claimed or started; and
    what is to be restarted runs on."""
    assert (await cli("place", "sim-nvl"))[0] == 0
    fill(cli, "r1-t02")
    told = [await cli("restart", "sim-nvl-0")]
    (replica,) = (await cli.json("ps"))["replicas"]
    assert replica["state"] == "ready"
    assert (await cli("stop", "sim-nvl-0"))[0] == 0
    told += [await cli("place", "sim-nvl"), await cli("plan", "sim-nvl")]
    for code, _, err in told:
        assert code == 4
        assert f"profile sim-nvl: LG804 on r1-t02: A file system is full, or nearly: /tmp: {FULL}" in err
        assert "(host admin)" in err
        assert EXPLAIN in err
    planned = told[-1][1]
    assert planned.startswith("sim-nvl: refused, for what is said at the end; it would be 1 replica in tier nvlink")
    assert "LG804" not in planned
    for words in (("place", "sim-nvl"), ("plan", "sim-nvl")):
        code, out, _ = await cli("--json", *words)
        (finding,) = json.loads(out)["findings"]
        assert (code, finding["id"], finding["hosts"], finding["severity"]) == (4, "LG804", ["r1-t02"], "block")
        assert FULL in finding["value"]
    code, out, _ = await cli("--json", "ensure", "sim-nvl")
    (action,) = json.loads(out)["profiles"][0]["actions"]
    assert (code, action["do"], action["done"]) == (4, "place", False)
    assert [f["id"] for f in action["findings"]] == ["LG804"]
    assert (await cli.json("ps"))["replicas"] == []
    assert cli.processes() == []
    assert (await cli("doctor", "--explain", "LG804"))[0] == 0


async def test_what_the_operator_has_set_aside_does_not_refuse(cli: Cli) -> None:
    """Its reason and its value are said, and it starts."""
    fill(cli, "r1-t02")
    text = cli.rack.inventory.read_text()
    block = '[[doctor.suppress]]\ncheck = "LG804"\nreason = "ticket 7"\nuntil = 2999-01-01\n'
    cli.rack.inventory.write_text(f"{text}\n{block}")
    code, _, err = await cli("place", "sim-nvl")
    assert code == 0, err
    assert "! set aside by the inventory, ticket 7 (until 2999-01-01): LG804 on r1-t02" in err


async def test_what_could_not_be_told_is_said_and_does_not_refuse(cli: Cli) -> None:
    """A log that this account may not read: the ids of the checks that say nothing, in the plan and at the start."""
    for name in ("journalctl", "dmesg"):
        program(cli, "r1-t02", name, "echo 'Permission denied' >&2\nexit 1")
    unknown = (await cli.json("plan", "sim-nvl"))["unknown"]
    assert {"LG511", "LG523"} <= {u["id"] for u in unknown}
    assert all(u["hosts"] == ["r1-t02"] for u in unknown)
    for words in (("plan", "sim-nvl"), ("place", "sim-nvl")):
        code, out, err = await cli(*words)
        assert code == 0, err
        assert "! not checked on r1-t02: LG511, LG512" in " ".join((out + err).split())
        assert "reading the kernel log needs a right" in " ".join((out + err).split())


async def test_a_model_is_judged_once(cli: Cli) -> None:
    """`doctor --profile`, `plan` and `place` say the same of it, in the same words."""
    cli.rack.set("r1-t02", "model-missing")
    seen = []
    for words in (("doctor", "--profile", "deepseek-r1", "--only", "LG9"), ("plan", "deepseek-r1")):
        (finding,) = (await cli.json(*words))["findings"]
        seen.append(finding)
    assert seen[0] == seen[1]
    assert (seen[0]["id"], seen[0]["hosts"], seen[0]["value"]) == (
        "LG913",
        ["r1-t02"],
        "/models/deepseek-r1 is not there",
    )
    code, _, err = await cli("place", "deepseek-r1")
    assert code == 4
    assert "LG913 on r1-t02: The model is not whole on a host of the replica: /models/deepseek-r1 is not there" in err


def test_a_host_that_went_away_has_not_been_found_well() -> None:
    """What could not be read with the last look is broken by its reason, and not what it was before."""
    facts = replace(healthy()[T[0]], resources=absent("nothing"))
    snapshot = beforehand.with_readings(Snapshot(0.0, (facts,)), {T[0]: Unreachable("r1-t01: gone")})
    assert snapshot.hosts[0].resources == broken("r1-t01: gone")
    assert snapshot.hosts[0].gpus == facts.gpus
    assert beforehand.with_readings(Snapshot(0.0, (facts,)), {}).hosts == (facts,)


def test_the_last_look_reads_what_blocking_checks_need() -> None:
    """And nothing twice: neither what the plan was made from, nor a section that is asked for anyway."""
    read = {p.field for p in beforehand.probes()}
    assert {"resources", "kernel_log"} <= read
    assert not read & {p.field for p in FABRIC_SET}
    for need in {n for c in CHECKS if c.severity == "block" for n in c.needs} - {"reachable"}:
        assert need in read | {p.field for p in FABRIC_SET}
    own = [x.name for x in preflight._sections(Host("h"), Profile("m", "vllm", "/m"), ENGINES["vllm"], Build(), (0,))]
    assert not set(own) & {x.name for x in beforehand.sections()}


async def test_one_round_trip_a_host(cli: Cli) -> None:
    """What the doctor needs comes with what the engine needs: each chosen host is read once more, and no other one."""
    asked = Asked(inventory=cli.rack.inventory, quiet=True)
    async with session(asked) as opened:
        counting = Counting(opened.transport)
        s = replace(opened, transport=counting)
        profile = s.inventory.profile("sim-nvl")
        snapshot = await s.collect()
        counting.hosts.clear()
        engine = ENGINES["sim"]
        made = plan(s.map(snapshot), snapshot, profile, engine.ports(profile))
        await preflight.check(s, made, profile, engine, snapshot)
    assert sorted(counting.hosts) == ["r1-t01", "r1-t02"]


class Counting:
    """A transport that remembers whom it asked."""

    def __init__(self, inner: Transport) -> None:
        self.inner, self.hosts = inner, []

    async def read(self, host: Host, sections: Sequence[Section]) -> Mapping[str, Output]:
        self.hosts.append(host.name)
        return await self.inner.read(host, sections)

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)
