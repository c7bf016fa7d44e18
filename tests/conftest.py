"""What all tests share: `--update-golden` rewrites the golden files, and the diff is then the review."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# Machines are shared and noisy: how long an example takes says nothing about the code.
settings.register_profile("house", deadline=None)
settings.load_profile("house")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write what is there now into the golden files")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Where the end-to-end tests are switched on, one that is skipped is a failure."""
    if os.environ.get("LLMGW_E2E") != "1":
        return
    for report in terminalreporter.stats.get("skipped", []):
        if "e2e" in report.keywords:
            terminalreporter.write_line(f"FAILED (skipped with LLMGW_E2E=1) {report.nodeid}", red=True)
            terminalreporter._session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture
def golden(request: pytest.FixtureRequest):
    """golden(path, text): the file holds exactly this text; with --update-golden it is made to."""

    def check(path, text: str) -> None:
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{path} is missing: run with --update-golden and read it"
        assert path.read_text(encoding="utf-8") == text

    return check
