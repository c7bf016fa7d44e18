"""The text form of `nvidia-smi -q`: lines to a tree, by indentation and never by column."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache

from llmgwctl.probe.smi_tree import Node

GPU_LINE = re.compile(r"GPU ([0-9A-Fa-f]{4,16}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])")
NOISE = re.compile(r"\s*(WARNING:|Unable to (determine|detect) the device handle)")
PREFIX = re.compile(r"([A-Za-z0-9_.-]{1,255}): ?")
TITLE = "=NVSMI LOG="
# These begin with plain characters, which are found many times faster than the beginning of a line is.
SECTION = re.compile(r"\n    (?=\S)")
UNUSUAL = re.compile(r"\n(?!\n|    |\Z)")
MAX_SECTION = 2048


def read_text(text: str) -> Node | None:
    """The report as a tree: header keys, then a node `GPU` with the PCI address for each block. None: no report."""
    plain = without_noise(unprefixed(text.replace("\r", "")))
    title = plain.find(TITLE)
    start = (plain.find("\n", title) + 1 or len(plain)) if title >= 0 else 0
    root = tree(plain[start:])
    return root if title >= 0 or root.all("GPU") else None


def without_noise(text: str) -> str:
    if "WARNING:" not in text and "the device handle" not in text:
        return text
    return "\n".join(line for line in text.split("\n") if not NOISE.match(line))


def unprefixed(text: str) -> str:
    """The text without the `host: ` that pdsh and its relatives put before each line."""
    mark = next((line for line in _lines(text) if TITLE in line or GPU_LINE.search(line)), "")
    found = PREFIX.match(mark)
    if found is None:
        return text
    prefix, bare = found.group(0), found.group(0).rstrip()
    return "\n".join(line[len(prefix) :] for line in _lines(text) if line.startswith(prefix) or line == bare)


def _lines(text: str) -> Iterator[str]:
    """As split("\\n"), without the list of all."""
    begin = 0
    while (end := text.find("\n", begin)) >= 0:
        yield text[begin:end]
        begin = end + 1
    yield text[begin:]


def tree(text: str) -> Node:
    """Sections by indentation. Most of a report is printed in the same words for each GPU of a fleet, and that part is
    read once: a block of the usual shape is taken apart at its outermost sections, and equal ones are one node."""
    head, *rest = ("\n" + text).split("\nGPU ")
    blocks = [_block(address.rstrip(), "\n" + body) for address, _, body in (part.partition("\n") for part in rest)]
    if not rest or None in blocks:
        return _by_lines(text.split("\n"))
    root = _by_lines(head.split("\n"))
    root.children.extend(b for b in blocks if b)
    return root


def _block(address: str, body: str) -> Node | None:
    """A GPU and its sections; None when a line stands further left than they do, or the address is none."""
    if GPU_LINE.fullmatch(f"GPU {address}") is None or UNUSUAL.search(body):
        return None
    first, *sections = SECTION.split(body.rstrip())
    gpu = Node("GPU", address, _by_lines(first.split("\n")).children if first.strip() else [])
    for section in sections:
        gpu.children += _equal_section(section) if len(section) <= MAX_SECTION else _section_nodes(section)
    return gpu


def _section_nodes(text: str) -> tuple[Node, ...]:
    return tuple(_by_lines(f"    {text}".split("\n")).children)


# Far more than a fleet of one driver has, and a few MiB where hosts invent them.
_equal_section = lru_cache(maxsize=1024)(_section_nodes)


def _by_lines(lines: list[str]) -> Node:
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
    if "the device handle for" not in text:
        return ()
    found = [line.strip() for line in text.replace("\r", "").split("\n") if "the device handle for" in line]
    return tuple(Counter(line for line in found if NOISE.match(line)))
