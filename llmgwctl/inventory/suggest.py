"""The nearest of what is known, for every message about a name that is not."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

MAX_LISTED = 30


def nearest(wrong: str, known: Iterable[str], what: str = "known key") -> str:
    """The nearest of what is known; where nothing is near, all of it."""
    names = sorted(known)
    close = get_close_matches(wrong.lower(), names, n=1, cutoff=0.5)
    if close:
        return f"the nearest {what} is {close[0]}"
    if not names:
        return f"there is no {what}"
    return f"each {what}: {', '.join(names[:MAX_LISTED])}{', ...' if len(names) > MAX_LISTED else ''}"
