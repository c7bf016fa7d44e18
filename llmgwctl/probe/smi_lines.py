"""Lines of a text report to nodes, by indentation and never by column."""

from __future__ import annotations

import re
from functools import lru_cache

from llmgwctl.probe.smi_tree import ALARMING, Node

GPU_LINE = re.compile(r"GPU ([0-9A-Fa-f]{4,16}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])")
ALARM = re.compile(rf":\s*(?:{'|'.join(map(re.escape, sorted(ALARMING)))})")
ROW = "\n" + 8 * " "
MAX_SECTION = 2048


def by_lines(lines: list[str]) -> Node:
    """By a stack of indentations. Once a GPU has begun, only `GPU ...` may stand at the left margin."""
    root = Node("")
    stack = [(-1, root)]
    for line in lines:
        name, indent = line.strip(), len(line) - len(line.lstrip(" "))
        gpu = GPU_LINE.fullmatch(name) if indent == 0 else None
        if not name or (indent == 0 and gpu is None and root.children and root.children[-1].name == "GPU"):
            continue
        while stack[-1][0] >= indent:
            stack.pop()
        node = Node("GPU", gpu.group(1)) if gpu else Node(*_pair(name))
        stack[-1][1].children.append(node)
        stack.append((indent, node))
    return root


def section(text: str) -> Node:
    """A section of a GPU: its own line, and lines that stand deeper, which wait until somebody asks for them.

    Equal ones are one node: most of a report is printed in the same words for each GPU of a fleet.
    """
    return _equal_section(text) if len(text) <= MAX_SECTION else _section(text)


def _section(text: str) -> Node:
    line, newline, below = text.partition("\n")
    name, value = _pair(line.strip())
    node = Node.unread(name, value, newline + below, _rows) if below else Node(name, value)
    node.quiet = ALARM.search(text) is None
    return node


# Far more than a fleet of one driver has, and a few MiB where hosts invent them.
_equal_section = lru_cache(maxsize=1024)(_section)


def _rows(text: str) -> list[Node]:
    """What stands below a section; mostly plain rows, all at one depth."""
    lines = text.split(ROW)
    if not lines[0] and not any(line[:1].isspace() or "\n" in line for line in lines):
        return [Node(*_pair(line.rstrip())) for line in lines[1:] if line]
    return by_lines(text.split("\n")).children


def _pair(line: str) -> tuple[str, str | None]:
    """`Key   : value`, split at the first colon (values have colons of their own), or a section's bare name."""
    key, colon, value = line.partition(":")
    return key.rstrip(), value.split(" [Deprecated", 1)[0].strip() if colon else None
