"""However a command is ended, and wherever its output goes: a sentence, an exit code, and nothing left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from llmgwctl.cli.streams import letters

RACK = Path(__file__).parent / "racks/whole"
SAVED = ["-i", str(RACK / "inventory.toml"), "--from", str(RACK / "hosts")]
LLMGWCTL = [sys.executable, "-m", "llmgwctl"]


def living(place: Path) -> list[bytes]:
    """Command lines of the processes that know of this folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(place).encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes())
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("number", "after"), [("SIGTERM", "ps"), ("SIGHUP", "nvlink"), ("SIGINT", "nvlink"), ("SIGKILL", "nvlink")]
)
def test_a_demo_that_is_ended_leaves_nothing(tmp_path: Path, number: str, after: str) -> None:
    """Not a process, whatever the signal; not a file, where it could still do something about it."""
    env = {**os.environ, "TMPDIR": str(tmp_path), "HOME": str(tmp_path)}
    argv = [*LLMGWCTL, "demo"]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, env=env, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as demo:
        assert demo.stdout is not None
        assert any(line == f"$ llmgwctl {after}\n" for line in demo.stdout)
        demo.send_signal(getattr(signal, number))
        _, said = demo.communicate(timeout=60)
    if number != "SIGKILL":
        assert (demo.returncode, said.splitlines()[-1]) == (
            130,
            "llmgwctl: the demo was interrupted; no process and no file of it is left",
        )
        assert not [f for f in tmp_path.rglob("*") if f.is_file()]
    until = time.monotonic() + 40
    while living(tmp_path) and time.monotonic() < until:
        time.sleep(0.2)
    assert living(tmp_path) == []


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_command_that_is_ended_says_so(number: str) -> None:
    """Ctrl-C, a request to end, a closed terminal: 130 and a word."""
    argv = [*LLMGWCTL, *SAVED, "watch", "--every", "600"]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        wait_for_loop(process.pid)
        process.send_signal(getattr(signal, number))
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, "llmgwctl: interrupted\n")


def wait_for_loop(pid: int) -> None:
    """Until its event loop waits: the process has an epoll descriptor and sleeps."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        held = [os.readlink(f) for f in Path(f"/proc/{pid}/fd").iterdir() if f.exists() or f.is_symlink()]
        if any("eventpoll" in h for h in held):
            time.sleep(0.5)
            return
        time.sleep(0.05)


def test_ctrl_c_while_it_is_being_loaded() -> None:
    """No traceback, however early."""
    script = (
        "import sys\n"
        "class Late:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'llmgwctl.cli.app': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Late())\n"
        "from llmgwctl.cli import main\n"
        "sys.exit(main(['--help']))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "llmgwctl: interrupted\n")


def test_ctrl_c_while_a_class_is_being_made(tmp_path: Path) -> None:
    """Python runs a text then, and would die of the signal at its end, however late and whoever has dealt with it."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Late:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'llmgwctl.render.rack': import llmgwctl.render.visible; exec('raise KeyboardInterrupt')\n"
        "sys.meta_path.insert(0, Late())\n"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([*LLMGWCTL, *SAVED, "nvlink"], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "llmgwctl: interrupted\n")


def test_a_second_handler_is_left_alone() -> None:
    """What nohup has set stays: a closed terminal does not end such a run."""
    script = f"trap '' HUP; exec {sys.executable} -m llmgwctl {' '.join(SAVED)} watch --every 600"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        wait_for_loop(process.pid)
        process.send_signal(signal.SIGHUP)
        time.sleep(0.3)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 130


@pytest.mark.parametrize("words", ["hosts --json", "--help"])
@pytest.mark.parametrize(
    ("where", "why"),
    [(">&-", "Bad file descriptor"), (">/dev/full", "No space left on device")],
    ids=["closed", "full"],
)
def test_a_result_that_cannot_be_written(words: str, where: str, why: str) -> None:
    """One sentence and exit code 1; nothing of Python."""
    line = f"{sys.executable} -m llmgwctl {' '.join(SAVED)} {words} {where}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, f"llmgwctl: stdout: the result could not be written: {why}\n")


def test_closed_streams_that_nobody_needs(tmp_path: Path) -> None:
    """From cron, what goes into a file goes there; and no file or socket becomes stdout by chance."""
    file = tmp_path / "llmgw.prom"
    line = f"{sys.executable} -m llmgwctl {' '.join(SAVED)} metrics --textfile {file} <&- >&- 2>&-"
    assert subprocess.run(["sh", "-c", line], check=False).returncode == 0
    assert file.read_text().startswith("# HELP")


def test_a_full_stderr_does_not_stop_a_command(tmp_path: Path) -> None:
    line = f"{sys.executable} -m llmgwctl {' '.join(SAVED)} nvlink --html {tmp_path}/x.html 2>/dev/full"
    assert subprocess.run(["sh", "-c", line], check=False).returncode == 0


@pytest.mark.parametrize(
    ("environ", "encoding", "more"),
    [
        ({"LC_ALL": "C"}, "utf-8", False),
        ({"LC_ALL": "POSIX", "LANG": "en_US.UTF-8"}, "utf-8", False),
        ({"LANG": "C"}, "utf-8", False),
        ({"LANG": "en_US.ISO-8859-1"}, "utf-8", False),
        ({"LANG": "C.UTF-8"}, "utf-8", True),
        ({"LANG": "en_US.utf8@euro"}, "utf-8", True),
        ({"LC_CTYPE": "de_DE.UTF-8", "LANG": "C"}, "utf-8", True),
        ({"LANG": "C.UTF-8", "TERM": "dumb"}, "utf-8", False),
        ({"LANG": "de_DE"}, "iso8859-1", False),
        ({}, "utf-8", True),
        ({}, "ascii", False),
        ({}, None, False),
    ],
)
def test_the_alphabet_is_that_of_the_locale(environ: dict[str, str], encoding: str | None, more: bool) -> None:
    """What the operator has set, whatever Python does in the C locale."""
    assert letters(environ, encoding) is more


def test_the_c_locale_gets_ascii() -> None:
    """Also where Python has set an LC_CTYPE of its own."""
    clean = {k: v for k, v in os.environ.items() if k != "LANG" and not k.startswith("LC_")}
    for locale in ({"LC_ALL": "C"}, {"LANG": "C"}):
        done = subprocess.run([*LLMGWCTL, *SAVED, "nvlink"], env=clean | locale, capture_output=True, check=False)
        assert done.stdout.isascii()
        assert b"####" in done.stdout
