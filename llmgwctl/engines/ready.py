"""Readiness by one token: a leader that says it is healthy and cannot generate is not ready."""

from __future__ import annotations

import json

from llmgwctl.engines.base import Engine
from llmgwctl.model.fact import fact


@fact
class Question:
    """A POST to the leader."""

    path: str
    body: str


def one_token(engine: Engine, model: str) -> Question:
    """The shortest thing that goes through every rank and comes back."""
    body: dict[str, object] = {"model": model, "max_tokens": 1, "temperature": 0}
    if engine.generate_path.endswith("/chat/completions"):
        body["messages"] = [{"role": "user", "content": "1"}]
    else:
        body["prompt"] = "1"
    return Question(engine.generate_path, json.dumps(body))


def refused(status: int, text: str) -> str:
    """Why an answer is no token, in words; "" when it is one."""
    if status != 200:
        return f"it answers {status} when asked for one token"
    try:
        told = json.loads(text)
    except ValueError:
        return "its answer to one token is no JSON"
    choices = told.get("choices") if isinstance(told, dict) else None
    return "" if isinstance(choices, list) and choices else "it answers without a token when asked for one"


def served_names(text: str) -> tuple[str, ...]:
    """The names at /v1/models; () when the answer is not of that kind."""
    try:
        data = json.loads(text)["data"]
        return tuple(str(m["id"]) for m in data)
    except (ValueError, KeyError, TypeError):
        return ()
