"""What may be the name of a host, a pool or a profile, and what its address: of an inventory and of a bundle alike."""

from __future__ import annotations

import re

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,252}", re.ASCII)
ADDRESS = re.compile(r"[A-Za-z0-9._:%][A-Za-z0-9._:%-]{0,252}", re.ASCII)


def is_name(text: str) -> bool:
    return NAME.fullmatch(text) is not None


def is_address(text: str) -> bool:
    return ADDRESS.fullmatch(text) is not None
