"""What an engine is: it translates a placed replica into commands and knows no host, file or clock."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, field

from llmgwctl.model.gpu import Gpu
from llmgwctl.model.plan import ReplicaPlan, ShardPlan
from llmgwctl.model.profile import Profile


@dataclass(frozen=True, slots=True)
class Wait:
    """Before a command starts: address:port accepts, as seen from the host of the command."""

    address: str
    port: int
    timeout_s: int = 600


@dataclass(frozen=True, slots=True)
class Command:
    """One process of a shard. `name` is for logs and ps; `env` adds to the shard's environment for it alone."""

    name: str
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    waits: tuple[Wait, ...] = ()


@dataclass(frozen=True, slots=True)
class Stop:
    """How a replica of this engine is ended. `leader_first`: rank 0 goes before the others are told.

    `signal` goes to the main pid of each command, last command first; workers that ignore it are killed after grace.
    """

    leader_first: bool = True
    signal: int = signal.SIGTERM


@dataclass(frozen=True, slots=True)
class Build:
    """An installed engine on a host ([engines.NAME]): a binary, a file to source first, or what PATH finds."""

    path: str = ""
    source: str = ""
    distributed: str = "mp"


@dataclass(frozen=True, slots=True)
class ShardContext:
    """All that commands() may know: the replica, this shard, the profile, the build on this host."""

    replica: ReplicaPlan
    shard: ShardPlan
    profile: Profile
    build: Build = Build()

    @property
    def leader(self) -> bool:
        return self.shard.rank == 0


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a profile cannot run like this, with the way out."""

    what: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.what}: {self.remedy}" if self.remedy else self.what


@dataclass(frozen=True, slots=True)
class Engine:
    """One line of ENGINES. All functions are pure.

    `validate(profile, gpus)`: before anything starts; gpus is empty before a placement is known.
    `commands(ctx)`: ordered; every command but the last is a sidecar for the shard's lifetime.
    `ports(profile)`: the names of the ports that a replica needs besides "http".
    `env(ctx)`: the engine's own variables (address of this host and the like) with the reason of each.
    `files(ctx)`: small files (name -> text) that lie in the shard's directory, where its commands run.
    """

    name: str
    validate: Callable[[Profile, tuple[Gpu, ...]], tuple[Problem, ...]]
    commands: Callable[[ShardContext], tuple[Command, ...]]
    ports: Callable[[Profile], tuple[str, ...]]
    env: Callable[[ShardContext], tuple[tuple[str, str, str], ...]]
    serves_http: Callable[[int], bool]  # by rank
    files: Callable[[ShardContext], dict[str, str]] = field(default=lambda _ctx: {})
    health_path: str = "/health"
    metrics_path: str = "/metrics"
    models_path: str = "/v1/models"
    stop: Stop = Stop()
    uses_nccl: bool = True
    needs_build: bool = True
    gpuless: bool = False  # may run without any GPU (it claims a slot)
    api_key_env: str = ""  # the variable in which it takes its API key; empty: only as an argument
