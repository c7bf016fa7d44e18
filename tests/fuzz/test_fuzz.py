"""A short run of the fuzzer in every test run, and all that long runs ever found."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from run import FOUND, fuzz
from targets import TARGETS

BY_NAME = {t.name: t for t in TARGETS}


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_mutated_outputs_give_readings(target):
    """No input makes a parser raise, or break what all that is built on it holds for true."""
    assert fuzz(target, 60, seed=7).crashes == {}


@pytest.mark.parametrize("file", sorted(FOUND.glob("*.bin")), ids=lambda f: f.name)
def test_what_was_found_stays_mended(file):
    BY_NAME[file.stem.rpartition("-")[0]].check(file.read_bytes())


def test_every_section_is_a_target():
    """A new section of a probe is fuzzed too."""
    from llmgwctl.probe import PROBES

    assert {s.name for p in PROBES for s in p.sections} <= set(BY_NAME)
    assert all(t.seeds for t in TARGETS)
