"""vLLM: one host, or several by its own multiprocessing (`--nnodes`; vLLM 0.11.1 and newer) or under Ray."""

from __future__ import annotations

from collections.abc import Iterable

from llmgwctl.engines import checks, env, vllm_ray
from llmgwctl.engines.base import Build, Command, Engine, Problem, Rule, ShardContext, Stop, VersionProbe
from llmgwctl.engines.capability import VLLM
from llmgwctl.engines.container import containable
from llmgwctl.engines.options import fighting_args, key_in_args, value_of, without
from llmgwctl.engines.programs import is_python, program
from llmgwctl.model.gpu import Gpu
from llmgwctl.model.numbers import older
from llmgwctl.model.plan import ReplicaPlan
from llmgwctl.model.profile import Profile

# What we generate, and what would make another layout of it: a profile's args come last and would win.
GENERATED = (
    "--model", "--host", "--port", "--uds", "--served-model-name",
    "--tensor-parallel-size", "-tp", "--pipeline-parallel-size", "-pp", "--prefill-context-parallel-size", "-pcp",
    "--data-parallel-size", "-dp", "--data-parallel-size-local", "-dpl", "--data-parallel-address", "-dpa",
    "--data-parallel-rpc-port", "-dpp", "--data-parallel-start-rank", "-dpr", "--data-parallel-rank", "-dpn",
    "--data-parallel-hybrid-lb", "-dph", "--data-parallel-external-lb", "-dpe", "--data-parallel-backend", "-dpb",
    "--data-parallel-multi-port-external-lb", "-dpm", "--enable-expert-parallel", "-ep",
    "--nnodes", "-n", "--node-rank", "-r", "--master-addr", "--master-port", "--headless",
    "--distributed-executor-backend", "--device-ids",
)  # fmt: skip
# A rank without HTTP refuses to have API processes.
LEADER_ONLY = ("--api-server-count", "-asc")
NNODES = "0.11.1"  # the first release with --nnodes
FP8_CACHE_BACKENDS = ("FLASHINFER",)


def validate(profile: Profile, gpus: tuple[Gpu, ...]) -> tuple[Problem, ...]:
    flashinfer = (value_of(profile.args, "--attention-backend") or "").upper() in FP8_CACHE_BACKENDS
    return (
        *checks.common(profile, gpus, "VLLM_API_KEY"),
        *key_in_args(profile, "--api-key"),
        *fighting_args(profile, GENERATED),
        *checks.parallel_fits(profile, profile.tp * profile.pp * profile.dp, "tp x pp x dp"),
        *_replicas_on_nodes(profile),
        *_experts(profile),
        *checks.quantization(profile, gpus, VLLM, "vLLM"),
        *checks.kv_cache(profile, gpus, flashinfer=flashinfer or _flashinfer_by_env(profile)),
        *checks.bfloat16(profile, gpus),
    )


def _flashinfer_by_env(profile: Profile) -> bool:
    return dict(profile.env).get("VLLM_ATTENTION_BACKEND", "").upper() in FP8_CACHE_BACKENDS


def _replicas_on_nodes(profile: Profile) -> Iterable[Problem]:
    """Ranks lie on the hosts in one row, and a data parallel replica must not begin in the middle of a host."""
    if profile.dp > 1 and profile.nodes > 1 and profile.dp % profile.nodes and profile.nodes % profile.dp:
        what = f"profile {profile.name}: dp = {profile.dp} replicas do not lie evenly on {profile.nodes} nodes"
        yield Problem(what, "a dp that divides nodes or is a multiple of them")


def _experts(profile: Profile) -> Iterable[Problem]:
    wide = profile.tp * profile.dp
    if not isinstance(profile.ep, bool) and profile.ep != wide:
        what = f"profile {profile.name}: ep = {profile.ep}, and vLLM spreads experts over tp x dp = {wide}"
        yield Problem(what, "ep = true")


def refuse(replica: ReplicaPlan, profile: Profile, builds: dict[str, Build]) -> tuple[Problem, ...]:
    ways = {builds.get(s.host, Build()).distributed for s in replica.shards}
    found = [*checks.plain_paths(profile, builds), *env.refuse(replica, profile, builds)]
    if len(ways) > 1 and len(replica.shards) > 1:
        what = f"profile {profile.name}: distributed is mp on some of its hosts and ray on others"
        found.append(Problem(what, "one way for all, in [engines.vllm]"))
    elif "ray" in ways:
        found += vllm_ray.refuse(replica, profile)
    elif len(replica.shards) > 1:
        found += _too_old(replica, profile, builds)
    for version in {builds.get(s.host, Build()).version for s in replica.shards} - {""}:
        found += checks.quantization(profile, (), VLLM, "vLLM", version)
    return tuple(found)


def _too_old(replica: ReplicaPlan, profile: Profile, builds: dict[str, Build]) -> Iterable[Problem]:
    for host in (s.host for s in replica.shards):
        version = builds.get(host, Build()).version
        if older(version, NNODES):
            what = f"profile {profile.name}: vLLM {version} on {host} has no --nnodes"
            yield Problem(what, f'vLLM {NNODES} or newer, or distributed = "ray" in [engines.vllm]')


def notes(profile: Profile, gpus: tuple[Gpu, ...]) -> tuple[str, ...]:
    return (
        *checks.unread_capability(profile, gpus),
        *checks.unknown_method(profile, VLLM, "vLLM"),
        *checks.short_grace(profile, ENGINE.stop, "vLLM"),
    )


def commands(ctx: ShardContext) -> tuple[Command, ...]:
    if vllm_ray.used(ctx):
        return vllm_ray.commands(ctx, (*_serve(ctx), *vllm_ray.arguments(), *_http(ctx), *ctx.profile.args), ENGINE)
    return (Command("vllm", (*_serve(ctx), *_nodes(ctx), *_http(ctx), *_own(ctx))),)


def _serve(ctx: ShardContext) -> Iterable[str]:
    profile = ctx.profile
    main = program(ctx.build, "vllm")
    yield from (main, "-m", "vllm.entrypoints.cli.main", "serve") if is_python(main) else (main, "serve")
    yield from (profile.model_path, "--served-model-name", profile.model_name)
    yield from ("--tensor-parallel-size", str(profile.tp), "--pipeline-parallel-size", str(profile.pp))
    if profile.dp > 1:
        yield from ("--data-parallel-size", str(profile.dp))
    if profile.ep:
        yield "--enable-expert-parallel"
    if ctx.replica.tier == "nvlink":
        # It takes two hosts of one NVLink domain for one machine and dies in cudaIpcOpenMemHandle.
        yield "--disable-custom-all-reduce"


def _nodes(ctx: ShardContext) -> Iterable[str]:
    """With --nnodes vLLM itself finds which data parallel ranks lie here."""
    replica = ctx.replica
    if len(replica.shards) == 1:
        return
    yield from ("--nnodes", str(len(replica.shards)), "--node-rank", str(ctx.shard.rank))
    yield from ("--master-addr", replica.leader.address, "--master-port", str(replica.port("master")))
    if ctx.profile.dp > 1:
        yield from ("--data-parallel-rpc-port", str(replica.port("dp-rpc")))


def _http(ctx: ShardContext) -> Iterable[str]:
    if ctx.leader:
        yield from ("--host", ctx.listen, "--port", str(ctx.replica.port("http")))
    else:
        yield "--headless"


def _own(ctx: ShardContext) -> tuple[str, ...]:
    return ctx.profile.args if ctx.leader else without(ctx.profile.args, *LEADER_ONLY)


def environment(ctx: ShardContext) -> tuple[Rule, ...]:
    return (("VLLM_HOST_IP", ctx.shard.address, "else vLLM takes the address of the default route"),)


def files(ctx: ShardContext) -> dict[str, str]:
    return vllm_ray.files(ctx, ENGINE) if vllm_ray.used(ctx) and ctx.leader else {}


def ports(profile: Profile) -> tuple[str, ...]:
    """Those of both ways, since the build is known only with the hosts; "ray" is last, the rest of the block is its."""
    return ("master", "dp-rpc", vllm_ray.PORT) if profile.nodes > 1 else ()


def _version(build: Build) -> tuple[str, ...]:
    return (program(build, "vllm"), "vllm", "torch", "ray", "nvidia-nccl-cu12", "nvidia-nccl-cu13")


ENGINE = containable(
    Engine(
        name="vllm",
        validate=validate,
        commands=commands,
        ports=ports,
        env=environment,
        files=files,
        serves_http=lambda rank: rank == 0,
        stop=Stop(leader_first=True, takes_s=12),
        api_key_env="VLLM_API_KEY",
        version=VersionProbe(
            "python_versions.sh", _version, ("vllm", "torch", "ray", "python", "nvidia-nccl-cu12", "nvidia-nccl-cu13")
        ),
        refuse=refuse,
        notes=notes,
    )
)
