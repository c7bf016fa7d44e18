"""vLLM: one host, or several with its own multiprocessing (`--nnodes`, headless ranks; vLLM 0.11.1 and newer)."""

from __future__ import annotations

from collections.abc import Iterable

from llmgwctl.engines.base import Command, Engine, Problem, ShardContext, Stop
from llmgwctl.engines.checks import fighting_args, parallel_fits
from llmgwctl.model.gpu import Gpu
from llmgwctl.model.profile import Profile

# What we generate: the same flag in a profile's args would win or fight, by the order that argparse sees.
GENERATED = (
    "--host", "--port", "--served-model-name", "--tensor-parallel-size", "-tp", "--pipeline-parallel-size", "-pp",
    "--data-parallel-size", "-dp", "--enable-expert-parallel", "-ep", "--nnodes", "-n", "--node-rank", "-r",
    "--master-addr", "--master-port", "--headless", "--distributed-executor-backend", "--api-key",
)  # fmt: skip


def validate(profile: Profile, gpus: tuple[Gpu, ...]) -> tuple[Problem, ...]:
    found = list(fighting_args(profile, GENERATED))
    if not profile.model_path:
        # vLLM without a model starts to download its default one.
        found.append(Problem(f"profile {profile.name} has no model_path", "set it to the folder of the model"))
    return (*found, *parallel_fits(profile, profile.tp * profile.pp * profile.dp, "tp x pp x dp"))


def commands(ctx: ShardContext) -> tuple[Command, ...]:
    return (Command("vllm", tuple(_argv(ctx))),)


def _argv(ctx: ShardContext) -> Iterable[str]:
    profile, replica = ctx.profile, ctx.replica
    yield from (ctx.build.path or "vllm", "serve", profile.model_path)
    yield from ("--served-model-name", profile.model_name)
    yield from ("--tensor-parallel-size", str(profile.tp), "--pipeline-parallel-size", str(profile.pp))
    if profile.dp > 1:
        yield from ("--data-parallel-size", str(profile.dp))
    if profile.ep:
        yield "--enable-expert-parallel"
    if len(replica.shards) > 1:
        yield from ("--nnodes", str(len(replica.shards)), "--node-rank", str(ctx.shard.rank))
        yield from ("--master-addr", replica.leader.address, "--master-port", str(replica.port("master")))
        if replica.tier == "nvlink":
            # It takes two hosts of one NVLink domain for one machine and dies in cudaIpcOpenMemHandle.
            yield "--disable-custom-all-reduce"
    if ctx.leader:
        yield from ("--host", "0.0.0.0" if profile.listen_all else ctx.shard.address)  # noqa: S104 (asked for)
        yield from ("--port", str(replica.port("http")))
    else:
        yield "--headless"
    yield from profile.args


def env(ctx: ShardContext) -> tuple[tuple[str, str, str], ...]:
    return (("VLLM_HOST_IP", ctx.shard.address, "else vLLM takes the address of the default route"),)


def ports(profile: Profile) -> tuple[str, ...]:
    return ("master",) if profile.nodes > 1 else ()


ENGINE = Engine(
    name="vllm",
    validate=validate,
    commands=commands,
    ports=ports,
    env=env,
    serves_http=lambda rank: rank == 0,
    stop=Stop(leader_first=True),
    api_key_env="VLLM_API_KEY",
)
