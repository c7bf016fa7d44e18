"""Text, page, document and metrics of each rack under tests/racks, byte for byte."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from llmgwctl import __version__
from llmgwctl.collect import collect
from llmgwctl.fabric import fabric_map
from llmgwctl.inventory import load
from llmgwctl.launch.state import replicas
from llmgwctl.model.fabric import FabricMap
from llmgwctl.model.host import Snapshot
from llmgwctl.probe import PROBES
from llmgwctl.render import json as documents
from llmgwctl.render.html import rack_page
from llmgwctl.render.prom import metrics
from llmgwctl.render.rack import racks as drawn
from llmgwctl.transport.replay import Replay

RACKS = sorted(p.parent for p in (Path(__file__).parent / "racks").glob("*/inventory.toml"))
FORMATS: dict[str, Callable[[FabricMap, Snapshot], str]] = {
    "txt": lambda fmap, snap: drawn(fmap, snap) + "\n",
    "html": lambda fmap, snap: rack_page(fmap, snap, replicas(snap), made_at=snap.taken_at + 4).replace(
        __version__, "VERSION"
    ),
    "json": lambda fmap, snap: json.dumps(documents.nvlink(fmap, snap), indent=1, ensure_ascii=False) + "\n",
    "prom": lambda fmap, snap: metrics(fmap, snap, replicas(snap)),
}


async def looked_at(rack: Path) -> tuple[FabricMap, Snapshot]:
    inventory = load(rack / "inventory.toml")
    snapshot = await collect(inventory.hosts, Replay(rack / "hosts"), PROBES)
    return fabric_map(snapshot, inventory.fabrics), snapshot


@pytest.mark.parametrize("rack", RACKS, ids=lambda p: p.name)
async def test_every_format(rack, golden):
    """The four agree with what was read, and with each other, until somebody means to change them."""
    fmap, snapshot = await looked_at(rack)
    for name, make in FORMATS.items():
        golden(rack / f"expected.{name}", make(fmap, snapshot))


def test_no_leftovers():
    """Each folder there is a rack, and each expected file has its format."""
    folders = sorted(p for p in (Path(__file__).parent / "racks").iterdir() if p.is_dir())
    assert folders == RACKS
    assert {f.suffix[1:] for rack in RACKS for f in rack.glob("expected.*")} <= set(FORMATS)
