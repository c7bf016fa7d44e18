"""Where real outputs lie, when they are at hand, and how tests take them up."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CAPTURES = Path(__file__).parents[1] / "../shared/captures"
needed = pytest.mark.skipif(not CAPTURES.exists(), reason="the captures are not here")


def files(pattern: str) -> list[Path]:
    return sorted(CAPTURES.glob(pattern)) if CAPTURES.exists() else []


def each(pattern: str):
    return pytest.mark.parametrize("path", files(pattern), ids=lambda p: p.name)


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def version(name: str) -> tuple[int, int]:
    major, minor = re.findall(r"(\d{3})\.(\d+)", name)[0]
    return int(major), int(minor)
