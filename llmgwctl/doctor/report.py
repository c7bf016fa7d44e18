"""From answers to a report: followers under their cause, equal findings on one line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from llmgwctl.doctor.base import Check, Found, Unknown
from llmgwctl.doctor.run import Said, spread
from llmgwctl.model.finding import SEVERITIES, Finding, NotTold, Report, Severity, Who


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
        if isinstance(answer, Unknown):
            follows = answer.need in cause.explains
        else:
            follows = any(check.id.startswith(h) for h in cause.hides)
        if follows:
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
