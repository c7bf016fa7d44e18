"""The text report of nvidia-smi, read section by section: the same tree as line by line, whatever the text is."""

from __future__ import annotations

import re

import smi
from hypothesis import given
from hypothesis import strategies as st

from llmgwctl.probe import smi_shape
from llmgwctl.probe.smi_lines import _equal_section, by_lines
from llmgwctl.probe.smi_shape import tree
from llmgwctl.probe.smi_text import read_text
from llmgwctl.probe.smi_tree import Node

LINES = st.sampled_from(
    (
        "",
        "   ",
        "    \t",
        "GPU 00000008:06:00.0",
        "GPU 00000009:06:00.0  ",
        "GPU  00000009:06:00.0",
        "\tGPU 00000019:06:00.0",
        " GPU 00000009:06:00.0",
        "    GPU 00000018:06:00.0",
        "GPU of another kind",
        "Attached GPUs : 4",
        "    Product Name : NVIDIA GB200",
        "    Fabric",
        "    Fabric : N/A",
        "        State : Completed",
        "            Deep : 1",
        "      Between : 2",
        "  Left : 3",
        "\t    Tab : 4",
        "     Fifth : 5",
        "        State\x0b: odd",
        "\x1c",
    )
)


@given(st.lists(LINES, max_size=14))
def test_a_tree_is_the_same_by_sections_and_by_lines(lines):
    """The quick way is only quicker: left margins, tabs, blank lines and odd addresses included."""
    text = "\n".join(lines)
    assert tree(text) == by_lines(text.split("\n"))


@given(st.text(alphabet="GPU 0:.\n\tx", max_size=60))
def test_the_same_holds_for_any_text(text):
    assert tree(text) == by_lines(text.split("\n"))


VALUES = st.sampled_from(("", " ", ": x", ": GPU is lost", "        deeper", "GPU 00000009:06:00.0", "GPU of no kind"))


@given(st.lists(LINES, max_size=14), st.dictionaries(st.integers(0, 13), VALUES, max_size=3))
def test_a_tree_is_the_same_after_another_report_of_the_same_length(lines, changes):
    """What was read before lends only what is the same: each change of a line is seen, or the report is read anew."""
    tree("\n".join(lines))
    changed = [line + changes.get(i, "") for i, line in enumerate(lines)]
    swapped = [changes.get(i, line) for i, line in enumerate(lines)]
    for text in ("\n".join(changed), "\n".join(swapped), "\n".join(lines)):
        assert tree(text) == by_lines(text.split("\n"))


def test_a_report_like_the_last_one_shares_its_sections_but_those_that_differ():
    report = smi.text("580.126", smi.trays(2))
    tray = re.search(r"Tray Index +: 4", report)[0]
    first, second = (tree(text).all("GPU") for text in (report, report.replace(tray, tray[:-1] + "9")))
    for one, other in zip(first, second, strict=True):
        assert [a.name for a, b in zip(one.children, other.children, strict=True) if a is not b] == ["Platform Info"]
        assert (one.raw("Platform Info", "Tray Index"), other.raw("Platform Info", "Tray Index")) == ("4", "9")


def test_an_alarm_in_a_section_that_was_quiet_is_heard():
    """The lines of a report are compared, not believed: `GPU is lost` in one that was sound is no value."""
    sound = "GPU 00000008:06:00.0\n    Product Name : NVIDIA GB200\n    Temperature\n        GPU Current Temp : 31 C\n"
    assert all(c.quiet for c in tree(sound).all("GPU")[0].children)
    lost = tree(sound.replace("31 C", "GPU is lost")).all("GPU")[0]
    assert [c.name for c in lost.children if not c.quiet] == ["Temperature"]
    assert list(lost.saying(frozenset({"GPU is lost"}))) == [("GPU Current Temp", "GPU is lost")]


def test_equal_sections_are_read_once_and_large_ones_are_not_kept():
    """Two GPUs that print the same section have one node; what a host makes endless is not remembered."""
    section = "    Fabric\n        State : Completed\n"
    text = f"GPU 00000008:06:00.0\n{section}GPU 00000009:06:00.0\n{section}"
    one, two = tree(text).all("GPU")
    assert one.child("Fabric") is two.child("Fabric")
    before = _equal_section.cache_info().currsize
    large = tree(f"GPU 00000008:06:00.0\n    {'x' * 5000} : 1\n")
    assert len(large.all("GPU")[0].children) == 1
    assert _equal_section.cache_info().currsize == before


def test_a_report_that_is_no_real_one_is_read_and_not_kept():
    """Of what a host makes longer, or of more lines, than any driver does, nothing waits for the next one."""
    block = "GPU 00000008:01:00.0\n    Product Name : NVIDIA GB200\n    Fabric\n"
    for text in (
        block + "        a : 1\n" * smi_shape.MOST_LINES,
        block + f"        a : {'x' * smi_shape.LONGEST_SHAPE}\n",
    ):
        before = list(smi_shape._shapes)
        assert tree(text) == by_lines(text.split("\n"))
        assert smi_shape._shapes == before


def test_texts_are_found_below_a_node_in_the_order_of_the_report():
    """`saying` is `values` with a filter: a section that is a row as well comes before what stands under it."""
    deep = Node("Section", "bad", [Node("first", "fine"), Node("second", "bad")])
    block = Node("GPU", "x", [Node("skipped", "bad"), deep, Node("last", "bad")])
    texts, skip = frozenset({"bad"}), frozenset({"skipped"})
    assert list(block.saying(texts, skip)) == [("Section", "bad"), ("second", "bad"), ("last", "bad")]
    assert list(block.saying(texts, skip)) == [pair for pair in block.values(skip) if pair[1] in texts]


def test_a_report_of_blank_lines_is_read_at_once():
    """A host that prints megabytes of nothing costs no more than their length."""
    assert read_text("\n" * 2_000_000) is None
    assert read_text(" " * 2_000_000 + "\n" * 1000) is None
