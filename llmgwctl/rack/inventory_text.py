"""The inventory of a simulated rack: its hosts folded into ranges, and profiles that can be tried on it."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import tomli_w

from llmgwctl.rack.fleet import RackSpec
from llmgwctl.rack.machine import Machine

HEAD = "# A simulated rack: these hosts are servers on this machine's loopback addresses.\n"


def inventory(spec: RackSpec, directory: Path, port: int) -> str:
    """TOML that the inventory loader takes; simulated hosts have a root prefix."""
    hosts = blocks(spec, {"port": port, "root_prefix": str(directory / "hosts" / "{name}")})
    document = {"ssh": ssh_table(directory), "hosts": hosts, "profiles": profiles(spec)}
    return HEAD + tomli_w.dumps(document)


def ssh_table(directory: Path, user: str = "ops") -> dict[str, object]:
    """How to log in with the keys that lie in this directory."""
    return {
        "user": user,
        "identity_file": str(directory / "id_ed25519"),
        "known_hosts": str(directory / "known_hosts"),
        "config_file": "/dev/null",  # what the operator's own says of such addresses is not for these hosts
    }


def blocks(spec: RackSpec, common: dict[str, object]) -> list[dict[str, object]]:
    """The [[hosts]] tables, with these keys in each."""
    return [_block(list(group), common) for _, group in groupby(spec.machines, _kind)]


def _kind(m: Machine) -> tuple[str, str, str | None, str]:
    return (m.name.rstrip("0123456789"), m.pool, m.rack, m.address.rsplit(".", 1)[0])


def _block(machines: list[Machine], common: dict[str, object]) -> dict[str, object]:
    first = machines[0]
    block: dict[str, object] = {
        "name": _folded([m.name for m in machines]),
        "address": _folded([m.address for m in machines]),
        "pool": first.pool,
        **common,
        "expect": {"gpus": len(first.gpus), "gpu": first.card.token, "domain": first.card.rack},
    }
    return block | ({"rack": first.rack} if first.rack else {})


def _folded(names: list[str]) -> str:
    """r1-t01, r1-t02 ... as r1-t[01-18]; the names of one block differ in their last number alone, and run on."""
    if len(names) == 1:
        return names[0]
    stem = names[0].rstrip("0123456789")
    return f"{stem}[{names[0][len(stem) :]}-{names[-1][len(stem) :]}]"


def profiles(spec: RackSpec) -> dict[str, object]:
    """A few of each kind that this fleet can hold: `sim` ones really run, `vllm` ones can be planned."""
    pool = spec.machines[0].pool
    trays = [m for m in spec.machines if m.card.rack]
    boards = [m for m in spec.machines if not m.card.rack]
    found: dict[str, object] = {
        "sim-small": {**_SIM, "pool": pool, "gpus_per_node": 1, "served_model_name": "sim-small"}
    }
    if len(trays) > 1:
        token = trays[0].card.token
        common = {"pool": pool, "gpu_class": token, "nodes": 2, "gpus_per_node": 4, "tp": 8}
        found["sim-nvl"] = {**_SIM, **common, "served_model_name": "sim-nvl", "fabric": "require-nvlink"}
        found["sim-any"] = {**_SIM, **common, "served_model_name": "sim-any"}
        found["deepseek-r1"] = {
            **_VLLM,
            **common,
            "model_path": "/models/deepseek-r1",
            "served_model_name": "deepseek-r1",
        }
    if boards:
        one = {"pool": pool, "gpu_class": boards[0].card.token, "gpus_per_node": 8, "tp": 8}
        found["llama-70b"] = {**_VLLM, **one, "model_path": "/models/llama-70b", "served_model_name": "llama-70b"}
    if len([m for m in boards if m.card is boards[0].card]) > 1:
        two = {"pool": pool, "gpu_class": boards[0].card.token, "nodes": 2, "gpus_per_node": 8, "tp": 8, "pp": 2}
        found["sim-rdma"] = {**_SIM, **two, "served_model_name": "sim-rdma", "fabric": "require-rdma"}
    return found


_SIM: dict[str, object] = {"engine": "sim", "port": "8000-8099", "ready_timeout_s": 60, "stop_grace_s": 5}
_VLLM: dict[str, object] = {"engine": "vllm", "port": "8100-8199"}
