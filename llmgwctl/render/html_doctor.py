"""The doctor's report as one page: the same findings as on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llmgwctl.model.finding import SEVERITIES, Finding, Report, next_actions
from llmgwctl.model.host import Host, Snapshot
from llmgwctl.render.doctor import HEADS, told, value
from llmgwctl.render.fold import fold
from llmgwctl.render.html_base import page
from llmgwctl.render.html_view import span
from llmgwctl.render.json import moment

Hosts = Mapping[str, Host]


def doctor_page(report: Report, snapshot: Snapshot, *, made_at: float | None = None, home_href: str = "") -> str:
    """`home_href`: where the racks are, inside a site."""
    hosts = {f.host.name: f.host for f in snapshot.hosts}
    seen: set[str] = set()
    groups = tuple(_groups(report, seen))
    return page(
        "doctor.html",
        title=f"Doctor: {sum(len(g['findings']) for g in groups)} findings",
        groups=groups,
        unknown=tuple(_unknown(report, hosts, seen)),
        suppressed=[{**_finding(f, ""), "reason": f.suppressed} for f in report.suppressed],
        ended=[
            {"id": s.check, "hosts": fold(sorted(s.hosts)), "reason": s.reason, "until": s.until} for s in report.ended
        ],
        actions=[
            {"hosts": fold(a.hosts), "id": a.id, "severity": a.severity, "action": a.action, "who": a.who,
             "disturbs": a.disturbs}
            for a in next_actions(report)
        ],
        hosts=len(report.hosts),
        checks=report.checks,
        read=moment(snapshot.taken_at),
        age=f"{span(made_at - snapshot.taken_at)} before this page was made" if made_at is not None else "",
        home_href=home_href,
        refresh_s=0,
    )  # fmt: skip


def _groups(report: Report, seen: set[str]) -> Iterator[dict[str, Any]]:
    for severity in SEVERITIES:
        mine = [f for f in report.findings if f.severity == severity]
        if mine:
            findings = [_finding(f, _anchor(f.id, seen)) for f in mine]
            yield {"severity": severity, "head": HEADS[severity], "findings": findings}


def _anchor(id_: str, seen: set[str]) -> str:
    """The first line of a check carries its id."""
    if id_ in seen:
        return ""
    seen.add(id_)
    return id_


def _finding(finding: Finding, anchor: str) -> dict[str, Any]:
    return {
        "anchor": anchor,
        "hosts": fold(finding.hosts),
        "id": finding.id,
        "title": finding.check.title,
        "value": value(finding),
        "action": finding.action,
        "who": finding.who,
        "disturbs": finding.check.disturbs,
        "seen": finding.check.seen,
        "folded": finding.folded,
    }


def _unknown(report: Report, hosts: Hosts, seen: set[str]) -> Iterator[dict[str, Any]]:
    for names, (why, checks, counts) in told(report.unknown, hosts):
        yield {"anchor": _first(checks, seen), "hosts": fold(names), "why": why, "ids": checks, "counts": counts}


def _first(checks: Sequence[str], seen: set[str]) -> str:
    return next((a for c in checks if (a := _anchor(c, seen))), "")
