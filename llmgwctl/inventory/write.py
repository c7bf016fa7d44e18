"""The writer for `init`: a new inventory as TOML. One that exists is never rewritten."""

from __future__ import annotations

from typing import Any

import tomli_w

from llmgwctl.inventory.faults import shown

HEADER = """\
# Written by `llmgwctl init`. inventory.example.toml of llmgwctl shows every key; llmgwctl never changes this file.
"""


def dumps(document: dict[str, Any]) -> str:
    plain_first = sorted(document.items(), key=lambda pair: isinstance(pair[1], dict | list))
    return f"{HEADER}\n{''.join(_part(key, value) for key, value in plain_first)}"


def _part(key: str, value: Any) -> str:
    """Entries of a list always stand as [[key]] blocks: a list on one line cannot be gone on with further down."""
    if isinstance(value, list) and value and all(isinstance(v, dict) for v in value):
        return "".join(f"[[{shown((key,))}]]\n{''.join(map(_pair, v.items()))}\n" for v in value)
    return f"{tomli_w.dumps({key: value})}\n"


def _pair(pair: tuple[str, Any]) -> str:
    key, value = pair
    if not isinstance(value, dict):
        return tomli_w.dumps({key: value})
    inside = ", ".join(_pair(p).rstrip("\n") for p in value.items())
    return f"{shown((key,))} = {{ {inside} }}\n"
