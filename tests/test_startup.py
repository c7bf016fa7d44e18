"""What a command does not need is not loaded, and what is loaded is what the command needs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.main import get_command

from llmgwctl.cli.app import MODULES, app
from llmgwctl.transport import lean

HEAVY = {
    "asyncio", "asyncssh", "cryptography", "jinja2", "prometheus_client", "ssl", "urllib.request",
    "ClusterShell", "tomli_w", "xml", "llmgwctl.inventory", "llmgwctl.probe", "llmgwctl.render", "llmgwctl.model.host",
}  # fmt: skip

ALL = sum(map(len, MODULES.values()))

PROGRAM = """
import json, sys
from llmgwctl.cli import main
code = main(json.loads(sys.argv[1]))
print("MODULES", json.dumps(sorted(sys.modules)))
sys.exit(code)
"""


def loaded(*words: str) -> set[str]:
    """The modules that a process has at its end."""
    argv = [sys.executable, "-c", PROGRAM, json.dumps(words)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    found, _, listed = done.stdout.rpartition("MODULES ")
    assert found, done
    return set(json.loads(listed))


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["nvlink", "--help"], ["place", "--help"], []])
def test_nothing_heavy_is_loaded_to_say_what_there_is(words):
    assert loaded(*words) & HEAVY == set()


def test_version_needs_no_command():
    """And no part of the terminal's drawing."""
    modules = loaded("--version")
    assert not {m for m in modules if m.startswith(("rich", "pydantic"))}
    assert not {f"llmgwctl.cli.{m}" for m in MODULES} & modules


def test_metrics_load_what_metrics_need():
    """What cron runs each minute draws nothing and places nothing."""
    modules = loaded("metrics", "--from", "tests/racks/whole/hosts", "-q")
    assert "llmgwctl.render.prom" in modules
    unneeded = {"rich.console", "jinja2", "asyncssh", "xml.dom"}
    assert modules & unneeded == set()
    assert not {f"llmgwctl.cli.{m}" for m in MODULES if m not in ("pages", "fleet")} & modules


def test_json_needs_nothing_of_the_terminal():
    modules = loaded("nvlink", "--json", "--from", "tests/racks/whole/hosts", "-q")
    assert "llmgwctl.render.json" in modules
    assert not {m for m in modules if m.startswith(("rich", "jinja2", "prometheus_client", "asyncssh"))}


def test_looking_at_hosts_needs_no_engine_and_no_check(tmp_path):
    """Whatever the inventory could name besides."""
    (tmp_path / "inventory.toml").write_text('[[hosts]]\nname = "r1-t[01-04]"\n')
    modules = loaded("-i", f"{tmp_path}/inventory.toml", "nvlink", "--json", "--from", "tests/racks/whole/hosts", "-q")
    assert "llmgwctl.inventory.load" in modules
    assert not {m for m in modules if m.startswith(("llmgwctl.engines", "llmgwctl.doctor", "llmgwctl.placement"))}


def test_each_module_has_the_commands_that_it_is_said_to_have():
    """Otherwise a command would be found by --help alone."""
    for module, names in MODULES.items():
        (name, *_) = names
        assert set(get_command(app([name])).commands) == set(names), module  # type: ignore[attr-defined]
    assert set(get_command(app()).commands) == {n for names in MODULES.values() for n in names}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "words",
    [
        ["-h", "nvlink"], ["nvlinkk"], [], ["--unknown", "nvlink"], ["--inventory=x", "nvlink"], ["-w"], ["-vq", "x"],
    ],
)  # fmt: skip
def test_all_commands_are_there_where_it_is_not_plain_which_one_is_meant(words):
    assert len(get_command(app(words)).commands) == ALL  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "words",
    [["nvlink"], ["-i", "place", "nvlink"], ["-w", "demo", "--json", "-q", "nvlink", "-h"], ["--from", "x", "nvlink"]],
)
def test_the_command_is_found_behind_the_shared_options(words):
    """The value of an option is no command, whatever it is called."""
    assert set(get_command(app(words)).commands) == {"probe", "nvlink"}  # type: ignore[attr-defined]


def test_completion_knows_all_commands(monkeypatch):
    monkeypatch.setenv("_LLMGWCTL_COMPLETE", "complete_bash")
    assert len(get_command(app(["nvlink"])).commands) == ALL  # type: ignore[attr-defined]


# --- asyncssh without its search for liboqs ---------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch) -> list[str]:
    """What the machine's linker is asked for."""
    found: list[str] = []
    monkeypatch.setattr("ctypes.util.find_library", found.append)
    return found


def test_a_library_that_lies_nowhere_is_not_asked_for(asked, monkeypatch, tmp_path):
    import ctypes.util

    monkeypatch.setattr(lean, "_FOLDERS", (str(tmp_path / "lib*"),))
    before = ctypes.util.find_library
    with lean._unless_there("oqs", "liboqs"):
        assert ctypes.util.find_library("oqs") is None
        ctypes.util.find_library("c")
    assert asked == ["c"]
    assert ctypes.util.find_library is before


@pytest.mark.parametrize("where", ["lib64", "named"])
def test_a_library_that_is_there_is_looked_for_as_ever(asked, monkeypatch, tmp_path, where):
    """Whoever has installed it gets what it adds."""
    import ctypes.util

    (tmp_path / where).mkdir()
    (tmp_path / where / "liboqs.so.9").touch()
    monkeypatch.setattr(lean, "_FOLDERS", (str(tmp_path / "lib*"),))
    monkeypatch.setenv("LD_LIBRARY_PATH", f":{tmp_path}/named")
    with lean._unless_there("oqs", "liboqs"):
        ctypes.util.find_library("oqs")
    assert asked == ["oqs"]
