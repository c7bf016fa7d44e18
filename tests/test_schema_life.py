"""What the commands that start and stop things print as JSON is what its schema says."""

from __future__ import annotations

import json

import pytest
from test_life_cli import Cli, cli  # noqa: F401 (a fixture)
from test_schema import check


async def test_documents_of_a_life(cli: Cli) -> None:  # noqa: F811
    """Each of them whole on stdout, from place to stop."""
    host = "r1-t01"
    for words in (
        ("place", "sim-small"),
        ("ps",),
        ("logs", "sim-small-0"),
        ("ensure", "sim-small", "--dry-run"),
        ("hosts", "cordon", host, "--reason", "fan"),
        ("hosts", "--check"),
        ("hosts", "drain", host),
        ("hosts", "uncordon", host),
        ("engines",),
        ("stop", "sim-small-0"),
    ):
        code, out, err = await cli("--json", *words)
        assert code == 0, (words, err)
        check(json.loads(out))


@pytest.mark.parametrize("words", [("stop", "nobody-0"), ("ps", "nobody-0")])
async def test_documents_of_nothing(cli: Cli, words: tuple[str, ...]) -> None:  # noqa: F811
    """An answer is a document, also when there is nothing to tell; errors are text on stderr."""
    _, out, err = await cli("--json", *words)
    check(json.loads(out))
    assert "nobody-0" in err
