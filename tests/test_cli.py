"""The command line: its helps, its exit codes, what goes where, and the looking commands over one saved rack."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from typer.main import get_command

from llmgwctl.cli import main
from llmgwctl.cli.app import app
from llmgwctl.inventory import load

COMMANDS = sorted(get_command(app()).commands)  # type: ignore[attr-defined]
LOCAL = {"rack", "demo", "init"}  # they read no inventory
FAULTS = ("r1-t02:imex-down", "r1-t03:gpu-not-joined:2", "r1-t04:refused")


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The inventory of a small simulated rack that runs, with faults on three of its trays."""
    directory = tmp_path_factory.mktemp("rack")
    with served(directory) as inventory:
        yield inventory


@contextlib.contextmanager
def served(directory: Path) -> Iterator[Path]:
    faults = [w for f in FAULTS for w in ("--fault", f)]
    argv = [sys.executable, "-m", "llmgwctl", "rack", "nvl72", "--trays", "6", "--dir", str(directory), *faults]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield Path(server.stdout.readline().strip())
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == 0


@pytest.fixture(scope="session")
def bundle(live: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What that rack said, saved."""
    directory = tmp_path_factory.mktemp("bundle") / "saved"
    assert main(["probe", "-i", str(live), "--save", str(directory), "-q"]) == 3
    return directory


@pytest.fixture
def replayed(live: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command finds the rack's inventory and answers from the bundle."""
    monkeypatch.setenv("LLMGWCTL_INVENTORY", str(live))
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def cli(bundle: Path, replayed: None, capsys: pytest.CaptureFixture[str]):
    """Run a command over the bundle: (exit code, stdout, stderr)."""

    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["--from", str(bundle), *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command explains itself with an example that begins with its own name."""
    assert main([command, "--help"]) == 0
    said = capsys.readouterr().out
    assert f"Example: llmgwctl {command}" in " ".join(said.split())


def all_commands() -> Iterator[tuple[list[str], Any]]:
    """Every command with the words that call it, those below another too."""
    for name, command in get_command(app()).commands.items():  # type: ignore[attr-defined]
        yield [name], command
        for below, one in getattr(command, "commands", {}).items():
            yield [name, below], one


@pytest.mark.parametrize(
    ("words", "command"), list(all_commands()), ids=lambda v: "-".join(v) if isinstance(v, list) else ""
)
def test_help_loses_no_word(
    words: list[str], command: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brackets are brackets and no markup; a flag has no value."""
    monkeypatch.setenv("COLUMNS", "200")
    assert main([*words, "--help"]) == 0
    said = re.sub(r"[\s│]+", " ", capsys.readouterr().out)
    texts = [command.help or "", *(getattr(p, "help", None) or "" for p in command.params)]
    for text in texts:
        for word in text.replace("\\[", "[").split():
            assert word in said, word
    assert "<bool>" not in said
    assert "BOOLEAN" not in said


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - LOCAL))
def test_shared_options_everywhere(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command that looks at hosts takes the options of all."""
    main([command, "--help"])
    said = capsys.readouterr().out
    for option in ("--inventory", "--hosts", "--pool", "--from", "--json", "--quiet", "--verbose"):
        assert option in said, option


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["nvlink", "--help"]])
def test_help_and_version_are_light(words: list[str]) -> None:
    """They import nothing that takes time."""
    heavy = ("asyncssh", "cryptography", "ClusterShell", "jinja2", "tomllib")
    script = (
        "import sys; from llmgwctl.cli import main; code = main(sys.argv[1:]); "
        f"print(code, [m for m in {heavy!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "0 []"
    assert "llmgwctl" in done.stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nosuch"], 2, "nosuch"),
        (["nvlink", "--nosuch"], 2, "--nosuch"),
        (["nvlink", "-i", "/nowhere/x.toml"], 2, "cannot be read"),
        (["nvlink", "--from", "/nowhere"], 2, "no bundle can be read there: No such file"),
        (["nvlink", "--from", "/etc/passwd"], 2, "no bundle can be read there: Not a directory"),
        (["nvlink", "--from", "/etc"], 2, "holds no folder of a host"),
        (["nvlink", "-w", "a", "-w", "b"], 2, "-w is given 2 times"),
        (["nvlink", "--pool", "a", "--pool", "b"], 2, "--pool is given 2 times"),
        (["node", "a", "-w", "b"], 2, "HOST and -w"),
        (["hosts", "cordon", "a", "-w", "b", "--reason", "x"], 2, "NODESET and -w"),
        (["probe", "a", "--raw", "nvidia-smi-q", "--json"], 2, "--raw"),
        (["plan"], 2, "PROFILE"),
        (["rack", "nvl73"], 2, "nearest known kind is nvl72"),
        (["rack", "--fault", "r1-t01"], 2, "HOST:FAULT"),
        (["rack", "--fault", "r1-t99:imex-down"], 2, "r1-t99"),
        (["rack", "--fault", "r1-t01:imex-dwon"], 2, "imex-down"),
        (["rack", "--fault", "r1-t01:nope"], 2, "`llmgwctl rack --faults` lists them"),
        (["rack", "--dir", ""], 2, "a folder of its own"),
        (["rack", "--dir", "/etc/passwd"], 2, "cannot be written"),
        (["rack", "--dir", "/proc/x/y"], 2, "cannot be written"),
        (["init", "a[1-"], 2, "NODESET: bad range"),
        (["init", "a[1-3]", "--address", "10.0.0.[1-2]"], 2, "llmgwctl: --address: 2 addresses do not pair"),
        (["init", "a", "--pool", "a b"], 2, "llmgwctl: --pool: 'a b' is no name"),
        (["init", "a", "--port", "99999"], 2, "llmgwctl: --port: "),
        (["init", "a", "--user", "a;b"], 2, "llmgwctl: --user: "),
        (["init", "a", "-i", "/nope/new.toml"], 2, "there is no folder /nope"),
    ],
)
def test_usage_errors(
    words: list[str],
    code: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path,
) -> None:
    """What is asked wrongly is said in one sentence on stderr, with exit code 2 and nothing on stdout."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("LLMGWCTL_INVENTORY", raising=False)
    assert main(words) == code
    out, err = capsys.readouterr()
    assert said in err
    assert "Traceback" not in err
    assert out == ""


@pytest.mark.parametrize("name", ["inventory.toml", "hosts"])
def test_a_rack_overwrites_nothing_of_others(tmp_path: Path, name: str, capsys) -> None:
    """Neither an inventory that is none of a rack's, nor what lies in a folder that it would empty."""
    mine = tmp_path / name / "precious" if name == "hosts" else tmp_path / name
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine")
    assert main(["rack", "--dir", str(tmp_path)]) == 2
    assert "no simulated rack's" in capsys.readouterr().err
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [mine]
    assert mine.read_text() == "mine"


def test_no_inventory_says_what_to_do(capsys, monkeypatch, tmp_path) -> None:
    """Without any inventory the message names the places and `init`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("LLMGWCTL_INVENTORY", raising=False)
    assert main(["nvlink"]) == 2
    assert "llmgwctl init" in capsys.readouterr().err


def test_bugs_are_named_without_a_traceback(capsys, monkeypatch) -> None:
    """An error of ours is one line, unless LLMGWCTL_DEBUG asks for the traceback."""

    def fails(*_: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("llmgwctl.cli.common.load_inventory", fails)
    assert main(["nvlink"]) == 1
    err = capsys.readouterr().err
    assert "ZeroDivisionError: oops" in err
    assert "LLMGWCTL_DEBUG=1" in err
    monkeypatch.setenv("LLMGWCTL_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main(["nvlink"])


def test_interrupt_is_130(monkeypatch) -> None:
    """Ctrl-C ends a command with 130."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("llmgwctl.cli.common.load_inventory", interrupted)
    assert main(["nvlink"]) == 130


def test_hosts_are_folded(cli) -> None:
    """Hosts that are alike stand on one line, and nothing is asked of them."""
    code, out, err = cli("hosts")
    assert code == 0
    assert err == ""
    assert [line.split()[:3] for line in out.splitlines()[1:]] == [
        ["r1-t[01-06]", "6", "prod"],
        ["h100-[01-02]", "2", "prod"],
    ]


def test_hosts_check(cli) -> None:
    """--check says which hosts were reached, and is 3 when one was not."""
    code, out, _ = cli("hosts", "--check")
    assert code == 3
    assert "answered when saved" in next(line for line in out.splitlines() if line.startswith("r1-t[01"))
    assert "refused" in next(line for line in out.splitlines() if line.startswith("r1-t04"))
    assert cli("hosts", "--check", "-w", "r1-t01")[0] == 0


def test_nvlink_draws_the_rack(cli) -> None:
    """The drawing has every tray with its state; what could not be told is on stderr, and the code is 3."""
    code, out, err = cli("nvlink")
    assert code == 3
    lines = {name: line for line in out.splitlines() for name in line.split() if name.startswith("r1-t")}
    assert "eligible" in lines["r1-t01"]
    assert "IMEX is down" in lines["r1-t02"]
    assert "■■□■" in lines["r1-t03"]
    assert "refused" in lines["r1-t04"]
    assert err.startswith("could not tell: r1-t04: ")
    assert cli("nvlink", "-w", "r1-t[01-03]")[0] == 0


def test_quiet_says_only_the_result(cli) -> None:
    """-q leaves stderr empty and the result as it is."""
    assert cli("nvlink", "-q")[1:] == (cli("nvlink")[1], "")


def test_json_is_the_whole_of_stdout(cli) -> None:
    """--json gives one document on stdout, before the command or after it."""
    code, out, _ = cli("nvlink", "--json")
    document = json.loads(out)
    assert code == 3
    assert document["schema"] == "llmgwctl.nvlink/v1"
    assert [u["name"] for u in document["unreachable"]] == ["r1-t04"]
    assert main(["--json", "engines"]) == 3


def test_probe_folds(cli) -> None:
    """Equal hosts are one line by range."""
    code, out, _ = cli("probe")
    assert code == 3
    assert "r1-t[01,05-06]" in out
    assert "DOWN" in next(line for line in out.splitlines() if line.startswith("r1-t02"))


def test_probe_raw(cli) -> None:
    """--raw prints what the host said, unchanged; an unknown section and several hosts are refused."""
    code, out, _ = cli("probe", "r1-t01", "--raw", "nvidia-smi-q")
    assert code == 0
    assert "NVSMI LOG" in out
    assert cli("probe", "r1-t01", "--raw", "nvidia-smi")[0] == 2
    assert "one host" in cli("probe", "--raw", "nvidia-smi-q")[2]
    assert cli("probe", "r1-t04", "--raw", "nvidia-smi-q")[0] == 3


def test_probe_json_has_states(cli) -> None:
    """--json has each reading of each host with its state, of the dead host too."""
    hosts = {h["name"]: h["readings"] for h in json.loads(cli("probe", "--json")[1])["hosts"]}
    assert hosts["r1-t01"]["gpus"]["state"] == "ok"
    assert hosts["h100-01"]["imex"]["state"] == "absent"
    assert hosts["r1-t04"]["reachable"]["state"] == "broken"


def test_one_host_said_once(cli) -> None:
    """HOST and -w together are refused; what is wrong with HOST is not said of -w."""
    assert cli("probe", "r1-t01", "-w", "r1-t02")[0] == 2
    for command in (["probe", "nohost"], ["node", "nohost"]):
        code, _, err = cli(*command)
        assert (code, err.startswith("llmgwctl: 'nohost' not in ")) == (2, True)
        assert err.endswith("each known host: h100-[01-02],r1-t[01-06]\n")
    assert "-w 'nohost'" in cli("probe", "-w", "nohost")[2]


@pytest.mark.parametrize(
    "words",
    [
        ["stop", "--all"],
        ["stop", "sim-nvl-0"],
        ["place", "sim-nvl"],
        ["restart", "sim-nvl-0"],
        ["ensure"],
        ["hosts", "cordon", "r1-t01", "--reason", "x"],
        ["hosts", "uncordon", "r1-t01"],
        ["hosts", "drain", "r1-t01", "--stop"],
    ],
    ids=" ".join,
)
def test_nothing_is_done_in_a_bundle(cli, live: Path, words: list[str]) -> None:
    """Exit code 2, and no file is written beside the inventory."""
    before = sorted(live.parent.iterdir())
    code, out, err = cli(*words)
    assert (code, out) == (2, "")
    assert "can be read, and nothing can be" in err
    assert sorted(live.parent.iterdir()) == before


def test_one_silent_host_keeps_its_address(cli, live: Path) -> None:
    """HOST and ADDRESS stand in for several of the same fate, never for one."""
    address = next(h.address for h in load(live).hosts if h.name == "r1-t04")
    for command in ("nvlink", "probe", "hosts --check", "plan deepseek-r1", "doctor"):
        _, out, err = cli(*command.split())
        said = re.sub(r"\s+", "", out + err)
        assert address in said, command
        assert "ADDRESS" not in said.replace("ADDRESSIMEX", ""), command


def test_hosts_have_the_user_that_logs_in(cli, live: Path) -> None:
    """That of [ssh] where a block has none of its own."""
    assert {h["user"] for h in json.loads(cli("hosts", "--json")[1])["hosts"]} == {"ops"}
    first = load(live).hosts[0].address
    assert f"ops@{first.rpartition('.')[0]}." in cli("hosts")[1]


def test_plan_says_that_a_key_is_not_there(live: Path, bundle: Path, tmp_path, capsys) -> None:
    """It plans all the same."""
    text = live.read_text().replace("[profiles.sim-nvl]\n", '[profiles.sim-nvl]\napi_key_env = "NO_SUCH_KEY"\n')
    (tmp_path / "i.toml").write_text(text)
    assert main(["--json", "plan", "sim-nvl", "-i", str(tmp_path / "i.toml"), "--from", str(bundle)]) == 0
    line = text.splitlines().index('api_key_env = "NO_SUCH_KEY"') + 1
    warnings = json.loads(capsys.readouterr().out)["warnings"]
    where = f"{tmp_path}/i.toml:{line}: profiles.sim-nvl.api_key_env"
    assert any(w.startswith(f"`place` will refuse it: {where}: api_key_env NO_SUCH_KEY must hold") for w in warnings)


def test_an_identity_file_that_is_not_there_is_said(live: Path, tmp_path, capsys) -> None:
    text = re.sub("identity_file = .*", 'identity_file = "/nowhere/key"', live.read_text())
    (tmp_path / "i.toml").write_text(text)
    main(["hosts", "-i", str(tmp_path / "i.toml")])
    assert capsys.readouterr().err == "identity_file /nowhere/key is not there: only other keys are offered\n"


def test_replay_says_what_the_live_run_said(live: Path, cli, capsys) -> None:
    """The same rack, live and from its bundle, gives the same drawing but for the moment."""
    capsys.readouterr()
    main(["nvlink", "-i", str(live)])
    seen = capsys.readouterr().out
    assert seen.split("read at")[0] == cli("nvlink")[1].split("read at")[0]


def test_bundle_without_an_inventory(bundle: Path, monkeypatch, tmp_path, capsys) -> None:
    """A bundle alone is enough to look at."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("LLMGWCTL_INVENTORY", raising=False)
    assert main(["nvlink", "--from", str(bundle), "-q"]) == 3
    assert "r1-t06" in capsys.readouterr().out


def test_plan(cli) -> None:
    """A plan names hosts, environment with reasons, and why the others are left out."""
    code, out, _ = cli("plan", "deepseek-r1")
    assert code == 0
    assert "NCCL_MNNVL_ENABLE=1" in out
    assert "IMEX is down" in next(line for line in out.splitlines() if line.startswith("r1-t02"))
    made = json.loads(cli("plan", "deepseek-r1", "--json")[1])
    assert made["tier"] == "nvlink"
    assert [s["host"] for s in made["replicas"][0]["shards"]] == ["r1-t01", "r1-t05"]


def test_plan_that_does_not_fit(cli) -> None:
    """Exit code 4, with a reason for every host and no replica."""
    code, out, _ = cli("plan", "deepseek-r1", "--replicas", "9", "--json")
    made = json.loads(out)
    assert (code, made["replicas"]) == (4, [])
    assert {o["host"] for o in made["left_out"]} == {h["host"] for h in made["left_out"] if h["reasons"]}
    assert len(made["left_out"]) == 8
    assert cli("plan", "nosuch")[0] == 2


def test_env(cli) -> None:
    """The environment of a rank as the plan has it: for people, for a shell, as JSON."""
    made = json.loads(cli("plan", "deepseek-r1", "--json")[1])["replicas"][0]["shards"][1]["env"]
    document = json.loads(cli("env", "deepseek-r1", "--rank", "1", "--json")[1])
    assert {v["name"]: v["value"] for v in document["env"]} == made
    lines = cli("env", "deepseek-r1", "--rank", "1", "--shell")[1]
    shell = subprocess.run(
        ["sh", "-c", f'{lines}\nprintf %s "$NCCL_IB_HCA"'], capture_output=True, text=True, check=True, env={}
    )
    assert shell.stdout == made["NCCL_IB_HCA"]
    assert "NCCL_IB_HCA" in cli("env", "deepseek-r1")[1]
    assert cli("env", "deepseek-r1", "--rank", "2")[0] == 2
    assert cli("env", "deepseek-r1", "-w", "r1-t01")[0] == 4


def test_profile_that_the_engine_refuses(live: Path, bundle: Path, tmp_path, capsys) -> None:
    """What the engine says against a profile is an error of the inventory: exit code 2."""
    document = tomllib.loads(live.read_text())
    document["profiles"] = {"bad": {"engine": "vllm", "tp": 1}}
    file = tmp_path / "i.toml"
    file.write_text(tomli_w.dumps(document))
    line = 1 + file.read_text().split("\n").index("[profiles.bad]")
    assert main(["plan", "bad", "-i", str(file), "--from", str(bundle)]) == 2
    assert capsys.readouterr().err.startswith(f"llmgwctl: {file}:{line}: profiles.bad: has no model_path")


def test_engines(capsys) -> None:
    """All engines of this version are listed."""
    from llmgwctl.engines import ENGINES

    assert main(["engines"]) == 0
    said = capsys.readouterr().out
    assert {line.split()[0] for line in said.splitlines()[1:]} == set(ENGINES)
    assert {"yes", "no"} <= set(said.split())
    assert "True" not in said


def test_no_color_on_a_pipe_and_head_is_no_error(live: Path, bundle: Path) -> None:
    """A reader that has seen enough changes neither the exit code nor what is on stderr; pipes get no colours."""
    argv = [sys.executable, "-m", "llmgwctl", "nvlink", "--from", str(bundle), "-i", str(live), "-q"]
    whole = subprocess.run(argv, capture_output=True, check=False)
    assert b"\x1b" not in whole.stdout
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(argv, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (3, b"")


@pytest.mark.parametrize("no_color", ["", "1"])
def test_terminal(live: Path, bundle: Path, no_color: str) -> None:
    """On a terminal there is a progress bar on stderr and colour on stdout; NO_COLOR takes the colour away."""
    out, err = pty.openpty(), pty.openpty()
    argv = [sys.executable, "-m", "llmgwctl", "nvlink", "--from", str(bundle), "-i", str(live)]
    env = {**os.environ, "TERM": "xterm", "NO_COLOR": no_color}
    with subprocess.Popen(argv, stdout=out[1], stderr=err[1], env=env) as process:
        os.close(out[1])
        os.close(err[1])
        result, other = _all(out[0]), _all(err[0])
    assert process.returncode == 3
    assert "reading hosts" in other
    assert "8/8" in other
    assert "reading hosts" not in result
    assert bool(re.search(r"\x1b\[[0-9;]*3[1-6]m", result + other)) == (not no_color)


def _all(descriptor: int) -> str:
    said = b""
    with contextlib.suppress(OSError):  # the other end of a terminal is closed
        while chunk := os.read(descriptor, 65536):
            said += chunk
    os.close(descriptor)
    return said.decode()


def test_init_writes_an_inventory_that_works(live: Path, tmp_path, capsys) -> None:
    """`init` probes and writes what it found; it never overwrites, and a dead host is in the file too."""
    known = tomllib.loads(live.read_text())
    made = load(live)
    file = tmp_path / "new.toml"
    config = tmp_path / "home" / ".ssh"
    config.mkdir(parents=True)
    (config / "known_hosts").write_text(Path(known["ssh"]["known_hosts"]).read_text())
    words = ["init", "r1-t[01-06]", "--address", made.hosts[0].address[:-1] + "[1-6]", "--port", "2222", "--rack", "r1"]
    words += ["--identity-file", known["ssh"]["identity_file"], "--user", "ops", "--pool", "prod", "-i", str(file)]
    done = subprocess.run(
        [sys.executable, "-m", "llmgwctl", *words],
        env={**os.environ, "HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert "r1-t04" in done.stderr
    found = load(file)
    assert [h.name for h in found.hosts] == [f"r1-t0{i}" for i in range(1, 7)]
    assert {(h.pool, h.rack, h.port) for h in found.hosts} == {("prod", "r1", 2222)}
    assert {h.name: h.address for h in found.hosts} == {h.name: h.address for h in made.hosts[:6]}
    assert "[[hosts]]" in file.read_text()
    assert "--force writes it anew" in done.stderr
    before = file.read_text()
    assert main([*words]) == 2
    assert "--force" in capsys.readouterr().err
    assert file.read_text() == before
