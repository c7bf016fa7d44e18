"""SGLang: one host or several; every rank is told the same, rank 0 serves, the others answer only /health."""

from __future__ import annotations

import json
from collections.abc import Iterable

from llmgwctl.engines import checks, env
from llmgwctl.engines.base import Build, Command, Engine, Problem, Rule, ShardContext, Stop, VersionProbe
from llmgwctl.engines.capability import SGLANG
from llmgwctl.engines.container import containable, key_path
from llmgwctl.engines.options import fighting_args, flag_of, key_in_args
from llmgwctl.engines.programs import host_port, is_python, program
from llmgwctl.model.gpu import Gpu
from llmgwctl.model.numbers import of_version
from llmgwctl.model.plan import ReplicaPlan
from llmgwctl.model.profile import Profile

GENERATED = (
    "--model-path", "--model", "--served-model-name", "--host", "--port",
    "--tp-size", "--tensor-parallel-size", "--pp-size", "--pipeline-parallel-size",
    "--dp-size", "--data-parallel-size", "--attn-dp-size", "--enable-dp-attention",
    "--ep-size", "--expert-parallel-size", "--ep",
    "--nnodes", "--node-rank", "--dist-init-addr", "--nccl-init-addr", "--nccl-port", "--base-gpu-id",
    "--enable-metrics", "--use-ray",
)  # fmt: skip
KEY_FILE = "sglang-key.yaml"
ATTN_DP = (0, 5, 23)  # has --attn-dp-size; before it the pair --dp-size and --enable-dp-attention


def validate(profile: Profile, gpus: tuple[Gpu, ...]) -> tuple[Problem, ...]:
    return (
        *checks.common(profile, gpus, ""),
        *key_in_args(profile, "--api-key", "--admin-api-key"),
        *fighting_args(profile, GENERATED),
        *checks.parallel_fits(profile, profile.tp * profile.pp, "tp x pp"),
        *_inside_tp(profile),
        *_name(profile),
        *checks.quantization(profile, gpus, SGLANG, "SGLang"),
        *checks.kv_cache(profile, gpus, flashinfer=False),
        *_turing(profile, gpus),
    )


def _inside_tp(profile: Profile) -> Iterable[Problem]:
    """Data and expert parallel ranks are the tensor parallel ones, told to do other work."""
    experts = 1 if isinstance(profile.ep, bool) else profile.ep
    for key, value in (("dp", profile.dp), ("ep", experts)):
        if value > 0 and profile.tp % value:
            what = f"profile {profile.name}: {key} = {value} lies inside tp = {profile.tp} and does not divide it"
            yield Problem(what, f"a {key} that divides tp")


def _name(profile: Profile) -> Iterable[Problem]:
    if ":" in profile.model_name:
        what = f"profile {profile.name}: SGLang takes ':' in served_model_name for the name of an adapter"
        yield Problem(what, "a name without ':'")
    if profile.has_api_key and any(flag_of(a) == "--config" for a in profile.args):
        what = f"profile {profile.name}: SGLang takes one --config, and llmgwctl hands it the API key in one"
        yield Problem(what, "write its options into args")


def _turing(profile: Profile, gpus: tuple[Gpu, ...]) -> Iterable[Problem]:
    yield from checks.too_low(gpus, 75, f"profile {profile.name}: SGLang")


def refuse(replica: ReplicaPlan, profile: Profile, builds: dict[str, Build]) -> tuple[Problem, ...]:
    found = [*checks.plain_paths(profile, builds), *env.refuse(replica, profile, builds)]
    for version in {builds.get(s.host, Build()).version for s in replica.shards} - {""}:
        found += checks.quantization(profile, (), SGLANG, "SGLang", version)
    return tuple(found)


def notes(profile: Profile, gpus: tuple[Gpu, ...]) -> tuple[str, ...]:
    key = ("SGLang prints its API key into its own log, which only the account that runs it can read",)
    return (
        *checks.unread_capability(profile, gpus),
        *checks.unknown_method(profile, SGLANG, "SGLang"),
        *checks.short_grace(profile, ENGINE.stop, "SGLang"),
        *(key if profile.has_api_key else ()),
    )


def commands(ctx: ShardContext) -> tuple[Command, ...]:
    return (Command("sglang", (*_launch(ctx), *_sizes(ctx), *_nodes(ctx), *_http(ctx), *ctx.profile.args)),)


def _launch(ctx: ShardContext) -> Iterable[str]:
    """The module form needs only a Python, and both forms end in the same parser."""
    main = program(ctx.build, "python3")
    yield from (main, "-m", "sglang.launch_server") if is_python(main) else (main, "serve")
    yield from ("--model-path", ctx.profile.model_path, "--served-model-name", ctx.profile.model_name)


def _sizes(ctx: ShardContext) -> Iterable[str]:
    """Long names only: --pp is refused as ambiguous, --tp and --dp live on argparse's guessing."""
    profile = ctx.profile
    yield from ("--tp-size", str(profile.tp), "--pp-size", str(profile.pp))
    if profile.dp > 1:
        yield from _attention_dp(profile.dp, ctx.build.version)
    if profile.ep:
        yield from ("--ep-size", str(profile.tp if profile.ep is True else profile.ep))


def _attention_dp(dp: int, version: str) -> tuple[str, ...]:
    """Replicas of attention inside the tensor parallel group: no further GPUs. Plain --dp-size cannot span hosts."""
    have = of_version(version)
    if have and have < ATTN_DP:
        return ("--dp-size", str(dp), "--enable-dp-attention")
    return ("--attn-dp-size", str(dp))


def _nodes(ctx: ShardContext) -> Iterable[str]:
    replica = ctx.replica
    if len(replica.shards) > 1:
        yield from ("--nnodes", str(len(replica.shards)), "--node-rank", str(ctx.shard.rank))
    if len(replica.shards) > 1 or ctx.profile.dp > 1:
        # On one host, too: attention DP would else take the HTTP port + 233 and what follows.
        yield from ("--dist-init-addr", host_port(replica.leader.address, replica.port("dist-init")))


def _http(ctx: ShardContext) -> Iterable[str]:
    """Ranks above 0 open a server of their own for /health, and two replicas on a host must not meet there."""
    port = ctx.replica.port("http" if ctx.leader else "worker-http")
    yield from ("--host", ctx.listen if ctx.leader else ctx.shard.address, "--port", str(port), "--enable-metrics")
    if ctx.leader and ctx.profile.has_api_key:
        yield from ("--config", key_path(ctx, KEY_FILE))


def key_files(key: str) -> dict[str, str]:
    """SGLang has no variable for its key; from a file of options it does not show in the list of processes."""
    return {KEY_FILE: f"api-key: {json.dumps(key)}\n"}


def environment(ctx: ShardContext) -> tuple[Rule, ...]:
    return (
        ("SGLANG_HOST_IP", ctx.shard.address, "else SGLang takes the address of the default route"),
        ("SGL_FORCE_SHUTDOWN", "1", "on TERM rank 0 would wait for its last request without limit"),
    )


def ports(profile: Profile) -> tuple[str, ...]:
    """ "dist-init" comes last: SGLang takes the twenty ports behind it, too, and they are in the same block."""
    several = ("worker-http", "dist-init")
    return several if profile.nodes > 1 else ("dist-init",) if profile.dp > 1 else ()


def _version(build: Build) -> tuple[str, ...]:
    return (program(build, "python3"), "sglang", "torch", "nvidia-nccl-cu12", "nvidia-nccl-cu13")


ENGINE = containable(
    Engine(
        name="sglang",
        validate=validate,
        commands=commands,
        ports=ports,
        env=environment,
        serves_http=lambda rank: rank == 0,
        # A rank above 0 ignores TERM on purpose and waits for rank 0's word, which needs up to 15 s.
        stop=Stop(leader_first=True, takes_s=20),
        version=VersionProbe(
            "python_versions.sh", _version, ("sglang", "torch", "python", "nvidia-nccl-cu12", "nvidia-nccl-cu13")
        ),
        refuse=refuse,
        notes=notes,
        api_key_files=key_files,
    )
)
