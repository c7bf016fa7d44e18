"""vLLM over several hosts under Ray: a cluster of this replica alone, and the server on its head."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from llmgwctl.engines.base import Command, Engine, Problem, ShardContext, Wait
from llmgwctl.engines.env import differing
from llmgwctl.engines.programs import beside, host_port, script
from llmgwctl.model.plan import ReplicaPlan
from llmgwctl.model.profile import Profile

# Everything that Ray would choose at random or by a number common to all clusters of a host lies behind the port "ray",
# in the replica's block of 32; what is left of the block is for its worker processes (eight GPUs need about ten).
PORT = "ray"
_BEHIND = (
    "gcs", "node", "objects", "agent", "agent-grpc", "runtime-env", "metrics",
    "dashboard", "dashboard-metrics", "autoscaler-metrics", "client", "workers",
)  # fmt: skip
OFFSETS = {name: i for i, name in enumerate(_BEHIND)}
WORKERS = 17
OBJECT_STORE_BYTES = 1 << 30  # 30 % of the host's memory otherwise, and vLLM hardly uses it
JOIN_S = 600
WAIT_SCRIPT = "ray_wait.sh"
HEAD_SCRIPT = "ray_head.sh"
NOT_COPIED = "ray_non_carry_over_env_vars.json"


def used(ctx: ShardContext) -> bool:
    """On one host its own processes do, whatever the build says."""
    return ctx.build.distributed == "ray" and len(ctx.replica.shards) > 1


def refuse(replica: ReplicaPlan, profile: Profile) -> Iterable[Problem]:
    if len(replica.shards) == 1:
        return
    if profile.dp > 1:
        what = f"profile {profile.name}: data parallel over Ray is not started here (it is known never to get ready)"
        yield Problem(what, "distributed = 'mp' in [engines.vllm], or dp = 1")
    if profile.container:
        what = f"profile {profile.name}: Ray's head and the server would be two containers that do not see each other"
        yield Problem(what, "distributed = 'mp' in [engines.vllm]")


def arguments() -> tuple[str, ...]:
    return ("--distributed-executor-backend", "ray")


def commands(ctx: ShardContext, server: tuple[str, ...], engine: Engine) -> tuple[Command, ...]:
    """The head listens before a worker joins; the server starts only when the cluster has all its GPUs."""
    at = Wait(ctx.replica.leader.address, _port(ctx, "gcs"))
    folder = temp_dir(ctx)
    clean = ("rm", "-rf", folder)
    # Nothing is left to drain when a node is told to end, and without the head it would try for half a minute.
    no_drain = ("RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S", "0")
    if not ctx.leader:
        return (Command("ray-worker", tuple(_start(ctx, folder)), env=(no_drain,), waits=(at,), after=clean),)
    head_env = (
        no_drain,
        ("AUTOSCALER_METRIC_PORT", str(_port(ctx, "autoscaler-metrics"))),
        ("DASHBOARD_METRIC_PORT", str(_port(ctx, "dashboard-metrics"))),
    )
    head = Command("ray-head", tuple(_start(ctx, folder)), env=head_env, after=clean)
    return head, Command("vllm", (*_when_whole(ctx), *server), env=_server_env(ctx, engine), waits=(at,))


def _port(ctx: ShardContext, name: str) -> int:
    return ctx.replica.port(PORT) + OFFSETS[name]


def temp_dir(ctx: ShardContext) -> str:
    """Short, since Unix sockets lie in it; of this replica alone, since its ports are."""
    return f"/tmp/llmgwctl-ray-{_port(ctx, 'gcs')}"  # noqa: S108 (Ray makes it 0700 by our umask)


def _start(ctx: ShardContext, folder: str) -> Iterable[str]:
    port = partial(_port, ctx)
    ray = beside(ctx.build, "ray")
    if ctx.leader:
        yield from ("sh", HEAD_SCRIPT, ray, str(port("client")))
        yield from ("--head", f"--port={port('gcs')}", f"--dashboard-port={port('dashboard')}")
        yield "--include-dashboard=false"
    else:
        yield from (ray, "start", f"--address={host_port(ctx.replica.leader.address, port('gcs'))}")
    # The same as VLLM_HOST_IP: up to vLLM 0.12 a difference is a hang.
    yield f"--node-ip-address={ctx.shard.address}"
    yield f"--num-gpus={len(ctx.shard.gpus)}"
    # Ray starts that many idle processes, and vLLM's ask for none.
    yield "--num-cpus=1"
    yield f"--object-store-memory={OBJECT_STORE_BYTES}"
    yield f"--temp-dir={folder}"
    yield f"--node-manager-port={port('node')}"
    yield f"--object-manager-port={port('objects')}"
    yield f"--dashboard-agent-listen-port={port('agent')}"
    yield f"--dashboard-agent-grpc-port={port('agent-grpc')}"
    yield f"--runtime-env-agent-port={port('runtime-env')}"
    yield f"--metrics-export-port={port('metrics')}"
    yield f"--min-worker-port={port('workers')}"
    yield f"--max-worker-port={port('workers') + WORKERS - 1}"
    yield from ("--disable-usage-stats", "--block")


def _when_whole(ctx: ShardContext) -> tuple[str, ...]:
    gpus = sum(len(s.gpus) for s in ctx.replica.shards)
    address = host_port(ctx.replica.leader.address, _port(ctx, "gcs"))
    return ("sh", WAIT_SCRIPT, beside(ctx.build, "ray"), address, str(gpus), str(JOIN_S))


def _server_env(ctx: ShardContext, engine: Engine) -> tuple[tuple[str, str], ...]:
    """Every host has its own environment before `ray start`; what differs must not be copied over it from here."""
    address = host_port(ctx.replica.leader.address, _port(ctx, "gcs"))
    # Ray folds equal lines of several ranks into one, and with them the proof of the transport.
    always = (("RAY_ADDRESS", address), ("RAY_DEDUP_LOGS", "0"))
    if not _not_copied(ctx, engine):
        return always
    # vLLM reads the list from its configuration folder, which is then the shard's; its opt-outs lie in the old one.
    return (*always, ("VLLM_CONFIG_ROOT", "."), ("VLLM_NO_USAGE_STATS", "1"))


def _not_copied(ctx: ShardContext, engine: Engine) -> tuple[str, ...]:
    contexts = [replace(ctx, shard=s) for s in ctx.replica.shards]
    return tuple(n for n in differing(contexts, engine) if n not in ("VLLM_HOST_IP", "CUDA_VISIBLE_DEVICES"))


def files(ctx: ShardContext, engine: Engine) -> dict[str, str]:
    names = _not_copied(ctx, engine)
    listed = {NOT_COPIED: json.dumps([*names, "VLLM_CONFIG_ROOT"]) + "\n"} if names else {}
    return {HEAD_SCRIPT: script(HEAD_SCRIPT), WAIT_SCRIPT: script(WAIT_SCRIPT), **listed}
