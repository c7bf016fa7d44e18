"""How the GPUs of one host reach each other and its adapters: the matrix, the links, the NUMA nodes."""

from __future__ import annotations

from dataclasses import field

from llmgwctl.model.fact import fact

WAYS = ("PIX", "PXB", "PHB", "NODE", "SYS")  # nearest first


@fact
class Topology:
    """`nvidia-smi topo -m`. GPUs by nvidia-smi's numbers, which have gaps when a GPU is lost; adapters by name.

    `links[(i, j)]`: how GPU i reaches GPU j (NV18, PIX ... SYS), each direction as printed, since they may differ.
    `ways[(i, name)]`: how GPU i reaches an adapter. Affinities as printed; a cell that is empty is not there.
    """

    gpus: tuple[int, ...]
    adapters: tuple[str, ...] = ()
    links: dict[tuple[int, int], str] = field(default_factory=dict)
    ways: dict[tuple[int, str], str] = field(default_factory=dict)
    cpus: dict[int, str] = field(default_factory=dict)
    numa: dict[int, str] = field(default_factory=dict)
    gpu_numa: dict[int, int] = field(default_factory=dict)  # the node of the GPU's own memory (Grace)


@fact
class GpuLinks:
    """One GPU of `nvidia-smi nvlink -s`: GB/s a link, None an inactive one; `why`: what it says in place of links."""

    index: int
    uuid: str
    speeds: tuple[float | None, ...] = ()
    why: str = ""

    @property
    def active(self) -> int:
        return sum(s is not None for s in self.speeds)


@fact
class NumaNode:
    """A node of /sys/devices/system/node. `cpus` is empty where it is memory alone: nothing can be bound to it."""

    number: int
    cpus: str
    memory_mib: int | None = None


@fact
class Numa:
    """The host's nodes, and the node of each NVIDIA function by PCI address (8-digit upper-case domain)."""

    nodes: tuple[NumaNode, ...]
    of_pci: dict[str, int] = field(default_factory=dict)


@fact
class Nearest:
    """The adapters nearest to a GPU, and the way to them."""

    adapters: tuple[str, ...]
    way: str

    @property
    def words(self) -> str:
        return f"{', '.join(self.adapters)} ({self.way})"
