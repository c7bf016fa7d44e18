"""The replicas of the golden files of the engines: invented fleets, placed for real."""

from __future__ import annotations

from dataclasses import replace

from facts import hgx, rack, snapshot
from test_placement import roce_host

from llmgwctl.engines import ENGINES
from llmgwctl.engines.base import Build, ShardContext
from llmgwctl.engines.env import environment
from llmgwctl.fabric import fabric_map
from llmgwctl.model.profile import Container, Profile
from llmgwctl.placement import plan

BUILDS = {
    "vllm": Build("/opt/vllm/bin/vllm"),
    "vllm-ray": Build("/opt/vllm/bin/vllm", distributed="ray"),
    "sglang": Build("/opt/sglang/bin/python3"),
    "llamacpp": Build("/opt/llama.cpp/build/bin/llama-server"),
}
SHORT = {"vllm-ray": "vllm"}


def base(engine: str, **more) -> Profile:
    name = SHORT.get(engine, engine)
    path = "/models/big/big-00001-of-00004.gguf" if name == "llamacpp" else "/models/big"
    return Profile("big", name, path, "big", pool="prod", port_min=8000, port_max=8015, **more)


def sized(engine: str, nodes: int, gpus: int, tp: int, pp: int = 1, **more) -> Profile:
    """The same GPUs for every engine; llama.cpp knows neither tp nor pp."""
    if engine != "llamacpp":
        more |= {"tp": tp, "pp": pp}
    return base(engine, nodes=nodes, gpus_per_node=gpus, **more)


def roce() -> dict:
    """The rails are called differently on the two hosts, and so are their adapters."""
    return {"a": roce_host("a", 1, (1, 2)), "b": roce_host("b", 2, (1, 2), index=5)}


FLEETS = {
    "one-host": lambda: hgx(1),
    "domain": lambda: rack(2),
    "infiniband": lambda: hgx(2),
    "roce": roce,
    "four-hosts": lambda: hgx(4),
}
SIZES = {
    "one-host": (1, 8, 8, 1),
    "domain": (2, 4, 8, 1),
    "infiniband": (2, 8, 16, 1),
    "roce": (2, 4, 8, 1),
    "four-hosts": (4, 8, 8, 4),
}


def cases() -> dict[str, tuple[Profile, dict, Build]]:
    """Name of the golden file -> profile, fleet, build."""
    found = {}
    for engine, build in BUILDS.items():
        for fleet, make in FLEETS.items():
            if engine != "vllm-ray" or fleet != "one-host":
                found[f"{engine}-{fleet}"] = (sized(engine, *SIZES[fleet]), make(), build)
    return found | special()


def special() -> dict[str, tuple[Profile, dict, Build]]:
    vllm, sglang, llama = BUILDS["vllm"], BUILDS["sglang"], BUILDS["llamacpp"]
    secret = {"api_key_file": "/home/ada/big.key"}
    box = Container("docker", "registry.example/engine:1")
    podman = replace(box, runtime="podman")
    dp = sized("vllm", 2, 4, 2, dp=4, ep=True, args=("--api-server-count", "2", "--max-model-len", "32768"))
    return {
        "vllm-dp-ep-domain": (dp, rack(2), vllm),
        "vllm-dp-spans-hosts": (sized("vllm", 4, 4, 8, dp=2), rack(4), vllm),
        "vllm-dp-one-host": (sized("vllm", 1, 4, 2, dp=2), rack(1), vllm),
        "sglang-dp-ep-domain": (sized("sglang", 2, 4, 8, dp=8, ep=8), rack(2), sglang),
        "sglang-dp-one-host": (sized("sglang", 1, 4, 4, dp=4, ep=True), rack(1), sglang),
        "sglang-dp-older": (sized("sglang", 2, 4, 8, dp=2), rack(2), replace(sglang, version="0.5.6")),
        "sglang-api-key": (sized("sglang", 2, 4, 8, **secret), rack(2), sglang),
        "llamacpp-api-key-named-worker": (
            sized("llamacpp", 2, 4, 8, **secret), rack(2), replace(llama, rpc_server="llama-rpc")
        ),
        "vllm-found-on-path": (sized("vllm", 1, 4, 4, listen_all=True), rack(1), Build()),
        "vllm-docker-domain": (sized("vllm", 2, 4, 8, container=box, **secret), rack(2), vllm),
        "vllm-docker-part-of-host": (sized("vllm", 1, 2, 2, container=box), busy(), vllm),
        "vllm-podman-infiniband": (
            sized("vllm", 2, 8, 16, container=replace(podman, mounts=("/cache:/root/.cache",))), hgx(2), vllm
        ),
        "sglang-docker-api-key": (sized("sglang", 1, 4, 4, container=box, **secret), rack(1), sglang),
        "sglang-enroot-domain": (
            sized("sglang", 2, 4, 8, container=Container("enroot", "/images/sglang.sqsh"), **secret), rack(2), sglang
        ),
        "llamacpp-docker-infiniband": (sized("llamacpp", 2, 8, 16, container=replace(box, path="/app")), hgx(2), llama),
    }  # fmt: skip


def busy() -> dict:
    """The first two GPUs of the only host are in use."""
    from facts import with_gpu

    hosts = rack(1)
    one = hosts["r1-t01"]
    for index in (0, 1):
        one = with_gpu(one, index, memory_used_mib=90000)
    return {"r1-t01": one}


def contexts(profile: Profile, fleet: dict, build: Build) -> list[ShardContext]:
    engine = ENGINES[profile.engine]
    snap = snapshot(fleet)
    made = plan(fabric_map(snap), snap, profile, engine.ports(profile))
    assert made.replicas, made.why_not
    replica = made.replicas[0]
    return [ShardContext(replica, s, profile, build) for s in replica.shards]


def shown(profile: Profile, fleet: dict, build: Build) -> str:
    """A replica as a page: each rank's commands with what they wait for, files, environment with its reasons."""
    engine = ENGINES[profile.engine]
    ranks = contexts(profile, fleet, build)
    replica = ranks[0].replica
    ports = ", ".join(f"{n} {p}" for n, p in replica.ports)
    lines = [f"replica {replica.id}: {replica.tier} {replica.fabric}".rstrip(), f"ports: {ports}"]
    for ctx in ranks:
        lines += ["", f"rank {ctx.shard.rank} on {ctx.shard.host}"]
        for c in engine.commands(ctx):
            lines += [f"  command {c.name}", *(f"    waits for {w.address}:{w.port}" for w in c.waits)]
            lines += [f"    {word}" for word in c.argv]
            lines += [f"    with {n}={v}" for n, v in c.env]
            lines += [f"    after {' '.join(c.after)}"] if c.after else []
        lines += [f"  file {name}: {_content(text)}" for name, text in sorted(engine.files(ctx).items())]
        lines += [f"  {v.name}={v.value}    # {v.why}" for v in environment(ctx, engine)]
    notes = engine.notes(profile, ())
    return "\n".join([*lines, *([""] if notes else []), *(f"note: {n}" for n in notes)]) + "\n"


def _content(text: str) -> str:
    return "(script)" if text.startswith("#!") else text.strip()
