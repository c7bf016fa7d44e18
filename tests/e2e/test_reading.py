"""Reading real SSH hosts: what changes is seen in the next run, and each trouble costs its own section."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from netns import Bed, Done

from llmgwctl.rack import nvl72

RACK = nvl72(4, hgx=1)
LIMIT_S = 75  # the longest section and what stands around it


def cli(bed: Bed, *words: str, timeout_s: float = 200) -> Done:
    return bed.run(sys.executable, "-m", "llmgwctl", "-i", str(bed.inventory), *words, timeout_s=timeout_s)


def readings(bed: Bed, *words: str) -> dict[str, dict]:
    """Every reading of every host, by name."""
    document = json.loads(cli(bed, "probe", "--json", *words).out)
    return {h["name"]: h["readings"] for h in document["hosts"]}


@contextmanager
def replaced(bed: Bed, name: str, program: str, text: str) -> Iterator[None]:
    """Another program in the place of one of the host's."""
    path = bed.directory / name / "tree/usr/bin" / program
    kept = path.read_text()
    path.write_text(f"#!/bin/sh\n{text}\n")
    try:
        yield
    finally:
        path.write_text(kept)


def broken(found: dict) -> dict[str, str]:
    return {name: reading["why"] for name, reading in found.items() if reading["state"] == "broken"}


def test_an_account_without_rights_reads_nearly_all(bed: Bed):
    """Nothing is installed on the hosts and ops may little: what it may not is said, all else is read."""
    found = readings(bed)["r1-t01"]
    assert set(broken(found)) <= {"kernel_log", "engines"}
    assert len(found["gpus"]["value"]["gpus"]) == 4
    assert found["processes"]["state"] == "ok"
    assert found["clock"]["value"]["bound_s"] < 5
    assert {r["path"] for r in found["resources"]["value"]["rooms"]} >= {"/dev/shm", "/tmp", "/home/ops"}
    assert all(not r["why"] for r in found["resources"]["value"]["rooms"])


def test_no_trace_is_left_but_the_lock(bed: Bed):
    """After a full reading the host has no process and no file of ours, except the lock that keeps two probes apart."""
    cli(bed, "probe", "-w", "r1-t01")
    left = bed.inside(
        "r1-t01", "sh", "-c", "find /run /dev/shm /tmp /home/ops -name '*llmgwctl*' -o -name 'probe.lock'"
    )
    assert set(left.out.split()) <= {"/run/lock/llmgwctl", "/run/lock/llmgwctl/probe.lock"}
    assert "llmgwctl" not in bed.inside("r1-t01", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '").out


def test_changed_facts_are_seen_in_the_next_run(bed: Bed):
    """A GPU leaves the fabric, an adapter loses its link, and both come back."""
    bed.set("r1-t02", "gpu-not-joined:1")
    bed.set("r1-t02", "hca-down:0")
    found = json.loads(cli(bed, "node", "r1-t02", "--json").out)
    assert [g["joined"] for g in found["gpus"]] == [True, False, True, True]
    assert found["adapters"][0]["ports"][0]["state"] == "DOWN"
    assert found["adapters"][0]["not_used"]
    bed.clear("r1-t02")
    found = json.loads(cli(bed, "node", "r1-t02", "--json").out)
    assert [g["joined"] for g in found["gpus"]] == [True] * 4
    assert found["eligible"]


def test_a_lost_gpu_is_told(bed: Bed):
    """Three of four are readable, with nvidia-smi's own numbers, and no shard may go there."""
    bed.set("r1-t02", "gpu-lost:1")
    found = json.loads(cli(bed, "node", "r1-t02", "--json").out)
    assert [g["index"] for g in found["gpus"]] == [0, 2, 3]
    assert found["matrix"]["gpus"] == [0, 2, 3]
    assert not found["eligible"]
    assert "3 of 4 GPUs readable" in found["reasons"][0]


def test_a_hanging_nvidia_smi_costs_its_own_readings(bed: Bed):
    """Its limit and no more; it is not asked again; the rest of that host and its peers are read."""
    bed.set("r1-t03", "hang")
    began = time.monotonic()
    found = readings(bed)
    assert time.monotonic() - began < LIMIT_S
    why = broken(found["r1-t03"])
    assert "no answer within its limit (60 s)" in why["gpus"]
    assert "not asked again" in why["topology"]
    assert "not asked again" in why["links"]
    assert set(why) <= {"gpus", "topology", "links", "kernel_log", "engines"}
    assert found["r1-t03"]["imex"]["value"]["state"] == "READY"
    assert "gpus" not in broken(found["r1-t01"])
    assert cli(bed, "nvlink", "-w", "r1-t03", timeout_s=200).code == 3


def test_a_missing_nvidia_smi_is_told(bed: Bed):
    """It is not there, and that is a problem where cards are on the bus; everything else is read."""
    bed.set("r1-t03", "smi-missing")
    why = broken(readings(bed, "-w", "r1-t03")["r1-t03"])
    assert "not installed" in why["gpus"]
    assert set(why) <= {"gpus", "topology", "links", "kernel_log", "engines"}


def test_a_hanging_imex_costs_its_own_reading(bed: Bed):
    """The state could not be asked, which is not "down"; the service and its files are told; GPUs are read."""
    with replaced(bed, "r1-t04", "nvidia-imex-ctl", "exec sleep 120"):
        began = time.monotonic()
        found = readings(bed, "-w", "r1-t04")["r1-t04"]
        assert time.monotonic() - began < LIMIT_S
        assert found["imex"]["value"]["state"] == ""
        assert "no answer within its limit (30 s)" in found["imex"]["value"]["why"]
        assert found["imex"]["value"]["unit_active"] == "active"
        assert found["gpus"]["state"] == "ok"
        assert cli(bed, "nvlink", "-w", "r1-t04").code == 3


def test_a_hanging_log_and_systemctl_cost_themselves(bed: Bed):
    """Each program of the sys lane has a short limit: what comes after it is read all the same."""
    with (
        replaced(bed, "r1-t04", "systemctl", "exec sleep 120"),
        replaced(bed, "r1-t04", "journalctl", "exec sleep 120"),
    ):
        began = time.monotonic()
        found = readings(bed, "-w", "r1-t04")["r1-t04"]
        assert time.monotonic() - began < LIMIT_S
    assert found["resources"]["state"] == "ok"
    assert found["imex"]["value"]["unit_active"] is None
    assert found["imex"]["value"]["state"] == "READY"


def test_two_probes_at_once_keep_apart(bed: Bed):
    """Of two runs one asks nvidia-smi; the other waits a little, and says who is at work when that takes too long."""
    bed.set("r1-t01", "slow:8")
    first = bed.popen(sys.executable, "-m", "llmgwctl", "-i", str(bed.inventory), "probe", "-w", "r1-t01", "--json")
    time.sleep(3)
    second = readings(bed, "-w", "r1-t01")["r1-t01"]
    out, _ = first.communicate(timeout=120)
    assert json.loads(out)["hosts"][0]["readings"]["gpus"]["state"] == "ok"
    assert "another probe is at work" in second["gpus"]["why"]
    assert second["imex"]["state"] == "ok"


def test_a_replay_of_real_hosts_says_the_same(bed: Bed, tmp_path):
    """Saved as ops, read again elsewhere."""
    bed.set("r1-t02", "imex-down")
    saved = str(tmp_path / "saved")
    first = cli(bed, "probe", "--json", "--save", saved, "-q")
    second = cli(bed, "probe", "--json", "--from", saved, "-q")
    assert (first.code, first.out) == (second.code, second.out)
    assert (tmp_path / "saved/r1-t01/nvidia-smi-topo-m.txt").read_text().startswith("\t\x1b[4mGPU0")
