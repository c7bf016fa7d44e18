"""All checks over one snapshot: each gets the hosts that it can judge, and says unknown of the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from llmgwctl.doctor.base import Answer, Check, Found, Unknown, View, reading
from llmgwctl.doctor.verdicts import only_a_right
from llmgwctl.model.host import HostFacts

Said = tuple[Check, Answer]


def answers(checks: Sequence[Check], view: View) -> Iterator[Said]:
    """What every check says, in the order of the checks."""
    for check in checks:
        for answer in _of(check, view):
            yield check, answer


def _of(check: Check, view: View) -> Iterator[Answer]:
    judged: list[HostFacts] = []
    for facts in view.hosts:
        if facts.reachable.ok != (REACH in check.needs) and check.applies(facts):
            lacks, here = _needs(check, facts)
            yield from lacks
            if here:
                judged.append(facts)
    whole = view.judging(tuple(judged))
    parts = whole.by_replica() if check.scope in ("domain", "replica") else (whole,)
    try:
        yield from [answer for part in parts for answer in check.problems(part)]
    except Exception as e:  # a check that crashes has not said that anything is fine
        why = f"the check failed: {type(e).__name__}: {e}"[:200]
        yield from (Unknown((f.host.name,), why) for f in judged)


REACH = "reachable"  # the need of the one check that looks at hosts which did not answer


def _needs(check: Check, facts: HostFacts) -> tuple[list[Unknown], bool]:
    """What is missing to judge this host, and whether the check has something to look at there."""
    lacks = []
    for need in check.needs:
        if need == REACH:
            continue
        state = reading(facts, need)
        if state.broken:
            why = f"{need}: {state.why}"
            lacks.append(Unknown((facts.host.name,), why, need, only_a_right(state.why)))
        elif not state.ok:
            return [], False
    return lacks, not lacks


def spread(said: Sequence[Said]) -> Iterator[Said]:
    """Answers about single hosts, one host each; what is about hosts together stays together."""
    for check, answer in said:
        if isinstance(answer, Found) and check.scope != "host":
            yield check, answer
        else:
            yield from ((check, replace(answer, hosts=(name,))) for name in answer.hosts)
