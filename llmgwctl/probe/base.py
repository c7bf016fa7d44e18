"""A probe: its name, what runs on the host, its time limit, and the pure function that reads the answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

from llmgwctl.model.reading import Reading, broken

TIMEOUT_CODES = frozenset({124, 137})


@dataclass(frozen=True, slots=True)
class Output:
    """What one section said. `exit_code` None: it never ended, or the link died. Times in milliseconds.

    `state`: "ran"; "skipped" (the framer would not start it, `note` says why: another probe at work, a hung tool);
    "unneeded" (its `after` or `unless` says that there is nothing to ask); "not-saved" (a bundle without this section).
    """

    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = 0
    ms: int = 0
    state: Literal["ran", "skipped", "unneeded", "not-saved"] = "ran"
    note: str = ""
    truncated: bool = False

    @property
    def lost(self) -> bool:
        """The connection was lost before it came: nothing is known of it, least of all that it takes long."""
        return self.state == "ran" and self.exit_code is None and bool(self.note) and not self.ms


NOT_SAVED = Output(exit_code=None, state="not-saved", note="not saved")


@dataclass(frozen=True, slots=True)
class Section:
    """One thing that the framer runs: an argv, or a .sh file beside the probe (its arguments: root, state_dir, rights,
    which is "sudo" where the inventory allows `sudo -n`), or a `text` of another package with its own `args`.

    Sections of one lane run one after another, lanes run side by side: "sys" touches no GPU and goes first,
    "gpu" is nvidia-smi (one at a time, under the host's lock), "imex" is nvidia-imex-ctl.
    `file` is the name of the plain file in a saved bundle. `after`: only when that section of the same lane said
    exactly `after_says`. `unless`: not when that section of the same lane exited 0 and printed something.
    """

    name: str
    lane: Literal["sys", "gpu", "imex"]
    timeout_s: int
    argv: tuple[str, ...] = ()
    script: str = ""
    text: str = ""
    args: tuple[str, ...] = ()
    after: str = ""
    after_says: str = ""
    unless: str = ""
    alternatives: tuple[str, ...] = ()  # other file names that a bundle may have instead ("nvidia-smi-q.xml")

    @property
    def file(self) -> str:
        return f"{self.name}.txt"

    def body(self) -> str:
        """The text of the script, read from beside the probes; empty for an argv."""
        return script_text(self.script) if self.script else self.text


@cache
def script_text(name: str) -> str:
    return files("llmgwctl.probe").joinpath(name).read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Probe:
    """`parse` gets the outputs of `sections` by name and gives one reading for `field` of HostFacts."""

    field: str
    sections: tuple[Section, ...]
    parse: Callable[[dict[str, Output]], Reading[object]]
    fabric_set: bool  # part of the small set that cron needs every minute; else only in the full set

    def read(self, outputs: dict[str, Output]) -> Reading[object]:
        """The reading; a parser that fails on what a host printed costs its own section and nothing else."""
        try:
            return self.parse(outputs)
        except Exception as e:  # the one place where a parse failure ends
            return broken(f"could not be understood: {type(e).__name__}: {e}"[:200])


def failure(o: Output) -> str | None:
    """Why a section gave no answer at all, in words; None when it ran to an end."""
    if o.state != "ran":
        return o.note or o.state
    if o.lost:
        return o.note
    if o.exit_code is None or o.exit_code in TIMEOUT_CODES:
        return f"no answer within its limit ({o.ms / 1000:.0f} s)"
    return None
