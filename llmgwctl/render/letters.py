"""One line of a stranger's text: every character is seen, and none is obeyed. Light to import."""

from __future__ import annotations

import unicodedata

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
MAX_CELL = 2000


def clean(text: str) -> str:
    """One line of a host's text: control characters, direction marks and stray bytes as escapes, and bounded."""
    if len(text) > MAX_CELL:
        text = text[:MAX_CELL] + "..."
    if text.isascii() and text.isprintable():
        return text
    return "".join(escaped(c) if hidden(c) else c for c in text)


def hidden(c: str) -> bool:
    """Whether a character is not seen, or is obeyed: control, direction, no width, a stray byte, private use."""
    return unicodedata.category(c) in _HIDDEN


def escaped(c: str) -> str:
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
    code = ord(c)
    return named.get(c) or (
        f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    )
