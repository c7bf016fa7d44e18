"""The writer for `init`: a new inventory as TOML. One that exists is never rewritten."""

from __future__ import annotations

from typing import Any

import tomli_w

HEADER = """\
# Written by `llmgwctl init`. inventory.example.toml of llmgwctl shows every key; llmgwctl never changes this file.
"""


def dumps(document: dict[str, Any]) -> str:
    return f"{HEADER}\n{tomli_w.dumps(document)}"
