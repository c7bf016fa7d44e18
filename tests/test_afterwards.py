"""ps of what has gone wrong, and what is said of GPUs after a stop: from facts alone, and on a simulated rack."""

from __future__ import annotations

from dataclasses import replace

import pytest
from facts import IN_PROGRESS, joined, rack, with_gpu
from test_life_cli import Cli, cli  # noqa: F401 (a fixture)
from test_life_state import READY, facts, only, record, seen, spec

from llmgwctl.cli.afterwards import memory_left
from llmgwctl.launch.stop import Stopped, Target
from llmgwctl.model.gpu import GpuProcess
from llmgwctl.model.host import Host
from llmgwctl.model.reading import broken, ok
from llmgwctl.render import life as render

DOMAIN = "nvl:5e1fab1e-0000-4000-8000-00000000000a.32766"


def over_nvlink(rank, **gpu):
    """A rank of a replica over NVLink whose host's GPU 2 is as told."""
    tray = with_gpu(rack(2)[f"r1-t{rank + 1:02d}"], 2, **gpu) if gpu else rack(2)[f"r1-t{rank + 1:02d}"]
    uuids = [g.uuid for g in tray.gpus.value.gpus]
    told = spec(rank, tier="nvlink", fabric=DOMAIN, gpu_uuids=uuids)
    one = facts(f"n{rank}", [record(rank, ready=READY if rank == 0 else None, spec=told)])
    return replace(one, gpus=tray.gpus, host=Host(f"n{rank}"))


@pytest.mark.parametrize(
    ("fabric", "state"),
    [
        (joined(), "running"),
        (IN_PROGRESS, "dropped"),
        (joined("5e1fab1e-0000-4000-8000-00000000000b"), "dropped"),
        (joined(clique=2), "dropped"),
    ],
)
def test_a_gpu_that_left_its_domain_fails_the_replica(fabric, state):
    """In Progress, another ClusterUUID, another clique; with what it is in now."""
    found = only(over_nvlink(0), over_nvlink(1, fabric=fabric))
    assert found.shards[1].state == state
    assert found.state == ("ready" if state == "running" else "failed")
    if state == "dropped":
        assert f"GPU 2 has left the NVLink domain {DOMAIN}: now " in found.why


def test_gpus_that_could_not_be_read_say_nothing():
    """What could not be told is no failure: the ranks run."""
    silent = replace(over_nvlink(1), gpus=broken("not read"))
    assert only(over_nvlink(0), silent).state == "ready"


def test_how_long_and_what_to_do():
    """Ready since its youngest rank; failed since its first end; the next command stands below it."""
    ready = only(facts("n0", [record(0, ready=READY, age_s=500.0)]), facts("n1", [record(1, age_s=90.0)]))
    assert ready.for_s == 90
    failed = only(
        facts("n0", [record(0, ready=READY, age_s=500.0)]), facts("n1", [record(1, "exited", ended_ago_s=7260.0)])
    )
    assert failed.for_s == 7260
    shown = render.ps([failed])
    assert "2h" in shown
    assert "llmgwctl restart p-0" in shown
    changed = replace(ready, changed=True)
    assert "its profile has changed" in render.ps([changed])
    assert [render.span(x) for x in (None, 0, 119, 120, 7199, 7200, 172800)] == [
        "-", "0s", "119s", "2m", "119m", "2h", "2d",
    ]  # fmt: skip


class Looking:
    """A session of which only the second look at the hosts matters."""

    def __init__(self, *hosts):
        self.hosts = hosts

    async def collect(self, hosts, **_):
        return seen(*(f for f in self.hosts if f.host in hosts))


async def test_a_gpu_of_which_nothing_is_told_after_a_stop_is_not_called_idle():
    """Memory that is not printed: a program that computes there speaks for it. A card that is gone: not known."""
    before = over_nvlink(0)
    ended = [Stopped(Target(before.host, "p-0", 0, "L"), gone=True)]

    async def left(after):
        return [(x["gpu"], x["used_mib"], x["why"]) for x in await memory_left(Looking(after), seen(before), ended)]

    silent = {"memory_used_mib": None}
    computing = (GpuProcess(7, "G", "Xorg"), GpuProcess(8, "C", "python3"))
    assert await left(over_nvlink(0, **silent)) == []
    assert await left(over_nvlink(0, **silent, processes=computing)) == [
        (2, None, "its memory in use is not printed; Xorg (pid 7), python3 (pid 8)")
    ]
    assert await left(over_nvlink(0, **silent, processes_known=False)) == [
        (2, None, "its memory in use is not printed; no process is named")
    ]
    report = before.gpus.value
    fewer = replace(before, gpus=ok(replace(report, gpus=report.gpus[:3])))
    assert await left(fewer) == [(None, None, "1 of them cannot be read any more")]


async def test_gpus_that_are_not_idle_after_a_stop_are_named(cli: Cli) -> None:  # noqa: F811
    """A foreign process holds one: said, with its pid, and never touched; the others are idle, and nothing is said."""
    cli.change("[profiles.sim-nvl]\n", "[profiles.sim-nvl]\n")
    assert (await cli("place", "sim-nvl"))[0] == 0
    cli.rack.set("r1-t02", "busy:1")
    code, _, err = await cli("stop", "sim-nvl-0")
    assert code == 0
    assert "r1-t02 GPU 1:" in err
    assert "MiB are still in use" in err
    assert "r1-t01 GPU" not in err
