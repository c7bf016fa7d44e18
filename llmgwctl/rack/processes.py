"""Processes that were started on a simulated host: found by their environment and working directory, and ended."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

_PATIENCE_S = 5.0


def of_host(tree: Path) -> list[int]:
    """Living processes whose HOME or working directory lies in this host's tree (or in the trees below it)."""
    home = f"HOME={tree}/".encode()
    return [pid for pid in _all() if pid != os.getpid() and (_lives_in(pid, tree) or _has(pid, home))]


def _all() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _has(pid: int, prefix: bytes) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return any(entry.startswith(prefix) for entry in environment.split(b"\0"))


def _lives_in(pid: int, tree: Path) -> bool:
    try:
        return Path(os.readlink(f"/proc/{pid}/cwd")).is_relative_to(tree)
    except OSError:
        return False


def kill_all(tree: Path) -> None:
    """Power loss: everything of this host ends at once, with what it starts while it ends."""
    deadline = time.monotonic() + _PATIENCE_S
    while (living := of_host(tree)) and time.monotonic() < deadline:
        for pid in living:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.002)
