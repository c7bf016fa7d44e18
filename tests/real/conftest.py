"""Real engines: where they are (LLMGW_REAL), and when these tests run (`make real`, or where LLMGW_REAL is set)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))
from netns import Bed, missing

from llmgwctl.rack import hgx

REAL = Path(os.environ.get("LLMGW_REAL") or "~/.cache/llmgwctl-real").expanduser()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "real" in config.option.markexpr or os.environ.get("LLMGW_REAL"):
        return
    for item in items:
        if item.get_closest_marker("real"):
            item.add_marker(pytest.mark.skip(reason="a real engine: `make real` runs this"))


@pytest.fixture
def real():
    """real(path): that file of the installed engines; the test is skipped, or fails where they are required."""

    def find(path: str) -> Path:
        found = REAL / path
        if not found.exists():
            if os.environ.get("LLMGW_REAL_REQUIRED") == "1":
                pytest.fail(f"{found} is missing, and LLMGW_REAL_REQUIRED=1")
            pytest.skip(f"{found} is missing (LLMGW_REAL says where the engines are)")
        return found

    return find


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    """Two hosts without an NVLink domain that see the engines where this machine has them."""
    lacks = missing()
    if lacks and os.environ.get("LLMGW_REAL_REQUIRED") != "1":
        pytest.skip(f"hosts of namespaces need {', '.join(lacks)}")
    assert not lacks, f"this machine lacks: {', '.join(lacks)}"
    with Bed(hgx(2), user="root", shared=[p for p in (REAL, python_of_engines()) if p.is_dir()]) as made:
        yield made


def python_of_engines() -> Path:
    """Where the Python is installed from which the engines' environment was made."""
    return (REAL / "vllm/bin/python").resolve().parents[1]
