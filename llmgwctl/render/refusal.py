"""What the doctor says against a launch, a line each, and the same as JSON beside a plan."""

from __future__ import annotations

from typing import Any

from llmgwctl.model.finding import Finding, Report
from llmgwctl.render.doctor import Hosts, as_json, by, ids, together, told, unknown_as_json, value
from llmgwctl.render.fold import fold


def refusals(report: Report) -> tuple[str, ...]:
    return tuple(f"{_head(f)}: {f.action}{by(f)}" for f in report.findings)


def of_host(finding: Finding) -> str:
    """Beside the name of its host."""
    return f"{finding.id}: {finding.check.title}: {value(finding)}"


def set_aside(report: Report) -> tuple[str, ...]:
    """What would have refused, had the operator not said otherwise."""
    return tuple(f"set aside by the inventory, {f.suppressed}: {_head(f)}" for f in report.suppressed)


def _head(finding: Finding) -> str:
    return f"{finding.id} on {fold(finding.hosts)}: {finding.check.title}: {value(finding)}"


def unknown(report: Report, hosts: Hosts) -> tuple[str, ...]:
    """Readings that are missing for one reason on the same hosts share a line."""
    rows = together(told(report.unknown, hosts))
    return tuple(f"not checked on {fold(n)}: {ids(checks, verbose=False)} ({why})" for n, why, checks, _ in rows)


def document(report: Report) -> dict[str, Any]:
    """`findings` and `unknown` in the shape of llmgwctl.doctor/v1."""
    return {"findings": [as_json(f) for f in report.findings], "unknown": unknown_as_json(report)}
