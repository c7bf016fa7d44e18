"""The tree of a text report. A host mostly prints what another printed before it, but for some values: its lines are
compared with those, and only the sections in which one differs are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress, count, pairwise
from operator import ne

from llmgwctl.probe.smi_lines import GPU_LINE, by_lines, section
from llmgwctl.probe.smi_tree import Node

# A fleet has one for each kind of host, and one more for each number of processes on its GPUs.
MOST_SHAPES, LONGEST_SHAPE = 16, 2**18
MOST_LINES = 2**13  # of 16 GPUs it has some 5000; each line of a shape costs far more than its text
_shapes: list[_Shape] = []  # the one that was met last comes first


def tree(text: str) -> Node:
    """Sections by indentation: the same as line by line, whatever was read before."""
    lines = text.split("\n")
    for shape in _shapes:
        if len(shape.lines) == len(lines) and shape.fits(lines, changed := shape.changed(lines)):
            _shapes.remove(shape)
            _shapes.insert(0, shape)
            return shape.tree(lines, changed)
    found = _shape_of(lines) if len(text) <= LONGEST_SHAPE and len(lines) <= MOST_LINES else None
    if found is None:
        return by_lines(lines)
    _shapes[:] = [found, *_shapes[: MOST_SHAPES - 1]]
    return found.tree(lines, ())


@dataclass(frozen=True, slots=True)
class _Span:
    """A section: the block that it belongs to, its place there, and its lines."""

    block: int
    place: int
    begin: int
    end: int

    def read(self, lines: Sequence[str]) -> Node:
        return section("\n".join(lines[self.begin : self.end]))


@dataclass(frozen=True, slots=True, eq=False)
class _Shape:
    """A report that was read, and what is where in it.

    `keys`: of each line its beginning, up to the value; no line begins with that of a blank one. `spans`: of each line
    its section; None for what is in none. `gpus`: the lines that begin a block. `sections`: those of each block.
    """

    lines: list[str]
    keys: list[str]
    spans: list[_Span | None]
    gpus: list[int]
    sections: list[list[Node]]

    def changed(self, lines: Sequence[str]) -> list[int]:
        return list(compress(count(), map(ne, lines, self.lines)))

    def fits(self, lines: Sequence[str], changed: Sequence[int]) -> bool:
        """Whether nothing but values differs: then each line stands as deep as it did."""
        return all(lines[i].startswith(self.keys[i]) for i in changed) and all(_is_gpu(lines[i]) for i in self.gpus)

    def tree(self, lines: list[str], changed: Sequence[int]) -> Node:
        sections = [list(s) for s in self.sections]
        for span in {self.spans[i] for i in changed}:
            if span is not None:
                sections[span.block][span.place] = span.read(lines)
        root = by_lines(lines[: self.gpus[0]])
        root.children.extend(Node("GPU", lines[i][4:].rstrip(), s) for i, s in zip(self.gpus, sections, strict=True))
        return root


def _is_gpu(line: str) -> bool:
    return GPU_LINE.fullmatch(line.rstrip()) is not None


def _shape_of(lines: list[str]) -> _Shape | None:
    """None where no GPU is told of, or where a line of one stands at an odd depth: between margin and sections, or
    deeper than a section that is not there."""
    gpus = [i for i, line in enumerate(lines) if line.startswith("GPU ") and _is_gpu(line)]
    ends = [*gpus[1:], len(lines)]
    spans: list[_Span | None] = [None] * len(lines)
    sections: list[list[Node]] = []
    for block, first in enumerate(gpus):
        found = _spans_of(lines, block, range(first + 1, ends[block]))
        if found is None:
            return None
        for span in found:
            spans[span.begin : span.end] = [span] * (span.end - span.begin)
        sections.append([span.read(lines) for span in found])
    return _Shape(lines, [_key(line) for line in lines], spans, gpus, sections) if gpus else None


def _spans_of(lines: Sequence[str], block: int, within: range) -> list[_Span] | None:
    filled = [i for i in within if lines[i].strip()]
    begins = [i for i in filled if lines[i].startswith("    ") and not lines[i][4].isspace()]
    deeper = [i for i in filled if lines[i].startswith("     ")]
    if filled[:1] != begins[:1] or len(begins) + len(deeper) < len(filled):
        return None
    return [_Span(block, n, i, j) for n, (i, j) in enumerate(pairwise([*begins, *(i + 1 for i in filled[-1:])]))]


def _key(line: str) -> str:
    if not line.strip():
        return "\n"
    name, colon, _ = line.partition(":")
    return "GPU " if _is_gpu(line) else name + colon
