"""The text report of nvidia-smi, read section by section: the same tree as line by line, whatever the text is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llmgwctl.probe.smi_text import _by_lines, _equal_section, read_text, tree
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
    assert tree(text) == _by_lines(text.split("\n"))


@given(st.text(alphabet="GPU 0:.\n\tx", max_size=60))
def test_the_same_holds_for_any_text(text):
    assert tree(text) == _by_lines(text.split("\n"))


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
