"""What is new, worse and gone since the last run: for cron, which should write only when something has changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from llmgwctl.model.finding import SEVERITIES, Changes, Finding, Gone, NotTold, Report

SCHEMA = "llmgwctl.doctor-state/v1"
UNKNOWN, SUPPRESSED = "unknown", "suppressed"
State = dict[str, dict[str, str]]  # host -> id -> severity, or one of these two


def state(report: Report, before: State) -> State:
    """What to remember. Of a host that was not asked this time, or could not be, what was known stays.

    What is suppressed is there and has not been told: it is news on the day on which the suppression ends.
    """
    here = frozenset(report.hosts)
    now: State = {h: dict(ids) for h, ids in before.items() if h not in here}
    for host in report.hosts:
        now[host] = {}
    for finding in report.suppressed:
        for host in finding.hosts:
            now.setdefault(host, {})[finding.id] = SUPPRESSED
    for finding in report.findings:
        for host in finding.hosts:
            now.setdefault(host, {})[finding.id] = finding.severity
    for told in report.unknown:
        for host in told.hosts:
            for check in told.checks:
                was = before.get(host, {}).get(check.id)
                now[host].setdefault(check.id, was if was and was != UNKNOWN else UNKNOWN)
            if any(c.id in ("LG001", "LG605", "LG002") for c in told.checks):
                for id_, severity in before.get(host, {}).items():
                    now[host].setdefault(id_, severity)
    return {h: ids for h, ids in now.items() if ids or h in here}


def changes(report: Report, before: State) -> Changes:
    """Against the last run; hosts that were never seen before have everything new."""
    findings = tuple(f for old in report.findings if (f := _news(old, before)) is not None)
    unknown = tuple(u for told in report.unknown if (u := _new_unknown(told, before)) is not None)
    return Changes(replace(report, findings=findings, unknown=unknown), _gone(report, before))


def _news(finding: Finding, before: State) -> Finding | None:
    hosts = tuple(h for h in finding.hosts if _worse(finding.severity, before.get(h, {}).get(finding.id)))
    return replace(finding, hosts=hosts) if hosts else None


def _worse(now: str, was: str | None) -> bool:
    if was is None or was in (UNKNOWN, SUPPRESSED):
        return True
    return SEVERITIES.index(now) < _rank(was)


def _rank(severity: str) -> int:
    return SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)


def _new_unknown(told: NotTold, before: State) -> NotTold | None:
    hosts = tuple(h for h in told.hosts if any(c.id not in before.get(h, {}) for c in told.checks))
    return replace(told, hosts=hosts) if hosts else None


def _gone(report: Report, before: State) -> tuple[Gone, ...]:
    now = state(report, before)
    lost: dict[tuple[str, str], list[str]] = {}
    for host in report.hosts:
        for id_, severity in before.get(host, {}).items():
            if id_ not in now.get(host, {}) and severity != SUPPRESSED:
                lost.setdefault((id_, severity), []).append(host)
    return tuple(Gone(id_, tuple(hosts), severity) for (id_, severity), hosts in lost.items())


def document(now: State, taken_at: str) -> dict[str, Any]:
    return {"schema": SCHEMA, "taken_at": taken_at, "hosts": now}


def read(text: str) -> State:
    """The state that a text holds; one that is not ours is no state."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    schema = document.get("schema") if isinstance(document, Mapping) else None
    if isinstance(schema, str) and schema != SCHEMA:
        raise ValueError(f"its schema is {schema[:60]}, and {SCHEMA} is known here")
    hosts = document.get("hosts") if isinstance(document, Mapping) and schema else None
    if not isinstance(hosts, Mapping):
        raise ValueError("it is not whole, or not written by llmgwctl doctor")
    return {str(h): {str(i): str(s) for i, s in ids.items()} for h, ids in hosts.items() if isinstance(ids, Mapping)}
