"""`node HOST`: one host in full, as text and as a document; what was not read says so."""

from __future__ import annotations

from dataclasses import replace

import facts as fx
import pytest
from smi_matrix import Matrix

from llmgwctl.fabric import fabric_map
from llmgwctl.model.gpu import GpuProcess
from llmgwctl.model.machine import Clock, FabricManager
from llmgwctl.model.reading import broken, ok
from llmgwctl.model.topology import GpuLinks, Topology
from llmgwctl.probe import topology
from llmgwctl.render import node
from llmgwctl.render.text import Look


def tray():
    """A healthy tray of a rack of three, fully read; its third peer does not answer IMEX."""
    hosts = fx.rack(3)
    one = fx.with_cells(hosts["r1-t01"], {(0, 2): "N"})
    matrix = topology.read_matrix(Matrix(nics=("mlx5_0", "mlx5_1"), numa={0: "0", 1: "0", 2: "1", 3: "1"}).tabs())
    assert isinstance(matrix, Topology)
    adapters = tuple(replace(h, numa_node=i) for i, h in enumerate(fx.ib_hcas(2)))
    one = fx.with_gpu(one, 1, processes=(GpuProcess(77, "C", "/opt/vllm", 2048, "anna"),), numa_node=0)
    return replace(
        one,
        topology=ok(matrix),
        links=ok(tuple(GpuLinks(i, f"GPU-{i}", (53.125,) * 17 + (None,)) for i in range(4))),
        hcas=ok(adapters),
        fabric_manager=ok(FabricManager(unit_active="active", version="580.95.05")),
        clock=ok(Clock(2.5, 0.01)),
        kernel_log=broken("needs a right"),
    )


WIDE = Look(140)


def shown(one, look: Look = WIDE) -> str:
    snapshot = fx.snapshot({one.host.name: one})
    return node.text(one, fabric_map(snapshot), snapshot, look)


def document(one) -> dict:
    return node.document(one, fabric_map(fx.snapshot({one.host.name: one})))


def test_everything_of_a_tray_is_shown():
    """Each card with its NUMA node, its adapters and its links; the matrix; IMEX with who is missing; what is sick."""
    text = shown(tray())
    for words in (
        "mlx5_0 (same CPU)",
        "mlx5_1 (same CPU)",
        "17/18 at 53.125 GB/s",
        "/opt/vllm (pid 77, C, 2.0 GiB, anna)",
        "GPU0  self  NV18  NV18  NV18",
        "1 of 2 connected",
        "10.1.0.3: never connected (READY)",
        "active 580.95.05",
        "+2.5 s against this workstation",
        "needs a right",
    ):
        assert words in text, words


def test_the_document_of_a_tray():
    """The same as data: rows of the matrix, nearest adapters, peers, readings that are broken."""
    found = document(tray())
    assert (found["schema"], found["name"], found["reachable"]) == ("llmgwctl.node/v1", "r1-t01", True)
    assert found["matrix"] == {
        "gpus": [0, 1, 2, 3],
        "rows": [["X" if i == j else "NV18" for j in range(4)] for i in range(4)],
    }
    gpu = found["gpus"][2]
    assert gpu["nearest"] == {"adapters": ["mlx5_1"], "way": "same CPU"}
    assert (gpu["numa_node"], gpu["joined"], gpu["links"]["active"], gpu["clique_id"]) == (1, True, 17, 32766)
    assert found["gpus"][1]["processes"] == [
        {"pid": 77, "kind": "C", "name": "/opt/vllm", "used_mib": 2048, "user": "anna"}
    ]
    assert [(p["host"], p["cell"], p["local"]) for p in found["imex"]["peers"]] == [
        ("10.1.0.1", "C", True),
        ("10.1.0.2", "C", False),
        ("10.1.0.3", "N", False),
    ]
    assert found["adapters"][0]["ways"] == {f"GPU{i}": "NODE" for i in range(4)}
    assert found["broken"]["kernel_log"] == "needs a right"
    assert found["clock"] == {"state": "ok", "value": {"offset_s": 2.5, "bound_s": 0.01}}


def test_what_was_not_read_is_null_and_says_why():
    """A host of which only the fabric set is known has no matrix, no links and no way to its adapters."""
    one = fx.rack(2)["r1-t01"]
    found = document(one)
    assert found["matrix"] is None
    assert {(g["links"] is None, g["nearest"] is None, g["cpus"] is None) for g in found["gpus"]} == {(True,) * 3}
    assert "not read" in shown(one)


def test_a_host_that_does_not_answer():
    """Its end state stands there, and nothing is invented."""
    one = fx.unreachable(fx.rack(1)["r1-t01"])
    assert "connection refused" in shown(one)
    found = document(one)
    assert (found["reachable"], found["gpus"], found["adapters"], found["matrix"]) == (False, None, None, None)


def test_a_matrix_with_a_gap_keeps_its_numbers():
    one = tray()
    lost = topology.read_matrix(Matrix(gpus=(0, 2, 3)).tabs())
    report = one.gpus.value
    cards = tuple(g for g in report.gpus if g.index != 1)
    one = replace(one, topology=ok(lost), gpus=ok(replace(report, gpus=cards, lost=("GPU 1: GPU is lost",))))
    assert document(one)["matrix"]["gpus"] == [0, 2, 3]
    assert "GPU0  GPU2  GPU3" in shown(one)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_it_fits_any_terminal(width):
    assert max(len(line) for line in shown(tray(), Look(width)).splitlines()) <= width


def test_what_a_host_says_is_shown_and_not_obeyed():
    """A process may be called anything."""
    one = fx.with_gpu(tray(), 1, processes=(GpuProcess(7, "C", "x\x1b[31m\n[bold]y", 1, "z"),))
    assert "\x1b" not in shown(one)
    assert "[bold]y" in shown(one, Look(300))
