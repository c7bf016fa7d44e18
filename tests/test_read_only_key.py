"""docs/examples/llmgwctl-probe-only: what a key that may only read can make a host do, whatever its holder sends."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from llmgwctl.cli.allowing import line_of
from llmgwctl.probe.base import Section
from llmgwctl.transport import frames
from llmgwctl.transport.command import boot, script_bytes

EXAMPLE = Path(__file__).parents[1] / "docs/examples/llmgwctl-probe-only"
FRAMER = script_bytes("probe.sh")
# As an argument of a program it is harmless, and as a line of a shell it is not.
ASKED = (Section("said", "sys", 5, argv=("printf", "touch ran", "x")), Section("more", "sys", 5, argv=("echo", "y")))
OWN = boot(FRAMER, ("", "~/.local/state/llmgwctl", "20", "ab12", ""), 25)


def sent(folder: Path, command: str, stdin: bytes = FRAMER + frames.payload(ASKED)) -> subprocess.CompletedProcess:
    allowed = folder / "allowed"
    allowed.write_text(f"{line_of(ASKED)}  what was asked\n")
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "SSH_ORIGINAL_COMMAND": command}
    words = ["sh", str(EXAMPLE), str(allowed)]
    return subprocess.run(words, input=stdin, env=env, cwd=folder, capture_output=True, timeout=60, check=False)


@pytest.mark.parametrize("packing", ["", " gzip"])
def test_what_llmgwctl_sends_is_answered(tmp_path, packing):
    done = sent(tmp_path, OWN + packing)
    assert (done.returncode, b"LLMGWCTL-" in done.stdout) == (0, True), done.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("more", [-len(FRAMER), -9, 1, 40, len(frames.payload(ASKED)), 10**9])
def test_nothing_of_a_request_that_is_allowed_is_made_a_script(tmp_path, more):
    """Cut behind its framer, the arguments of the sections that are to be run would be lines of a shell."""
    cut = OWN.replace(f"llmgwctl {len(FRAMER)} ", f"llmgwctl {len(FRAMER) + more} ")
    assert cut != OWN
    done = sent(tmp_path, cut)
    assert (done.returncode, done.stdout) == (126, b"")
    assert not (tmp_path / "ran").exists()


BENT = {
    "no state_dir": OWN.replace("'~/.local/state/llmgwctl'", "''"),
    "no random word": OWN.replace("ab12", "''"),
    "two lines": f"{OWN}\n{OWN}",
    "a line before": f"id\n{OWN}\n{OWN} gzip",
    "a command": OWN.replace("~/.local", "$(id)"),
    "rights": OWN.removesuffix("''") + "sudo",
    "another packing": f"{OWN} cat",
}


@pytest.mark.parametrize("bent", BENT)
def test_arguments_of_another_kind_are_refused(tmp_path, bent):
    """With a reason, and before anything is run."""
    done = sent(tmp_path, BENT[bent])
    assert (done.returncode, done.stdout) == (126, b"")
    assert b"llmgwctl-probe-only: this key reads hosts" in done.stderr


@pytest.mark.parametrize("stdin", [b"", FRAMER, FRAMER + frames.payload(ASKED) + b"\n", b"id\n"])
def test_another_request_is_refused(tmp_path, stdin):
    done = sent(tmp_path, OWN, stdin)
    assert (done.returncode, done.stdout) == (126, b"")
    assert b"not on the list" in done.stderr
