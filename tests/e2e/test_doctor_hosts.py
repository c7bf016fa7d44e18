"""The doctor on real OpenSSH hosts: a fleet with many different faults and with traps, as an account without rights."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest
from netns import Bed, Done

from llmgwctl.rack import RackSpec, nvl72

PROGRAM_FAULTS = tuple(f"NVRM: Xid (PCI:0009:06:00): {n}, pid=77, name=python3" for n in (13, 31, 43, 45))
REGISTERS = ("mlx5_core 0000:05:00.0: mlx5_cmd_out_err:838:(pid 2): ACCESS_REG(0x805) op_mod(0x1) failed",) * 20
SLURM = "r1-t13"  # IMEX rests here, since Slurm starts it per job
FAULTS = {
    "r1-t01": ("imex-down", "LG301"),
    "r1-t02": ("imex-oneway:r1-t03", "LG305"),
    "r1-t04": ("channel-missing", "LG401"),
    "r1-t05": ("gpu-not-joined:2", "LG101"),
    "r1-t06": ("all-dropped", "LG102"),
    "r1-t07": ("degraded:1", "LG201"),
    "r1-t08": ("unhealthy:3", "LG202"),
    "r1-t09": ("clique:2", "LG109"),
    "r1-t10": ("gpu-lost:0", "LG501"),
    "r1-t11": ("recovery:1", "LG502"),
    "r1-t12": ("smi-missing", "LG604"),
    "h100-01": ("mig:1", "LG503"),
    "h100-02": ("busy:1", "LG609"),
    "h100-03": ("hca-down:2", "LG701"),
}
# What depends on the machine that plays the hosts: its limits, its clock, its disks.
OF_THIS_MACHINE = "LG711,LG8"


def fleet() -> RackSpec:
    """Sixteen trays and five HGX hosts; five of them only look broken."""
    spec = nvl72(16, hgx=5)
    change = {
        "r1-t14": {"kernel_log": PROGRAM_FAULTS},
        "h100-04": {"kernel_log": REGISTERS},
        "h100-05": {"units": ("sshd",)},  # its fabric is up, whatever the unit says
    }
    machines = tuple(replace(m, **change.get(m.name, {})) for m in spec.machines)
    faults = {name: (fault,) for name, (fault, _) in FAULTS.items()}
    return replace(spec, machines=machines, faults=faults | {SLURM: ("imex-down",)})


RACK = fleet()


def ctl(bed: Bed, *words: str) -> Done:
    return bed.run(sys.executable, "-m", "llmgwctl", "-i", str(bed.inventory), *words, timeout_s=300)


def report(bed: Bed, *words: str) -> tuple[int, dict]:
    done = ctl(bed, "doctor", "--json", "-q", "--skip", OF_THIS_MACHINE, *words)
    assert done.out, done.err
    return done.code, json.loads(done.out)


def problems(document: dict) -> dict[str, set[str]]:
    """host -> ids of what is graver than a remark."""
    found: dict[str, set[str]] = {}
    for f in document["findings"]:
        for host in f["hosts"] if f["severity"] != "info" else ():
            found.setdefault(host, set()).add(f["id"])
    return found


@pytest.fixture(scope="module")
def told(module_bed: Bed) -> tuple[int, dict]:
    """The report of the whole fleet, with a slurmd that really runs on one of its trays."""
    script = "cp /bin/sleep /run/slurmd && (setsid /run/slurmd 600 </dev/null >/dev/null 2>&1 &)"
    assert module_bed.inside(SLURM, "sh", "-c", script).code == 0
    return report(module_bed)


def test_every_fault_is_found_once_on_its_host_and_no_trap_is(told):
    """Fourteen faults, five traps: each fault is one finding of its own check on its own host, and nothing else is."""
    code, document = told
    assert code == 1
    assert problems(document) == {host: {check} for host, (_, check) in FAULTS.items()}


def test_each_host_has_one_next_action(told):
    """Ranked: what blocks comes first, and each host stands in it once."""
    actions = told[1]["next"]
    hosts = [h for a in actions for h in a["hosts"]]
    assert sorted(hosts) == sorted(FAULTS)
    assert all(a["action"] and a["who"] for a in actions)
    assert actions[-1]["id"] in ("LG201", "LG701", "LG609")


def test_what_needs_a_right_says_so(told, bed: Bed):
    """As an account without rights nothing crashes, and what could not be told has its reason."""
    unknown = told[1]["unknown"]
    assert all(u["why"] for u in unknown)
    assert not any("the check failed" in u["why"] for u in unknown)
    assert not any(u["counts"] for u in unknown)


def test_a_host_that_is_gone_cannot_be_told_of(bed: Bed):
    """Alone it makes the run end with 3; its action is to look at it."""
    bed.kill("r1-t15")
    code, document = report(bed, "-w", "r1-t[15-16]")
    assert code == 3
    assert [(u["id"], u["hosts"]) for u in document["unknown"] if u["counts"]] == [("LG001", ["r1-t15"])]
    bed.boot("r1-t15")
    assert report(bed, "-w", "r1-t[15-16]")[0] == 0


def test_it_leaves_nothing_but_the_lock(bed: Bed):
    """No process, and no file but the lock of the probe."""
    before = bed.inside("r1-t16", "sh", "-c", "find /home /tmp /run /var/tmp /dev/shm -type f | sort").out
    assert report(bed, "-w", "r1-t16")[0] == 0
    after = bed.inside("r1-t16", "sh", "-c", "find /home /tmp /run /var/tmp /dev/shm -type f | sort").out
    assert set(after.split()) - set(before.split()) <= {"/run/lock/llmgwctl/probe.lock"}
    assert "llmgwctl" not in bed.inside("r1-t16", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '").out.replace(
        "cat /proc", ""
    )


def test_one_connection_a_host(bed: Bed):
    """The whole run costs one login."""
    before = bed.log("r1-t16").count("Accepted publickey")
    assert report(bed, "-w", "r1-t16")[0] == 0
    assert bed.log("r1-t16").count("Accepted publickey") == before + 1


def test_a_profile_is_judged_on_its_own_hosts(bed: Bed):
    """The two trays that would run it are well, whatever is wrong with the rest of the rack."""
    code, document = report(bed, "--profile", "sim-nvl")
    assert (code, problems(document)) == (0, {})
    assert len(document["hosts"]) == 2
    # IMEX of r1-t02 is cut from r1-t03 alone: with any other tray it is well, and the plan knows that too
    assert not set(document["hosts"]) & (set(FAULTS) - {"r1-t02"})


def test_deep_connects_every_host_with_every_other_and_leaves_nothing(bed: Bed):
    """Idle hosts that were named: all connected; a way that is shut is told; no process, claim or folder is left."""
    hosts = "r1-t[14-16]"
    code, document = report(bed, "--deep", "-w", hosts)
    assert (code, problems(document)) == (0, {})
    assert {u["id"] for u in document["unknown"]} >= {"LG922"}  # no nccl-tests here
    address = bed.address("r1-t15")
    assert bed.inside("r1-t16", "ip", "route", "add", "blackhole", f"{address}/32").code == 0
    try:
        code, document = report(bed, "--deep", "-w", hosts)
    finally:
        bed.inside("r1-t16", "ip", "route", "del", "blackhole", f"{address}/32")
    assert (code, problems(document)) == (1, {"r1-t15": {"LG921"}, "r1-t16": {"LG921"}})
    for name in ("r1-t14", "r1-t15", "r1-t16"):
        left = bed.inside(
            name, "sh", "-c", "ls /run/lock/llmgwctl /home/ops/.local/state/llmgwctl/*/; pgrep -f [s]im_server"
        )
        assert not [w for w in left.out.split() if w.startswith(("gpu-", "slot-", "doctor-")) or w.isdigit()]


def test_deep_is_refused_where_something_runs(bed: Bed):
    """Not on a busy host, not on a fleet that nobody named."""
    assert ctl(bed, "doctor", "--deep", "-w", "h100-02").code == 2
    assert "r1-t" not in ctl(bed, "doctor", "--deep", "-w", "h100-02").err
    assert ctl(bed, "doctor", "--deep").code == 2
