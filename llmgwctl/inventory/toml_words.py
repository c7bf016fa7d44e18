"""What tomllib says of a text, in the words of somebody who wants to repair it."""

from __future__ import annotations

import re

_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)")
_LIST_AND_BLOCKS = re.compile(r"Cannot mutate immutable namespace \('(\w+)'")
_QUOTES = "a string needs quotes around it"


def explained(what: str, text: str) -> tuple[str, str]:
    """(line and column, what is wrong) of a TOMLDecodeError's message."""
    found = _PLACE.search(what)
    line, column = (found.group(1), found.group(2)) if found else (None, None)
    at = f"{line}:{column}" if line else str(text.count("\n") + 1)
    said = _PLACE.sub("", what)
    hint = _hint(said, _line(text, line))
    return at, f"is no TOML: {said}{f' ({hint})' if hint else ''}"


def _line(text: str, number: str | None) -> str:
    lines = text.split("\n")
    return lines[min(int(number), len(lines)) - 1] if number else ""


def _hint(said: str, line: str) -> str:
    both = _LIST_AND_BLOCKS.match(said)
    if both:
        name = both.group(1)
        return f"{name} = [...] is a whole list already: write each of its entries as a [[{name}]] block instead"
    value = line.partition("=")[2].strip()
    if said == "Invalid value" or (said.startswith("Expected newline") and value[:1] not in ('"', "'", "[", "{")):
        return _QUOTES
    if said.startswith("Illegal character '\\n'"):
        return "the string has no closing quote"
    return ""
