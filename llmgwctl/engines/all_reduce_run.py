"""An all-reduce over all GPUs of several hosts, timed and checked: one process a GPU, under an engine's own Python.

Runs on a host (Python 3.8 or newer, with torch). Each process prints one line, MARK and JSON: its rank, the bus
bandwidth and how many values were wrong, or where it failed and why. It ends by itself, whatever becomes of the others.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from datetime import timedelta
from typing import Any

MARK = "llmgwctl-all-reduce "
RENDEZVOUS_S = 60
POLL_S = 0.2
WARM_UP, TIMES = 5, 20
MIB = 1 << 20


def main(argv: list[str]) -> int:
    asked = arguments().parse_args(argv)
    return parent(asked, argv) if asked.index is None else rank(asked)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", required=True, help="of rank 0's host, where the ranks meet")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--world", type=int, required=True, help="ranks in all")
    parser.add_argument("--first", type=int, required=True, help="the rank of the first GPU of this host")
    parser.add_argument("--local", type=int, required=True, help="GPUs of this host")
    parser.add_argument("--index", type=int, help="which of them; without it: the parent of all")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--backend", default="nccl")
    parser.add_argument("--mib", type=int, nargs="+", default=[64, 256, 512])
    return parser


# --- one host -------------------------------------------------------------------------------------------------------


def parent(asked: argparse.Namespace, argv: list[str]) -> int:
    """A process for each GPU; the first that fails ends the others of this host, and so does the end of the time."""
    program = [sys.executable, os.path.abspath(__file__), *argv]
    children = [subprocess.Popen([*program, "--index", str(i)]) for i in range(asked.local)]
    end = time.monotonic() + asked.seconds
    try:
        while None in (codes := [child.poll() for child in children]):
            if any(codes):
                return 1
            if time.monotonic() > end:
                say({"rank": asked.first, "failed": "time", "why": f"not done within {asked.seconds:.0f} s"})
                return 1
            time.sleep(POLL_S)
        return 1 if any(codes) else 0
    finally:
        for child in children:
            child.kill()


def say(told: dict[str, Any]) -> None:
    """In one write and on a line of its own: NCCL and the other ranks write to the same pipe."""
    os.write(1, ("\n" + MARK + json.dumps(told) + "\n").encode())


# --- one rank -------------------------------------------------------------------------------------------------------


def rank(asked: argparse.Namespace) -> int:
    me = asked.first + asked.index
    stage = ["import"]
    try:
        say(dict(measured(asked, me, stage), rank=me))
        code = 0
    except Exception as e:
        say({"rank": me, "failed": stage[0], "why": f"{type(e).__name__}: {e}"[:500]})
        code = 1
    os._exit(code)  # a group that is broken may hang when it is taken down in order


def measured(asked: argparse.Namespace, me: int, stage: list[str]) -> dict[str, Any]:
    torch = importlib.import_module("torch")
    dist = importlib.import_module("torch.distributed")
    versions = {"torch": str(torch.__version__), "nccl": nccl_version(torch)}
    device = device_of(torch, dist, asked, stage)
    stage[0] = "rendezvous"
    address = f"[{asked.address}]" if ":" in asked.address else asked.address
    dist.init_process_group(
        asked.backend,
        init_method=f"tcp://{address}:{asked.port}",
        world_size=asked.world,
        rank=me,
        timeout=timedelta(seconds=RENDEZVOUS_S),
    )
    stage[0] = "reduce"
    wrong = checked(torch, dist, asked, me, device)
    speed = max(bus_gbps(torch, dist, asked.world, device, size * MIB) for size in asked.mib)
    return dict(versions, world=asked.world, wrong=wrong, bus_gbps=round(speed, 3))


def device_of(torch: Any, dist: Any, asked: argparse.Namespace, stage: list[str]) -> Any:
    if asked.backend != "nccl":
        return torch.device("cpu")
    if not dist.is_nccl_available():
        raise RuntimeError("this torch was built without NCCL")
    stage[0] = "device"
    if torch.cuda.device_count() <= asked.index:
        raise RuntimeError(f"torch sees {torch.cuda.device_count()} GPUs of {asked.local}")
    torch.cuda.set_device(asked.index)
    return torch.device("cuda", asked.index)


def nccl_version(torch: Any) -> str:
    try:
        return ".".join(str(n) for n in torch.cuda.nccl.version())
    except Exception:
        return ""


def checked(torch: Any, dist: Any, asked: argparse.Namespace, me: int, device: Any) -> int:
    """Values that are wrong after one all-reduce of small whole numbers, which every order of adding gives exactly."""
    count = asked.mib[0] * MIB // 4
    values = torch.arange(count, dtype=torch.float32, device=device).remainder_(16).add_(me + 1)
    dist.all_reduce(values)
    whole = torch.arange(count, dtype=torch.float32, device=device).remainder_(16)
    expected = whole.mul_(asked.world).add_(asked.world * (asked.world + 1) // 2)
    return int((values != expected).sum().item())


def bus_gbps(torch: Any, dist: Any, world: int, device: Any, size: int) -> float:
    """As nccl-tests reckon it: what each rank's link must carry, whatever the algorithm, in GB/s."""
    values = torch.zeros(size // 4, dtype=torch.float32, device=device)
    for _ in range(WARM_UP):
        dist.all_reduce(values)
    wait(torch, values)
    begun = time.monotonic()
    for _ in range(TIMES):
        dist.all_reduce(values)
    wait(torch, values)
    seconds = (time.monotonic() - begun) / TIMES
    return 2 * (world - 1) / world * size / seconds / 1e9


def wait(torch: Any, values: Any) -> None:
    if values.is_cuda:
        torch.cuda.synchronize()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
