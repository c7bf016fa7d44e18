"""The adapters nearest to each GPU, and the way to them: by the matrix, and on Grace by the CPU that both hang off."""

from __future__ import annotations

from collections.abc import Iterable

from llmgwctl.fabric.scaleout import compute_ports
from llmgwctl.model.gpu import Gpu
from llmgwctl.model.host import HostFacts
from llmgwctl.model.product import product_of
from llmgwctl.model.topology import WAYS, Nearest, Topology

SAME_CPU, OTHER_CPU, SAME_NODE = "same CPU", "other CPU", "same NUMA node"


def nearest(facts: HostFacts) -> dict[int, Nearest]:
    """By GPU index, of the adapters that carry compute traffic; a GPU of which nothing is known is left out.

    A Grace GPU reaches its adapters over NVLink-C2C and the CPU, so the matrix says NODE of all of them, near or far:
    there the NUMA node decides.
    """
    report = facts.gpus.value
    found = ((g.index, _of(g, facts)) for g in report.gpus) if report else ()
    return {index: near for index, near in found if near is not None}


def _of(gpu: Gpu, facts: HostFacts) -> Nearest | None:
    product, topology = product_of(gpu.name), facts.topology.value
    by_node = _by_node(gpu, facts)
    if product is not None and product.grace and by_node is not None:
        return by_node
    return (_by_way(gpu, topology, _names(facts, topology)) if topology else None) or by_node


def _names(facts: HostFacts, topology: Topology) -> tuple[str, ...]:
    """Compute adapters; where sysfs was not read, all that the matrix names."""
    if facts.hcas.value is None:
        return topology.adapters
    return tuple(dict.fromkeys(hca.name for hca, _ in compute_ports(facts).kept))


def _by_way(gpu: Gpu, topology: Topology, names: Iterable[str]) -> Nearest | None:
    wanted = tuple(names)
    for way in WAYS:
        near = tuple(n for n in wanted if topology.ways.get((gpu.index, n)) == way)
        if near:
            return Nearest(near, way)
    return None


def _by_node(gpu: Gpu, facts: HostFacts) -> Nearest | None:
    """Adapters of the same NUMA node; on Grace, where there is none, those of the other CPU."""
    node = numa_node(gpu, facts.topology.value)
    hcas = tuple(dict.fromkeys((hca.name, hca.numa_node) for hca, _ in compute_ports(facts).kept))
    if node is None or not hcas or any(place is None for _, place in hcas):
        return None
    product = product_of(gpu.name)
    grace = product is not None and product.grace
    near = tuple(name for name, place in hcas if place == node)
    if near:
        return Nearest(near, SAME_CPU if grace else SAME_NODE)
    return Nearest(tuple(name for name, _ in hcas), OTHER_CPU) if grace else None


def numa_node(gpu: Gpu, topology: Topology | None) -> int | None:
    """The node of the CPU beside a GPU: from sysfs, else by the matrix (`0`, or on Grace `0,2-17`)."""
    if gpu.numa_node is not None:
        return gpu.numa_node
    said = (topology.numa.get(gpu.index, "") if topology else "").replace("-", ",").split(",")[0]
    return int(said) if said.isascii() and said.isdigit() and len(said) < 6 else None
