"""The environment of a shard: a pure function of the placed replica, each variable with the reason why it is set."""

from __future__ import annotations

import re
from collections.abc import Iterable

from llmgwctl.engines.base import Build, Engine, Problem, Rule, ShardContext
from llmgwctl.model.launch import EnvVar
from llmgwctl.model.numbers import of_version
from llmgwctl.model.plan import ReplicaPlan, ShardPlan
from llmgwctl.model.profile import Profile

# Inherited variables of these families change where NCCL and its companions go: they are removed from what a login
# gives, unless the profile names them (prefixes; a name without a trailing _ is itself).
FAMILIES = (
    "NCCL_",
    "GLOO_",
    "UCX_",
    "NVSHMEM_",
    "MC_",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "TP_SOCKET_IFNAME",
    "VLLM_HOST_IP",
    "SGLANG_HOST_IP",
    "HOST_IP",
    "MASTER_ADDR",
    "MASTER_PORT",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "RAY_ADDRESS",  # an inherited one sends `ray start` and the server to somebody else's cluster
    "VLLM_PORT",  # up to vLLM 0.26 the seed of ports that then collide
    "LLAMA_ARG_",  # every option of llama-server has such a variable
)

# Values that nobody is shown: HF_TOKEN, AWS_SECRET_ACCESS_KEY, and not TOKENIZERS_PARALLELISM.
SECRET = re.compile(r"(TOKEN|KEY)(_|\Z)|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)

GID_BY_NCCL = (2, 21)  # from here on NCCL chooses the GID itself


def environment(ctx: ShardContext, engine: Engine) -> tuple[EnvVar, ...]:
    """All variables of a shard, sorted by name, so that two launches can be compared line by line."""
    generated: dict[str, EnvVar] = {}
    for name, value, why in (*_gpus(ctx), *_nccl(ctx, engine), *engine.env(ctx)):
        generated[name] = EnvVar(name, value, why)
    for name, value in ctx.profile.env:
        before = generated.get(name)
        overrides = before.value if before and before.value != value else None
        why = f"[profiles.{ctx.profile.name}] env"
        generated[name] = EnvVar(name, value, why, overrides, secret=secret(name))
    return tuple(generated[n] for n in sorted(generated))


def secret(name: str) -> bool:
    """Whether a variable's value is shown to nobody, going by its name."""
    return SECRET.search(name) is not None


def _gpus(ctx: ShardContext) -> Iterable[Rule]:
    gpus = ctx.shard.gpus
    if not gpus:
        return
    yield "CUDA_DEVICE_ORDER", "PCI_BUS_ID", "an index means what nvidia-smi means"
    box = ctx.profile.container
    if box is not None and box.runtime != "enroot":
        told = ", ".join(map(str, gpus))
        yield "CUDA_VISIBLE_DEVICES", ",".join(map(str, range(len(gpus)))), f"the container is given GPUs {told} alone"
    else:
        yield "CUDA_VISIBLE_DEVICES", ",".join(map(str, gpus)), "the GPUs of this shard"


def _nccl(ctx: ShardContext, engine: Engine) -> Iterable[Rule]:
    if not engine.uses_nccl:
        return
    interface = ctx.shard.interface
    # NCCL takes the name as a prefix unless it begins with "="; Gloo wants the bare name.
    yield "NCCL_SOCKET_IFNAME", f"={interface}", f"bootstrap on the interface that holds {ctx.shard.address}, exactly"
    yield "GLOO_SOCKET_IFNAME", interface, "Gloo takes a literal interface name"
    if len(ctx.replica.shards) == 1:
        return
    yield from _adapters(ctx)
    yield from _memory(ctx)
    yield "NCCL_DEBUG", "INFO", "so that the log proves which transport is used"
    yield "NCCL_DEBUG_SUBSYS", "INIT,BOOTSTRAP,ENV,NET", "the lines that prove it, and no more"


def _adapters(ctx: ShardContext) -> Iterable[Rule]:
    """HCAs of the one fabric that all hosts share, exact names with port; none: no InfiniBand, said aloud."""
    shard = ctx.shard
    if not shard.hcas or ctx.replica.tier == "tcp":
        yield "NCCL_IB_DISABLE", "1", "no RDMA fabric that all hosts of the replica share"
        return
    # Without the leading "=" NCCL matches prefixes: mlx5_1 would also take mlx5_10.
    yield (
        "NCCL_IB_HCA",
        "=" + ",".join(shard.hcas),
        f"the active {shard.link_layer} ports of the shared fabric, exactly",
    )
    yield "NCCL_IB_DISABLE", "0", "RDMA is there, whatever a login shell says"
    if ctx.replica.tier == "scale-out" and not _plugin(ctx):
        yield "NCCL_NET", "IB", "a silent fall to TCP becomes an error at start"
    if shard.link_layer == "Ethernet":
        yield from _roce(ctx)


def _plugin(ctx: ShardContext) -> bool:
    """A network plugin brings its own name for NCCL_NET, and IB would then find nothing."""
    named = dict(ctx.profile.env).get("NCCL_NET_PLUGIN", "none")
    return named not in ("", "none")


def _roce(ctx: ShardContext) -> Iterable[Rule]:
    roce = ctx.shard.roce
    if roce.gid_index is not None:
        yield "NCCL_IB_GID_INDEX", str(roce.gid_index), "the routable RoCE v2 entry that all chosen adapters share"
    elif roce.address_range:
        yield "NCCL_IB_ADDR_RANGE", roce.address_range, "GID indexes differ: NCCL 2.21+ chooses within this range"


def refuse(replica: ReplicaPlan, profile: Profile, builds: dict[str, Build]) -> Iterable[Problem]:
    """RoCE adapters without one common GID index, and no NCCL that is known to find its own."""
    if "NCCL_IB_GID_INDEX" in dict(profile.env) or len(replica.shards) == 1:
        return
    for shard in replica.shards:
        nccl = builds.get(shard.host, Build()).nccl
        if shard.hcas and shard.link_layer == "Ethernet" and shard.roce.gid_index is None and _old(nccl):
            have = f"NCCL {nccl}" if nccl else "an NCCL of unknown version"
            what = (
                f"profile {profile.name}: on {shard.host} no RoCE v2 GID index serves all adapters ({_indexes(shard)})"
            )
            way = f"with {have} set nccl = '2.21' or newer in [engines.{profile.engine}] if it is, or equal GID tables"
            yield Problem(what, way)


def _old(nccl: str) -> bool:
    return of_version(nccl)[:2] < GID_BY_NCCL


def _indexes(shard: ShardPlan) -> str:
    known = dict(shard.roce.indexes)
    return "; ".join(f"{h}: {', '.join(map(str, known.get(h, ()))) or 'none'}" for h in shard.hcas)


def _memory(ctx: ShardContext) -> Iterable[Rule]:
    if ctx.replica.tier == "nvlink":
        yield "NCCL_MNNVL_ENABLE", "1", f"all shards are in {ctx.replica.fabric}"
        yield "NCCL_CUMEM_ENABLE", "1", "memory shared across hosts needs it, and some engines switch it off"
    elif any(s.in_domain for s in ctx.replica.shards):
        yield "NCCL_MNNVL_ENABLE", "0", "not over NVLink: NCCL would abort on a broken IMEX instead of falling back"


def differing(contexts: Iterable[ShardContext], engine: Engine) -> tuple[str, ...]:
    """Names of variables whose values are not the same on all ranks: nothing may copy them from one host to another."""
    values: dict[str, set[str | None]] = {}
    environments = [{v.name: v.value for v in environment(c, engine)} for c in contexts]
    for name in {n for env in environments for n in env}:
        values[name] = {env.get(name) for env in environments}
    return tuple(sorted(n for n, found in values.items() if len(found) > 1))


def removed(ctx: ShardContext) -> tuple[str, ...]:
    """Families whose inherited variables the supervisor removes before it sets ours."""
    named = {n for n, _ in ctx.profile.env}
    return tuple(f for f in FAMILIES if f not in named)
