"""Which GPUs of a host belong together: NVLink neighbours of one NUMA node, chosen so that what stays is whole too."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from math import comb

from llmgwctl.fabric.nearest import numa_node
from llmgwctl.model.fact import fact
from llmgwctl.model.gpu import Gpu
from llmgwctl.model.host import HostFacts
from llmgwctl.model.product import product_of
from llmgwctl.model.topology import WAYS, Topology

MOST_SETS = 2000  # 4 of 16 GPUs are 1820; of more, only GPUs in a row are looked at
NVLINK = re.compile(r"NV(\d{1,3})")

Pair = tuple[int, int]  # GPU indexes, the lower one first


@fact
class Near:
    """How the GPUs of one host reach each other, by index.

    `links`: NVLinks of each pair that has any; None where that is not known, and `why` says why not.
    `ways`: how far the other pairs are apart, as `nvidia-smi topo -m` says (PIX ... SYS). `nodes`: NUMA, where known.
    """

    links: Mapping[Pair, int] | None
    why: str
    ways: Mapping[Pair, str]
    nodes: Mapping[int, int]


def near(facts: HostFacts) -> Near:
    """From the matrix; where there is none, an NVSwitch says that all GPUs are neighbours, and else it is not known."""
    gpus = facts.gpus.value.gpus if facts.gpus.value else ()
    topology = facts.topology.value
    nodes = {g.index: node for g in gpus if (node := numa_node(g, topology)) is not None}
    pairs = tuple(combinations((g.index for g in gpus), 2))
    if topology is not None and all(p in topology.links for p in pairs):
        return Near(_nvlinks(topology, pairs), "", {p: topology.links[p] for p in pairs}, nodes)
    if switched(gpus):
        return Near(_all_alike(tuple(g.index for g in gpus), _links_of(gpus)), "", {}, nodes)
    return Near(None, facts.topology.why or "the matrix does not name all GPUs", {}, nodes)


def switched(gpus: Sequence[Gpu]) -> bool:
    """Whether an NVSwitch joins these GPUs: a matter of the product."""
    return bool(gpus) and all((p := product_of(g.name)) is not None and p.has_fabric for g in gpus)


def _links_of(gpus: Sequence[Gpu]) -> int:
    return min((p.nvlinks for g in gpus if (p := product_of(g.name)) is not None), default=0)


@lru_cache(maxsize=64)
def _all_alike(indexes: tuple[int, ...], links: int) -> Mapping[Pair, int]:
    return dict.fromkeys(combinations(indexes, 2), links)


def _nvlinks(topology: Topology, pairs: Sequence[Pair]) -> dict[Pair, int]:
    """Both directions have to say so: a link that one end does not see carries nothing."""
    found = {}
    for i, j in pairs:
        there, back = (NVLINK.fullmatch(topology.links.get(p, "")) for p in ((i, j), (j, i)))
        if there and back:
            found[i, j] = min(int(there[1]), int(back[1]))
    return found


# --- choosing -------------------------------------------------------------------------------------------------------


def pick(place: Near, free: Sequence[Gpu], count: int) -> tuple[Gpu, ...]:
    """The best `count` of the free GPUs of a host (all, where there are no more), lowest indexes first among equals."""
    if count >= len(free):
        return tuple(free)
    if count == 0:
        return ()
    by_index = {g.index: g for g in free}
    spare = tuple(by_index)
    best = min(_sets(place, spare, count), key=lambda chosen: _cost(place, chosen, spare))
    return tuple(by_index[i] for i in sorted(best))


def _sets(place: Near, free: tuple[int, ...], count: int) -> Iterator[tuple[int, ...]]:
    if comb(len(free), count) <= MOST_SETS:
        yield from combinations(free, count)
        return
    in_row = sorted(free, key=lambda i: (place.nodes.get(i, -1), i))
    yield from (tuple(in_row[at : at + count]) for at in range(len(in_row) - count + 1))


def _cost(place: Near, chosen: tuple[int, ...], free: tuple[int, ...]) -> tuple[int, ...]:
    """NVLink between as many as can be, wide before narrow; few NUMA nodes; short ways; then what it costs the others:
    NVLink neighbours that are parted, and free GPUs that stay behind on the same NUMA nodes."""
    links = place.links or {}
    inside = [_pair(p) for p in combinations(chosen, 2)]
    nodes = {place.nodes.get(i) for i in chosen}
    rest = [i for i in free if i not in chosen]
    return (
        sum(p not in links for p in inside),
        -sum(links.get(p, 0) for p in inside),
        len(nodes),
        sum(_distance(place.ways.get(p, "")) for p in inside if p not in links),
        sum(_pair((i, j)) in links for i in chosen for j in rest),
        sum(place.nodes.get(i) in nodes for i in rest),
    )


def _pair(two: Pair) -> Pair:
    return two if two[0] < two[1] else (two[1], two[0])


def _distance(way: str) -> int:
    return WAYS.index(way) if way in WAYS else len(WAYS)


def apart(facts: HostFacts, free: Sequence[Gpu], count: int) -> int:
    """Pairs without NVLink (or not known to have it) in the best that a host can give: for comparing hosts."""
    report = facts.gpus.value
    if count < 2 or (facts.topology.value is None and report is not None and switched(report.gpus)):
        return 0
    place = near(facts)
    if not place.links:
        return comb(count, 2)
    return _fewest_apart(tuple(g.index for g in free), frozenset(place.links), count)


@lru_cache(maxsize=4096)  # hosts of one kind have the same few patterns
def _fewest_apart(free: tuple[int, ...], linked: frozenset[Pair], count: int) -> int:
    place = Near(dict.fromkeys(linked, 1), "", {}, {})
    return min(sum(p not in linked for p in combinations(sorted(s), 2)) for s in _sets(place, free, count))


# --- words ----------------------------------------------------------------------------------------------------------


def reason(place: Near, chosen: Sequence[Gpu], total: int) -> str:
    """What joins the chosen GPUs of a host, in words. `total`: how many it has; with all of them there is no choice."""
    indexes = [g.index for g in chosen]
    if not indexes:
        return ""
    if len(indexes) == total and not place.links:
        return "all of the host"
    words = [_nvlink_words(place, indexes)] if len(indexes) > 1 else []
    if len(indexes) == total and not place.nodes:
        return "; ".join([*words, "all of the host, so NUMA nodes were not looked at (`llmgwctl node` shows them)"])
    return "; ".join([*words, _numa_words(place, indexes)])


def _nvlink_words(place: Near, chosen: Sequence[int]) -> str:
    if place.links is None:
        return f"whether NVLink joins them is not known ({place.why})"
    if not place.links:
        return "no NVLink on this host"
    pairs = [_pair(p) for p in combinations(chosen, 2)]
    found = sorted({place.links[p] for p in pairs if p in place.links})
    if all(p in place.links for p in pairs):
        return f"NVLink between all ({', '.join(f'NV{n}' for n in found)})"
    return f"NVLink between {sum(p in place.links for p in pairs)} of {len(pairs)} pairs"


def _numa_words(place: Near, chosen: Sequence[int]) -> str:
    nodes = sorted({place.nodes[i] for i in chosen if i in place.nodes})
    if not nodes or any(i not in place.nodes for i in chosen):
        return "NUMA nodes not known" + (", in order" if place.links is None else "")
    return f"NUMA node {nodes[0]}" if len(nodes) == 1 else f"NUMA nodes {', '.join(map(str, nodes))}"


def partly_joined(place: Near, chosen: Sequence[Gpu]) -> bool:
    """NVLink is there, and does not reach all of the chosen GPUs from each other."""
    pairs = [_pair(p) for p in combinations((g.index for g in chosen), 2)]
    return bool(place.links) and not all(p in (place.links or {}) for p in pairs)
