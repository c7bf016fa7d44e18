"""`doctor --deep` across hosts: processes of a simulated rack that meet over sockets, and a real torch where it is."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from doctor_racks import but, changed, gpus, healthy, seen
from test_doctor_checks import HGX, H, T
from test_life_cli import Cli

from llmgwctl.cli.across import groups_of
from llmgwctl.doctor import CHECKS, diagnose
from llmgwctl.doctor.across import read
from llmgwctl.doctor.base import Across, Deep
from llmgwctl.engines import all_reduce_run
from llmgwctl.engines.all_reduce import MARK
from llmgwctl.engines.programs import script
from llmgwctl.fabric import fabric_map
from llmgwctl.rack import nvl72, serve

STAND_IN = Path(__file__).parent / "fixtures" / "torch-stand-in"
REAL = Path.home() / ".cache/llmgwctl-real/vllm/bin/python"
VERSIONS = {"torch": "2.9.0", "vllm": "0.11.1", "nvidia-nccl-cu12": "2.27.5"}
PAIR = ("r1-t01", "r1-t02")

# --- what is found ----------------------------------------------------------------------------------------------------


def deep(*tests: Across):
    snapshot, _ = seen(healthy())
    return diagnose(snapshot, fabric_map(snapshot), (), CHECKS, Deep(across=tests))


NVLINK = Across("nvlink", T[:2], world=8, bus_gbps=700.0)
RDMA = Across("scale-out", H[:2], world=16, bus_gbps=330.0, rails_gbps=400.0)


@pytest.mark.parametrize(
    ("test", "severity", "words"),
    [
        (NVLINK, None, ""),
        (RDMA, None, ""),
        (replace(NVLINK, bus_gbps=90.0), "degrade", "over NVLink with 8 GPUs: 90 GB/s, at least 450 is usual"),
        (replace(RDMA, bus_gbps=90.0), "degrade", "over InfiniBand or RoCE with 16 GPUs: 90 GB/s, at least 200"),
        (replace(RDMA, bus_gbps=90.0, rails_gbps=100.0), None, ""),  # two rails carry no more
        (replace(RDMA, bus_gbps=240.0, rails_gbps=900.0), "degrade", "at least 250"),  # nor more than its GPUs
        (replace(NVLINK, wrong=3), "block", "3 wrong values"),
        (replace(NVLINK, bus_gbps=0.0, failed="r1-t02, rank 4, in reduce: NCCL error"), "block", "r1-t02, rank 4"),
        (replace(NVLINK, other="planned over nvlink, and NCCL uses TCP"), "degrade", "NCCL uses TCP"),
    ],
)
def test_it_is_held_to_floors_and_to_its_path(test: Across, severity: str | None, words: str):
    """Fast enough is quiet; slow, wrong, failed or by another path is one finding on its hosts."""
    report = deep(test)
    assert [(f.id, f.severity, f.hosts) for f in report.findings] == (
        [("LG923", severity, test.hosts)] if severity else []
    )
    assert words in "".join(v for f in report.findings for v in f.values)
    assert not report.unknown


def test_what_could_not_be_tested_is_unknown():
    """Never fine: with its reason; that nothing is installed counts only with --strict."""
    for absent, code in ((True, 0), (False, 0)):
        report = deep(Across("nvlink", T[:2], untold="no engine with torch", absent=absent))
        (told,) = report.unknown
        assert (told.hosts, [c.id for c in told.checks]) == (T[:2], ["LG923"])
        assert "no engine with torch" in told.why
        assert (report.code(), report.code(strict=True)) == (code, 3)


def test_a_product_without_a_floor_is_not_judged():
    """The number is told, and that nobody knows what it should be."""
    fleet = {n: but(f, gpus=gpus(name="NVIDIA GB999")) for n, f in healthy().items()}
    snapshot, _ = seen(fleet)
    report = diagnose(snapshot, fabric_map(snapshot), (), CHECKS, Deep(across=(NVLINK,)))
    assert any("700 GB/s; no floor is known" in u.why for u in report.unknown)


ONE_EACH = {T[0]: range(1), T[1]: range(1, 2)}
TWO_EACH = {T[0]: range(2), T[1]: range(2, 4)}


def line(**told) -> str:
    return f"{MARK}{json.dumps(told)}\n"


def test_what_the_ranks_said_is_read_from_strangers():
    """The slowest rank counts; wrong values add up; a rank that says nothing, or nonsense, is no result."""
    blank = Across("nvlink", T[:2], world=2)
    good = {T[0]: line(rank=0, bus_gbps=500.5, wrong=0), T[1]: f"noise\n{line(rank=1, bus_gbps=480, wrong=2)}more"}
    made = read(blank, MARK, good, ONE_EACH)
    assert (made.bus_gbps, made.wrong, made.failed) == (480.0, 2, "")
    odd = ({"bus_gbps": "fast", "wrong": 0}, {"bus_gbps": -1, "wrong": 0}, {"bus_gbps": 9.0}, {"rank": 0, "wrong": 0})
    for other in ("", f"{MARK}[1]\n", MARK + "{" * 3000, *(line(**({"rank": 1} | d)) for d in odd)):
        assert read(blank, MARK, good | {T[1]: other}, ONE_EACH).failed.startswith(
            "1 of 2 ranks ended without a result"
        )


def test_a_host_speaks_for_its_own_ranks_alone():
    """Whatever it prints: a host that says nothing has no result, and no number breaks the report."""
    blank, ranks = Across("nvlink", T[:2], world=4), TWO_EACH
    for claimed in ((0, 1, 2, 3), (2, 3, 4, 5), (True, 0.0, 2, 3), (-1, 10**30, 2, 3)):
        liar = {T[0]: "boom\n", T[1]: "".join(line(rank=r, bus_gbps=500.0, wrong=0) for r in claimed)}
        assert read(blank, MARK, liar, ranks).failed.startswith("2 of 4 ranks ended without a result"), claimed
    huge = "".join(f'{MARK}{{"rank": {r}, "bus_gbps": 500.0, "wrong": {"9" * 4300}}}\n' for r in (0, 1))
    told = {T[0]: huge, T[1]: "".join(line(rank=r, bus_gbps=500.0, wrong=0) for r in (2, 3))}
    assert read(blank, MARK, told, ranks).failed.startswith("2 of 4 ranks")
    for odd in ("x" * 60_000, [[[[]]]] * 9000, 10**4000, None, 2, True):
        told = {T[0]: line(rank=odd, failed=odd, why=odd)}
        made = read(blank, MARK, told, ranks)
        assert made.failed.startswith(f"{T[0]}, in ")
        assert len(made.failed) < 400


def test_a_failure_names_its_rank_and_nccls_own_reason():
    """The first that failed for a reason, not those that then ran out of time; without torch nothing was tried."""
    blank = Across("nvlink", T[:2], world=2)
    warned = "h:1:2 [0] init.cc:9 NCCL WARN MNNVL (cliqueSize 8) is available but not working on this system.\n"
    failed = {
        T[0]: line(rank=0, failed="time", why="not done within 120 s"),
        T[1]: warned + line(rank=1, failed="reduce", why="DistBackendError: NCCL error"),
    }
    made = read(blank, MARK, failed, ONE_EACH)
    assert made.failed.startswith(
        f"{T[1]}, rank 1, in reduce: DistBackendError: NCCL error (NCCL: MNNVL (cliqueSize 8)"
    )
    unmet = {T[1]: line(rank=1, failed="rendezvous", why="timeout")}
    missing = read(blank, MARK, unmet | {T[0]: line(rank=0, failed="import", why="No module named 'torch'")}, ONE_EACH)
    sick = failed | {T[0]: line(rank=0, failed="import", why="No module named 'torch'")}
    assert read(blank, MARK, sick, ONE_EACH).failed.startswith(f"{T[1]}, rank 1, in reduce")  # it met something itself
    waited = {T[0]: line(rank=0, failed="rendezvous", why="timeout"), T[1]: line(rank=1, failed="device", why="802")}
    assert read(blank, MARK, waited, ONE_EACH).failed.startswith(f"{T[1]}, rank 1, in device: 802")
    assert (missing.failed, missing.absent, missing.untold) == ("", True, f"{T[0]}: No module named 'torch'")


# --- who is tested with whom ------------------------------------------------------------------------------------------


def test_hosts_are_grouped_by_domain_and_by_fabric():
    """A domain's hosts over NVLink, a fabric's over its adapters; hosts that are not alike are not put together."""
    fleet = healthy()
    snapshot, _ = seen(fleet)
    fmap = fabric_map(snapshot)
    assert [g.names for g in groups_of("nvlink", fmap, snapshot.hosts)] == [T]
    chosen = [fleet[n] for n in (*H, T[0])]
    assert groups_of("nvlink", fmap, chosen) == ()
    assert [g.names for g in groups_of("scale-out", fmap, chosen)] == [H]
    fewer = changed(HGX, gpus=lambda r: replace(r, attached=7, gpus=r.gpus[:7]))
    assert [g.names for g in groups_of("scale-out", fmap, [fewer[n] for n in H])] == [(H[0], H[2])]


# --- on a rack --------------------------------------------------------------------------------------------------------


@pytest.fixture
async def cli(tmp_path: Path) -> AsyncIterator[Cli]:
    """Three trays with a vllm in the layout of a real one: a script whose first line names the Python with torch."""
    async with serve(nvl72(3, hgx=0), tmp_path / "rack") as rack:
        made = Cli(rack, tmp_path / "home")
        install(made, tmp_path / "venv")
        yield made
        assert made.processes() == []
        assert (await made.json("ps"))["replicas"] == []


def install(cli: Cli, venv: Path) -> None:
    (venv / "bin").mkdir(parents=True)
    for name, version in VERSIONS.items():
        info = venv / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    behave(venv)
    python = venv / "bin/python3"
    path = f"{STAND_IN}:{venv}"
    python.write_text(f'#!/bin/sh\nSTAND_IN_BEHAVIOUR={venv}/behaviour PYTHONPATH={path} exec {sys.executable} "$@"\n')
    vllm = venv / "bin/vllm"
    vllm.write_text(f"#!{python}\n")
    for program in (python, vllm):
        program.chmod(0o755)
    text = cli.rack.inventory.read_text()
    cli.rack.inventory.write_text(f'{text}\n[engines.vllm]\npath = "{vllm}"\n')


def behave(venv: Path, **how) -> None:
    (venv / "behaviour").write_text(json.dumps({"gbps": 800.0} | how))


async def measured(cli: Cli, *hosts: str) -> tuple[int | None, dict, str]:
    code, out, err = await cli("doctor", "--deep", "--json", "--only", "LG923", "-w", ",".join(hosts or PAIR))
    assert out, err
    return code, json.loads(out), err


async def test_both_paths_are_measured_and_nothing_is_left(cli: Cli):
    """Eight ranks on two trays meet over NVLink, then over the adapters; both are fast: both numbers are said."""
    code, document, err = await measured(cli)
    assert (code, document["findings"], document["unknown"]) == (0, [], []), err
    assert "all-reduce over nvlink, 2 hosts, 8 GPUs: 800.0 GB/s" in err
    assert "all-reduce over scale-out, 2 hosts, 8 GPUs: 800.0 GB/s" in err


@pytest.mark.parametrize(
    ("how", "severity", "words"),
    [
        ({"gbps": 40.0}, "degrade", ("over NVLink with 8 GPUs: 40 GB/s, at least 450", "over InfiniBand or RoCE")),
        ({"off": 1}, "block", ("wrong values",)),
        ({"fail": "reduce"}, "block", ("NCCL: Cuda failure 800 'operation not permitted'",)),
        ({"fail": "device"}, "block", ("in device: RuntimeError: CUDA error: system not yet initialized",)),
        ({"fail": "device", "rank": 6}, "block", ("failed: r1-t02, rank 6, in device",)),
        ({"tcp": True}, "degrade", ("planned over nvlink, and NCCL uses TCP",)),
    ],
    ids=["slow", "wrong", "fails", "no device", "one rank of eight", "another path"],
)
async def test_what_is_wrong_is_found_and_all_is_ended(cli: Cli, tmp_path: Path, how, severity, words):
    """The finding is about both hosts, says the path and the reason; no process, claim or folder stays."""
    behave(tmp_path / "venv", **how)
    code, document, err = await measured(cli)
    assert code == 1, err
    assert {(f["id"], f["severity"], tuple(f["hosts"])) for f in document["findings"]} == {("LG923", severity, PAIR)}
    assert all(any(w in f["value"] for f in document["findings"]) for w in words), document["findings"]


async def test_without_torch_nothing_is_fine(cli: Cli, tmp_path: Path):
    """A torch that cannot be imported, and no engine at all: unknown, with what to install."""
    behave(tmp_path / "venv", fail="import")
    code, document, _ = await measured(cli)
    assert (code, document["findings"]) == (0, [])
    assert {(u["id"], tuple(u["hosts"])) for u in document["unknown"]} == {("LG923", PAIR)}
    assert all("libcudart.so.13" in u["why"] for u in document["unknown"])
    cli.change(f'path = "{tmp_path}/venv/bin/vllm"', 'path = "/nowhere/vllm"')
    code, document, _ = await measured(cli)
    assert (code, document["findings"]) == (0, [])
    assert all("no engine with torch" in u["why"] and "nccl-tests" in u["why"] for u in document["unknown"])


async def test_interrupted_it_ends_what_it_started(cli: Cli, tmp_path: Path):
    """Ctrl-C while the ranks run: they are gone, and so are their claims."""
    behave(tmp_path / "venv", fail="hang")
    running = await cli.begin("doctor", "--deep", "--only", "LG923", "-w", ",".join(PAIR))
    for _ in range(600):
        if cli.processes() and "all-reduce" in json.dumps((await cli.json("ps"))["replicas"]):
            break
        await asyncio.sleep(0.1)
    assert cli.processes()
    running.send_signal(signal.SIGINT)
    await running.communicate()
    assert running.returncode == 130


async def test_a_host_that_is_not_idle_is_never_touched(cli: Cli):
    """A shard of somebody holds a GPU of it: refused before anything starts."""
    assert (await cli("place", "sim-nvl"))[0] == 0
    assert (await cli("doctor", "--deep", "-w", ",".join(PAIR)))[0] == 2
    assert (await cli("stop", "sim-nvl-0"))[0] == 0


PERF = """#       size         count      type   redop    root     time   algbw   busbw #wrong
   536870912     134217728     float     sum      -1   1507.2  356.20  534.30      0   1503.8  357.01  535.51      0
# Avg bus bandwidth    : 534.90
"""


async def test_within_a_host_its_gpus_are_claimed_while_they_are_used(cli: Cli, tmp_path: Path):
    """nccl-tests in the layout of a real build: they run under a claim of every GPU, and no claim is left."""
    for name in PAIR:
        root = cli.rack.inventory.parent / "hosts" / name
        program = root / "usr/bin/all_reduce_perf"
        program.write_text(f"#!/bin/sh\nls {root}/run/lock/llmgwctl >{tmp_path}/{name}\ncat <<'E'\n{PERF}E\n")
        program.chmod(0o755)
    code, out, err = await cli("doctor", "--deep", "--json", "--only", "LG922", "-w", ",".join(PAIR))
    assert (code, json.loads(out)["findings"], json.loads(out)["unknown"]) == (0, [], []), err
    for name in PAIR:
        held = (tmp_path / name).read_text().split()
        assert len([w for w in held if w.startswith("gpu-")]) == 4
        left = (cli.rack.inventory.parent / "hosts" / name / "run/lock/llmgwctl").iterdir()
        assert not [p.name for p in left if p.name.startswith("gpu-")]


# --- the program itself -----------------------------------------------------------------------------------------------


def test_the_program_and_its_reader_agree_on_the_mark():
    """One is text for the hosts, the other reads what it prints; the shell before them says it too."""
    assert all_reduce_run.MARK == MARK
    assert f"{MARK}{{" in script("all_reduce.sh")


needs_torch = pytest.mark.skipif(not REAL.exists(), reason="no real torch here (make real)")


def start(first: int, port: int, *more: str) -> subprocess.Popen[str]:
    numbers = ["--world", "4", "--local", "2", "--first", str(first), "--port", str(port), "--address", "127.0.0.1"]
    program = [str(REAL), all_reduce_run.__file__, "--backend", "gloo", "--mib", "1", *numbers, *more]
    env = {"PATH": "/usr/bin:/bin", "GLOO_SOCKET_IFNAME": "lo"}
    return subprocess.Popen(program, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@needs_torch
def test_a_real_torch_reduces_over_two_hosts():
    """Two parents with two ranks each, with gloo on CPUs: four results, every value right."""
    port = free_port()
    hosts = [start(0, port), start(2, port)]
    out = [host.communicate(timeout=120)[0] for host in hosts]
    assert [host.returncode for host in hosts] == [0, 0]
    made = read(Across("scale-out", T[:2], world=4), MARK, dict(zip(T, out, strict=False)), TWO_EACH)
    assert (made.failed, made.wrong) == ("", 0)
    assert made.bus_gbps > 0


@needs_torch
def test_a_real_torch_without_its_peers_ends_by_itself():
    """The other host never comes: the ranks are ended when the time is up, and that is said."""
    host = start(0, free_port(), "--seconds", "4")
    out = host.communicate(timeout=60)[0]
    assert host.returncode == 1
    made = read(Across("scale-out", T[:1], world=4), MARK, {T[0]: out}, TWO_EACH)
    assert "not done within 4 s" in made.failed
