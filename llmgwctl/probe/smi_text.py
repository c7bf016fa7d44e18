"""The text form of `nvidia-smi -q`, out of whatever stands around it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from llmgwctl.probe.smi_lines import GPU_LINE
from llmgwctl.probe.smi_shape import tree
from llmgwctl.probe.smi_tree import Node

NOISE = re.compile(r"\s*(WARNING:|Unable to (determine|detect) the device handle)")
HANDLE = "the device handle"
PREFIX = re.compile(r"([A-Za-z0-9_.-]{1,255}): ?")
TITLE = "=NVSMI LOG="


def read_text(text: str, *, noisy: bool = True) -> Node | None:
    """The report as a tree: header keys, then a node `GPU` with the PCI address for each block. None: no report.

    `noisy`: there may be remarks among its lines; False of a text that has none saves the search for them.
    """
    plain = unprefixed(text.replace("\r", "") if "\r" in text else text)
    if noisy:
        plain = "\n".join(line for line in plain.split("\n") if not NOISE.match(line))
    title = plain.find(TITLE)
    start = (plain.find("\n", title) + 1 or len(plain)) if title >= 0 else 0
    root = tree(plain[start:])
    return root if title >= 0 or root.all("GPU") else None


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


def remarks(text: str) -> str:
    """The lines that nvidia-smi prints beside its report, before or after it: warnings, and GPUs that it cannot ask."""
    if "WARNING:" not in text and HANDLE not in text:
        return ""
    return "\n".join(line for line in text.replace("\r", "").split("\n") if "WARNING:" in line or HANDLE in line)


def error_lines(text: str) -> tuple[str, ...]:
    """What nvidia-smi says of GPUs that it has no block for (on stdout or stderr, by driver), each once."""
    found = [line.strip() for line in text.replace("\r", "").split("\n") if HANDLE in line]
    return tuple(Counter(line for line in found if NOISE.match(line)))
