"""metrics, site, watch, nvlink --html and node --html, as they are typed."""

from __future__ import annotations

import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from llmgwctl.cli import main
from llmgwctl.publish import locked

RACKS = Path(__file__).parent / "racks"


@pytest.fixture
def cli(capsys, monkeypatch):
    """cli(rack, words ...): (exit code, stdout, stderr) of a command over one of the racks of tests/racks."""
    monkeypatch.setenv("COLUMNS", "100")

    def run(rack: str, *words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["-i", str(RACKS / rack / "inventory.toml"), "--from", str(RACKS / rack / "hosts"), *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_metrics_to_stdout_and_as_json(cli):
    """Exit code 0, also with a host that does not answer: it is in them."""
    code, out, err = cli("seven-faults", "metrics")
    assert (code, err) == (0, "")
    assert 'llmgw_probe_success{host="r1-t06"} 0.0' in out
    assert "llmgw_doctor_findings{id=" in out
    code, out, _ = cli("seven-faults", "metrics", "--json")
    found = [s for s in json.loads(out)["samples"] if s["name"] == "llmgw_imex_up"]
    assert {s["labels"]["host"]: s["value"] for s in found}["r1-t03"] == 0


def test_metrics_into_files_remember_a_dead_host(cli, tmp_path):
    """Nothing on stdout; the age of a host that answers no more comes out of the file before."""
    prom, targets = tmp_path / "llmgw.prom", tmp_path / "targets.json"
    prom.write_text('llmgw_facts_timestamp_seconds{host="r1-t06"} 1.7e+09\n')
    assert cli("seven-faults", "metrics", "--textfile", str(prom), "--file-sd", str(targets))[:2] == (0, "")
    assert 'llmgw_facts_timestamp_seconds{host="r1-t06"} 1.7e+09' in prom.read_text()
    assert json.loads(targets.read_text()) == []
    assert oct(prom.stat().st_mode & 0o777) == "0o644"


def test_site(cli, tmp_path):
    """Every page, the document and the metrics, with links that lead to files of the site."""
    site = tmp_path / "www"
    code, out, _ = cli("seven-faults", "site", str(site), "--refresh", "60", "--json")
    assert code == 0
    found = {str(p.relative_to(site)) for p in site.rglob("*") if p.is_file() and not p.name.startswith(".")}
    hosts = {f"nodes/{p.name}.html" for p in (RACKS / "seven-faults/hosts").iterdir()}
    fixed = {"index.html", "admin/nvlink/index.html", "doctor.html", "api/v1/nvlink", "metrics"}
    assert found == fixed | hosts
    assert json.loads(out) == {"schema": "llmgwctl.site/v1", "directory": str(site), "files": len(found)}
    assert json.loads((site / "api/v1/nvlink").read_text())["schema"] == "llmgwctl.nvlink/v1"
    for page in ("index.html", "admin/nvlink/index.html", *hosts):
        text = (site / page).read_text()
        assert '<meta http-equiv="refresh" content="60">' in text
        for href in {h.split('"')[0] for h in text.split('href="')[1:]}:
            assert href.startswith("#") or ((site / page).parent / href).resolve().is_file(), (page, href)


def test_a_suppression_that_has_ended_is_said_where_nobody_runs_the_doctor(capsys, tmp_path):
    """In the metrics, on the site's page of the doctor, and on stderr of both; not before its day, and what it had set
    aside counts again."""
    rack = RACKS / "seven-faults"
    block = '\n[[doctor.suppress]]\ncheck = "LG301"\nreason = "ticket <7>"\nuntil = {day}\n'
    made = tmp_path / "inventory.toml"

    def run(day: str, *words: str) -> tuple[int, str, str]:
        made.write_text((rack / "inventory.toml").read_text() + block.format(day=day))
        capsys.readouterr()
        code = main(["-i", str(made), "--from", str(rack / "hosts"), *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    code, out, err = run("2020-01-31", "metrics")
    assert code == 0
    assert 'llmgw_doctor_suppressions_ended{id="LG301",until="2020-01-31"} 1.0' in out
    assert 'llmgw_doctor_findings{id="LG301",severity="block"} 1.0' in out
    assert "the suppression of LG301 (ticket <7>) ended on 2020-01-31" in err
    code, _, err = run("2020-01-31", "site", str(tmp_path / "www"))
    page = (tmp_path / "www/doctor.html").read_text()
    assert "Suppressions that have ended" in page
    assert "ticket &lt;7&gt;" in page
    assert "ended on 2020-01-31" in err
    code, out, err = run("2999-01-31", "metrics")
    assert (code, err) == (0, "")
    assert "llmgw_doctor_suppressions_ended{" not in out
    assert "LG301" not in out
    run("2999-01-31", "site", str(tmp_path / "other"))
    assert "have ended" not in (tmp_path / "other/doctor.html").read_text()


def test_site_refuses_a_folder_of_something_else(cli, tmp_path):
    (tmp_path / "precious").write_text("")
    code, out, err = cli("whole", "site", str(tmp_path))
    assert (code, out) == (2, "")
    assert "no site of llmgwctl" in err


def test_a_second_site_at_the_same_time_leaves_it_alone(cli, tmp_path):
    with locked(tmp_path / "www"):
        code, _, err = cli("whole", "site", str(tmp_path / "www"))
    assert code == 0
    assert "another llmgwctl" in err
    assert not (tmp_path / "www").exists()


@pytest.mark.parametrize("words", [["nvlink"], ["node", "r1-t01"]])
def test_html(cli, tmp_path, words):
    """Into a file, or to stdout with "-"; the exit code is that of the command."""
    file = tmp_path / "page.html"
    code, out, _ = cli("whole", *words, "--html", str(file))
    assert (code, out) == (0, "")
    assert file.read_text().startswith("<!doctype html>")
    assert "NV18" in file.read_text()
    assert cli("whole", *words, "--html", "-")[1].startswith("<!doctype html>")


# --- watch ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def watch(cli, tmp_path):
    state = tmp_path / "watch.json"
    return lambda rack, *words: cli(rack, "watch", "--once", "--state", str(state), *words)


def test_watch_once(watch):
    """The first look is quiet, then what changes: 1 when it got worse, quiet and 0 when nothing did."""
    code, out, err = watch("whole")
    assert (code, out) == (0, "")
    assert "first look: 3 hosts" in err
    assert watch("whole", "-q") == (0, "", "")
    code, out, err = watch("dropped", "-q")
    assert (code, err) == (1, "")
    assert out.startswith("worse: NVLink domain nvl:be035fa0….32766 (rack r1): all 12 GPUs dropped at once")
    assert out.count("\n") == 1
    assert watch("dropped", "-q") == (0, "", "")
    code, out, _ = watch("whole", "--json")
    assert code == 0
    said = json.loads(out)
    assert (said["schema"], said["first_look"]) == ("llmgwctl.transitions/v1", False)
    assert [t["kind"] for t in said["transitions"]] == ["domain-back"]


def test_watch_once_as_json_is_always_one_document(watch):
    """Also the first look, and one that finds nothing."""
    for first in (True, False):
        said = json.loads(watch("whole", "--json")[1])
        assert said == {
            "schema": "llmgwctl.transitions/v1",
            "taken_at": "2026-05-28T20:26:40Z",
            "first_look": first,
            "transitions": [],
        }


def test_watch_exec_gets_each_transition(watch, tmp_path):
    """One JSON document on stdin for each; what the command says is not the result."""
    seen = tmp_path / "seen.jsonl"
    command = f"sh -c 'cat >> {shlex.quote(str(seen))}; echo noise'"
    watch("whole", "--exec", command)
    assert not seen.exists()
    code, out, _ = watch("dropped", "--exec", command)
    assert code == 1
    assert "noise" not in out
    assert [json.loads(line)["kind"] for line in seen.read_text().splitlines()] == ["domain-dropped"]


@pytest.mark.parametrize("command", ["false", "/nowhere/command"])
def test_watch_exec_that_fails_is_said(watch, command):
    watch("whole")
    watch("dropped")
    code, _, err = watch("whole", "--exec", command)
    assert code == 1
    assert f"--exec {command}" in err


def test_overlapping_watches_do_not_both_act(watch, tmp_path):
    """While one has the state, another ends at once, says nothing on stdout and runs no command."""
    watch("whole")
    before = (tmp_path / "watch.json").read_text()
    with locked((tmp_path / "watch.json").resolve()):
        code, out, err = watch("dropped", "--exec", f"touch {tmp_path}/acted")
    assert (code, out) == (0, "")
    assert "another llmgwctl" in err
    assert not (tmp_path / "acted").exists()
    assert (tmp_path / "watch.json").read_text() == before
    assert watch("dropped")[0] == 1


def test_a_crash_before_the_state_is_written_repeats_the_message(watch, tmp_path, monkeypatch):
    """Told twice rather than never."""
    watch("whole")
    with monkeypatch.context() as m:
        m.setattr("llmgwctl.publish.write_file", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert watch("dropped")[0] == 130
    assert watch("dropped")[0] == 1


@pytest.mark.parametrize("text", ["{", '{"schema": "llmgwctl.watch/v9"}', ""])
def test_a_state_that_is_none_is_refused_and_kept(watch, tmp_path, text):
    (tmp_path / "watch.json").write_text(text)
    code, out, err = watch("whole")
    assert (code, out) == (2, "")
    assert "watch.json" in err
    assert "move it away" in err
    assert "Error" not in err
    assert (tmp_path / "watch.json").read_text() == text


def test_once_needs_a_state(cli):
    code, _, err = cli("whole", "watch", "--once")
    assert code == 2
    assert "--state" in err


def live(rack: str, *words: str) -> list[str]:
    where = ["-i", str(RACKS / rack / "inventory.toml"), "--from", str(RACKS / rack / "hosts")]
    return [sys.executable, "-m", "llmgwctl", *where, "watch", *words]


def test_watch_goes_on_in_a_pipe_until_it_is_interrupted(tmp_path, watch):
    """A line a transition, dated, as it comes; Ctrl-C ends it with 130."""
    watch("whole")
    argv = live("dropped", "--state", str(tmp_path / "watch.json"), "--every", "5")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
    assert line.startswith("2026-05-28T20:26:40Z worse: NVLink domain")


def test_watch_draws_on_a_terminal():
    """The racks as they are now, and what has changed."""
    master, slave = pty.openpty()
    with subprocess.Popen(live("whole"), stdout=slave, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL) as process:
        os.close(slave)
        said, until = b"", time.monotonic() + 20
        while b"nothing has changed" not in said and time.monotonic() < until:
            said += os.read(master, 65536)
        process.send_signal(signal.SIGINT)
        process.wait(20)
    os.close(master)
    assert b"\x1b[H\x1b[2J" in said
    assert "NVLink Switch" in said.decode()
