"""The nearest of what is known, for every message about a name that is not."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from llmgwctl.render.fold import fold

MAX_LISTED = 30
MAX_FOLDED = 200  # characters


def nearest(wrong: str, known: Iterable[str], what: str = "known key") -> str:
    """The nearest of what is known; where nothing is near, all of it."""
    names = sorted(known)
    close = get_close_matches(wrong.lower(), names, n=1, cutoff=0.5)
    if close:
        return f"the nearest {what} is {close[0]}"
    if not names:
        return f"there is no {what}"
    if what == "known host" or len(names) > MAX_LISTED:
        return f"each {what}: {_short(fold(names))}"
    return f"each {what}: {', '.join(names)}"


def _short(text: str) -> str:
    return text if len(text) <= MAX_FOLDED else f"{text[:MAX_FOLDED]}..."
