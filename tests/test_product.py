"""The product table: exact tokens, and cards in a slot apart from boards with NVSwitches."""

from __future__ import annotations

import pytest

from llmgwctl.model.product import PRODUCTS, product_of, token_of


def test_rows_are_there_once():
    """A token and a form name one row; only racks cross hosts, and no card in a slot wants a fabric manager."""
    assert len({(p.token, p.form.upper()) for p in PRODUCTS}) == len(PRODUCTS)
    assert {p.token for p in PRODUCTS if p.multi_host_domain} == {"GB200", "GB300"}
    assert all(p.has_fabric for p in PRODUCTS if p.multi_host_domain)
    assert not any(p.host_fabric_manager for p in PRODUCTS if p.multi_host_domain or not p.nvlinks)
    assert all((p.nvlinks == 0) == (p.link_floor_gbps == 0) for p in PRODUCTS)


@pytest.mark.parametrize(
    ("name", "token", "crosses", "fabric", "manager"),
    [
        ("NVIDIA GB200", "GB200", True, True, False),
        ("NVIDIA GB300", "GB300", True, True, False),
        ("NVIDIA GH200 480GB", "GH200", False, False, False),
        ("NVIDIA GH200 144G HBM3e", "GH200", False, False, False),
        ("NVIDIA B200", "B200", False, True, True),
        ("NVIDIA B300 SXM6 AC", "B300", False, True, True),
        ("NVIDIA H100 80GB HBM3", "H100", False, True, True),
        ("NVIDIA H100 PCIe", "H100", False, False, False),
        ("NVIDIA H100 NVL", "H100", False, False, False),
        ("NVIDIA H200", "H200", False, True, True),
        ("NVIDIA H200 NVL", "H200", False, False, False),
        ("NVIDIA H20", "H20", False, True, True),
        ("NVIDIA A100-SXM4-40GB", "A100", False, False, True),
        ("NVIDIA A100-PCIE-40GB", "A100", False, False, False),
        ("NVIDIA A100 80GB PCIe", "A100", False, False, False),
        ("Tesla V100-SXM2-32GB", "V100", False, False, False),
        ("Tesla V100-SXM3-32GB", "V100", False, False, True),
        ("Tesla T4", "T4", False, False, False),
        ("NVIDIA A10G", "A10G", False, False, False),
        ("NVIDIA L40S", "L40S", False, False, False),
        ("NVIDIA GB10", "GB10", False, False, False),
    ],
)
def test_names_as_drivers_print_them(name, token, crosses, fabric, manager):
    """GH200 is not H200 and GB200 is not B200; a PCIe card has what a PCIe card has."""
    found = product_of(name)
    assert found is not None
    assert (found.token, found.multi_host_domain, found.has_fabric, found.host_fabric_manager) == (
        token,
        crosses,
        fabric,
        manager,
    )
    assert token_of(name) == token


@pytest.mark.parametrize("name", ["NVIDIA GeForce RTX 4090", "NVIDIA TITAN V", "", "NVIDIA Graphics Device", "GB200X"])
def test_others_are_not_in_the_table(name):
    """A name that only resembles one is no product of ours."""
    assert product_of(name) is None
    assert token_of(name) == name.removeprefix("NVIDIA ")
