"""What all tests share: `--update-golden` rewrites the golden files, and the diff is then the review."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write what is there now into the golden files")


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
