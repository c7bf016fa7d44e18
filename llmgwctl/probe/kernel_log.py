"""The kernel log of this boot: lines that name the GPU, the fabric, the adapters or a sick kernel."""

from __future__ import annotations

import re

from llmgwctl.model.machine import KernelLine, KernelLog, LogKind
from llmgwctl.model.reading import Reading, broken, ok
from llmgwctl.probe.base import NOT_SAVED, Output, Probe, Section, failure
from llmgwctl.probe.lines import facts

NAME = "kernel-log"
SECTIONS = (Section(NAME, "sys", 40, script="kernel-log.sh"),)
NEEDS = (
    "reading the kernel log needs a right that this account lacks (root, group systemd-journal or adm, or "
    "kernel.dmesg_restrict=0; sudo = true in the inventory lets `sudo -n` read it)"
)
STAMP = re.compile(r"\[ {0,12}(\d{1,12}\.\d{1,9})\] ?|\[[^\]]{1,40}\] ?|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d ?")
ORIGIN = re.compile(r"\S{1,255} kernel: ")
XID = re.compile(r"(S?Xid) \(PCI:([0-9A-Fa-f:.]{7,20})\): (\d{1,5})\b")
KINDS: tuple[tuple[LogKind, re.Pattern[str]], ...] = (
    ("nvrm", re.compile(r"NVRM")),
    ("oom", re.compile(r"oom-kill|Out of memory|Killed process")),
    ("lockup", re.compile(r"soft lockup|hard LOCKUP")),
    ("hung", re.compile(r"blocked for more than")),
    ("nfs", re.compile(r"\bnfs: |\bNFS: ")),
    ("limits", re.compile(r"file-max limit")),
    ("disk", re.compile(r"I/O error|Remounting filesystem read-only|EXT4-fs error|XFS .{0,80}[Ee]rror|nvme")),
    ("mlx5", re.compile(r"mlx5")),
    ("nvlink", re.compile(r"(?i)nvlink|nvswitch|fabric")),
)
LIMIT_TEXT = 1000


def parse(outputs: dict[str, Output]) -> Reading[object]:
    """The lines by time; broken, with the right that is missing, where the log cannot be read."""
    said = outputs.get(NAME, NOT_SAVED)
    if (why := failure(said)) is not None:
        return broken(why)
    source, cut, denied, failed = "", said.truncated, False, ""
    lines: list[KernelLine] = []
    for kind, rest in facts(said.stdout):
        if kind == "|":
            lines.append(line_of(rest))
        elif kind == "source":
            source = rest[:40]
        elif kind == "denied":
            denied = True
        elif kind == "failed":
            failed = failed or rest[:200]
        cut = cut or kind == "cut"
    if not source:
        return broken(NEEDS if denied else failed or "neither journalctl nor dmesg is on this host")
    return ok(KernelLog(tuple(sorted(lines, key=lambda x: x.at_s if x.at_s is not None else 0.0)), source, cut))


def line_of(text: str) -> KernelLine:
    """One line of journalctl or dmesg, in any of their forms, without its stamp and its host."""
    at_s = None
    if (stamp := STAMP.match(text)) is not None:
        at_s = float(stamp[1]) if stamp[1] else None
        text = text[stamp.end() :]
    if (origin := ORIGIN.match(text)) is not None:
        text = text[origin.end() :]
    text = text[:LIMIT_TEXT]
    if (found := XID.search(text)) is not None:
        return KernelLine("sxid" if found[1] == "SXid" else "xid", text, at_s, int(found[3]), found[2])
    return KernelLine(next((kind for kind, pattern in KINDS if pattern.search(text)), "other"), text, at_s)


PROBE = Probe("kernel_log", SECTIONS, parse, fabric_set=False)
