"""A thousand racks, 18,000 hosts, 72,000 GPUs in one file: its size, and how long a browser takes to open it."""

from __future__ import annotations

import json

import pytest
from facts import hgx, rack, snapshot, unreachable, with_imex

from llmgwctl.fabric import fabric_map
from llmgwctl.render.html import rack_page

MAX_BYTES, MAX_MS = 12_000_000, 3000
TIMES = """() => { const n = performance.getEntriesByType("navigation")[0];
  const p = performance.getEntriesByName("first-contentful-paint")[0];
  return { parsed_ms: n.domContentLoadedEventEnd, loaded_ms: n.loadEventEnd, first_paint_ms: p && p.startTime,
           chips: document.querySelectorAll("ol > li > .g > i").length }; }"""


@pytest.mark.soak
def test_a_thousand_racks_open(opened, tmp_path):
    """Under 12 MB, open in under 3 s, and the filter still finds its tray."""
    racks = [rack(18, f"r{i:04d}", f"5e1fab1e-0000-4000-8000-{i:012x}", net=i % 250) for i in range(1000)]
    for hosts in racks[::20]:
        names = list(hosts)
        hosts[names[4]] = with_imex(hosts[names[4]], state="DOWN")
        hosts[names[9]] = unreachable(hosts[names[9]], "timeout")
    snap = snapshot(*racks, hgx(20))
    file = tmp_path / "large.html"
    file.write_text(rack_page(fabric_map(snap), snap, made_at=snap.taken_at), encoding="utf-8")
    page = opened(file)
    told = page.evaluate(TIMES) | {"bytes": file.stat().st_size}
    print(json.dumps(told))
    assert told["chips"] == 72_000 - 50 * 4
    assert told["bytes"] < MAX_BYTES
    assert told["loaded_ms"] < MAX_MS
    page.fill("#q", "imex down")
    page.locator("#found", has_text="50 of 18,").wait_for()
