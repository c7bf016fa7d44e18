"""The topology matrix and the links of each GPU, in every layout; and the adapters nearest to each GPU."""

from __future__ import annotations

from dataclasses import replace

import facts as fx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from smi_matrix import FAILED, Matrix, in_words, links

from llmgwctl.fabric.nearest import nearest
from llmgwctl.model.reading import broken, ok
from llmgwctl.model.topology import Nearest, Topology
from llmgwctl.probe import links as links_probe
from llmgwctl.probe import topology
from llmgwctl.probe.base import NOT_SAVED, Output


def read(text: str, code: int = 0, system: str = ""):
    outputs = {topology.NAME: Output(stdout=text, exit_code=code), "system": Output(stdout=system)}
    return topology.PROBE.read(outputs)


def matrix(text: str) -> Topology:
    reading = read(text)
    assert reading.ok, reading.why
    return reading.value


TRAY = Matrix(
    nics=("mlx5_0", "mlx5_1", "mlx5_bond_0"),
    cpus={0: "0-71", 1: "0-71", 2: "72-143", 3: "72-143"},
    numa={0: "0", 1: "0", 2: "1", 3: "1"},
    gpu_numa={0: "2", 1: "10", 2: "18", 3: "26"},
    ways={(0, 1): "PIX", (2, 0): "SYS"},
)


@pytest.mark.parametrize(
    "text",
    [
        TRAY.tabs(),
        TRAY.tabs(ansi=False),
        TRAY.tabs().replace("\n", "\r\n"),
        "".join(f"r1-t01: {line}\n" for line in TRAY.tabs().split("\n")),
        "Welcome to r1-t01\n" + TRAY.tabs() + "WARNING: infoROM is corrupted at gpu 0008:01:00.0\n",
    ],
    ids=["ansi", "plain", "crlf", "pdsh", "noise"],
)
def test_every_dress_of_the_matrix(text):
    """Underlined or not, with carriage returns, a wrapper's prefixes or noise around it: the same matrix."""
    found = matrix(text)
    assert found.gpus == (0, 1, 2, 3)
    assert found.adapters == ("mlx5_0", "mlx5_1", "mlx5_bond_0")
    assert len(found.links) == 12
    assert set(found.links.values()) == {"NV18"}
    assert (found.ways[0, "mlx5_1"], found.ways[2, "mlx5_0"], found.ways[3, "mlx5_bond_0"]) == ("PIX", "SYS", "NODE")
    assert found.cpus == {0: "0-71", 1: "0-71", 2: "72-143", 3: "72-143"}
    assert found.numa == {0: "0", 1: "0", 2: "1", 3: "1"}
    assert found.gpu_numa == {0: 2, 1: 10, 2: 18, 3: 26}


def test_tabs_that_became_blanks():
    """What people paste reads the same, the affinities included."""
    assert matrix(TRAY.blanks()) == matrix(TRAY.tabs())


def test_an_empty_cell_moves_no_other():
    """In a container the CPU affinity may be empty: with tabs and with blanks the NUMA node stays the NUMA node."""
    tray = replace(TRAY, cpus={0: "0-35", 1: "0-35", 2: "", 3: ""}, gpu_numa={})
    for text in (tray.tabs(), tray.blanks()):
        found = matrix(text)
        assert (found.cpus, found.numa, found.gpu_numa) == (
            {0: "0-35", 1: "0-35"},
            {0: "0", 1: "0", 2: "1", 3: "1"},
            {},
        )


def test_grace_sets_and_lists_of_cpus():
    """A NUMA affinity may be a set of nodes, a CPU affinity a list; N/A is neither."""
    tray = replace(TRAY, numa={0: "0,2-17", 1: "N/A"}, cpus={0: "0-63,128-191", 1: "6,14,22,30"})
    found = matrix(tray.tabs())
    assert (found.numa[0], 1 in found.numa) == ("0,2-17", False)
    assert (found.cpus[0], found.cpus[1]) == ("0-63,128-191", "6,14,22,30")


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_columns_by_driver(columns):
    """Up to R4xx there is the CPU alone, then the NUMA node, from 535 on the GPU's own node."""
    old = replace(TRAY, columns=columns)
    for text in (old.tabs(), old.blanks()):
        found = matrix(text)
        assert found.links == matrix(TRAY.tabs()).links
        assert bool(found.gpu_numa) == (columns == 3)
        if columns > 1:
            assert found.numa[2] == "1"
            assert found.cpus[2] == "72-143"


def test_old_drivers_label_adapters_by_name():
    """No legend: the columns carry the names themselves."""
    found = matrix(replace(TRAY, columns=1).tabs(ansi=False, own_names=True))
    assert (found.adapters, found.ways[0, "mlx5_1"]) == (("mlx5_0", "mlx5_1", "mlx5_bond_0"), "PIX")


@pytest.mark.parametrize("count", [26, 34])
def test_many_adapters(count):
    """26 and 34 adapters with names of every fashion; the last one is still itself."""
    fashions = ("mlx5_{}", "mlx5_bond_{}", "ibp{}s0", "rocep1s0f{}", "roceP6p3s{}", "rdmap{}s27", "mlx5_ib{}")
    names = tuple(fashions[k % len(fashions)].format(k) for k in range(count))
    wide = replace(TRAY, nics=names, ways={(3, count - 1): "PXB"})
    for text in (wide.tabs(), wide.blanks()):
        found = matrix(text)
        assert found.adapters == names
        assert len(found.ways) == 4 * count
        assert found.ways[3, names[-1]] == "PXB"


def test_labels_that_run_together_and_headers_that_wrap():
    """Narrow pipes: NIC28NIC29 is two columns, and a header may need several lines."""
    names = tuple(f"mlx5_{k}" for k in range(30))
    wide = replace(TRAY, nics=names)
    expected = matrix(wide.tabs())
    assert matrix(wide.tabs().replace("NIC28\tNIC29", "NIC28NIC29")) == expected
    assert matrix(wide.tabs(ansi=False).replace("\tNIC9\t", "\n\tNIC9\t", 1)) == expected
    assert matrix(wide.tabs(ansi=False).replace("\tCPU Affinity", "\n\tCPU Affinity", 1)) == expected


def test_a_lost_gpu_leaves_a_gap():
    """From 570 on a lost GPU is dropped from rows and columns, and the others keep their numbers."""
    found = matrix(replace(TRAY, gpus=(0, 2, 3)).tabs())
    assert found.gpus == (0, 2, 3)
    assert set(found.links) == {(i, j) for i in (0, 2, 3) for j in (0, 2, 3) if i != j}


def test_links_that_are_down_are_told_by_direction():
    """Fewer links or none at all, and not the same both ways: as printed."""
    odd = replace(TRAY, links={(0, 1): "NV15", (2, 0): "NODE", (0, 2): "PIX"})
    found = matrix(odd.tabs())
    assert (found.links[0, 1], found.links[1, 0], found.links[2, 0], found.links[0, 2]) == (
        "NV15",
        "NV18",
        "NODE",
        "PIX",
    )


def test_sixteen_gpus():
    found = matrix(Matrix(gpus=tuple(range(16)), nvlinks=6, columns=1).tabs())
    assert len(found.links) == 240
    assert found.links[15, 0] == "NV6"


@pytest.mark.parametrize("before", ["", TRAY.tabs().split("\n")[0] + "\n"], ids=["alone", "after-the-header"])
def test_failed_to_run(before):
    """A lost GPU on 535, no GPU, a SoftiWARP device; R615 prints the header first. Never an empty matrix."""
    assert read(before + FAILED, 255).why == "nvidia-smi: Failed to run topology matrix"


def test_a_matrix_that_is_none():
    """A peer-to-peer table, a row without its cells, a header alone: none of them is a matrix."""
    p2p = " \tGPU0\tGPU1\t\n GPU0\tX\tGNS\t\n GPU1\tGNS\tX\t\n"
    assert read(p2p).broken
    assert read("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \n").why == "the matrix has no rows"
    assert read("\tGPU0\tGPU1\tCPU Affinity\nGPU0\tERR!\tERR!\t0\n").broken
    assert "No devices were found" in read("No devices were found\n", 6).why
    assert topology.PROBE.read({}).why == "not saved"
    assert read("", 127, "driver absent\npci_gpus 0\n").state == "absent"
    assert "limit" in topology.PROBE.read({topology.NAME: Output(exit_code=124, ms=60000)}).why


@given(st.text(alphabet=st.sampled_from("GPUNIC0123 X\tVSYODE\n:mlx5_\x1b[4m/A-,CAffinity"), max_size=400))
def test_any_text_gives_a_reading(text):
    """The parser is total, also on text made of its own letters."""
    for noisy in (text, TRAY.tabs()[: len(text) * 3] + text + TRAY.tabs()[len(text) * 3 :]):
        reading = read(noisy)
        assert "understood" not in reading.why
        if reading.ok:
            assert set(reading.value.links) <= {(i, j) for i in reading.value.gpus for j in reading.value.gpus}


# --- nvlink -s --------------------------------------------------------------------------------------------------


def read_links(text: str, code: int = 0, system: str = ""):
    return links_probe.PROBE.read(
        {links_probe.NAME: Output(stdout=text, exit_code=code), "system": Output(stdout=system)}
    )


@pytest.mark.parametrize("speed", ["25", "25.781", "26.562", "50", "53.125"])
@pytest.mark.parametrize("indent", ["\t ", "         "])
def test_speeds(speed, indent):
    """Every speed that has been seen, after a tab or after blanks."""
    found = read_links(links(4, (speed,) * 18, indent=indent)).value
    assert [(g.index, g.active, set(g.speeds), g.why) for g in found] == [(i, 18, {float(speed)}, "") for i in range(4)]
    assert found[3].uuid == "GPU-11111111-2222-3333-4444-000000000003"


def test_inactive_links_keep_their_places():
    """H100 NVL has six of eighteen inactive by design: they are told, not judged."""
    found = read_links(links(1, ("26.562",) * 12 + ("",) * 6, "NVIDIA H100 NVL")).value
    assert (found[0].active, len(found[0].speeds), found[0].speeds[12]) == (12, 18, None)


@pytest.mark.parametrize(
    "words",
    [
        "Device does not have or support Nvlink",
        "NVML: Unable to retrieve Nvlink information as all links are inActive",
        "Nvlink queries are not supported for Devices in MIG mode",
    ],
)
def test_words_in_place_of_links(words):
    """A card without links says why, in words that stand in the reading."""
    (gpu,) = read_links(in_words(words)).value
    assert (gpu.speeds, gpu.why) == ((), words)


def test_links_up_to_the_error():
    """R510 stops in the middle: what it said stands, with its words."""
    (gpu,) = read_links(links(1, ("53.125",) * 12) + "NVML: Invalid NvLink ID for link 12: Invalid Argument\n").value
    assert (gpu.active, gpu.why) == (12, "NVML: Invalid NvLink ID for link 12: Invalid Argument")


def test_no_links_at_all():
    """A card without NVLink may print nothing and end well; a lost GPU's message is a failure."""
    assert read_links("").state == "absent"
    lost = "Unable to determine the device handle for GPU1: 0009:01:00.0: GPU is lost.  Reboot the system\n"
    assert "GPU is lost" in read_links(lost, 15).why
    assert read_links("", 255).broken
    assert links_probe.PROBE.read({links_probe.NAME: NOT_SAVED}).why == "not saved"


@given(st.text(alphabet=st.sampled_from("GPU 0123:(UID)Link.<inactve>/Bs\n\t"), max_size=300))
def test_any_links_give_a_reading(text):
    reading = read_links(links(2, ("50", "", "50")) + text)
    assert "understood" not in reading.why
    assert all(len(g.speeds) <= 64 for g in reading.value)


# --- nearest ----------------------------------------------------------------------------------------------------


def host(one: str, topo: Topology | None, numa: dict[int, int], adapters: dict[str, int]):
    """A tray or a board with adapters on NUMA nodes."""
    made = next(iter((fx.rack(1) if one == "tray" else fx.hgx(1)).values()))
    report = made.gpus.value
    cards = tuple(replace(g, numa_node=numa.get(g.index)) for g in report.gpus)
    hcas = tuple(replace(fx.ib_hcas(1)[0], name=n, numa_node=node) for n, node in adapters.items())
    return replace(
        made,
        gpus=ok(replace(report, gpus=cards)),
        hcas=ok(hcas),
        topology=ok(topo) if topo else broken("not asked"),
    )


def test_on_a_board_the_way_decides():
    """PIX before PXB before NODE; only adapters that carry compute traffic."""
    topo = matrix(
        Matrix((0, 1), ("mlx5_0", "mlx5_1", "eth9"), ways={(0, 0): "PXB", (0, 2): "PIX", (1, 1): "PIX"}).tabs()
    )
    found = nearest(host("board", topo, {}, {"mlx5_0": 0, "mlx5_1": 1}))
    assert found[0] == Nearest(("mlx5_0",), "PXB")
    assert found[1] == Nearest(("mlx5_1",), "PIX")


def test_on_grace_the_cpu_decides():
    """The matrix says NODE or SYS of all adapters; those on the GPU's own CPU are near."""
    topo = matrix(Matrix(nics=("a", "b"), numa={0: "0", 1: "0", 2: "1", 3: "1"}).tabs())
    adapters = {"a": 0, "b": 1}
    assert nearest(host("tray", topo, {0: 0, 1: 0, 2: 1, 3: 1}, adapters))[2] == Nearest(("b",), "same CPU")
    assert nearest(host("tray", topo, {}, adapters))[3] == Nearest(("b",), "same CPU")  # the matrix knows the node too
    assert nearest(host("tray", None, {0: 0}, {"b": 1}))[0] == Nearest(("b",), "other CPU")
    unknown = nearest(host("tray", replace(topo, numa={}), {}, adapters))
    assert unknown[0] == Nearest(("a", "b"), "NODE")


def test_nothing_known_is_nothing_near():
    """Without matrix and NUMA nodes no adapter is near; on a board an adapter of another node is not either."""
    assert nearest(host("board", None, {}, {"mlx5_0": 0})) == {}
    assert nearest(host("board", None, {0: 0}, {"mlx5_0": 1})) == {}
    assert nearest(host("board", None, {0: 0}, {"mlx5_0": 0}))[0] == Nearest(("mlx5_0",), "same NUMA node")
    assert nearest(fx.unreachable(fx.rack(1)["r1-t01"])) == {}
