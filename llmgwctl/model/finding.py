"""What the doctor found: a check as people know it, findings, what could not be told, and what to do first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, field
from datetime import date
from typing import Literal

from llmgwctl.model.fact import fact

Severity = Literal["block", "degrade", "warn", "info"]
SEVERITIES: tuple[Severity, ...] = ("block", "degrade", "warn", "info")
COUNTED: tuple[Severity, ...] = ("block", "degrade", "warn")
Scope = Literal["host", "domain", "replica", "fleet"]
Who = Literal["job owner", "host admin", "rack operator", "fabric admin"]
FAMILIES = {
    "0": "fleet",
    "1": "joining",
    "2": "bandwidth and health of NVLink",
    "3": "IMEX",
    "4": "IMEX channel",
    "5": "GPU health",
    "6": "driver, tools and fabric manager",
    "7": "InfiniBand and RoCE",
    "8": "host, storage and clock",
    "9": "launch",
}


@fact
class CheckCard:
    """What a check says of itself. Its id is permanent; the digit in it is the family.

    `seen`: the command that shows it; `disturbs`: what the cure does to running work, "" when nothing; `needs`: the
    readings without which it can say nothing; `matters`: without it nobody can say whether the host may be used.
    """

    id: str
    title: str
    severity: Severity
    _: KW_ONLY
    seen: str
    action: str
    who: Who
    disturbs: str = ""
    scope: Scope = "host"
    needs: tuple[str, ...] = ()
    matters: bool = False

    @property
    def family(self) -> str:
        return FAMILIES[self.id[2]]

    @property
    def doc(self) -> str:
        return f"docs/checks.md#{self.id.lower()}"


@fact
class Finding:
    """One line of the report. `folded`: ids of checks that say nothing of their own because of this one."""

    check: CheckCard
    severity: Severity
    hosts: tuple[str, ...]
    values: tuple[str, ...]
    action: str
    who: Who
    folded: tuple[str, ...] = ()
    suppressed: str = ""  # the reason of the operator who does not want to hear of it

    @property
    def id(self) -> str:
        return self.check.id


@fact
class NotTold:
    """Checks that could not be made on these hosts, and why. `counts`: it matters for whether they may be used."""

    checks: tuple[CheckCard, ...]
    hosts: tuple[str, ...]
    why: str
    right: bool = False
    counts: bool = False
    action: str = ""
    who: Who | None = None


@fact
class Next:
    """The one thing to do first on these hosts."""

    hosts: tuple[str, ...]
    id: str
    severity: Severity | None  # None: what is wrong could not be told
    action: str
    who: Who
    disturbs: str


@fact
class Report:
    findings: tuple[Finding, ...] = ()
    unknown: tuple[NotTold, ...] = ()
    suppressed: tuple[Finding, ...] = ()
    hosts: tuple[str, ...] = ()
    checks: int = 0
    cordoned: Mapping[str, str] = field(default_factory=dict)
    ended: tuple[Suppression, ...] = ()  # suppressions that hold no more: what they set aside counts again

    def counted(self) -> tuple[Finding, ...]:
        """Findings that make the run a failure: not remarks, and not on hosts that are all cordoned."""
        return tuple(f for f in self.findings if f.severity in COUNTED and not self.all_cordoned(f.hosts))

    def all_cordoned(self, hosts: Iterable[str]) -> bool:
        return all(h in self.cordoned for h in hosts)

    def code(self, strict: bool = False) -> int:
        """1: a problem was found; 3: could not tell; 0: fine."""
        if self.counted():
            return 1
        open_ = [u for u in self.unknown if not self.all_cordoned(u.hosts)]
        return 3 if any(u.counts or strict for u in open_) else 0


@fact
class Suppression:
    """[[doctor.suppress]] of the inventory. `hosts` empty: all of them. Until that day, and not a day longer."""

    check: str
    reason: str
    until: date
    hosts: frozenset[str] = frozenset()

    @property
    def epitaph(self) -> str:
        return f"the suppression of {self.check} ({self.reason}) ended on {self.until}"

    def covers(self, check_id: str, host: str, today: date) -> bool:
        return check_id == self.check and today <= self.until and (not self.hosts or host in self.hosts)


@fact
class Gone:
    """A finding that is no more, on these hosts."""

    id: str
    hosts: tuple[str, ...]
    severity: str


@fact
class Changes:
    """`report`: only what is new or worse."""

    report: Report
    gone: tuple[Gone, ...] = ()

    @property
    def any(self) -> bool:
        return bool(self.report.findings or self.report.unknown or self.gone)


# --- what to do first -----------------------------------------------------------------------------------------------


def next_actions(made: Report) -> tuple[Next, ...]:
    """For each host its gravest finding; hosts with the same one together. Remarks ask for nothing."""
    first: dict[str, Finding | NotTold] = {}
    for finding in made.findings:
        if finding.severity != "info":
            for name in finding.hosts:
                first.setdefault(name, finding)
    for told in made.unknown:
        if told.action:
            for name in told.hosts:
                first.setdefault(name, told)
    groups: dict[tuple[str, Severity | None, str, Who, str], list[str]] = defaultdict(list)
    for name in made.hosts:
        if name in first:
            groups[_step(first[name])].append(name)
    ranked = sorted(groups.items(), key=lambda kv: _rank(kv[0][1]))
    return tuple(Next(tuple(names), id_, severity, action, who, disturbs)
                 for (id_, severity, action, who, disturbs), names in ranked)  # fmt: skip


def _step(what: Finding | NotTold) -> tuple[str, Severity | None, str, Who, str]:
    if isinstance(what, Finding):
        return what.id, what.severity, what.action, what.who, what.check.disturbs
    return what.checks[0].id, None, what.action, what.who or what.checks[0].who, ""


def _rank(severity: Severity | None) -> int:
    """Not knowing comes right after what blocks."""
    return 1 if severity is None else 2 * SEVERITIES.index(severity)
