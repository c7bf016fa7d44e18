"""`demo`: the whole main job on a simulated rack, through the same commands that an operator types."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import typer

from llmgwctl.cli import INTERRUPTED, main
from llmgwctl.cli.common import Interrupted, note, out
from llmgwctl.cli.signals import undisturbed
from llmgwctl.model.errors import LlmgwError

FAULTS = ("r1-t03:imex-down", "r1-t07:gpu-not-joined:2", "r1-t11:degraded:1", "r1-t16:gpu-lost:3")
PROFILE = "sim-nvl"
REPLICA = f"{PROFILE}-0"
QUESTION = "Which GPUs share memory over NVLink?"
STOP_LIMIT_S = 30
VARIABLE = "LLMGWCTL_INVENTORY"
PR_SET_PDEATHSIG = 1  # of Linux


def register(app: typer.Typer) -> None:
    app.command()(demo)


def demo() -> None:
    """Show the whole main job on a simulated rack: an NVL72 with four faults, and two HGX hosts. Leaves nothing.

    Example: llmgwctl demo
    """
    began = time.monotonic()
    try:
        left = _demonstrate()
    except KeyboardInterrupt:
        raise Interrupted("the demo was interrupted; no process and no file of it is left") from None
    if left:
        raise LlmgwError(f"the demo left processes behind: {', '.join(map(str, left))}")
    out(f"\nDone in {time.monotonic() - began:.0f} s; no process and no file of it is left.")


def _demonstrate() -> list[int]:
    """The processes that it has left behind."""
    with _folder() as directory, _rack(directory) as inventory:
        with _found(inventory):
            _show()
        return _left(directory)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    made = TemporaryDirectory(prefix="llmgwctl-demo-")
    try:
        yield Path(made.name)
    finally:
        with undisturbed():
            made.cleanup()


@contextlib.contextmanager
def _found(inventory: Path) -> Iterator[None]:
    """As after `export LLMGWCTL_INVENTORY=...`, so that the commands are as short as they are in practice."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = str(inventory)
    try:
        yield
    finally:
        del os.environ[VARIABLE]
        if before is not None:
            os.environ[VARIABLE] = before


def _show() -> None:
    _say(f"An 18-tray NVL72 and two HGX hosts, with faults: {', '.join(FAULTS)}")
    _type("nvlink")
    _say("A replica of two hosts, inside the NVLink domain: where would it run, and why?")
    _type("plan", PROFILE)
    _say("Start it, and wait until it serves:")
    _type("place", PROFILE)
    _say("Ask it something, through its OpenAI endpoint:")
    out(_ask(_endpoint(), QUESTION))
    _type("ps")
    _type("stop", REPLICA)
    _type("ps")


def _say(text: str) -> None:
    out(f"\n# {text}")


def _type(*words: str) -> None:
    """Run a command as if it had been typed; one that fails ends the demo."""
    out(f"\n$ llmgwctl {' '.join(words)}")
    code = main(words)
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    if code:
        raise LlmgwError(f"`llmgwctl {' '.join(words)}` ended with exit code {code}")


@contextlib.contextmanager
def _rack(directory: Path) -> Iterator[Path]:
    """The rack in a process of its own, as in another terminal."""
    faults = [word for fault in FAULTS for word in ("--fault", fault)]
    argv = [sys.executable, "-m", "llmgwctl", "rack", "nvl72", "--dir", str(directory), "-q", *faults]
    server = subprocess.Popen(
        argv,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=_ends_with_its_parent,  # noqa: PLW1509 (no thread runs here)
    )
    try:
        line = server.stdout.readline() if server.stdout else ""
        if not line:
            raise LlmgwError("the simulated rack did not start")
        yield Path(line.strip())
    finally:
        with undisturbed():
            _end(server)


def _end(server: subprocess.Popen[str]) -> None:
    server.send_signal(signal.SIGTERM)
    try:
        server.wait(STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _ends_with_its_parent() -> None:
    """Where the system can: also when the demo is killed without a chance to end it."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _left(directory: Path) -> list[int]:
    """Processes that were started on the hosts of the rack and still live."""
    from llmgwctl.rack.processes import of_host

    return [pid for host in sorted((directory / "hosts").iterdir()) for pid in of_host(host)]


def _endpoint() -> str:
    """Where the replica serves, as any workstation can read it from the hosts."""
    argv = [sys.executable, "-m", "llmgwctl", "ps", "--json", "-q"]
    said: dict[str, Any] = json.loads(subprocess.run(argv, stdout=subprocess.PIPE, check=False).stdout)
    return next(str(r["endpoint"]) for r in said["replicas"] if r["id"] == REPLICA)


def _ask(endpoint: str, question: str) -> str:
    import urllib.request

    body = {"model": PROFILE, "messages": [{"role": "user", "content": question}]}
    url = f"{endpoint.removesuffix('/v1')}/v1/chat/completions"
    request = urllib.request.Request(  # noqa: S310 (an http address of our own)
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    note(f"POST {url}")
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
        said = json.load(answer)
    return f"> {question}\n{said['choices'][0]['message']['content']}"
