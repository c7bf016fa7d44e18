"""The text form of `nvidia-smi -q`: lines to a tree, by indentation and never by column."""

from __future__ import annotations

import re
from collections import Counter

from llmgwctl.probe.smi_tree import Node

GPU_LINE = re.compile(r"GPU ([0-9A-Fa-f]{4,16}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])")
NOISE = re.compile(r"\s*(WARNING:|Unable to (determine|detect) the device handle)")
PREFIX = re.compile(r"([A-Za-z0-9_.-]{1,255}): ?")
TITLE = "=NVSMI LOG="


def read_text(text: str) -> Node | None:
    """The report as a tree: header keys, then a node `GPU` with the PCI address for each block. None: no report."""
    lines = unprefixed(text.replace("\r", "").split("\n"))
    lines = [line for line in lines if not NOISE.match(line)]
    start = next((i + 1 for i, line in enumerate(lines) if TITLE in line), 0)
    root = tree(lines[start:])
    return root if start or root.all("GPU") else None


def unprefixed(lines: list[str]) -> list[str]:
    """The lines without the `host: ` that pdsh and its relatives put before each of them."""
    mark = next((line for line in lines if TITLE in line or GPU_LINE.search(line)), "")
    found = PREFIX.match(mark)
    if found is None:
        return lines
    prefix, bare = found.group(0), found.group(0).rstrip()
    return [line[len(prefix) :] for line in lines if line.startswith(prefix) or line == bare]


def tree(lines: list[str]) -> Node:
    """Sections by a stack of indentations. Once a GPU has begun, only `GPU ...` may stand at the left margin."""
    root = Node("")
    stack = [(-1, root)]
    for line in lines:
        name, indent = line.strip(), len(line) - len(line.lstrip(" "))
        gpu = GPU_LINE.fullmatch(name) if indent == 0 else None
        if not name or (indent == 0 and gpu is None and root.children and root.children[-1].name == "GPU"):
            continue
        while stack[-1][0] >= indent:
            stack.pop()
        node = Node("GPU", gpu.group(1)) if gpu else _node(name)
        stack[-1][1].children.append(node)
        stack.append((indent, node))
    return root


def _node(line: str) -> Node:
    """`Key   : value`, split at the first colon (values have colons of their own), or a section's bare name."""
    key, colon, value = line.partition(":")
    return Node(key.rstrip(), value.split(" [Deprecated", 1)[0].strip() if colon else None)


def error_lines(text: str) -> tuple[str, ...]:
    """What nvidia-smi says of GPUs that it has no block for (on stdout or stderr, by driver), each once."""
    found = [line.strip() for line in text.replace("\r", "").split("\n") if "the device handle for" in line]
    return tuple(Counter(line for line in found if NOISE.match(line)))
