"""How long it takes to map and plan a fleet: `make bench-plan`, or `python tests/bench/plan.py RACKS HGX`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from facts import hgx, rack, snapshot

from llmgwctl.fabric import fabric_map
from llmgwctl.model.profile import Profile
from llmgwctl.placement import plan


def main(racks: int = 500, others: int = 1000) -> None:
    """18 trays a rack: 500 racks and 1,000 HGX hosts are 10,000 hosts."""
    groups = [
        rack(18, f"r{i}", f"5e1fab1e-0000-4000-8000-{i:012x}", net=i % 250 + 1) for i in range(racks)
    ]  # addresses repeat between racks, which nothing here looks at
    snap = snapshot(*groups, hgx(others))
    began = time.perf_counter()
    fmap = fabric_map(snap)
    mapped = time.perf_counter()
    print(f"{len(snap.hosts)} hosts: mapped in {mapped - began:.2f} s")
    for count in (1, 100):
        profile = Profile("p", "sim", pool="prod", tp=8, nodes=2, gpus_per_node=4, port_max=9000)
        began = time.perf_counter()
        made = plan(fmap, snap, profile, (), count)
        print(f"  {len(made.replicas)} replicas of 2 hosts planned in {time.perf_counter() - began:.2f} s")


main(*map(int, sys.argv[1:]))
