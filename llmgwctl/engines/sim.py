"""sim: a real process on every rank that joins its peers, checks what it was given, and serves: a drill."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.resources import files as package_files

from llmgwctl.engines.base import Command, Engine, Problem, ShardContext, Stop, VersionProbe
from llmgwctl.engines.checks import fighting_args
from llmgwctl.model.gpu import Gpu
from llmgwctl.model.profile import Profile

SERVER = "sim_server.py"
GENERATED = (
    "--replica", "--rank", "--ranks", "--tier", "--own-address", "--leader-address", "--peer-port", "--host", "--port",
    "--served-model-name", "--gpus",
)  # fmt: skip


def validate(profile: Profile, gpus: tuple[Gpu, ...]) -> tuple[Problem, ...]:
    """It takes any numbers: nothing is computed. What is generated may not be given a second time."""
    return tuple(fighting_args(profile, GENERATED))


def commands(ctx: ShardContext) -> tuple[Command, ...]:
    return (Command("sim", tuple(_argv(ctx))),)


def _argv(ctx: ShardContext) -> Iterable[str]:
    replica, shard, profile = ctx.replica, ctx.shard, ctx.profile
    yield from ("python3", SERVER, "--replica", replica.id, "--served-model-name", profile.model_name)
    yield from ("--rank", str(shard.rank), "--ranks", str(len(replica.shards)), "--tier", replica.tier)
    yield from ("--gpus", str(len(shard.gpus)))
    yield from ("--own-address", shard.address, "--leader-address", replica.leader.address)
    if len(replica.shards) > 1:
        yield from ("--peer-port", str(replica.port("peer")))
    if ctx.leader:
        yield from ("--host", ctx.listen, "--port", str(replica.port("http")))
    yield from profile.args


def ports(profile: Profile) -> tuple[str, ...]:
    return ("peer",) if profile.nodes > 1 else ()


@cache
def _server_text() -> str:
    return package_files("llmgwctl.engines").joinpath(SERVER).read_text(encoding="utf-8")


def files(ctx: ShardContext) -> dict[str, str]:
    return {SERVER: _server_text()}


ENGINE = Engine(
    name="sim",
    validate=validate,
    commands=commands,
    ports=ports,
    env=lambda ctx: (),
    serves_http=lambda rank: rank == 0,
    reads_model=lambda _rank: False,
    files=files,
    stop=Stop(leader_first=True),
    needs_build=False,
    gpuless=True,
    api_key_env="SIM_API_KEY",
    version=VersionProbe("sim_python.sh", lambda _build: (), package="python3", least="3.8"),
)
