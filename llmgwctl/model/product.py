"""Product facts as data: one row per exact product token (GH200 is not H200, GB200 is not B200)."""

from __future__ import annotations

import re
from functools import lru_cache

from llmgwctl.model.fact import fact


@fact
class Product:
    """Facts of one GPU product. `host_gpus`: usual counts per host; `nvlinks` per GPU; speeds in GB/s per link.

    `form`: another word of the name that tells this row from the plain one (PCIe cards have no NVSwitch).
    `nvlinks` 0: none, or as many as the bridges between cards connect, which nobody can foretell.
    `multi_host_domain`: whether its NVLink can cross hosts. False: any ClusterUUID that it prints is no domain.
    `has_fabric`: whether NVSwitch is there at all, so that State should be Completed.
    `host_fabric_manager`: whether nvidia-fabricmanager belongs on a host with this many of them on a board.
    """

    token: str
    host_gpus: tuple[int, ...]
    nvlinks: int
    link_floor_gbps: float
    has_fabric: bool
    multi_host_domain: bool
    host_fabric_manager: bool
    grace: bool = False
    form: str = ""


def _card(token: str, *host_gpus: int, form: str = "") -> Product:
    """A card in a slot: no NVSwitch, no fabric manager."""
    return Product(token, host_gpus or (8, 4, 2, 1), 0, 0.0, False, False, False, form=form)


# Sources: NVIDIA's multi-node NVLink guide (tray counts), nvml fabric notes, oci-hpc health checks (link floors),
# topology matrices of machines (H800: 8 links, DGX-2: 6). A single GH200 has 18 links and no NVSwitch.
PRODUCTS = (
    Product("GB200", (4, 2), 18, 50.0, True, True, False, grace=True),
    Product("GB300", (4, 2), 18, 50.0, True, True, False, grace=True),
    Product("B200", (8,), 18, 50.0, True, False, True),
    Product("B300", (8,), 18, 50.0, True, False, True),
    Product("H100", (8, 4, 2, 1), 18, 25.0, True, False, True),
    _card("H100", form="PCIe"),
    _card("H100", form="NVL"),
    Product("H200", (8, 4, 2, 1), 18, 25.0, True, False, True),
    _card("H200", form="NVL"),
    Product("H800", (8,), 8, 25.0, True, False, True),
    _card("H800", form="PCIe"),
    Product("H20", (8,), 18, 25.0, True, False, True),
    Product("GH200", (1, 4), 18, 25.0, False, False, False, grace=True),
    Product("A100", (8, 4, 1), 12, 25.0, False, False, True),
    _card("A100", form="PCIE"),
    Product("A800", (8,), 8, 25.0, False, False, True),
    _card("A800", form="PCIE"),
    Product("V100", (8, 4), 6, 25.0, False, False, False),
    Product("V100", (16,), 6, 25.0, False, False, True, form="SXM3"),
    _card("V100", form="PCIE"),
    _card("L40S"),
    _card("L40"),
    _card("L20"),
    _card("L4"),
    _card("L2"),
    _card("A40"),
    _card("A30"),
    _card("A16"),
    _card("A10", 4, 1),
    _card("A10G", 8, 4, 1),
    _card("A2"),
    _card("T4", 4, 1),
    _card("P100", form="PCIE"),
    _card("P40"),
    Product("GB10", (1,), 0, 0.0, False, False, False, grace=True),
)
_BY_TOKEN = {(p.token, p.form.upper()): p for p in PRODUCTS}
_FORMS = {token: {p.form.upper() for p in PRODUCTS if p.token == token} for token in {p.token for p in PRODUCTS}}


@lru_cache(maxsize=1024)  # a fleet has a handful of names and asks a hundred thousand times
def product_of(name: str) -> Product | None:
    """The row whose token is a whole word of a product name ("NVIDIA H100 80GB HBM3"); None: not in the table."""
    words = re.split(r"[\s\-_/]+", name)
    token = next((w for w in words if w in _FORMS), None)
    if token is None:
        return None
    form = next((w.upper() for w in words if w.upper() in _FORMS[token]), "")
    return _BY_TOKEN.get((token, form))


def token_of(name: str) -> str:
    """The product token of a name; for a product that is not in the table, its name without the vendor."""
    known = product_of(name)
    return known.token if known else name.removeprefix("NVIDIA ").strip()


def products_of(token: str) -> tuple[Product, ...]:
    """All forms of a token: the plain row, and those of PCIe cards and the like."""
    return tuple(p for p in PRODUCTS if p.token == token)
