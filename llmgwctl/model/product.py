"""Product facts as data: one row per exact product token (GH200 is not H200, GB200 is not B200)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Product:
    """Facts of one GPU product. `host_gpus`: usual counts per host; `nvlinks` per GPU; speeds in GB/s per link.

    `multi_host_domain`: whether its NVLink can cross hosts. False: any ClusterUUID that it prints is no domain.
    `has_fabric`: whether NVSwitch is there at all, so that State should be Completed.
    `host_fabric_manager`: whether nvidia-fabricmanager belongs on the host.
    """

    token: str
    host_gpus: tuple[int, ...]
    nvlinks: int
    link_floor_gbps: float
    has_fabric: bool
    multi_host_domain: bool
    host_fabric_manager: bool
    grace: bool = False


# Sources: NVIDIA's multi-node NVLink guide (tray counts), nvml fabric notes, oci-hpc health checks (link floors).
PRODUCTS = (
    Product("GB200", (4, 2), 18, 50.0, True, True, False, grace=True),
    Product("GB300", (4, 2), 18, 50.0, True, True, False, grace=True),
    Product("B200", (8,), 18, 50.0, True, False, True),
    Product("B300", (8,), 18, 50.0, True, False, True),
    Product("H100", (8, 4, 2, 1), 18, 25.0, True, False, True),
    Product("H200", (8, 4, 2, 1), 18, 25.0, True, False, True),
    Product("H800", (8,), 8, 25.0, True, False, True),
    Product("H20", (8,), 18, 25.0, True, False, True),
    Product("GH200", (1, 4), 18, 25.0, False, False, False, grace=True),
    Product("A100", (8, 4, 1), 12, 25.0, False, False, True),
    Product("A800", (8,), 8, 25.0, False, False, True),
    Product("V100", (8, 4), 6, 25.0, False, False, False),
    Product("L40S", (8, 4, 2, 1), 0, 0.0, False, False, False),
    Product("L40", (8, 4, 2, 1), 0, 0.0, False, False, False),
    Product("L4", (8, 4, 2, 1), 0, 0.0, False, False, False),
    Product("A40", (8, 4, 2, 1), 4, 14.0, False, False, False),
    Product("A10", (4, 1), 0, 0.0, False, False, False),
    Product("T4", (4, 1), 0, 0.0, False, False, False),
    Product("GB10", (1,), 0, 0.0, False, False, False, grace=True),
)
_BY_TOKEN = {p.token: p for p in PRODUCTS}


@lru_cache(maxsize=1024)  # a fleet has a handful of names and asks a hundred thousand times
def product_of(name: str) -> Product | None:
    """The row whose token is a whole word of a product name ("NVIDIA H100 80GB HBM3"); None: not in the table."""
    for word in re.split(r"[\s\-_/]+", name):
        if word in _BY_TOKEN:
            return _BY_TOKEN[word]
    return None


def token_of(name: str) -> str:
    """The product token of a name; for a product that is not in the table, its name without the vendor."""
    known = product_of(name)
    return known.token if known else name.removeprefix("NVIDIA ").strip()
