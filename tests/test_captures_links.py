"""Real topology matrices, links, CSV and InfiniBand outputs, read where they are at hand: what each of them says."""

from __future__ import annotations

import csv
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from captures import CAPTURES, each, files, needed, text, version

from llmgwctl.model.gpu import ZERO_UUID
from llmgwctl.model.topology import Topology
from llmgwctl.probe import gpus, hcas, links, topology
from llmgwctl.probe.base import Output
from llmgwctl.probe.smi_csv import read_csv
from llmgwctl.probe.smi_gpu import GPU_UUID

pytestmark = needed


def matrix(path: Path) -> Topology:
    reading = topology.PROBE.read({topology.NAME: Output(text(path))})
    assert reading.ok, reading.why
    return reading.value


def test_the_captures_are_really_read():
    counts = {p: len(files(p)) for p in ("topo/mock-nvml/*", "nvlink/mock-nvml/*_s_*", "csv/mock-nvml/*", "ib/gpud_*")}
    assert all(n > 8 for n in counts.values()), counts


# --- topo -------------------------------------------------------------------------------------------------------

EXCERPTS = {  # rows, GPUs, adapters, a cell between GPUs, a way, an affinity: as a person reads them there
    "aiconfigurator_gb200_6nic": (4, 4, 6, ((0, 3), "NV18"), ((2, "mlx5_5"), "NODE"), {0: "0-35", 1: "0-35"}, {2: "1"}),
    "aws_a10g_pix": (2, 2, 0, ((0, 1), "PIX"), None, {0: "0-47", 1: "0-47"}, {1: "0"}),
    "gb10_dgx-spark": (1, 1, 4, None, ((0, "NIC3"), "NODE"), {0: "0-19"}, {0: "0"}),
    "h100_12nic_tabs": (2, 8, 12, ((1, 7), "NV18"), ((1, "NIC3"), "PXB"), {0: "0-55,112-167"}, {1: "0"}),
    "k8s-test-infra371": (4, 4, 0, ((3, 0), "NV18"), None, {0: "0-71", 3: "72-143"}, {2: "1"}),
    "nccl-tests78_dgx2": (3, 16, 10, ((0, 15), "NV6"), ((2, "mlx5_1"), "PIX"), {0: "0-23,48-71"}, {}),
    "nccl1343_a40": (4, 8, 2, ((4, 5), "NV4"), ((2, "NIC0"), "PIX"), {4: "96-191"}, {4: "1"}),
    "nccl1505_dgx-a100": (3, 8, 12, ((2, 7), "NV12"), ((2, "NIC3"), "PXB"), {0: "48-63,176-191"}, {0: "3"}),
    "nccl1617_4xh100": (4, 4, 4, ((3, 2), "NV6"), ((2, "NIC2"), "PIX"), {0: "6,14,22,30"}, {2: "7"}),
    "nccl933_8gpu": (2, 8, 9, ((4, 0), "NV8"), ((4, "NIC1"), "PIX"), {4: "48-95,144-191"}, {4: "1"}),
    "sglang_b300": (8, 8, 9, ((7, 0), "NV18"), ((6, "NIC6"), "PXB"), {7: "64-127,192-255"}, {7: "1"}),
    "topo_mp_h100": (3, 8, 12, ((0, 1), "NODE"), ((4, "NIC8"), "PIX"), {0: "0,2,4,6,8,10"}, {4: "1"}),
    "vllm16997_h20": (2, 8, 26, ((1, 0), "NV18"), ((1, "NIC21"), "PIX"), {0: "0-95,192-287"}, {0: "0"}),
}


@pytest.mark.parametrize("name", EXCERPTS)
def test_published_matrices(name):
    """Thirteen machines: GPUs and adapters, a cell of each kind, and the affinities where they are not empty."""
    rows, count, adapters, cell, way, cpus, numa = EXCERPTS[name]
    found = matrix(next(iter(files(f"topo/{name}*"))))
    assert (len(found.gpus), len(found.adapters)) == (count, adapters)
    assert len({i for i, _ in found.links} | set(found.cpus)) == rows
    if cell:
        assert found.links[cell[0]] == cell[1]
    if way:
        assert found.ways[way[0]] == way[1]
    assert {i: found.cpus.get(i) for i in cpus} == cpus
    assert {i: found.numa.get(i) for i in numa} == numa
    if name.startswith("aiconfigurator"):
        assert 2 not in found.cpus  # an empty cell, and the next column stays where it is


def test_what_is_no_matrix():
    """Rows without a header, a peer-to-peer table, the words of an issue: nothing is guessed."""
    for name in ("vllm16336_b200", "topo_p2p_rw_5090", "help_topo_550", "help_topo_615"):
        path = next(iter(files(f"topo/{name}*")))
        assert topology.PROBE.read({topology.NAME: Output(text(path))}).broken, name
    issue = text(next(iter(files("topo/NVSentinel1485*"))))
    assert "Failed to run" in topology.PROBE.read({topology.NAME: Output(issue, exit_code=255)}).why


@each("topo/exporter_*")
def test_contributed_machines(path):
    """One card each: itself, and the CPUs beside it. Windows had no such option, and then knows no CPUs."""
    if "windows" in path.name and version(path.name.split("__")[2]) < (600, 0):
        reading = topology.PROBE.read({topology.NAME: Output(text(path), exit_code=255)})
        assert "Option -m is missing its value" in reading.why
        return
    found = matrix(path)
    assert (found.gpus, found.adapters, found.links) == ((0,), (), {})
    assert (0 in found.cpus) == ("linux" in path.name)
    assert not found.gpu_numa


@each("topo/mock-nvml/*")
def test_matrices_per_driver(path):
    """The same machines by thirteen drivers; 615 fails on this library, with its header printed first."""
    reading = topology.PROBE.read({topology.NAME: Output(text(path))})
    driver, card = version(path.name), path.stem.split("_")[3]
    if driver >= (615, 0) and card != "gb200x1":
        assert reading.why == "nvidia-smi: Failed to run topology matrix"
        return
    found = reading.value
    count = {"a100": 8, "h100": 8, "gb200x1": 1}.get(card, 4)
    assert found.gpus == tuple(range(count))
    assert len(found.links) == count * (count - 1)
    cells = Counter(cell for (i, _), cell in found.links.items() if i > 0)
    usual = "NV12" if card == "a100" else "PIX" if driver < (535, 0) else "NV18"
    if card == "inactive-all":
        assert {found.links[0, j] for j in (1, 2, 3)} == {"PIX"} == {found.links[1, 0]}
        assert found.links[2, 0] == "NV18"  # and not the same both ways
    elif card == "inactive-some":
        assert {found.links[0, j] for j in (1, 2, 3)} == {"NV15"}
        assert set(cells) == {"NV18"}
    else:
        assert set(found.links.values()) == ({usual} if count > 1 else set())
    assert found.numa[count - 1] == ("0" if count == 1 else "1")
    assert (0 in found.gpu_numa) == (driver >= (535, 0))


@each("failures/mock-nvml/*_topo__m.out")
def test_the_matrix_with_a_bad_gpu(path):
    """Up to 550 there is none; from 570 on the bad one is left out and the others keep their numbers."""
    code = int(re.findall(r"\[rc=(\d+)\]", text(path.with_suffix(".err")))[0])
    reading = topology.PROBE.read({topology.NAME: Output(text(path), exit_code=code)})
    if code:
        assert reading.why == "nvidia-smi: Failed to run topology matrix"
        return
    gone = () if path.name.startswith("body-lost") else (1,)
    assert reading.value.gpus == tuple(i for i in range(4) if i not in gone)
    assert set(reading.value.links.values()) == {"NV18"}


# --- nvlink -----------------------------------------------------------------------------------------------------


def read_links(body: str, code: int = 0):
    return links.PROBE.read({links.NAME: Output(body, exit_code=code)})


LINKS = {  # what stands there: GPUs, active of all links of the first, its speed, words in place of links
    "azhpc-diagnostics73": (1, 4, 6, 25.781, ""),
    "exporter_linux-x86_64__nvidia-h100-80gb": (1, 18, 18, 26.562, ""),
    "exporter_linux-x86_64__nvidia-h200__": (1, 18, 18, 26.562, ""),
    "exporter_linux-x86_64__nvidia-h100-mig": (
        1,
        0,
        0,
        None,
        "Nvlink queries are not supported for Devices in MIG mode",
    ),
    "exporter_linux-x86_64__nvidia-h200-mig": (
        1,
        0,
        0,
        None,
        "Nvlink queries are not supported for Devices in MIG mode",
    ),
    "exporter_linux-x86_64__nvidia-l40s": (1, 0, 0, None, "Device does not have or support Nvlink"),
    "exporter_linux-x86_64__nvidia-geforce-rtx-4080": (1, 0, 0, None, "Device does not have or support Nvlink"),
    "gpud_nvidia-smi.nvlink.status.a100": (8, 12, 12, 25.0, ""),
    "nvbandwidth44": (1, 12, 12, 50.0, ""),
}


@pytest.mark.parametrize("name", LINKS)
def test_published_links(name):
    count, active, total, speed, why = LINKS[name]
    body = text(next(iter(files(f"nvlink/{name}*")))).replace("\n...\n", "\n").replace("\n....\n", "\n")
    found = read_links(body).value
    assert (len(found), found[0].active, len(found[0].speeds), found[0].why) == (count, active, total, why)
    assert {s for s in found[0].speeds if s is not None} == ({speed} if speed else set())


def test_cards_without_links():
    """2080s of both systems say that all are inactive; an A10 prints nothing and ends well; -info is no -s."""
    for path in files("nvlink/exporter_*2080*"):
        (gpu,) = read_links(text(path)).value
        assert (gpu.active, "all links are inActive" in gpu.why) == (0, True)
    assert read_links(text(CAPTURES / "nvlink/gpud_nvidia-smi.nvlink.status.a10")).state == "absent"
    tray = read_links(text(next(iter(files("nvlink/k8s-test-infra371*")))).split("...")[0]).value
    assert [(g.index, g.active) for g in tray] == [(0, 18), (1, 2)]  # the excerpt ends there
    for path in files("nvlink/help_*"):
        assert read_links(text(path)).broken


@each("nvlink/mock-nvml/nvlink_s_*")
def test_links_per_driver(path):
    """Four GPUs of a tray at 53.125, eight H100 at 26.562; 510 stops at its twelfth link; inactive ones are told."""
    driver, card = version(path.name), path.stem.split("_")[3]
    reading = read_links(text(path))
    if card == "l40s":  # words from 595 on, nothing before
        assert reading.ok == (driver >= (595, 0))
        assert all("not have or support" in g.why for g in reading.value or ())
        return
    found = reading.value
    if driver < (535, 0):
        assert (len(found), found[0].active, "Invalid NvLink ID" in found[0].why) == (1, 12, True)
        return
    if card == "inactive-all":  # on this library a GPU without an active link is passed over, or says so
        assert [g.active for g in found if g.index] == [18, 18, 18]
        assert all(g.active == 0 and g.why for g in found if not g.index)
        return
    assert [g.index for g in found] == list(range(8 if card == "h100" else 4))
    speeds = {s for g in found for s in g.speeds if s is not None}
    assert speeds == {26.562 if card == "h100" else 53.125}
    assert {g.active for g in found[1:]} == {18}
    assert found[0].active == (13 if card == "inactive-some" else 18)
    if card == "inactive-some":
        assert [n for n, speed in enumerate(found[0].speeds) if speed is None] == [3, 5]


@each("nvlink/mock-nvml/nvlink_e_*")
def test_error_counters_are_no_speeds(path):
    """`-e` is not asked for; where it was saved in its place, no link is made of it."""
    reading = read_links(text(path))
    assert not reading.ok or all(g.speeds == () and g.why for g in reading.value)


@each("failures/mock-nvml/*_nvlink__s.out")
def test_links_with_a_bad_gpu(path):
    """Up to 550 the words alone; from 570 on the other three are there."""
    err = text(path.with_suffix(".err"))
    code = int(re.findall(r"\[rc=(\d+)\]", err)[0])
    reading = read_links(text(path), code)
    if not reading.ok:
        assert reading.why
        assert version(path.name) < (570, 0)
        return
    whole = [g for g in reading.value if g.active == 18]
    assert len(whole) == (4 if path.name.startswith("body-lost") else 3)


# --- csv --------------------------------------------------------------------------------------------------------


@each("csv/exporter_*_query_gpu.csv")
def test_contributed_csv(path):
    """The card, its driver and its memory as numbers; a fabric of zeros on H100 and H200, none elsewhere."""
    (row,) = read_csv(text(path))
    assert row["driver_version"] == path.name.split("__")[2] or row["kmd_version"] == path.name.split("__")[2]
    assert re.fullmatch(r"\d+ MiB", row["memory.total"] or "")
    hopper = re.search("h[12]00", path.name) is not None
    assert row["fabric.state"] == ("Completed" if hopper else None)
    assert row["fabric.clusterUuid"] == (ZERO_UUID if hopper else None)
    assert GPU_UUID.fullmatch(row["uuid"] or "")


STATES = ("Completed", "Not Started", "In Progress", None, "Completed", "Completed", "Completed", "Completed")


@each("csv/mock-nvml/query_*.csv")
def test_fabric_csv_per_driver(path):
    """Up to 570 the name stands before the value, and the domain cannot be asked: one unknown field ends it all."""
    body, driver = text(path), version(path.name)
    asked = path.name.split("_")[1]
    if (asked == "fabric2" and driver < (535, 0)) or (asked == "fabric" and driver < (580, 0)):
        assert read_csv(body) == []
        return
    rows = read_csv(body)
    assert tuple(r["fabric.state"] for r in rows) == STATES
    if asked == "fabric":
        found = [(r["fabric.cliqueId"], r["fabric.health.summary"], r["fabric.health.bandwidth"]) for r in rows]
        summary = None if driver < (580, 126) else "Limited Capacity"  # that one reads the wrong structure
        assert found[4] == ("32766", summary, "Degraded")
        assert found[1] == (None, None, None)
        assert len({r["fabric.clusterUuid"] for r in rows}) == 2  # one, and none
    if asked == "cliques":
        assert rows[0]["fabric.cliques.entries"] == "Unicast Pointer:2 | Multicast Pointer:32766"


@each("csv/**/*L*.txt")
def test_lists_of_gpus(path):
    """`-L` has the GPUs of `nvlink -s` without their links: numbers and UUIDs."""
    if not re.search(r"(^|_)L(_|\.)", path.name):
        pytest.skip("another listing")
    found = read_links(text(path)).value
    assert [g.index for g in found] == list(range(len(found)))
    assert len(found) == (4 if "gb200x4" in path.name else 1)
    assert all(GPU_UUID.fullmatch(g.uuid) for g in found)


@pytest.mark.parametrize("path", [*files("csv/*_default_table.txt"), *files("csv/gpud_*")], ids=lambda p: p.name)
def test_the_drawn_table_is_not_the_report(path):
    """Saved in place of `nvidia-smi -q`, it says which command is wanted."""
    assert "`nvidia-smi -q`" in gpus.PROBE.read({"nvidia-smi-q": Output(text(path))}).why


@pytest.mark.parametrize(
    "path", [*files("csv/*__version.txt"), *files("csv/mock-nvml/version_*")], ids=lambda p: p.name
)
def test_version_texts(path):
    """`--version` is not the report either; before 550 it does not exist."""
    reading = gpus.PROBE.read({"nvidia-smi-q": Output(text(path))})
    assert reading.broken
    known = "NVIDIA-SMI version" in reading.why
    assert known == ("mock" not in str(path.parent) or version(path.name) >= (550, 0))


@each("csv/**/help_query_gpu*.txt")
def test_which_fields_a_driver_knows(path):
    """Why the report is read and not the CSV: state and status from 535 on, the domain from 580 on."""
    known = set(re.findall(r'^"(fabric\.[A-Za-z_.]+)"', text(path), re.M))
    driver = version(path.name)
    assert ("fabric.state" in known) == (driver >= (535, 0))
    assert ("fabric.cliqueId" in known) == (driver >= (580, 0))
    assert ("fabric.cliques.count" in known) == (driver >= (615, 0))


@each("failures/mock-nvml/*___query_gpu_in.out")
def test_csv_with_a_bad_gpu(path):
    """Nothing up to 550, else three rows whose numbers have a gap, or a row of error text."""
    rows = read_csv(text(path))
    if path.name.startswith("body-lost"):
        assert [r["index"] for r in rows if r["index"] != "[GPU is lost]"]
        assert any("lost" in (v or "") for r in rows for v in r.values())
    elif version(path.name) < (570, 0) and "rc6" not in path.name:
        assert rows == []
    else:
        assert [r["index"] for r in rows] == ["0", "2", "3"]


@each("failures/mock-nvml/*__L.out")
def test_lists_with_a_bad_gpu(path):
    """-L lists the rest, whatever its exit code."""
    found = read_links(text(path))
    named = [g.index for g in found.value or ()]
    assert named in ([0, 1, 2, 3], [0, 2, 3]), named


@each("failures/mock-nvml/*_table.out")
def test_tables_with_a_bad_gpu(path):
    assert gpus.PROBE.read({"nvidia-smi-q": Output(text(path))}).broken


def test_no_devices():
    """No GPU at all, by command and driver: broken with the words, never an empty machine."""
    for line in text(CAPTURES / "failures/mock_no-devices.txt").splitlines():
        found = re.match(r"(\S+) '([^']+)' rc=(\d+) out=<([^>]*)>", line)
        assert found is not None
        said = Output(found[4].replace("|", "\n"), exit_code=int(found[3]))
        probe = {"-q": gpus, "topo -m": topology, "nvlink -s": links}.get(found[2])
        if probe is not None:
            name = probe.SECTIONS[0].name
            assert probe.PROBE.read({name: said}).broken, line


def test_messages_of_the_field():
    """Every known form of "unable to determine the device handle" is an error line of the report."""
    from llmgwctl.probe.smi_text import error_lines

    body = text(CAPTURES / "failures/messages_found_in_the_wild.txt")
    said = [line for line in body.splitlines() if re.match(r"Unable to de\w+ the device handle", line)]
    assert len(said) >= 7
    assert all(error_lines(line) for line in said)


# --- InfiniBand -------------------------------------------------------------------------------------------------

IBSTAT = {  # adapters, active ones, on InfiniBand, a rate that is there
    "gpud_ibstat.39.0.a100.failed.ibpanic.exit-255.0": (8, 8, 8, 200),
    "gpud_ibstat.47.0.a100.all.active.0": (9, 9, 8, 200),
    "gpud_ibstat.47.0.all.active.0": (12, 12, 0, 400),
    "gpud_ibstat.47.0.all.active.1": (12, 12, 0, 400),
    "gpud_ibstat.47.0.h100.all.active.1": (12, 12, 0, 400),
    "gpud_ibstat.47.0.h100.all.active.2": (9, 9, 8, 400),
    "gpud_ibstat.47.0.h100.some.down.with.polling.1": (12, 10, 0, 400),
    "gpud_ibstat.47.0.some.down.0": (12, 9, 8, 400),
    "gpud_ibstat.47.0.some.down.1": (12, 10, 0, 400),
    "gpud_ibstatus.39.0.a100.all.active.0": (9, 9, 8, 200),
    "nccl1866_ibstatus_roce_excerpt.txt": (2, 2, 0, 100),
}


@pytest.mark.parametrize("name", IBSTAT)
def test_adapters_as_ibstat_lists_them(name):
    """Also when it ends in a panic after eight good ones: states, link layers and rates."""
    found = hcas.PROBE.read(
        {"hcas": Output(text(CAPTURES / "ib" / name), exit_code=255 if "panic" in name else 0)}
    ).value
    total, active, infiniband, rate = IBSTAT[name]
    ports = [p for h in found for p in h.ports]
    assert (len(found), sum(p.active for p in ports)) == (total, active)
    assert sum(p.link_layer == "InfiniBand" for p in ports) == infiniband
    assert rate in {p.rate_gbps for p in ports}
    assert {p.state for p in ports} <= {"ACTIVE", "DOWN", "INIT"}
    if "polling" in name:
        assert "Polling" in {p.phys_state for p in ports}
    if "ibstatus" in name:
        assert all(p.subnet_prefix == "fe80:0000:0000:0000" for p in ports if p.link_layer == "InfiniBand")


@pytest.mark.parametrize("shell", ["sh"])
def test_the_sysfs_of_a_real_node(tmp_path, shell):
    """The script on a real H100 node's tree: nine adapters, firmware, states, rates, link layers."""
    tree = CAPTURES / "ib/gpud_sys-class-infiniband-h100/sys-class-infiniband-h100.0"
    (tmp_path / "sys/class").mkdir(parents=True)
    (tmp_path / "sys/class/infiniband").symlink_to(tree.resolve())
    argv = [shell, "-c", hcas.SECTIONS[0].body(), "hcas", str(tmp_path), ""]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    found = hcas.PROBE.read({"hcas": Output(said)}).value
    assert sorted(h.name for h in found) == sorted(p.name for p in tree.iterdir())
    for hca in found:
        (port,) = hca.ports
        home = tree / hca.name
        assert hca.firmware == (home / "fw_ver").read_text().strip()
        assert port.state == (home / "ports/1/state").read_text().split()[1]
        assert port.phys_state == (home / "ports/1/phys_state").read_text().split()[1]
        assert f"{port.rate_gbps} " in (home / "ports/1/rate").read_text()
        assert port.link_layer == (home / "ports/1/link_layer").read_text().strip()


@pytest.mark.parametrize(
    "name",
    [
        "azure_ibdev2netdev_mlx5_ib_names.txt",
        "deepep38_ibv_devinfo_port-down_excerpt.txt",
        "dgx-spark_ibdev2netdev_roce-names.txt",
        "ibv_devinfo_v_gids_excerpt.txt",
        "imbue4_ibdev2netdev_h100_column-t.txt",
        "rdma_link_show_excerpt.txt",
        "show_gids_34nic_excerpt.txt",
        "show_gids_roce_bond_tabs.txt",
    ],
)
def test_other_listings_make_no_adapters(name):
    """What other programs list is not taken for sysfs: broken, and no adapter is invented."""
    assert hcas.PROBE.read({"hcas": Output(text(CAPTURES / "ib" / name))}).broken


def test_status_texts_are_all_there():
    """The table of return codes has rows for six drivers."""
    rows = list(csv.DictReader((CAPTURES / "nvidia-smi-q/mock-nvml/STATUS-CODE-TABLE.tsv").open(), delimiter="\t"))
    assert len({row[next(iter(row))] for row in rows}) >= 5
