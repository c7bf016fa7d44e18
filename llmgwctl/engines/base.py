"""What an engine is: it translates a placed replica into commands and knows no host, file or clock."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import field

from llmgwctl.model.fact import fact
from llmgwctl.model.gpu import Gpu
from llmgwctl.model.plan import ReplicaPlan, ShardPlan
from llmgwctl.model.profile import Profile


@fact
class Wait:
    """Before a command starts: address:port accepts, as seen from the host of the command."""

    address: str
    port: int
    timeout_s: int = 600


@fact
class Command:
    """One process of a shard. `name` is for logs and ps; `env` adds to the shard's environment for it alone.

    `after`: a command that takes away what outlives its processes (a container, a folder), run on the host when they
    are gone or had to be killed; it may fail, and may be run again.
    """

    name: str
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    waits: tuple[Wait, ...] = ()
    after: tuple[str, ...] = ()


@fact
class Stop:
    """How a replica of this engine is ended. `leader_first`: rank 0 goes before the others are told.

    `signal` goes to the main pid of each command and never to its group, last command first; what ignores it is killed
    after grace. `takes_s`: how long the engine's own end takes when nothing is wrong.
    """

    leader_first: bool = True
    signal: int = signal.SIGTERM
    takes_s: int = 5


@fact
class Build:
    """An installed engine on a host ([engines.NAME]): a binary, a file to source first, or what PATH finds.

    `path` is a program, or the folder of the programs (then it ends with "/" or is called bin). `nccl` and `version`:
    what is known of it, "" when nothing is. `rpc_server`: llama.cpp's RPC worker, where it has a name of its own.
    """

    path: str = ""
    source: str = ""
    distributed: str = "mp"
    nccl: str = ""
    version: str = ""
    rpc_server: str = ""


@fact
class ShardContext:
    """All that commands() may know: the replica, this shard, the profile, the build on this host."""

    replica: ReplicaPlan
    shard: ShardPlan
    profile: Profile
    build: Build = Build()

    @property
    def leader(self) -> bool:
        return self.shard.rank == 0

    @property
    def listen(self) -> str:
        """Where HTTP listens: the management address, or everything when the profile says so."""
        if not self.profile.listen_all:
            return self.shard.address
        return "::" if ":" in self.shard.address else "0.0.0.0"  # noqa: S104 (asked for)


@fact
class Problem:
    """Why a profile cannot run like this, with the way out. `hosts`: those alone are why, another might do."""

    what: str
    remedy: str = ""
    hosts: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.what}: {self.remedy}" if self.remedy else self.what


@fact
class VersionProbe:
    """How a host is asked what is installed: a script of this package and its arguments.

    `same`: the names whose versions must be equal on all hosts of a replica; the first of them is the engine's own.
    `package`: what an engine that takes no build runs on instead; `least`: the oldest version of it that will do.
    """

    script: str
    args: Callable[[Build], tuple[str, ...]]
    same: tuple[str, ...] = ()
    package: str = ""
    least: str = ""


Rule = tuple[str, str, str]  # a variable's name, its value, and why it is set


@fact
class Engine:
    """One line of ENGINES. All functions are pure.

    `validate(profile, gpus)`: before anything starts; gpus is empty before a placement is known.
    `refuse(replica, profile, builds)`: what stands against a placed replica with the builds of its hosts.
    `notes(profile, gpus)`: what passes and should be known all the same.
    `commands(ctx)`: ordered; every command but the last is a sidecar for the shard's lifetime.
    `ports(profile)`: the names of the ports that a replica needs besides "http".
    `env(ctx)`: the engine's own variables (address of this host and the like) with the reason of each.
    `files(ctx)`: small files (name -> text) that lie in the shard's directory, where its commands run.
    `api_key_files(key)`: files by which the leader takes its API key where no variable does it.
    `reads_model(rank)`: whether that rank needs the model on its own host.
    """

    name: str
    validate: Callable[[Profile, tuple[Gpu, ...]], tuple[Problem, ...]]
    commands: Callable[[ShardContext], tuple[Command, ...]]
    ports: Callable[[Profile], tuple[str, ...]]
    env: Callable[[ShardContext], tuple[Rule, ...]]
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
    generate_path: str = "/v1/completions"  # asked for one token before a replica counts as ready
    open_paths: tuple[str, ...] = ("/health", "/metrics")  # that answer without the API key
    version: VersionProbe | None = None
    refuse: Callable[[ReplicaPlan, Profile, dict[str, Build]], tuple[Problem, ...]] = field(
        default=lambda _replica, _profile, _builds: ()
    )
    notes: Callable[[Profile, tuple[Gpu, ...]], tuple[str, ...]] = field(default=lambda _profile, _gpus: ())
    api_key_files: Callable[[str], dict[str, str]] = field(default=lambda _key: {})
    reads_model: Callable[[int], bool] = field(default=lambda _rank: True)
