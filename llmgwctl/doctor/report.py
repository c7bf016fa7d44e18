"""From answers to a report: followers under their cause, equal findings on one line, one next action a host."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from llmgwctl.doctor.base import SEVERITIES, Check, Found, Severity, Unknown, Who
from llmgwctl.doctor.run import Said, spread

COUNTED: tuple[Severity, ...] = ("block", "degrade", "warn")
MATTERS = ("0", "1", "2", "3", "4")


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. `folded`: ids of checks that say nothing of their own because of this one."""

    check: Check
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


@dataclass(frozen=True, slots=True)
class NotTold:
    """Checks that could not be made on these hosts, and why. `counts`: it matters for whether they may be used."""

    checks: tuple[Check, ...]
    hosts: tuple[str, ...]
    why: str
    right: bool = False
    counts: bool = False
    action: str = ""
    who: Who | None = None


@dataclass(frozen=True, slots=True)
class Next:
    """The one thing to do first on these hosts."""

    hosts: tuple[str, ...]
    id: str
    severity: Severity | None  # None: what is wrong could not be told
    action: str
    who: Who
    disturbs: str


@dataclass(frozen=True, slots=True)
class Report:
    findings: tuple[Finding, ...] = ()
    unknown: tuple[NotTold, ...] = ()
    suppressed: tuple[Finding, ...] = ()
    hosts: tuple[str, ...] = ()
    checks: int = 0
    cordoned: Mapping[str, str] = field(default_factory=dict)

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


def report(
    said: Iterable[Said], hosts: Sequence[str], checks: int, cordoned: Mapping[str, str] | None = None
) -> Report:
    single = list(spread(list(said)))
    order = {name: i for i, name in enumerate(hosts)}
    kept, under = _folded(single)
    findings = _grouped_findings(kept, under, order)
    return Report(findings, _grouped_unknown(kept, order), (), tuple(hosts), checks, cordoned or {})


# --- one cause, one message -----------------------------------------------------------------------------------------


def _folded(said: Sequence[Said]) -> tuple[list[Said], dict[tuple[str, str], list[str]]]:
    """What stays, and for (check, host) of each cause the checks that it took with it."""
    causes: dict[str, list[Check]] = defaultdict(list)  # host -> checks that take others with them there
    for check, answer in said:
        if cause := _as_cause(check, answer):
            for name in answer.hosts:
                causes[name].append(cause)
    kept: list[Said] = []
    under: dict[tuple[str, str], list[str]] = defaultdict(list)
    for check, answer in said:
        by = {n: _cause(check, answer, causes[n]) for n in answer.hosts if n in causes}
        if len(by) == len(answer.hosts) and all(by.values()):
            for name, cause in by.items():
                root = _root(cause, causes[name]) if cause else check
                under[root.id, name].append(check.id)
        else:
            kept.append((check, answer))
    return kept, under


def _as_cause(check: Check, answer: Found | Unknown) -> Check | None:
    """What could not be told explains missing readings alone; a finding that was softened, nothing graver than it."""
    if isinstance(answer, Unknown):
        return replace(check, hides=()) if check.explains else None
    softened = answer.severity and SEVERITIES.index(answer.severity) > SEVERITIES.index(check.severity)
    return check if (check.hides or check.explains) and not softened else None


def _cause(check: Check, answer: Found | Unknown, causes: Sequence[Check]) -> Check | None:
    for cause in causes:
        if cause.id == check.id:
            continue
        if any(check.id.startswith(h) for h in cause.hides):
            return cause
        if isinstance(answer, Unknown) and answer.need in cause.explains:
            return cause
    return None


def _root(cause: Check, causes: Sequence[Check]) -> Check:
    """The cause of the cause, as far as it goes."""
    for _ in causes:
        above = next((c for c in causes if c.id != cause.id and any(cause.id.startswith(h) for h in c.hides)), None)
        if above is None:
            break
        cause = above
    return cause


# --- equal things on one line ---------------------------------------------------------------------------------------


def _grouped_findings(
    kept: Sequence[Said], under: Mapping[tuple[str, str], list[str]], order: Mapping[str, int]
) -> tuple[Finding, ...]:
    groups: dict[tuple[Check, Severity, tuple[str, ...], str, Who], list[str]] = defaultdict(list)
    for check, answer in kept:
        if isinstance(answer, Found):
            key = (
                check,
                answer.severity or check.severity,
                answer.values,
                answer.action or check.action,
                answer.who or check.who,
            )
            groups[key] += answer.hosts
    made = [
        Finding(check, severity, _sorted(hosts, order), values, action, who, _followers(check, hosts, under))
        for (check, severity, values, action, who), hosts in groups.items()
    ]
    return tuple(sorted(made, key=lambda f: (SEVERITIES.index(f.severity), f.id, order.get(f.hosts[0], 0))))


def _followers(check: Check, hosts: Iterable[str], under: Mapping[tuple[str, str], list[str]]) -> tuple[str, ...]:
    return tuple(sorted({i for name in hosts for i in under.get((check.id, name), ())}))


def _grouped_unknown(kept: Sequence[Said], order: Mapping[str, int]) -> tuple[NotTold, ...]:
    """By host and reason first (many checks lack the same), then hosts of the same fate together."""
    of_host: dict[tuple[str, str], list[tuple[Check, Unknown]]] = defaultdict(list)
    for check, answer in kept:
        if isinstance(answer, Unknown):
            for name in answer.hosts:
                of_host[name, answer.why].append((check, answer))
    groups: dict[tuple[str, tuple[Check, ...], bool, str, Who | None], list[str]] = defaultdict(list)
    for (name, why), items in of_host.items():
        checks = tuple(dict.fromkeys(c for c, _ in items))
        first = items[0][1]
        action, who = (first.action or "", first.who)
        groups[why, checks, all(u.right for _, u in items), action, who].append(name)
    return tuple(
        NotTold(checks, _sorted(names, order), why, right, any(c.matters for c in checks) and not right, action, who)
        for (why, checks, right, action, who), names in groups.items()
    )


def _sorted(names: Iterable[str], order: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(sorted(dict.fromkeys(names), key=lambda n: order.get(n, len(order))))


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
