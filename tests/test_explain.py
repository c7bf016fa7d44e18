"""plan --explain: every host has its line, with what it carries or all that speaks against it."""

from __future__ import annotations

from facts import IN_PROGRESS, hgx, rack, snapshot, with_gpu

from llmgwctl.fabric import fabric_map
from llmgwctl.model.profile import Profile
from llmgwctl.placement import plan
from llmgwctl.render.plan import explained


def test_every_host_has_its_line():
    trays = rack(4)
    trays["r1-t03"] = with_gpu(trays["r1-t03"], 2, fabric=IN_PROGRESS)
    snap = snapshot(trays, hgx(1))
    profile = Profile("p", "sim", pool="prod", gpu_class="GB200", tp=8, nodes=2, gpus_per_node=4)
    made = plan(fabric_map(snap), snap, profile)
    lines = explained(made, [f.host for f in snap.hosts]).splitlines()
    told = {line.split()[0]: line for line in lines if line.strip()}
    assert set(told) >= {f.host.name for f in snap.hosts}
    assert "rank 0 of p-0, GPUs 0-3" in told["r1-t01"]
    assert "rank 1 of p-0" in told["r1-t02"]
    assert "GPU 2 has not joined" in told["r1-t03"]
    assert "fits, not needed" in told["r1-t04"]
    assert "has H100" in told["h100-001"]


def test_names_that_are_wanted_are_given_where_they_are_free():
    """So that a replica that is restarted keeps its name; one that is taken, or of another profile, is passed over."""
    snap = snapshot(rack(4))
    profile = Profile("p", "sim", pool="prod", tp=4, gpus_per_node=4, port_max=8010)

    def names(count, *wanted):
        return [r.id for r in plan(fabric_map(snap), snap, profile, (), count, names=wanted).replicas]

    assert names(1, "p-3") == ["p-3"]
    assert names(3, "p-1") == ["p-1", "p-0", "p-2"]
    assert names(1, "q-1", "p-x") == ["p-0"]
