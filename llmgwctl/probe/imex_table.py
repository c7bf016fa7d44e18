"""The connectivity table of `nvidia-imex-ctl -N`, as text or as JSON (-j): nodes, directed cells, domain word."""

from __future__ import annotations

import json
import re
from functools import lru_cache

from llmgwctl.model.imex import ImexNode, ImexTable
from llmgwctl.probe.same import same
from llmgwctl.probe.smi_tree import number

NODE = re.compile(
    r"Node #(\d{1,5})\s+([-*]) (\S{1,255})(?: \*)?\s+- (\S{1,64})(?:\s+- Version: *(\S{0,64}))?(?:\s*- Hostname:.*)?"
)
ROW = re.compile(r"\d{1,5}(\s+\S{1,24})+")
DOMAIN = re.compile(r"Domain State: *(\S{1,64})")
LIMIT_NODES, LIMIT_CELLS = 2048, 1_000_000
LONGEST_TOKEN = 24
TAKEN = '"timestamp"'
DATE = re.compile(TAKEN + r' ?: ?"[^"\\]{0,40}" ?,')
LONGEST_KEPT = 64 * 1024  # of a rack of 18 it has 22 KB
SMALL = {str(n): n for n in range(256)}  # indices as JSON has them
MOST_NODES = 72  # of a table whose like may come again; what is larger is no rack, and not worth being kept
MOST_CELLS = MOST_NODES**2

TOKENS = {
    "CONNECTED": "C",
    "NEVER_CONNECTED": "N",
    "RECOVERING": "R",
    "DISCONNECTED": "D",
    "INVALID": "I",
    "AUTHENTICATING": "A",
    "VERSION_MISMATCH": "!V!",
    "NODES_MISMATCH": "!M!",
}
"""Connection status in JSON -> cell of the text form. A word that is not here stands in the cell as it is: not `C`."""


class NoTable(ValueError):
    """There is no table in this text; str() says why."""


def read_table(text: str) -> ImexTable:
    """Either form, whatever stands before it. Raises NoTable."""
    start = text.find("{")
    if start >= 0 and "Nodes:" not in text[:start]:
        document = _undated(text[start:])
        return _small_json(document) if len(document) <= LONGEST_KEPT else _json(document)
    return _text(text.replace("\r", "").split("\n"))


def _undated(document: str) -> str:
    """Without the moment at which it was taken, the one thing in which the tables of a rack's trays differ."""
    found = DATE.match(document, max(0, document.rfind(TAKEN)))
    return document[: found.start()] + document[found.end() :] if found else document


def _text(lines: list[str]) -> ImexTable:
    nodes: list[ImexNode] = []
    cells: dict[tuple[int, int], str] = {}
    domain = ""
    columns: list[int] | None = None
    for line in (raw.strip() for raw in lines):
        if (found := NODE.fullmatch(line)) is not None:
            nodes.append(_node(found))
            if len(nodes) > LIMIT_NODES:
                raise NoTable(f"the table has more than {LIMIT_NODES} nodes")
        elif line.startswith("Nodes From\\To"):
            columns = [int(c) for c in line.split()[2:] if number(c) is not None][:LIMIT_NODES]
        elif (found := DOMAIN.fullmatch(line)) is not None:
            domain = found[1]
        elif columns is not None and len(cells) < LIMIT_CELLS and ROW.fullmatch(line):
            index, *tokens = line.split()
            cells.update({(int(index), column): token for column, token in zip(columns, tokens, strict=False)})
    if not nodes:
        raise NoTable("no table in the answer")
    if not domain:
        raise NoTable("the table ends early")
    return _table(nodes, cells, domain)


def _table(nodes: list[ImexNode], cells: dict[tuple[int, int], str], domain: str) -> ImexTable:
    """Each tray prints the whole table of its rack, and most racks print the same one: the cells are kept once."""
    if len(cells) > MOST_CELLS or len(nodes) > MOST_NODES:
        return ImexTable(tuple(nodes[:LIMIT_NODES]), cells, domain)
    return ImexTable(same(tuple(nodes)), _cells(frozenset(cells.items())), domain)


@lru_cache(maxsize=256)
def _cells(items: frozenset[tuple[tuple[int, int], str]]) -> dict[tuple[int, int], str]:
    return dict(sorted(items))


def _node(found: re.Match[str]) -> ImexNode:
    """580 and later mark the local node as `* addr *`; 570 marks nobody, and then None is said of all."""
    index, mark, host, status, version = found.groups()
    return ImexNode(int(index), host, status, version or "", True if mark == "*" else None)


def _json(text: str) -> ImexTable:
    """One document (570's -q -a prints it twice: the first counts). Keys are not sorted, and a set may be partial."""
    try:
        document, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError) as e:
        raise NoTable(f"the JSON of the table cannot be read: {str(e)[:80]}") from e
    entries = document.get("nodes") if isinstance(document, dict) else None
    if not isinstance(entries, dict) or not entries or not all(_plain(k, v) for k, v in entries.items()):
        raise NoTable("the JSON has no table of nodes")
    if len(entries) > LIMIT_NODES:
        raise NoTable(f"the table has more than {LIMIT_NODES} nodes")
    nodes = sorted((_json_node(int(key), entry) for key, entry in entries.items()), key=lambda n: n.index)
    domain = _word(document.get("status"))
    if _all_connected(entries):
        return ImexTable(same(tuple(nodes)), _whole(tuple(n.index for n in nodes)), domain)
    cells: dict[tuple[int, int], str] = {}
    for key, entry in entries.items():
        _read_row(int(key), entry.get("connections"), cells)
    return _table(nodes, cells, domain)


# All trays of a rack print one table, and hosts come rack by rack: it is read once. What is wrong in it is not kept.
_small_json = lru_cache(maxsize=64)(_json)


def _all_connected(entries: dict[str, dict[str, object]]) -> bool:
    """What nearly every tray of a fleet says: each node is connected to each. Such a table is not taken apart."""
    rows = [entry.get("connections") for entry in entries.values()]
    if len(rows) ** 2 > MOST_CELLS or not all(isinstance(row, dict) and row.keys() == entries.keys() for row in rows):
        return False
    return all(type(cell) is dict and cell.get("status") == "CONNECTED" for row in rows for cell in row.values())  # type: ignore[attr-defined]


@lru_cache(maxsize=256)
def _whole(indices: tuple[int, ...]) -> dict[tuple[int, int], str]:
    return _cells(frozenset(((i, j), "C") for i in indices for j in indices))


def _json_node(index: int, entry: dict[str, object]) -> ImexNode:
    return ImexNode(index, _word(entry.get("host")), _word(entry.get("status")), _word(entry.get("version")))


def _read_row(i: int, row: object, cells: dict[tuple[int, int], str]) -> None:
    """A rack of 18 has 324 cells in each of its 18 answers: the usual words cost two look-ups and no call."""
    for key, cell in row.items() if isinstance(row, dict) else ():
        j = SMALL.get(key)
        if j is None or not isinstance(cell, dict):
            if not _plain(key, cell):
                continue
            j = int(key)
        status = cell.get("status")
        word = status if isinstance(status, str) else ""
        cells[i, j] = TOKENS.get(word) or _word(word)[:LONGEST_TOKEN]


def _plain(key: str, entry: object) -> bool:
    return isinstance(entry, dict) and key.isascii() and key.isdigit() and len(key) < 6


def _word(value: object) -> str:
    """One line, and no longer than a name is."""
    return " ".join(value[:255].split()) if isinstance(value, str) else ""
