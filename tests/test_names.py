"""Names of hosts: what is one, and how many are said in a range."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgwctl.model.names import fold, is_address, is_name


@pytest.mark.parametrize("text", ["r1-t01", "_a", "a.b", "10.0.0.1", "A" * 253])
def test_names(text):
    assert is_name(text)
    assert is_address(text)


@pytest.mark.parametrize("text", ["", ".", "..", "-x", "a b", "a/b", "a\n", "x[1-9]", "@a", "é", "a" * 254, "\x1b"])
def test_what_is_no_name(text):
    assert not is_name(text)


def test_names_are_folded():
    assert fold(["r1-t02", "r1-t01", "r1-t03", "x"]) == "r1-t[01-03],x"
    assert fold([]) == ""


@pytest.mark.parametrize("odd", ["x[1-99999999]", "x[1-999999999999999]", "[red]", "x[", "@a", "a!b", "a&b", ""])
def test_what_is_no_name_is_said_as_it_is(odd):
    """A range of a stranger's would be expanded: the host that says it costs nobody time or memory."""
    assert fold(["n1", odd, "n2"]) == f"n[1-2],{odd}"


@given(st.lists(st.text(max_size=20)))
def test_any_texts_can_be_folded(texts):
    assert isinstance(fold(texts), str)
