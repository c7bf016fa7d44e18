"""Numbers in the words of strangers: what is not a plain number of a sane size is none, and nothing is ever raised.
And those of GPUs and ranks in words of ours."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable


def whole(text: object, digits: int = 18) -> int | None:
    """A plain decimal number. `str.isdigit` also says yes to "²", and int() refuses more than 4,300 digits."""
    if isinstance(text, str) and 0 < len(text) <= digits and text.isascii() and text.isdigit():
        return int(text)
    return None


def real(text: object) -> float | None:
    """A finite number."""
    if not isinstance(text, str) or len(text) > 100:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def of_version(text: str) -> tuple[int, ...]:
    """The leading numbers of a version, for comparing; () when there are none."""
    m = re.match(r"v?(\d{1,18}(?:\.\d{1,18}){0,9})", text.strip(), re.ASCII)
    return tuple(int(n) for n in m.group(1).split(".")) if m else ()


def older(text: str, least: str) -> bool:
    """Whether a version is below the least that will do; of one without a number that is not said."""
    have = of_version(text)
    return bool(have and least) and have < of_version(least)


def document(text: str | bytes) -> object:
    """What a JSON text says; None for what is none, nests too deeply, or has numbers that JSON lacks."""
    try:
        return json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError):
        return None


def _refused(name: str) -> object:
    raise ValueError(f"{name} is no number of JSON")


def ranges(numbers: Iterable[int]) -> str:
    """0-3,7"""
    parts: list[list[int]] = []
    for n in sorted(set(numbers)):
        if parts and n == parts[-1][-1] + 1:
            parts[-1].append(n)
        else:
            parts.append([n])
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)
