"""Groups of what touches, against the slow way of finding them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llmgwctl.fabric.linked import Linked

SETS = st.lists(st.lists(st.sampled_from("abcdefghij"), min_size=1, max_size=4), max_size=12)


def slowly(sets: list[list[str]]) -> dict[str, str]:
    """Each key's group, by merging whatever shares a key until nothing changes."""
    groups = [set(s) for s in sets]
    for _ in sets:
        for key in "abcdefghij":
            touching = [g for g in groups if key in g]
            groups = [g for g in groups if key not in g] + ([set().union(*touching)] if touching else [])
    return {key: min(group) for group in groups for key in group}


@given(SETS)
def test_keys_joined_over_any_number_of_steps_are_one_group_known_by_its_smallest(sets):
    linked = Linked[str]()
    for one in sets:
        linked.join(one)
    expected = slowly(sets)
    assert {key: linked.first(key) for key in "abcdefghij"} == {key: expected.get(key, key) for key in "abcdefghij"}
