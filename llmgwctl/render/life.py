"""Replicas, logs and the end of them: for people and as documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from llmgwctl.model.numbers import ranges
from llmgwctl.model.replica import ReplicaState, ShardState
from llmgwctl.render.text import PLAIN, Look, clean, draw, say, table
from llmgwctl.render.words import counted, short_domain

PROVED = ("nvlink", "ib", "tcp")
STYLES = {"ready": "green", "starting": "yellow", "failed": "bold red", "unknown": "yellow"}


def ps(states: Sequence[ReplicaState], look: Look = PLAIN, *, verbose: bool = False, unseen: int = 0) -> str:
    """`unseen`: how many hosts could not be read, of which nobody knows what runs there."""
    if not states:
        where = f" on the hosts that answered; what runs on {counted(unseen, 'other')} is not known" if unseen else ""
        return f"no replica runs, and nothing is claimed{where}"
    heads = ("REPLICA", "STATE", "FOR", "ENDPOINT", "FABRIC", "TRANSPORT", "RANKS")
    parts: list[RenderableType] = [table(heads, map(_row, states), keep=(0, 1, 2, 3, 4))]
    for state in states:
        if verbose or state.state != "ready" or state.changed:
            parts += _details(state)
    return draw(parts, look)


def _row(r: ReplicaState) -> tuple[str | Text, ...]:
    word = f"{r.state} (stuck)" if r.stuck else f"{r.state} (half stopped)" if r.half_stopped else r.state
    fabric = short_domain(r.fabric) or r.tier
    ranks = " ".join(f"{s.host}:{ranges(s.gpus) if s.gpus else '-'}" for s in r.shards)
    over = r.transport if r.transport == "not proved" else r.proof or r.transport  # why not, stands with the details
    return (r.id, say(word, STYLES[r.state]), span(r.for_s), r.endpoint or "-", fabric or "-", over or "-", ranks)


def span(seconds: float | None) -> str:
    """How long, as a person says it: 40s, 5m, 3h, 2d; "-" when nobody knows."""
    if seconds is None:
        return "-"
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f}{unit}"
    return f"{seconds:.0f}s"


def what_to_do(r: ReplicaState) -> str:
    """The next command to type; empty: nothing."""
    if r.stuck:
        return f"nothing was started: `llmgwctl stop {r.id}` takes its claims away, if no `place` is at work"
    if r.half_stopped:
        return f"half stopped: `llmgwctl stop {r.id}` ends the rest; `ensure` does too, and places what is missing"
    if r.state == "failed":
        return f"`llmgwctl logs {r.id}` says why; `llmgwctl restart {r.id}` (or `ensure`) places it again"
    if r.state == "unknown":
        hosts = ", ".join(dict.fromkeys(s.host for s in r.shards if s.state == "unknown"))
        return f"look at {hosts or 'its hosts'}: it may live on; `llmgwctl stop {r.id}` ends what can be reached"
    if r.state == "starting":
        return f"`llmgwctl logs -f {r.id}` follows it; `llmgwctl ensure` or `place` records that it serves"
    return f"its profile has changed since: `llmgwctl restart {r.id}` takes the new one" if r.changed else ""


def _details(r: ReplicaState) -> Iterator[RenderableType]:
    who = f" (started by {r.operator} at {r.created_at})" if r.operator else ""
    yield Text()
    yield say(f"{r.id} is {r.state}{who}", "bold")
    rows = ((f"  rank {s.rank}", s.host, s.state, span(s.for_s), str(s.pid or "-"), s.why) for s in r.shards)
    yield table(("", "HOST", "STATE", "FOR", "PID", "WHY"), rows, keep=(0, 1, 2, 3))
    if r.transport == "not proved" and r.proof:
        yield say(f"  transport {r.proof}", "yellow")
    if todo := what_to_do(r):
        yield say(f"  {todo}")


def ps_document(states: Sequence[ReplicaState]) -> dict[str, Any]:
    return {"schema": "llmgwctl.ps/v1", "replicas": [_replica(r) for r in states]}


def _replica(r: ReplicaState) -> dict[str, Any]:
    return {
        "id": r.id,
        "launch": r.launch,
        "profile": r.profile,
        "state": r.state,
        "stuck": r.stuck,
        "half_stopped": r.half_stopped,
        "why": r.why,
        "endpoint": r.endpoint or None,
        "tier": r.tier or None,
        "fabric": r.fabric,
        "transport": r.transport or None,
        "proof": r.proof or None,
        "for_s": None if r.for_s is None else round(r.for_s),
        "changed": r.changed,
        "what_to_do": what_to_do(r),
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
        "for_s": None if s.for_s is None else round(s.for_s),
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
