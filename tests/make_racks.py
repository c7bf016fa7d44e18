"""Makes the bundles under tests/racks/ from simulated racks: python tests/make_racks.py (then read the diff)."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
RACKS = HERE / "racks"
WHEN = "2026-05-28T20:26:40Z"
# What the machine under the simulated hosts says of itself stays out: it is another one each time.
KEPT = ("system", "life", "hcas", "network", "numa", "imex-files", "nvidia-", "fabric-manager")
SPECS = {
    "whole": ["nvl72", "--trays", "3", "--hgx", "0"],
    "dropped": ["nvl72", "--trays", "3", "--hgx", "0", *(f"--fault=r1-t0{i}:all-dropped" for i in (1, 2, 3))],
    "seven-faults": [
        "nvl72", "--trays", "9", "--hgx", "1",
        "--fault=r1-t02:gpu-not-joined:1", "--fault=r1-t03:imex-down", "--fault=r1-t04:degraded:3",
        "--fault=r1-t05:unhealthy", "--fault=r1-t06:refused", "--fault=r1-t07:gpu-lost:2",
        "--fault=r1-t08:channel-missing", "--fault=r1-t09:clique",
    ],
    "mixed": ["mixed", "--trays", "2"],
}  # fmt: skip


def main() -> None:
    for name, words in SPECS.items():
        with tempfile.TemporaryDirectory() as folder:
            _save(words, Path(folder), RACKS / name / "hosts")


def _save(words: list[str], folder: Path, bundle: Path) -> None:
    tool = [sys.executable, "-m", "llmgwctl"]
    argv = [*tool, "rack", *words, "--dir", str(folder)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as rack:
        inventory = rack.stdout.readline().strip()  # type: ignore[union-attr]
        shutil.rmtree(bundle, ignore_errors=True)
        subprocess.run(
            [*tool, "-i", inventory, "probe", "-q", "--save", str(bundle)], check=False, stdout=subprocess.DEVNULL
        )
        rack.send_signal(signal.SIGINT)
    for host in bundle.iterdir():
        _tidy(host)
    _inventory(bundle)


def _tidy(host: Path) -> None:
    for file in host.glob("*.txt"):
        if not file.name.startswith(KEPT):
            file.unlink()
    for file in host.glob("network.txt"):
        lines = [line for line in file.read_text().splitlines(keepends=True) if not line.startswith("listen ")]
        file.write_text("".join(lines))
    meta = json.loads((host / "meta.json").read_text())
    meta["sections"] = {n: s | {"ms": 40} for n, s in meta["sections"].items() if n.startswith(KEPT)}
    meta |= {"taken_at": WHEN, "seconds": 0.5}
    (host / "meta.json").write_text(json.dumps(meta, indent=2) + "\n")


def _inventory(bundle: Path) -> None:
    """Where each host stands, as an operator would write it down."""
    blocks = []
    for host in sorted(bundle.iterdir()):
        meta = json.loads((host / "meta.json").read_text())
        lines = ["[[hosts]]", f'name = "{host.name}"', f'address = "{meta["address"]}"', 'pool = "prod"']
        if host.name.startswith("r1-"):
            lines += ['rack = "r1"', 'expect = { gpus = 4, gpu = "GB200", domain = true }']
        blocks.append("\n".join(lines))
    (bundle.parent / "inventory.toml").write_text("\n\n".join(blocks) + "\n")


if __name__ == "__main__":
    main()
