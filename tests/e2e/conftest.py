"""End-to-end tests: the real command line against real OpenSSH hosts. LLMGW_E2E=1 switches them on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from netns import Bed, missing

from llmgwctl.rack import nvl72

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of them carry the mark, and run only when they are asked for."""
    on = os.environ.get("LLMGW_E2E") == "1"
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.xdist_group(item.path.stem))  # one bed a module, whoever runs it
            if not on:
                item.add_marker(pytest.mark.skip(reason="LLMGW_E2E=1 makes hosts of namespaces and runs these"))


@pytest.fixture(scope="module")
def module_bed(request: pytest.FixtureRequest) -> Iterator[Bed]:
    """The hosts of a test module: its RACK (a RackSpec), else four trays and two HGX hosts."""
    lacks = missing()
    assert not lacks, f"LLMGW_E2E=1, but this machine lacks: {', '.join(lacks)}"
    with Bed(getattr(request.module, "RACK", nvl72(4, hgx=2))) as bed:
        yield bed


@pytest.fixture
def bed(module_bed: Bed) -> Iterator[Bed]:
    """The module's hosts, with nothing wrong; what a test breaks is mended after it."""
    yield module_bed
    module_bed.restore()
