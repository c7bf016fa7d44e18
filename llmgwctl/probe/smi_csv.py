"""`--query-gpu=... --format=csv` with its header line: one mapping a GPU, by the names of the fields."""

from __future__ import annotations

import csv
import re
from itertools import islice

from llmgwctl.probe.smi_tree import NOTHING

NAME = re.compile(r"[a-z][A-Za-z0-9_.]{0,100}(?: \[[^\]]{1,16}\])?")
LIMIT_ROWS, LIMIT_LINE = 4096, 65536
Row = dict[str, str | None]


def read_csv(text: str) -> list[Row]:
    """Rows by field; None is what says nothing ([N/A]). Lines before the header and rows of another length are noise.

    R535 to R570 print the name before the value of some fields (`state  Completed`): it is taken away again.
    """
    lines = (line[:LIMIT_LINE] for line in text.replace("\r", "").replace("\0", "").split("\n"))
    rows = iter(csv.reader(lines, skipinitialspace=True, quoting=csv.QUOTE_NONE))
    names = next((row for row in rows if _is_header(row)), None)
    if names is None:
        return []
    fields = [name.split(" [")[0] for name in names]
    found = (dict(zip(fields, row, strict=True)) for row in rows if len(row) == len(fields))
    return [{name: _value(name, raw) for name, raw in row.items()} for row in islice(found, LIMIT_ROWS)]


def _is_header(row: list[str]) -> bool:
    return len(row) > 1 and all(NAME.fullmatch(name.strip()) for name in row)


def _value(name: str, raw: str) -> str | None:
    value = raw.strip()
    last = name.rpartition(".")[2]
    if name.startswith("fabric.") and value.startswith(f"{last} "):
        value = value[len(last) :].strip()
    return None if value in NOTHING else value
