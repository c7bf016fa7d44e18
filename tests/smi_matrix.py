"""`nvidia-smi topo -m` and `nvlink -s` in the layouts that drivers print. All ids are invented."""

from __future__ import annotations

from dataclasses import dataclass, field

LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""
FAILED = "Failed to run topology matrix\n\n"


@dataclass
class Matrix:
    """A machine as the matrix shows it. `columns` behind the devices: 1 CPU, 2 + NUMA, 3 + GPU NUMA ID (from 535)."""

    gpus: tuple[int, ...] = (0, 1, 2, 3)
    nics: tuple[str, ...] = ()
    nvlinks: int = 18
    links: dict[tuple[int, int], str] = field(default_factory=dict)
    ways: dict[tuple[int, int], str] = field(default_factory=dict)  # GPU, place of the adapter
    cpus: dict[int, str] = field(default_factory=dict)
    numa: dict[int, str] = field(default_factory=dict)
    gpu_numa: dict[int, str] = field(default_factory=dict)
    columns: int = 3

    def cell(self, i: int, j: int) -> str:
        return " X " if i == j else self.links.get((i, j), f"NV{self.nvlinks}")

    def way(self, gpu: int, place: int) -> str:
        return self.ways.get((gpu, place), "NODE")

    def labels(self, own_names: bool = False) -> list[str]:
        nics = list(self.nics) if own_names else [f"NIC{k}" for k in range(len(self.nics))]
        return [f"GPU{g}" for g in self.gpus] + nics

    def tail(self, gpu: int) -> list[str]:
        said = [self.cpus.get(gpu, "0-63"), self.numa.get(gpu, "0"), "", self.gpu_numa.get(gpu, "N/A")]
        return {1: said[:1], 2: said[:2], 3: said}[self.columns]

    def rows(self, own_names: bool = False) -> list[list[str]]:
        """Label, cells, tail; adapters have empty tails."""
        labels = self.labels(own_names)
        made = [
            [
                f"GPU{g}",
                *(self.cell(g, other) for other in self.gpus),
                *(self.way(g, k) for k in range(len(self.nics))),
                *self.tail(g),
            ]
            for g in self.gpus
        ]
        empty = [""] * {1: 1, 2: 2, 3: 4}[self.columns]
        for k, label in enumerate(labels[len(self.gpus) :]):
            between = [" X " if j == k else "NODE" for j in range(len(self.nics))]
            made.append([label, *(self.way(g, k) for g in self.gpus), *between, *empty])
        return made

    def heads(self) -> list[str]:
        return ["CPU Affinity", "NUMA Affinity", "GPU NUMA ID"][: self.columns]

    def names(self) -> str:
        legend = "".join(f"  NIC{k}: {name}\n" for k, name in enumerate(self.nics))
        return f"\nNIC Legend:\n\n{legend}\n" if legend else ""

    def tabs(self, ansi: bool = True, own_names: bool = False) -> str:
        """As the program prints it, to a file as well."""
        on, off = ("\x1b[4m", "\x1b[0m") if ansi else ("", "")
        head = "\t" + on + "\t".join([*self.labels(own_names), *self.heads()]) + off
        rows = ["\t".join(row) for row in self.rows(own_names)]
        return "\n".join([head, *rows]) + "\n" + LEGEND + ("" if own_names else self.names())

    def blanks(self) -> str:
        """As it looks when it was pasted: tabs became blanks, and an empty cell is not there any more."""
        width = 8
        lines = ["".join(f"{word:<{width}}" for word in ["", *self.labels()]) + "    ".join(self.heads())]
        rows = ("".join(f"{word:<{max(width, len(word) + 1)}}" for word in row) for row in self.rows())
        lines += [row.rstrip() for row in rows]
        return "\n".join(lines) + "\n" + LEGEND + self.names()


def links(count: int, speeds: tuple[str, ...], name: str = "NVIDIA GB200", indent: str = "\t ") -> str:
    """`nvlink -s` of `count` equal GPUs; a speed that is empty is an inactive link."""
    lines = []
    for index in range(count):
        lines.append(f"GPU {index}: {name} (UUID: GPU-11111111-2222-3333-4444-00000000000{index})")
        for link, speed in enumerate(speeds):
            lines.append(f"{indent}Link {link}: {f'{speed} GB/s' if speed else '<inactive>'}")
    return "".join(f"{line}\n" for line in lines)


def in_words(words: str, name: str = "NVIDIA L40S") -> str:
    """One GPU that says something in place of links."""
    return f"GPU 0: {name} (UUID: GPU-11111111-2222-3333-4444-000000000000)\n{words}\n"
