"""What `doctor --deep` runs across hosts: an all-reduce under the Python of an installed engine, which has torch.

No engine of the inventory: no profile can name it. It is placed, started, watched and ended like any replica.
"""

from __future__ import annotations

from functools import cache, partial
from importlib.resources import files as package_files

from llmgwctl.engines import env
from llmgwctl.engines.base import Build, Command, Engine, ShardContext, Stop
from llmgwctl.engines.programs import script
from llmgwctl.model.plan import ReplicaPlan

NAME = "all-reduce"
RUN, START = "all_reduce_run.py", "all_reduce.sh"
MARK = "llmgwctl-all-reduce "  # before what a rank says, on a line of its own
SECONDS = 120  # after which a host ends its ranks by itself


def tester(base: Engine) -> Engine:
    """For hosts that have `base`: its own version command knows which program shows the Python."""
    return Engine(
        name=NAME,
        validate=lambda _profile, _gpus: (),
        commands=partial(_commands, base),
        ports=lambda _profile: ("master",),
        env=lambda _ctx: (),
        serves_http=lambda _rank: False,
        reads_model=lambda _rank: False,
        files=_files,
        stop=Stop(leader_first=False),
        refuse=lambda replica, profile, builds: tuple(env.refuse(replica, profile, builds)),
    )


HOLDER = Engine(
    name=NAME,
    validate=lambda _profile, _gpus: (),
    commands=lambda _ctx: (),
    ports=lambda _profile: (),
    env=lambda _ctx: (),
    serves_http=lambda _rank: False,
    reads_model=lambda _rank: False,
)
"""Nothing runs: the GPUs of one host are claimed while nccl-tests have them."""


def program_of(base: Engine, build: Build) -> str:
    return base.version.args(build)[0] if base.version is not None else ""


def ranks_of(replica: ReplicaPlan) -> dict[str, range]:
    """The ranks of each host: one a GPU, in the order of the shards."""
    found, first = {}, 0
    for shard in sorted(replica.shards, key=lambda s: s.rank):
        found[shard.host] = range(first, first + len(shard.gpus))
        first += len(shard.gpus)
    return found


def _commands(base: Engine, ctx: ShardContext) -> tuple[Command, ...]:
    own = ranks_of(ctx.replica)[ctx.shard.host]
    numbers = {
        "--port": ctx.replica.port("master"),
        "--world": sum(len(s.gpus) for s in ctx.replica.shards),
        "--first": own.start,
        "--local": len(own),
        "--seconds": SECONDS,
    }
    words = [word for name, value in numbers.items() for word in (name, str(value))]
    address = ("--address", ctx.replica.leader.address)
    return (Command(NAME, ("sh", START, program_of(base, ctx.build), *address, *words)),)


def _files(_ctx: ShardContext) -> dict[str, str]:
    return {RUN: _run_text(), START: script(START)}


@cache
def _run_text() -> str:
    return package_files("llmgwctl.engines").joinpath(RUN).read_text(encoding="utf-8")
