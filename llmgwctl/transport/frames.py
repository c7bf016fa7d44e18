"""The framer's two ends: sections into the payload of probe.sh, and its byte-counted answer into outputs. Total."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from llmgwctl.probe.base import Output, Section

# A name is a word of the protocol and a file name on both machines.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
MAX_HEADER = 1024
MAX_SECTION_BYTES = 4 * 1024 * 1024
LOST = "the answer broke off before this section"
_HEADER = re.compile(
    r"@ (?P<name>[A-Za-z0-9][A-Za-z0-9._-]{0,99}) (?P<rc>-|\d{1,4}) (?P<ms>\d{1,9}) (?P<out>\d{1,9}) (?P<err>\d{1,9}) "
    r"(?P<state>ran|skipped|unneeded) (?P<truncated>[01])(?: (?P<note>.*))?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: the sections that are whole. `begun`: the framer ran at all; `ended`: it said everything.

    `ended_at`: the host's own time at its end, as it printed it.
    """

    outputs: dict[str, Output]
    begun: bool
    ended: bool
    ended_at: str = ""

    def complete(self, sections: Sequence[Section], note: str = LOST) -> dict[str, Output]:
        """One output for each section that was asked, in that order; one that did not come says why."""
        lost = Output(exit_code=None, note=note)
        return {s.name: self.outputs.get(s.name, lost) for s in sections}


CLOCK = "clock"


def clocked(outputs: dict[str, Output], sent_at: float, received_at: float, ended_at: str) -> dict[str, Output]:
    """What the host says of its clock, with the controller's times around it: where they are kept for a replay."""
    said = outputs.get(CLOCK)
    if said is None or said.state != "ran" or not ended_at:
        return outputs
    ours = f"end {ended_at}\nsent {sent_at:.6f}\nreceived {received_at:.6f}\n"
    return outputs | {CLOCK: replace(said, stdout=said.stdout + ours)}


def payload(sections: Sequence[Section]) -> bytes:
    """What probe.sh reads from its standard input."""
    names = [s.name for s in sections]
    if len(set(names)) != len(names):
        raise ValueError(f"a section is asked twice: {sorted(names)}")
    return b"".join(_asked(s) for s in sections)


@lru_cache(maxsize=256)  # all hosts are asked the same
def _asked(section: Section) -> bytes:
    words = [section.after or "-", section.after_says or "-", section.unless or "-"]
    if not NAME.fullmatch(section.name) or any(re.search(r"\s", w) for w in words):
        raise ValueError(f"section {section.name!r}: names and conditions are single words")
    if any("\n" in a for a in (*section.argv, *section.args)):
        raise ValueError(f"section {section.name!r}: an argument is one line")
    if [bool(section.argv), bool(section.script), bool(section.text)].count(True) != 1:
        raise ValueError(f"section {section.name!r}: either an argv, or a script, or a text")
    kind = "argv" if section.argv else "script" if section.script else f"args:{len(section.args)}"
    body = ("".join(f"{a}\n" for a in section.argv or section.args) + section.body()).encode()
    head = " ".join([section.name, section.lane, str(section.timeout_s), kind, str(len(body)), *words])
    return head.encode() + b"\n" + body


def parse(data: bytes, nonce: str) -> Answer:
    """Any bytes give an answer: noise before the beginning is dropped, and reading stops where a frame does not fit.

    After a misfit nothing more is read: what follows might be the text of a section and not a frame.
    """
    begin = f"LLMGWCTL-BEGIN {nonce}\n".encode()
    start = data.find(begin)
    if start < 0:
        return Answer({}, begun=False, ended=False)
    end = f"LLMGWCTL-END {nonce}".encode()
    outputs: dict[str, Output] = {}
    at = start + len(begin)
    while (frame := _frame(data, at)) is not None:
        name, output, at = frame
        outputs.setdefault(name, output)
    ended = data.startswith(end, at)
    said = data[at + len(end) : at + len(end) + 64].decode("utf-8", "replace").split("\n")[0].strip() if ended else ""
    return Answer(outputs, begun=True, ended=ended, ended_at=said)


def _frame(data: bytes, at: int) -> tuple[str, Output, int] | None:
    """The frame that begins at `at` and where the next one would; None: no whole frame is there."""
    newline = data.find(b"\n", at, at + MAX_HEADER)
    if newline < 0:
        return None
    head = _HEADER.fullmatch(data[at:newline].decode("utf-8", "replace"))
    if head is None:
        return None
    middle = newline + 1 + int(head["out"])
    end = middle + int(head["err"])
    if end > len(data):
        return None
    return head["name"], _output(head, data[newline + 1 : middle], data[middle:end]), end


def _cut(said: bytes) -> str:
    """The framer keeps to this limit; what answers in its place may not."""
    return said[:MAX_SECTION_BYTES].decode("utf-8", "replace")


def _output(head: re.Match[str], stdout: bytes, stderr: bytes) -> Output:
    state: Literal["ran", "skipped", "unneeded"] = head["state"]  # type: ignore[assignment]
    return Output(
        stdout=_cut(stdout),
        stderr=_cut(stderr),
        exit_code=None if head["rc"] == "-" else int(head["rc"]),
        ms=int(head["ms"]),
        state=state,
        note=(head["note"] or "").strip(),
        truncated=head["truncated"] == "1" or len(stdout) > MAX_SECTION_BYTES,
    )
