"""[profiles.NAME] tables -> Profile: the numbers must fit before anything is asked of a host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llmgwctl.inventory.context import At, Context
from llmgwctl.inventory.faults import Faults
from llmgwctl.inventory.schema import ContainerTable, ProfileTable, port_range
from llmgwctl.model.profile import Container, Profile

# What the parallel sizes of one replica come to, by engine; an engine that is not here counts no ranks of its own.
# SGLang's data parallel ranks lie inside tp x pp; llama.cpp splits layers over whatever GPUs it is given.
WORLD: dict[str, tuple[str, Callable[[ProfileTable], int]]] = {
    "vllm": ("tp x pp x dp", lambda p: p.tp * p.pp * p.dp),
    "sglang": ("tp x pp", lambda p: p.tp * p.pp),
    "sim": ("tp x pp x dp", lambda p: p.tp * p.pp * p.dp),
}
MAX_GPUS = 64  # more than any one machine holds
GPULESS = frozenset({"sim"})
UNSPLIT = frozenset({"llamacpp"})
SIZES = ("tp", "pp", "dp")
_SAME = (
    *("engine", "model_path", "served_model_name", "gpu_class", "tp", "pp", "dp", "ep", "nodes", "fabric"),
    *("require_declared_fabric", "allow_degraded", "replicas", "listen_all", "ready_timeout_s", "stop_grace_s"),
    *("api_key_env", "spare_trays", "replace_unreachable_after_s"),
)


def build(name: str, table: ProfileTable, context: Context) -> Profile | None:
    """The completed profile; None when something of it is wrong, which is then noted."""
    at: At = ("profiles", name)
    if not context.known_engine(table.engine, (*at, "engine")):
        return None
    if table.api_key_file is not None and table.api_key_env is not None:
        context.faults.add((*at, "api_key_env"), "the key comes from api_key_file already: keep one of them")
    context.product(table.gpu_class, (*at, "gpu_class"))
    pool = _pool(table, at, context)
    gpus = _gpus_per_node(table, at, context.faults)
    if pool is None or gpus is None:
        return None
    low, high = port_range(table.port)
    same: dict[str, Any] = {key: getattr(table, key) for key in _SAME}
    return Profile(
        name=name,
        pool=pool,
        gpus_per_node=gpus,
        port_min=low,
        port_max=high,
        api_key_file=context.local_path(table.api_key_file),
        container=_container(table.container),
        args=tuple(table.args),
        env=tuple(table.env.items()),
        **same,
    )


def _container(table: ContainerTable | None) -> Container | None:
    return Container(table.runtime, table.image, table.path, tuple(table.mounts)) if table else None


def _pool(table: ProfileTable, at: At, context: Context) -> str | None:
    """The pool that a profile names; without one: the only pool, or the one called default."""
    pools = context.pools
    if table.pool is not None:
        return table.pool if context.known_pool(table.pool, (*at, "pool")) else None
    if len(pools) == 1:
        return next(iter(pools))
    if "default" in pools:
        return "default"
    context.faults.add(at, f"pool is required where there are several: {', '.join(sorted(pools))}")
    return None


def _gpus_per_node(table: ProfileTable, at: At, faults: Faults) -> int | None:
    """GPUs of each shard, as given or as the sizes say; noted when nodes and sizes do not come to the same."""
    given, sized = table.gpus_per_node, table.model_fields_set & set(SIZES)
    if table.engine in UNSPLIT and sized:
        key = next(k for k in SIZES if k in sized)
        faults.add((*at, key), f"{table.engine} knows no {key}: it splits a model over nodes x gpus_per_node")
        return None
    if given == 0 and table.engine not in GPULESS:
        faults.add((*at, "gpus_per_node"), f"{table.engine} needs at least 1 GPU on each node")
        return None
    if given is None and table.nodes > 1:
        faults.add((*at, "nodes"), "gpus_per_node is required above one node")
        return None
    return _fitting(table, at, faults, sized=bool(sized))


def _fitting(table: ProfileTable, at: At, faults: Faults, *, sized: bool) -> int | None:
    given = table.gpus_per_node
    formula, count = WORLD.get(table.engine, ("", lambda _: 1))
    world: int = count(table)
    if given is None:
        if table.engine in GPULESS and not sized:
            return 0
        if world > MAX_GPUS:
            faults.add(at, f"{formula} = {world} GPUs do not fit on one node: nodes and gpus_per_node say how they lie")
            return None
        return world
    counted = bool(formula) and (table.engine not in GPULESS or (sized and given > 0))
    if counted and table.nodes * given != world:
        have = f"nodes x gpus_per_node = {table.nodes} x {given} = {table.nodes * given}"
        faults.add((*at, "gpus_per_node"), f"the numbers do not fit: {have}, but {formula} = {world}")
        return None
    return given
