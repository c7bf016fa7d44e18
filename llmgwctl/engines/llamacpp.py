"""llama.cpp: llama-server on the leader, and on every other host an RPC worker that must listen before it starts."""

from __future__ import annotations

from collections.abc import Iterable

from llmgwctl.engines import checks
from llmgwctl.engines.base import Build, Command, Engine, Problem, ShardContext, Stop, VersionProbe, Wait
from llmgwctl.engines.container import containable
from llmgwctl.engines.options import fighting_args, key_in_args
from llmgwctl.engines.programs import beside, folder_of, host_port, program, script
from llmgwctl.model.gpu import Gpu
from llmgwctl.model.plan import ReplicaPlan
from llmgwctl.model.profile import Profile

GENERATED = (
    "-m", "--model", "-a", "--alias", "--host", "--port", "--rpc", "--metrics",
    "-ngl", "--gpu-layers", "--n-gpu-layers", "--path",
)  # fmt: skip
KEYS = ("--api-key", "--api-key-file")
RPC_SCRIPT = "rpc_server.sh"
RPC_NAME = "ggml-rpc-server"


def validate(profile: Profile, gpus: tuple[Gpu, ...]) -> tuple[Problem, ...]:
    return (
        *checks.common(profile, gpus, "LLAMA_API_KEY"),
        *key_in_args(profile, *KEYS),
        *fighting_args(profile, GENERATED, abbreviations=False),
        *_unsplit(profile),
        *_one_file(profile),
    )


def _unsplit(profile: Profile) -> Iterable[Problem]:
    for key in ("tp", "pp", "dp"):
        if getattr(profile, key) > 1:
            what = f"profile {profile.name}: llama.cpp knows no {key}"
            yield Problem(what, "take it out: layers are spread over nodes x gpus_per_node")
    if profile.ep:
        yield Problem(f"profile {profile.name}: llama.cpp knows no ep", "take it out")


def _one_file(profile: Profile) -> Iterable[Problem]:
    if profile.model_path and not profile.model_path.endswith(".gguf"):
        what = f"profile {profile.name}: llama.cpp wants a file of the model, not {profile.model_path}"
        yield Problem(what, "the .gguf file (of a split model, part 1)")


def refuse(replica: ReplicaPlan, profile: Profile, builds: dict[str, Build]) -> tuple[Problem, ...]:
    return tuple(checks.plain_paths(profile, builds))


def notes(profile: Profile, gpus: tuple[Gpu, ...]) -> tuple[str, ...]:
    found = list(checks.short_grace(profile, ENGINE.stop, "llama.cpp"))
    if profile.nodes > 1:
        found.append("llama.cpp joins hosts by TCP on the management network, whatever fabric they share")
        found.append("llama.cpp sends layers over plain TCP without a password: its RPC ports must be private")
    if profile.has_api_key:
        found.append("with an API key llama.cpp answers /metrics only to who has it")
    return tuple(found)


def commands(ctx: ShardContext) -> tuple[Command, ...]:
    if ctx.leader:
        return (Command("llama-server", (*_server(ctx), *ctx.profile.args), waits=_workers(ctx)),)
    return (Command("rpc-server", (*_rpc(ctx), "-H", ctx.shard.address, "-p", str(ctx.replica.port("rpc")))),)


def _server(ctx: ShardContext) -> Iterable[str]:
    yield from (program(ctx.build, "llama-server"), "-m", ctx.profile.model_path, "-a", ctx.profile.model_name)
    yield from ("--host", ctx.listen, "--port", str(ctx.replica.port("http")), "--metrics")
    # The default was 0, then 999, then "auto": this means all layers in every version.
    yield from ("-ngl", "999")
    if workers := _workers(ctx):
        yield from ("--rpc", ",".join(host_port(w.address, w.port) for w in workers))


def _workers(ctx: ShardContext) -> tuple[Wait, ...]:
    """One that does not listen yet is the end of llama-server (abort, 134)."""
    return tuple(Wait(s.address, ctx.replica.port("rpc")) for s in ctx.replica.shards[1:])


def _rpc(ctx: ShardContext) -> tuple[str, ...]:
    """The worker's name changed in 2026-06; on a host a script tries both, an image is known by who names it."""
    if ctx.build.rpc_server:
        named = ctx.build.rpc_server
        return (named if "/" in named else beside(ctx.build, named),)
    if ctx.profile.container:
        return (beside(ctx.build, RPC_NAME),)
    return ("sh", RPC_SCRIPT, folder_of(ctx.build))


def files(ctx: ShardContext) -> dict[str, str]:
    plain = not ctx.leader and not ctx.build.rpc_server and not ctx.profile.container
    return {RPC_SCRIPT: script(RPC_SCRIPT)} if plain else {}


def ports(profile: Profile) -> tuple[str, ...]:
    return ("rpc",) if profile.nodes > 1 else ()


def _version(build: Build) -> tuple[str, ...]:
    return (program(build, "llama-server"),)


ENGINE = containable(
    Engine(
        name="llamacpp",
        validate=validate,
        commands=commands,
        ports=ports,
        env=lambda _ctx: (),
        files=files,
        serves_http=lambda rank: rank == 0,
        reads_model=lambda rank: rank == 0,  # it sends the workers their layers
        # llama-server aborts when it loses a worker, so it goes first.
        stop=Stop(leader_first=True, takes_s=2),
        uses_nccl=False,
        api_key_env="LLAMA_API_KEY",
        open_paths=("/health",),
        version=VersionProbe("llama_version.sh", _version, ("llama.cpp",)),
        refuse=refuse,
        notes=notes,
    )
)
