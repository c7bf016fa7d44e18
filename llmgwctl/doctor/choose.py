"""Which checks are run, which findings are kept, and which the operator does not want to hear of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import date

from llmgwctl.doctor.base import Check
from llmgwctl.model.finding import SEVERITIES, Finding, NotTold, Report, Severity, Suppression


def chosen(checks: Iterable[Check], only: Sequence[str] = (), skip: Sequence[str] = ()) -> tuple[Check, ...]:
    """By id or by the beginning of one (LG3), or by a word of the family's name (imex)."""
    return tuple(c for c in checks if (not only or _named(c, only)) and not _named(c, skip))


def strangers(words: Sequence[str], checks: Sequence[Check]) -> tuple[str, ...]:
    """Words that name no check."""
    return tuple(w for w in words if not any(_named(c, (w,)) for c in checks))


def _named(check: Check, words: Sequence[str]) -> bool:
    family = check.family.lower()
    return any(check.id.startswith(w.upper()) if w.upper().startswith("LG") else w.lower() in family for w in words)


def at_least(report: Report, severity: Severity) -> Report:
    """Only findings of that severity or graver."""
    worst = SEVERITIES.index(severity)
    return replace(report, findings=tuple(f for f in report.findings if SEVERITIES.index(f.severity) <= worst))


def on_hosts(report: Report, keep: Callable[[str], bool]) -> Report:
    """What is said of some hosts alone; a finding about several stays when it touches one of them."""
    findings = tuple(_about(f, keep) for f in report.findings if any(keep(h) for h in f.hosts))
    unknown = tuple(_narrowed(u, keep) for u in report.unknown if any(keep(h) for h in u.hosts))
    return replace(report, findings=findings, unknown=unknown, hosts=tuple(h for h in report.hosts if keep(h)))


def _about(finding: Finding, keep: Callable[[str], bool]) -> Finding:
    if finding.check.scope != "host":
        return finding
    return replace(finding, hosts=tuple(h for h in finding.hosts if keep(h)))


def _narrowed(told: NotTold, keep: Callable[[str], bool]) -> NotTold:
    return replace(told, hosts=tuple(h for h in told.hosts if keep(h)))


def suppress(report: Report, suppressions: Sequence[Suppression], today: date) -> Report:
    """Findings on the hosts that a suppression names are set aside, with its reason; what is past counts again, and
    the suppression is named as one that has ended."""
    kept: list[Finding] = []
    aside: list[Finding] = []
    for finding in report.findings:
        reason = {h: why for h in finding.hosts if (why := _reason(finding.id, h, suppressions, today))}
        left = tuple(h for h in finding.hosts if h not in reason)
        if left:
            kept.append(replace(finding, hosts=left))
        for why in dict.fromkeys(reason.values()):
            hosts = tuple(h for h in finding.hosts if reason.get(h) == why)
            aside.append(replace(finding, hosts=hosts, suppressed=why))
    return replace(report, findings=tuple(kept), suppressed=tuple(aside), ended=expired(suppressions, today))


def _reason(check_id: str, host: str, suppressions: Sequence[Suppression], today: date) -> str:
    return next((f"{s.reason} (until {s.until})" for s in suppressions if s.covers(check_id, host, today)), "")


def expired(suppressions: Sequence[Suppression], today: date) -> tuple[Suppression, ...]:
    return tuple(s for s in suppressions if today > s.until)
