"""The doctor's report: on a terminal, as JSON, as JUnit and as one page. All from the same findings."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from llmgwctl.model.finding import (
    FAMILIES,
    SEVERITIES,
    Changes,
    CheckCard,
    Finding,
    Next,
    NotTold,
    Report,
    next_actions,
)
from llmgwctl.model.host import READINGS, Host
from llmgwctl.render.fold import alike, fold
from llmgwctl.render.json import moment
from llmgwctl.render.text import PLAIN, Look, clean, draw, say, table
from llmgwctl.render.words import alike_for, condensed, counted

STYLE = {"block": "bold red", "degrade": "yellow", "warn": "yellow", "info": "dim"}
HEADS = {
    "block": "Must not be used",
    "degrade": "Works, slower or fragile",
    "warn": "Will bite later",
    "info": "Good to know",
}
MAX_CHECKS = 6
Hosts = Mapping[str, Host]
Told = tuple[list[str], tuple[str, tuple[str, ...], bool]]  # hosts; why, checks, whether it counts


def value(finding: Finding) -> str:
    return "; ".join(condensed(finding.values))


# --- terminal -------------------------------------------------------------------------------------------------------


def text(report: Report, hosts: Hosts, look: Look = PLAIN, *, verbose: bool = False, remarks: bool = True) -> str:
    """Findings by severity, then what could not be told, then what to do first. Without `remarks`: their number."""
    actions = next_actions(report)
    later = frozenset((a.id, a.action) for a in actions)
    shown = [f for f in report.findings if remarks or f.severity != "info"]
    parts = list(_by_severity(shown, later, verbose=verbose))
    parts += _unknown(report, hosts, verbose=verbose)
    if verbose and report.suppressed:
        parts += [Text("Suppressed in the inventory", style="bold"), *map(_suppressed, report.suppressed), Text()]
    if actions:
        parts += [Text("What to do first", style="bold"), _actions(actions), Text()]
    parts.append(say(summary(report), "bold" if report.counted() else "green"))
    return draw(parts, look)


def _by_severity(
    findings: Sequence[Finding], later: Collection[tuple[str, str]] = (), before: str = "", *, verbose: bool = False
) -> Iterator[RenderableType]:
    for severity in SEVERITIES:
        mine = [f for f in findings if f.severity == severity]
        if mine:
            yield Text(f"{before}{HEADS[severity]}", style=STYLE[severity])
            yield from (_finding(f, later, verbose=verbose) for f in mine)
            yield Text()


def _finding(finding: Finding, later: Collection[tuple[str, str]], *, verbose: bool) -> RenderableType:
    """`later`: what the list at the end says to do, which need not be said twice."""
    head = Text.assemble(
        (clean(fold(finding.hosts)), "bold"), "  ", (finding.id, STYLE[finding.severity]), "  ", finding.check.title
    )
    lines = [say(value(finding), STYLE[finding.severity])]
    if verbose or (finding.id, finding.action) not in later:
        lines.append(say(f"do: {finding.action}{by(finding)}"))
    if verbose:
        lines.append(say(f"see it: {finding.check.seen}", "dim"))
    if finding.folded:
        lines.append(say(f"not judged because of it: {ids(finding.folded, verbose=verbose)}", "dim"))
    return Group(Padding(head, (0, 0, 0, 2)), Padding(Group(*lines), (0, 0, 0, 6)))


def by(finding: Finding) -> str:
    disturbs = f"; disturbs {finding.check.disturbs}" if finding.check.disturbs else ""
    return f" ({finding.who}{disturbs})"


def _suppressed(finding: Finding) -> RenderableType:
    return Padding(
        say(f"{fold(finding.hosts)}  {finding.id}  {value(finding)}: {finding.suppressed}", "dim"), (0, 0, 0, 2)
    )


def _unknown(report: Report, hosts: Hosts, *, verbose: bool) -> list[RenderableType]:
    """What counts first. Readings that are missing for one reason on the same hosts share a line."""
    rows = list(told(report.unknown, hosts))
    if not rows:
        return []
    lines = [
        (say(fold(names), "bold"), say(why, "yellow" if counts else "dim"), say(ids(checks, verbose=verbose), "dim"))
        for names, why, checks, counts in together(rows)
    ]
    return [Text("Could not tell", style="yellow"), Padding(table(("", "", ""), lines, keep=()), (0, 0, 0, 2)), Text()]


def together(rows: Iterable[Told]) -> Iterator[tuple[list[str], str, tuple[str, ...], bool]]:
    """`imex: not saved` and `hcas: not saved` of the same hosts: "imex, hcas: not saved"."""
    groups: dict[tuple[tuple[str, ...], str, bool], tuple[list[str], list[str]]] = {}
    for names, (why, checks, counts) in rows:
        reading, colon, reason = why.partition(": ")
        single = bool(colon) and reading in READINGS
        of, mine = groups.setdefault((tuple(names), reason if single else why, counts), ([], []))
        of += [reading] if single else []
        mine += checks
    for (names_of, reason, counts), (of, mine) in groups.items():
        words = f"{', '.join(of)}: {reason}" if of else reason
        yield list(names_of), words, tuple(sorted(set(mine))), counts


def told(unknown: Iterable[NotTold], hosts: Hosts) -> Iterator[Told]:
    """Hosts of one fate together, without their own name and address in the words; one that is alone keeps its own."""
    pairs = {
        (name, (alike_for(u.why, hosts.get(name)), tuple(c.id for c in u.checks), u.counts)): u.why
        for u in unknown
        for name in u.hosts
    }
    for names, row in sorted(alike(pairs), key=lambda row: not row[1][2]):
        yield names, (pairs[names[0], row] if len(names) == 1 else row[0], *row[1:])


def ids(checks: Sequence[str], *, verbose: bool) -> str:
    shown = checks if verbose else checks[:MAX_CHECKS]
    return ", ".join(shown) + (f" and {len(checks) - len(shown)} more" if len(checks) > len(shown) else "")


def _actions(actions: Sequence[Next]) -> RenderableType:
    return Padding(table(("", "", "", ""), map(_next, actions), keep=(1, 2)), (0, 0, 0, 2))


def _next(one: Next) -> tuple[Text, Text, Text, Text]:
    severity = one.severity or "unknown"
    words = f"{one.action} ({one.who}{f'; disturbs {one.disturbs}' if one.disturbs else ''})"
    return say(fold(one.hosts), "bold"), say(one.id, STYLE.get(severity, "yellow")), say(severity), say(words)


def summary(report: Report) -> str:
    counts = {s: sum(f.severity == s for f in report.findings) for s in SEVERITIES}
    found = ", ".join(f"{n} {s}" for s, n in counts.items() if n)
    dark = {h for u in report.unknown if u.counts for h in u.hosts}
    more = f"; something that matters could not be told of {len(dark)}" if dark else ""
    aside = f"; {len(report.suppressed)} suppressed" if report.suppressed else ""
    read = f"{counted(len(report.hosts), 'host')}, {counted(report.checks, 'check')}"
    return f"{read}: {found or 'nothing found'}{more}{aside}"


def changed(what: Changes, hosts: Hosts, look: Look = PLAIN) -> str:
    """Only what is new, worse or gone; nothing at all when nothing is."""
    if not what.any:
        return ""
    parts = list(_by_severity(what.report.findings, before="New or worse: "))
    parts += _unknown(what.report, hosts, verbose=False)
    if what.gone:
        rows = ((say(fold(g.hosts), "bold"), g.id, f"was {g.severity}") for g in what.gone)
        parts += [Text("Gone", style="green"), Padding(table(("", "", ""), rows, keep=(1, 2)), (0, 0, 0, 2))]
    return draw(parts, look)


# --- checks ---------------------------------------------------------------------------------------------------------


def listed(checks: Sequence[CheckCard], look: Look = PLAIN) -> str:
    parts: list[RenderableType] = []
    for digit, name in FAMILIES.items():
        mine = [c for c in checks if c.id[2] == digit]
        if mine:
            rows = ((c.id, Text(c.severity, style=STYLE[c.severity]), c.title) for c in mine)
            parts += [Text(name, style="bold"), Padding(table(("", "", ""), rows, keep=(0, 1)), (0, 0, 0, 2)), Text()]
    return draw(parts, look)


def explained(check: CheckCard, look: Look = PLAIN) -> str:
    """What --explain shows: everything that the check says of itself."""
    rows = [
        ("severity", check.severity),
        (
            "about",
            {"host": "each host", "domain": "hosts of a domain", "fleet": "all hosts"}.get(check.scope, check.scope),
        ),
        ("needs", ", ".join(check.needs) or "the verdict of the fabric map"),
        ("see it by hand", check.seen),
        ("what to do", check.action),
        ("who", check.who),
        ("disturbs", check.disturbs or "nothing"),
        ("more", check.doc),
    ]
    return draw([Text(f"{check.id}  {check.title}", style="bold"), table(("", ""), rows)], look)


def catalogue(checks: Sequence[CheckCard]) -> dict[str, Any]:
    return {
        "schema": "llmgwctl.checks/v1",
        "checks": [
            {
                "id": c.id, "title": c.title, "family": c.family, "severity": c.severity, "scope": c.scope,
                "needs": list(c.needs), "seen": c.seen, "action": c.action, "who": c.who, "disturbs": c.disturbs,
                "doc": c.doc,
            }
            for c in checks
        ],
    }  # fmt: skip


# --- documents ------------------------------------------------------------------------------------------------------


def document(report: Report, taken_at: float, what: Changes | None = None) -> dict[str, Any]:
    shown = what.report if what is not None else report
    made: dict[str, Any] = {
        "schema": "llmgwctl.doctor/v1",
        "taken_at": moment(taken_at),
        "hosts": list(report.hosts),
        "findings": [as_json(f) for f in shown.findings],
        "unknown": unknown_as_json(shown),
        "suppressed": [{**as_json(f), "reason": f.suppressed} for f in report.suppressed],
        "suppressions_ended": [
            {"id": s.check, "hosts": sorted(s.hosts), "reason": s.reason, "until": s.until.isoformat()}
            for s in report.ended
        ],
        "cordoned": sorted(report.cordoned),
        "next": [
            {"hosts": list(n.hosts), "id": n.id, "action": n.action, "who": n.who, "disturbs": n.disturbs}
            for n in next_actions(report)
        ],
    }
    if what is not None:
        made["gone"] = [{"id": g.id, "hosts": list(g.hosts), "severity": g.severity} for g in what.gone]
    return made


def unknown_as_json(report: Report) -> list[dict[str, Any]]:
    return [
        {"id": c.id, "hosts": list(u.hosts), "why": u.why, "counts": u.counts, "action": u.action}
        for u in report.unknown
        for c in u.checks
    ]


def as_json(finding: Finding) -> dict[str, Any]:
    return {
        "id": finding.id,
        "title": finding.check.title,
        "family": finding.check.family,
        "severity": finding.severity,
        "hosts": list(finding.hosts),
        "value": value(finding),
        "seen": finding.check.seen,
        "action": finding.action,
        "who": finding.who,
        "disturbs": finding.check.disturbs,
        "not_judged": list(finding.folded),
        "doc": finding.check.doc,
    }


def junit(report: Report, checks: Sequence[CheckCard]) -> str:
    """One case a check: findings that count are failures, what could not be told is skipped."""
    cases = []
    failed = skipped = 0
    for check in checks:
        mine = [f for f in report.findings if f.id == check.id and f.severity != "info"]
        dark = [u for u in report.unknown if any(c.id == check.id for c in u.checks)]
        failed, skipped = failed + bool(mine), skipped + bool(dark and not mine)
        cases.append(_case(check, mine, dark))
    head = (
        f'<testsuite name="llmgwctl doctor" tests="{len(checks)}" failures="{failed}" errors="0" skipped="{skipped}">'
    )
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', head, *cases, "</testsuite>", ""])


def _case(check: CheckCard, mine: Sequence[Finding], dark: Sequence[NotTold]) -> str:
    attributes = f"classname={quoteattr(check.family)} name={quoteattr(f'{check.id} {check.title}')}"
    if mine:
        body = "\n".join(f"{fold(f.hosts)}: {clean(value(f))}\n  do: {f.action} ({f.who})" for f in mine)
        first = f"{fold(mine[0].hosts)}: {clean(value(mine[0]))}"
        inner = f"<failure type={quoteattr(mine[0].severity)} message={quoteattr(first)}>{escape(body)}</failure>"
    elif dark:
        inner = f"<skipped message={quoteattr('; '.join(f'{fold(u.hosts)}: {clean(u.why)}' for u in dark))}/>"
    else:
        return f"  <testcase {attributes}/>"
    return f"  <testcase {attributes}>{inner}</testcase>"
