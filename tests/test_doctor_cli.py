"""`doctor` on the command line, over the saved answers of a simulated rack with three faults."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from test_cli import bundle, cli, live, replayed

__all__ = ["bundle", "cli", "live", "replayed"]  # the rack, what it said, and how a command is run over it

# What depends on the machine that plays the rack: its limits, disks, engines.
SKIP = ("--skip", "LG711,LG8,LG9")
SICK = {"LG101": ["r1-t03"], "LG301": ["r1-t02"]}


def found(text: str) -> dict[str, list[str]]:
    return {f["id"]: f["hosts"] for f in json.loads(text)["findings"] if f["severity"] != "info"}


def test_it_finds_what_is_wrong_and_says_what_is_unknown(cli) -> None:
    """Two findings on their hosts, one host that did not answer; a finding beats what is unknown."""
    code, out, _ = cli("doctor", "--json", *SKIP)
    assert (code, found(out)) == (1, SICK)
    assert [u["hosts"] for u in json.loads(out)["unknown"] if u["id"] == "LG001"] == [["r1-t04"]]
    assert cli("doctor", "-w", "r1-t04", *SKIP)[0] == 3
    assert cli("doctor", "-w", "r1-t01", *SKIP)[0] == 0


def test_a_person_reads_it(cli) -> None:
    """Grouped, folded, with one action a host at the end; remarks only when asked for."""
    _, out, _ = cli("doctor", *SKIP)
    assert re.search(r"r1-t02 +LG301 +The IMEX daemon does not run", out)
    assert "What to do first" in out
    assert "LG611" not in out
    assert "LG611" in cli("doctor", "-v", *SKIP)[1]
    assert "see it: nvidia-imex-ctl -q" in cli("doctor", "-v", *SKIP)[1]


def test_checks_and_severities_are_chosen(cli) -> None:
    """--only, --skip and --severity change what is found, and so the exit code."""
    assert found(cli("doctor", "--json", "--only", "imex")[1]) == {"LG301": SICK["LG301"]}
    assert cli("doctor", "--only", "LG2", "-w", "r1-t[01-03]")[0] == 0
    assert cli("doctor", "--only", "LG1,LG3", "--skip", "LG301", "-w", "r1-t02")[0] == 0


def test_what_has_changed_is_all_that_cron_writes(cli, tmp_path: Path) -> None:
    """The first run tells everything, the second nothing and ends with 0; a state that is not ours is refused."""
    state = tmp_path / "state.json"
    first = cli("doctor", "--changed", "--state", str(state), "-q", *SKIP)
    assert first[0] == 1
    assert "New or worse: Must not be used" in first[1]
    assert "LG611" not in first[1]
    assert cli("doctor", "--changed", "--state", str(state), "-q", *SKIP) == (0, "", "")
    known = json.loads(state.read_text())
    del known["hosts"]["r1-t02"]["LG301"]
    known["hosts"]["r1-t01"]["LG401"] = "block"
    state.write_text(json.dumps(known))
    code, out, _ = cli("doctor", "--changed", "--state", str(state), "--json", *SKIP)
    assert (code, found(out)) == (1, {"LG301": ["r1-t02"]})
    assert json.loads(out)["gone"] == [{"id": "LG401", "hosts": ["r1-t01"], "severity": "block"}]
    state.write_text("{}")
    code, _, err = cli("doctor", "--changed", "--state", str(state), *SKIP)
    assert code == 2
    why = "it is not whole, or not written by llmgwctl doctor: move it away, and the next run begins anew"
    assert err == f"llmgwctl: {state}: {why}\n"


def test_it_writes_a_page_and_junit(cli, tmp_path: Path) -> None:
    """Both beside what is printed, both of the same findings."""
    page, junit = tmp_path / "d.html", tmp_path / "d.xml"
    assert cli("doctor", "--html", str(page), "--junit", str(junit), *SKIP)[0] == 1
    assert "The IMEX daemon does not run" in page.read_text()
    failed = [c.attrib["name"] for c in ET.parse(junit).iter("testcase") if c.find("failure") is not None]  # noqa: S314
    assert sorted(name.split()[0] for name in failed) == sorted(SICK)


def test_a_profile_is_judged_where_it_would_run(cli) -> None:
    """Only its hosts; one that has no place ends with 4 when nothing else is wrong with its pool's hosts."""
    code, out, _ = cli("doctor", "--json", "--profile", "sim-nvl", *SKIP)
    assert (code, found(out)) == (0, {})
    assert len(json.loads(out)["hosts"]) == 2
    code, _, err = cli("doctor", "--profile", "sim-nvl", "-w", "r1-t01", *SKIP)
    assert code == 4
    assert "no placement fits sim-nvl" in err
    assert cli("doctor", "--profile", "nobody", *SKIP)[0] == 2


def test_deep_is_for_live_hosts(cli) -> None:
    assert cli("doctor", "--deep", "-w", "r1-t01")[0] == 2


@pytest.mark.parametrize("line", ["until = 2999-01-01", "until = 2020-01-01"])
def test_a_suppression_holds_until_its_day(cli, live: Path, tmp_path: Path, line: str) -> None:
    """The day of the facts decides; one that has ended is said, and counts again."""
    inventory = tmp_path / "inventory.toml"
    block = f'\n[[doctor.suppress]]\ncheck = "LG301"\nhosts = "r1-t02"\nreason = "ticket 7"\n{line}\n'
    inventory.write_text(live.read_text() + block)
    code, out, err = cli("-i", str(inventory), "doctor", "--json", "-w", "r1-t02", *SKIP)
    if "2999" in line:
        assert (code, found(out)) == (0, {})
        assert [f["reason"] for f in json.loads(out)["suppressed"]] == ["ticket 7 (until 2999-01-01)"]
    else:
        assert (code, found(out)) == (1, {"LG301": ["r1-t02"]})
        assert "ended on 2020-01-01" in err
