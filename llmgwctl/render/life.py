"""Replicas, logs and the end of them: for people and as documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from llmgwctl.model.replica import ReplicaState, ShardState
from llmgwctl.render.text import PLAIN, Look, clean, draw, say, table
from llmgwctl.render.words import ranges, short_domain

PROVED = ("nvlink", "ib", "tcp")
STYLES = {"ready": "green", "starting": "yellow", "failed": "bold red", "unknown": "yellow"}


def ps(states: Sequence[ReplicaState], look: Look = PLAIN, *, verbose: bool = False) -> str:
    if not states:
        return "no replica runs, and nothing is claimed"
    heads = ("REPLICA", "STATE", "ENDPOINT", "FABRIC", "TRANSPORT", "RANKS")
    parts: list[RenderableType] = [table(heads, map(_row, states), keep=(0, 1, 2))]
    for state in states:
        if verbose or state.state != "ready":
            parts += _details(state)
    return draw(parts, look)


def _row(r: ReplicaState) -> tuple[str | Text, ...]:
    word = f"{r.state} (stuck)" if r.stuck else r.state
    fabric = short_domain(r.fabric) or r.tier
    ranks = " ".join(f"{s.host}:{ranges(s.gpus) if s.gpus else '-'}" for s in r.shards)
    return (r.id, say(word, STYLES[r.state]), r.endpoint or "-", fabric or "-", r.transport or "-", ranks)


def _details(r: ReplicaState) -> Iterator[RenderableType]:
    who = f" (started by {r.operator} at {r.created_at})" if r.operator else ""
    yield say(f"\n{r.id} is {r.state}{who}", "bold")
    rows = ((f"  rank {s.rank}", s.host, s.state, str(s.pid or "-"), s.why) for s in r.shards)
    yield table(("", "HOST", "STATE", "PID", "WHY"), rows, keep=(0, 1, 2))


def ps_document(states: Sequence[ReplicaState]) -> dict[str, Any]:
    return {"schema": "llmgwctl.ps/v1", "replicas": [_replica(r) for r in states]}


def _replica(r: ReplicaState) -> dict[str, Any]:
    return {
        "id": r.id,
        "launch": r.launch,
        "profile": r.profile,
        "state": r.state,
        "stuck": r.stuck,
        "why": r.why,
        "endpoint": r.endpoint or None,
        "tier": r.tier or None,
        "fabric": r.fabric,
        "transport": r.transport or None,
        "engine": r.engine,
        "model": r.model,
        "pool": r.pool,
        "profile_fingerprint": r.fingerprint,
        "operator": r.operator,
        "created_at": r.created_at,
        "shards": [_shard(s) for s in r.shards],
    }


def _shard(s: ShardState) -> dict[str, Any]:
    return {
        "rank": s.rank,
        "host": s.host,
        "state": s.state,
        "pid": s.pid,
        "gpus": list(s.gpus),
        "exit_code": s.exit_code,
        "why": s.why,
        "account": s.account,
    }


def ensured(reports: Sequence[Mapping[str, Any]], look: Look = PLAIN) -> str:
    """What `ensure` found, profile by profile, and what it did."""
    heads = ("PROFILE", "WANTED", "READY", "STARTING", "FAILED", "UNKNOWN", "REMARKS")
    rows = (
        (r["name"], *(str(r[k]) for k in ("wanted", "ready", "starting", "failed", "unknown")), _remarks(r))
        for r in reports
    )
    parts: list[RenderableType] = [table(heads, rows, keep=range(6))]
    for r in reports:
        for a in r["actions"]:
            what = f"{r['name']}: {a['do']}{' ' if a['replica'] else ''}{a['replica']}" + (
                "" if a["done"] else " (not done)"
            )
            parts.append(say(f"{what}{': ' if a['why'] else ''}{a['why']}", "" if a["done"] else "bold red"))
    return draw(parts, look)


def _remarks(r: Mapping[str, Any]) -> str:
    told = [f"{', '.join(r['changed'])}: the profile has changed (--restart-changed)"] if r["changed"] else []
    told += [f"{r['extra']} more than wanted"] if r["extra"] else []
    return "; ".join(told)


def log_lines(parts: Sequence[tuple[str, str]]) -> str:
    """(label, text) of each part, every line with its label; a host's control characters are shown, never obeyed."""
    width = max((len(label) for label, _ in parts), default=0)
    lines = (f"{label:<{width}} | {clean(line)}" for label, text in parts for line in _lines(text))
    return "\n".join(lines)


def _lines(text: str) -> list[str]:
    return text.rstrip("\n").split("\n") if text.strip() else []


def placed(rows: Sequence[Mapping[str, Any]], look: Look = PLAIN) -> str:
    """What `place` ends with: where each replica serves."""
    lines = []
    for row in rows:
        over = f" over {row['proof'] or row['transport']}" if row["transport"] in PROVED else ""
        how = "serves" if row["state"] == "ready" else "was started:"
        lines.append(say(f"{row['id']} {how} {row['model']} at {row['endpoint']}{over}", STYLES[row["state"]]))
    return draw(lines, look)
