"""Layouts beside the usual ones: vGPU hosts, lists with their header, ibstat in the place of sysfs, old folders."""

from __future__ import annotations

import pytest
import smi
from hypothesis import given
from hypothesis import strategies as st
from smi_matrix import Matrix

from llmgwctl.model.host import Host
from llmgwctl.probe import PROBES, assemble, gpus, hcas, topology
from llmgwctl.probe.base import Output
from llmgwctl.probe.ibstat import read_ibstat
from llmgwctl.probe.smi_csv import read_csv
from llmgwctl.transport.replay import Replay

# --- the report -------------------------------------------------------------------------------------------------


def report(text: str):
    reading = gpus.PROBE.read({"nvidia-smi-q": Output(text)})
    assert reading.ok, reading.why
    return reading.value


def test_a_vgpu_host_has_a_section_before_its_gpus():
    """The header of a vGPU host has a nested section, which changes nothing below it."""
    nested = "vGPU Driver Capability\n    Heterogenous Multi-vGPU              : Supported\n\nAttached GPUs"
    plain = smi.text("580.82", smi.trays())
    assert report(plain.replace("Attached GPUs", nested)) == report(plain)


def test_a_cuda_version_that_is_not_found():
    assert report(smi.text("580.82", smi.trays()).replace(": 13.0", ": Not Found")).cuda is None


def test_the_driver_of_a_deprecating_release():
    """R610 cuts a suffix off; where the old key is gone the new one tells."""
    text = smi.text("610.57", smi.trays())
    assert "Deprecated" in text
    assert report(text).driver == "610.57"
    without = "\n".join(line for line in text.split("\n") if not line.startswith(("Driver Version", "CUDA Version")))
    assert (report(without).driver, report(without).cuda) == ("610.57", "13.0")


@pytest.mark.parametrize("driver", ["525.125", "560.35", "565.57", "575.51", "580.105", "580.178", "595.58"])
def test_releases_between_the_fixtures(driver):
    """What is printed is read, whatever the number is."""
    found = report(smi.text(driver, smi.trays()))
    assert found.all_readable
    assert found.gpus[0].fabric.joined == (None if driver < "550" else True)


def test_the_drawn_table_says_what_is_wanted():
    table = "Fri Jan  2 03:04:05 2026\n+----+\n| NVIDIA-SMI 580.82   Driver Version: 580.82   |\n+----+\n"
    assert "`nvidia-smi -q`" in gpus.PROBE.read({"nvidia-smi-q": Output(table)}).why


# --- csv --------------------------------------------------------------------------------------------------------


def test_a_list_with_its_header_gives_the_numbers():
    """As people save it: with a header, in any order of columns, with more of them."""
    cards = smi.trays()
    rows = "".join(f"{c.uuid}, {c.name}, {c.place}, 10.0\n" for c in cards)
    outputs = {
        "nvidia-smi-q": Output(smi.text("580.126", cards)),
        gpus.QUERY: Output("uuid, name, index, compute_cap\n" + rows),
    }
    found = gpus.PROBE.read(outputs).value
    assert [g.compute_cap for g in found.gpus] == ["10.0"] * 4
    assert found.notes == ()


@pytest.mark.parametrize(("driver", "prefix"), [("535", True), ("550", True), ("570", True), ("580", False)])
def test_the_name_before_the_value(driver, prefix):
    """R535 to R570 print `state  Completed`; only fields of the fabric lose such a word."""
    state, status = ("state  Completed", "status Success") if prefix else ("Completed", "Success")
    text = f"index, name, fabric.state, fabric.status, memory.used [MiB]\n0, state of art, {state}, {status}, 4 MiB\n"
    assert read_csv(text) == [
        {
            "index": "0",
            "name": "state of art",
            "fabric.state": "Completed",
            "fabric.status": "Success",
            "memory.used": "4 MiB",
        }
    ]


def test_what_says_nothing_and_what_failed():
    """[N/A] and its relatives are nothing; error text stays to be seen; noise and short rows are passed over."""
    rows = "index, uuid, fabric.state\n0, [N/A], N/A\nnoise\n1, GPU-x, [GPU is lost]\n"
    text = f"Unable to determine the device handle\n{rows}"
    assert read_csv(text) == [
        {"index": "0", "uuid": None, "fabric.state": None},
        {"index": "1", "uuid": "GPU-x", "fabric.state": "[GPU is lost]"},
    ]
    assert read_csv('Field "fabric.cliqueId" is not a valid field to query.\n\n') == []


@given(st.text(alphabet=st.sampled_from('index, uuid.fabric[]"\n\r0\0'), max_size=200))
def test_any_list_can_be_read(text):
    assert all(isinstance(row, dict) for row in read_csv("index, uuid\n" + text))


# --- ibstat -----------------------------------------------------------------------------------------------------

IBSTAT = """CA 'mlx5_0'
\tCA type: MT4129
\tNumber of ports: 1
\tFirmware version: 28.43.2026
\tNode GUID: 0xa088c20300ab0001
\tSystem image GUID: 0xa088c20300ab0001
\tPort 1:
\t\tState: Active
\t\tPhysical state: LinkUp
\t\tRate: 400
\t\tBase lid: 26
\t\tSM lid: 1
\t\tLink layer: InfiniBand
CA 'mlx5_bond_0'
\tCA type: MT41692
\tPort 1:
\t\tState: Down
\t\tPhysical state: Polling
\t\tRate: 40
\t\tLink layer: Ethernet
ibpanic: [77] main: stat of IB device 'mlx5_8' failed: No such file or directory
"""
IBSTATUS = """Infiniband device 'ibp3s0' port 1 status:
\tdefault gid:\t fe80:0000:0000:0000:a088:c203:00ab:0001
\tbase lid:\t 0x1a
\tsm lid:\t\t 0x1
\tstate:\t\t 2: INIT
\tphys state:\t 5: LinkUp
\trate:\t\t 400 Gb/sec (4X NDR)
\tlink_layer:\t InfiniBand
"""


@pytest.mark.parametrize("indent", ["\t", "        "])
def test_ibstat(indent):
    """With tabs or blanks, and as far as it got before it broke off."""
    said = Output(IBSTAT.replace("\t", indent), exit_code=255)
    one, bond = hcas.PROBE.read({"hcas": said}).value
    assert (one.name, one.hca_type, one.firmware, one.node_guid) == (
        "mlx5_0",
        "MT4129",
        "28.43.2026",
        "a088:c203:00ab:0001",
    )
    (port,) = one.ports
    assert (port.state, port.active, port.phys_state, port.rate_gbps) == ("ACTIVE", True, "LinkUp", 400)
    assert (port.lid, port.sm_lid, port.link_layer) == (26, 1, "InfiniBand")
    assert (bond.bonded, bond.ports[0].state, bond.ports[0].phys_state) == (True, "DOWN", "Polling")


def test_ibstatus():
    """The words of sysfs, and the subnet's prefix."""
    (hca,) = read_ibstat(IBSTATUS)
    (port,) = hca.ports
    assert (hca.name, port.state, port.phys_state, port.rate_gbps, port.lid) == ("ibp3s0", "INIT", "LinkUp", 400, 26)
    assert port.subnet_prefix == "fe80:0000:0000:0000"


@given(st.text(alphabet=st.sampled_from("CA'mlx5_0 Port1:\t\nState:ActvRe4"), max_size=200))
def test_any_ibstat_can_be_read(text):
    assert "understood" not in hcas.PROBE.read({"hcas": Output(IBSTAT + text)}).why


# --- topo -------------------------------------------------------------------------------------------------------


def test_legends_that_tell_more():
    """R610's legend has the network device, the PCI address and the slot behind the name, R590 data-direct devices."""
    text = Matrix(nics=("mlx5_0", "mlx5_0_dma")).tabs()
    richer = text.replace("NIC0: mlx5_0\n", "NIC0: mlx5_0 (eth2, 0003:01:00.0, SLOT 4)\n")
    assert richer != text
    assert topology.read_matrix(richer) == topology.read_matrix(text)
    assert topology.read_matrix(text).adapters == ("mlx5_0", "mlx5_0_dma")


def test_a_legend_with_a_line_missing():
    """An adapter without its line goes by its label."""
    text = Matrix(nics=("mlx5_0", "mlx5_1")).tabs().replace("  NIC1: mlx5_1\n", "")
    assert topology.read_matrix(text).adapters == ("mlx5_0", "NIC1")


# --- folders that people have -----------------------------------------------------------------------------------


async def facts_of(directory, name: str):
    """As a replay reads it."""
    replay = Replay(directory)
    host = next(h for h in replay.hosts() if h.name == name)
    sections = [s for p in PROBES for s in p.sections]
    return assemble(host, await replay.read(host, sections), 0.0, 0.0)


async def test_a_folder_of_files_with_their_own_names(tmp_path):
    """The report as XML, ibstat, a CSV list: each is found by its name, and the rest is broken, not absent."""
    folder = tmp_path / "node-7"
    folder.mkdir()
    cards = smi.trays()
    (folder / "nvidia-smi-q.xml").write_text(smi.xml("580.126", cards))
    (folder / "ibstat.txt").write_text(IBSTAT)
    (folder / "nvidia-smi-query-gpu.csv").write_text("index, uuid, compute_cap\n" + smi.query(cards))
    facts = await facts_of(tmp_path, "node-7")
    assert [g.compute_cap for g in facts.gpus.value.gpus] == ["10.0"] * 4
    assert [h.name for h in facts.hcas.value] == ["mlx5_0", "mlx5_bond_0"]
    for name in ("system", "imex", "network", "topology", "links", "kernel_log", "versions", "clock"):
        assert getattr(facts, name).broken, name
        assert "not saved" in getattr(facts, name).why


async def test_one_folder_of_files_named_after_hosts(tmp_path):
    """HOST.txt and HOST.xml hold what nvidia-smi -q said, and each is a host."""
    (tmp_path / "a-01.txt").write_text(smi.text("590.48", smi.trays()))
    (tmp_path / "a-02.xml").write_text(smi.xml("615.71", smi.trays()))
    for name, driver in (("a-01", "590.48"), ("a-02", "615.71")):
        facts = await facts_of(tmp_path, name)
        assert facts.gpus.value.driver == driver
        assert facts.gpus.value.gpus[0].fabric.joined
        assert facts.hcas.why == "not saved"


def test_an_empty_folder_of_a_host_is_no_healthy_host():
    """Nothing saved: every reading is broken."""
    facts = assemble(Host("x"), {}, 0.0, 0.0)
    assert all(getattr(facts, p.field).broken for p in PROBES)
