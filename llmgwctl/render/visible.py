"""Texts of strangers as they may go to a terminal or into a document: every character is seen, and none is obeyed."""

from __future__ import annotations

import json
import math
import re

from llmgwctl.render.letters import clean, escaped, hidden

_ODD = re.compile(r"[^\x20-\x7e\t\n]")


def lines(text: str) -> str:
    """A text of several lines, each of them clean."""
    return "\n".join(clean(line) for line in text.split("\n"))


def shown(text: str) -> str:
    """The same for what is long, where line breaks and tabs are meant: nothing is cut."""
    return _ODD.sub(lambda m: escaped(m[0]) if hidden(m[0]) else m[0], text)


def dumps(document: object, indent: int | None = None) -> str:
    """JSON in which such characters stand as escapes; a number that JSON lacks is null."""
    try:
        text = _line(document) if indent is None else _indented(document, indent)
    except ValueError:  # a number that JSON lacks, or half a character, which Python's own writer alone takes
        text = json.dumps(_finite(document), indent=indent, ensure_ascii=False, allow_nan=False)
    return _ODD.sub(lambda m: json.dumps(m[0])[1:-1] if hidden(m[0]) else m[0], text)


def _line(document: object) -> str:
    return json.dumps(document, ensure_ascii=False, allow_nan=False)


def _indented(document: object, indent: int) -> str:
    """Python's own writer makes a string of each word first: of 10,000 hosts those are 100 MB."""
    from pydantic_core import to_json

    return to_json(document, indent=indent, inf_nan_mode="null").decode()


def _finite(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    return [_finite(v) for v in value] if isinstance(value, (list, tuple)) else value
