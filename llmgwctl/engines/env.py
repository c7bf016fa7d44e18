"""The environment of a shard: a pure function of the placed replica, each variable with the reason why it is set."""

from __future__ import annotations

from collections.abc import Iterable

from llmgwctl.engines.base import Engine, ShardContext
from llmgwctl.model.launch import EnvVar

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
)

Rule = tuple[str, str, str]  # name, value, why


def environment(ctx: ShardContext, engine: Engine) -> tuple[EnvVar, ...]:
    """All variables of a shard, sorted by name, so that two launches can be compared line by line."""
    generated: dict[str, EnvVar] = {}
    for name, value, why in (*_gpus(ctx), *_nccl(ctx, engine), *engine.env(ctx)):
        generated[name] = EnvVar(name, value, why)
    for name, value in ctx.profile.env:
        before = generated.get(name)
        overrides = before.value if before and before.value != value else None
        generated[name] = EnvVar(name, value, f"[profiles.{ctx.profile.name}] env", overrides)
    return tuple(generated[n] for n in sorted(generated))


def _gpus(ctx: ShardContext) -> Iterable[Rule]:
    if ctx.shard.gpus:
        yield "CUDA_DEVICE_ORDER", "PCI_BUS_ID", "an index means what nvidia-smi means"
        yield "CUDA_VISIBLE_DEVICES", ",".join(map(str, ctx.shard.gpus)), "the GPUs of this shard"


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


def _memory(ctx: ShardContext) -> Iterable[Rule]:
    if ctx.replica.tier == "nvlink":
        yield "NCCL_MNNVL_ENABLE", "1", f"all shards are in {ctx.replica.fabric}"
        yield "NCCL_CUMEM_ENABLE", "1", "memory shared across hosts needs it, and some engines switch it off"
    elif any(s.in_domain for s in ctx.replica.shards):
        yield "NCCL_MNNVL_ENABLE", "0", "not over NVLink: NCCL would abort on a broken IMEX instead of falling back"


def removed(ctx: ShardContext) -> tuple[str, ...]:
    """Families whose inherited variables the supervisor removes before it sets ours."""
    named = {n for n, _ in ctx.profile.env}
    return tuple(f for f in FAMILIES if f not in named)
