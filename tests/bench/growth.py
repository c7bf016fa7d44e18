"""How the work after the answers grows with the fleet: `make bench-growth`, or `tests/bench/growth.py HOSTS ...`.

Two fleets of each size, in simulation: NVL72 racks (18 trays of 4 GPUs) and HGX hosts (8 GPUs, 8 adapters). Each line
is a process of its own, so that its memory is its own. CPU is that of the process; the facts were made before.
"""

from __future__ import annotations

import gc
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

SIZES = (5_000, 10_000, 20_000)
FLEETS = ("racks", "hgx")
STEPS = ("map", "plan", "plan x100", "doctor", "rack page", "JSON", "metrics")


def measured(fleet: str, hosts: int) -> dict[str, float]:
    """Seconds of CPU of each step, the page in MB, and MiB of memory with the facts and after all."""
    from facts import hgx, rack, snapshot

    from llmgwctl.doctor import diagnose
    from llmgwctl.fabric import fabric_map
    from llmgwctl.model.profile import Profile
    from llmgwctl.placement import plan
    from llmgwctl.render import html, prom
    from llmgwctl.render import json as render

    racks = -(-hosts // 18)
    groups = [rack(18, f"r{i}", f"5e1fab1e-0000-4000-8000-{i:012x}", net=i % 250 + 1) for i in range(racks)]
    snap = snapshot(*groups) if fleet == "racks" else snapshot(hgx(hosts))
    gc.freeze()  # as the command does once the answers are in
    found: dict[str, float] = {"facts_mib": rss_mib()}

    def step(name: str, work: Callable[[], object]) -> object:
        began = time.process_time()
        result = work()
        found[name] = time.process_time() - began
        return result

    fmap = step("map", lambda: fabric_map(snap))
    profile = Profile("p", "sim", pool="prod", tp=8, nodes=2, gpus_per_node=4, port_max=9000)
    step("plan", lambda: plan(fmap, snap, profile))
    step("plan x100", lambda: plan(fmap, snap, profile, count=100))
    step("doctor", lambda: diagnose(snap, fmap))
    page = step("rack page", lambda: html.rack_page(fmap, snap))
    step("JSON", lambda: json.dumps(render.nvlink(fmap, snap)))
    step("metrics", lambda: prom.metrics(fmap, snap))
    return found | {"page_mb": len(page.encode()) / 1e6, "all_mib": rss_mib()}


def rss_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(sizes: list[int]) -> None:
    if sizes and sizes[0] < 0:  # a child: one line of one fleet
        print(json.dumps(measured(FLEETS[sizes[1]], -sizes[0])))
        return
    columns = (*STEPS, "page_mb", "facts_mib", "all_mib")
    print("| fleet | hosts | " + " | ".join((*(f"{s} s" for s in STEPS), "page MB", "facts MiB", "all MiB")) + " |")
    print("|---|---|" + "---|" * len(columns))
    for number, fleet in enumerate(FLEETS):
        for hosts in sizes or SIZES:
            child = [sys.executable, __file__, str(-hosts), str(number)]
            found = json.loads(subprocess.run(child, check=True, stdout=subprocess.PIPE, text=True).stdout)
            print(f"| {fleet} | {hosts} | " + " | ".join(f"{found[c]:.2f}" for c in columns) + " |", flush=True)


if __name__ == "__main__":
    main(list(map(int, sys.argv[1:])))
