"""Real outputs of many drivers, read where they are at hand: what each of them says of its machine."""

from __future__ import annotations

import csv
import re
from collections import Counter
from pathlib import Path

import pytest
from captures import CAPTURES, each, files, needed, text, version

from llmgwctl.model.gpu import ZERO_UUID, GpuReport
from llmgwctl.probe import gpus, imex
from llmgwctl.probe.base import Output
from llmgwctl.probe.imex_table import NoTable, read_table
from llmgwctl.probe.smi_fabric import fabric_of
from llmgwctl.probe.smi_text import read_text
from llmgwctl.probe.smi_xml import read_xml

pytestmark = needed
MOCK_UUID = "9c6f5af3-53bf-49b5-a436-b66766c413c3"


def reading(path: Path):
    return gpus.PROBE.read({"nvidia-smi-q": Output(stdout=text(path))})


def report(path: Path) -> GpuReport:
    found = reading(path)
    assert found.ok, found.why
    assert isinstance(found.value, GpuReport)
    return found.value


def test_the_captures_are_really_read():
    """An empty glob would make every test below pass: the families are all there."""
    counts = {p: len(files(p)) for p in ("nvidia-smi-q/*", "nvidia-smi-q-xml/*/*.xml", "imex/nogpu/*_N*.txt")}
    assert all(n > 20 for n in counts.values()), counts


# --- every file -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", [*files("nvidia-smi-q/**/*.*"), *files("nvidia-smi-q-xml/**/*.xml"), *files("failures/**/*.out")],
    ids=lambda p: p.name,
)  # fmt: skip
def test_every_file_gives_a_reading(path):
    """A report with as many readable GPUs as it counts, or words that say why not; never an exception."""
    found = reading(path)
    assert not found.why.startswith("could not be understood")
    assert found.ok or found.why
    if found.ok:
        assert found.value.all_readable == (not found.value.lost)
        assert all(g.uuid and g.name and g.bus_id for g in found.value.gpus)


# --- real machines ----------------------------------------------------------------------------------------------

SINGLE = {"h100-80gb-hbm3": "NVIDIA H100 80GB HBM3", "h200": "NVIDIA H200", "l40s": "NVIDIA L40S"}


@each("nvidia-smi-q/exporter_*_q.txt")
def test_contributed_machines(path):
    """One card each, of eight kinds: in no domain; MIG as the name says; load has processes on Linux."""
    (gpu,) = (found := report(path)).gpus
    assert found.all_readable
    assert found.driver == path.name.split("__")[2]
    assert found.cuda is not None
    assert re.fullmatch(r"13\.\d", found.cuda)
    assert gpu.fabric.joined is False
    assert gpu.fabric.pair is None
    assert gpu.mig_enabled == (True if "-mig" in path.name else False if re.search("-h[12]00", path.name) else None)
    assert gpu.memory_total_mib is not None
    assert gpu.memory_used_mib is not None
    assert 0 <= gpu.memory_used_mib < gpu.memory_total_mib
    if "__load_" in path.name:
        assert gpu.processes
        assert gpu.processes_known
    if "h100" in path.name or "h200" in path.name:
        assert (gpu.fabric.state, gpu.fabric.status, gpu.fabric.clique_id) == ("Completed", "Success", 0)
        assert gpu.fabric.cluster_uuid == ZERO_UUID
        assert gpu.fabric.healthy is None
    else:
        assert gpu.fabric.state == "N/A"


@each("nvidia-smi-q/gpud_*")
def test_older_machines(path):
    """535 prints State and Status alone: an H100 is neither joined nor not; cards without fabric are not."""
    found = report(path)
    if path.name.endswith(".invalid"):
        assert not found.all_readable
        assert found.gpus == ()
        return
    assert found.all_readable
    for gpu in found.gpus:
        assert gpu.fabric.joined == (None if "H100" in gpu.name else False)
        assert gpu.fabric.healthy is None


HARDWARE = {  # driver, GPUs, name, joined, healthy, pair, slot and tray, addressing
    "qx-a100": ("570.148.08", 1, "NVIDIA A100-SXM4-40GB", False, None, None, (None, None), "HMM"),
    "qx-h100": ("580.105.08", 8, "NVIDIA H100 80GB HBM3", False, None, None, (None, None), "HMM"),
    "qx-b200": ("580.105.08", 8, "NVIDIA B200", False, True, None, (None, None), "None"),
    "qx-gb200": ("580.173.02", 4, "NVIDIA GB200", True, True, 2, (14, 4), "ATS"),
    "qx-gb300": ("580.173.02", 4, "NVIDIA GB300", True, True, 32766, (25, 15), "ATS"),
    "qx-l40s": ("595.91.07", 1, "NVIDIA L40S", False, None, None, (None, None), "HMM"),
    "qx-t4": ("595.91.07", 1, "Tesla T4", False, None, None, (None, None), "HMM"),
}


@each("nvidia-smi-q-xml/k8s-test-infra-hardware/*.xml")
def test_real_hardware(path):
    """The seven machines whose whole XML there is: single-node NVSwitch is no domain, trays of a rack are."""
    driver, count, name, joined, healthy, clique, place, addressing = HARDWARE[path.stem]
    found = report(path)
    assert (found.driver, found.attached, len(found.gpus), found.all_readable) == (driver, count, count, True)
    for index, gpu in enumerate(found.gpus):
        assert (gpu.index, gpu.name) == (index, name)
        assert (gpu.fabric.joined, gpu.fabric.healthy) == (joined, healthy)
        assert (gpu.fabric.pair[1] if gpu.fabric.pair else None) == clique
        assert (gpu.platform.slot, gpu.platform.tray, gpu.addressing_mode) == (*place, addressing)
        assert (gpu.recovery_action, gpu.processes, gpu.processes_known) == (None, (), True)


def test_a_healthy_degraded_and_lost_mock():
    """The published mock of a sick pair: one unhealthy GPU, one lost, five uncorrectable errors."""
    folder = CAPTURES / "nvidia-smi-q-xml/k8s-test-infra-mock"
    degraded = report(folder / "qx-gb200-fabric-degraded.xml")
    assert False in [g.fabric.healthy for g in degraded.gpus]
    lost = report(folder / "qx-gb200-lost.xml")
    assert (len(lost.gpus), lost.attached, lost.all_readable) == (1, 2, False)
    assert "GPU is lost" in lost.lost[0]
    assert report(folder / "qx-gb200-ecc-injected.xml").gpus[0].ecc_uncorrected == 5


# --- every driver -----------------------------------------------------------------------------------------------


@each("nvidia-smi-q/mock-nvml/q_*_gb200x4.txt")
def test_joined_per_driver(path):
    """The same healthy machine: unknown up to 545, joined from 550 on, healthy from 570 on (550 prints N/A)."""
    found = report(path)
    driver = version(path.name)
    assert (found.attached, len(found.gpus), found.all_readable) == (4, 4, True)
    clique = 1 if driver >= (615, 0) else 32766
    for gpu in found.gpus:
        known = driver >= (550, 0)
        assert gpu.fabric.joined is (True if known else None)
        assert gpu.fabric.pair == ((MOCK_UUID, clique) if known else None)
        assert gpu.fabric.healthy is (True if driver >= (570, 0) else None)


@pytest.mark.parametrize("card", ["a100", "h100"])
def test_machines_without_fabric_per_driver(card):
    """An A100 says N/A from 535 on; no driver joins either of them to a domain."""
    for path in files(f"nvidia-smi-q/mock-nvml/q_*_{card}.txt"):
        assert all(not g.fabric.joined and g.fabric.pair is None for g in report(path).gpus), path.name


@each("nvidia-smi-q-xml/mock-nvml/qx_*.xml")
def test_text_and_xml_of_one_machine_agree(path):
    """The text that the same driver printed of the same mock gives the same report, field by field."""
    twin = CAPTURES / "nvidia-smi-q/mock-nvml" / path.name.replace("qx_", "q_").replace(".xml", ".txt")
    if not twin.exists():
        pytest.skip("this driver's text was not kept")
    assert report(path) == report(twin)


def fabrics(path: Path):
    """Fabric blocks of an excerpt, which is no whole report (and, in XML, not well-formed)."""
    body = text(path)
    if path.suffix == ".xml":
        body = re.sub(r"</gpu>", "", body).split("</nvidia_smi_log>")[0]
        head, *blocks = body[body.index("<nvidia_smi_log>") :].split("<gpu ")
        body = head + "".join(f"<gpu {block}</gpu>" for block in blocks)
        root = read_xml(body + "</nvidia_smi_log>")
    else:
        root = read_text(body)
    return [fabric_of(b) for b in root.all("GPU")] if root else []


STATES = ("Completed", "Not Started", "In Progress", "N/A", "Completed", "Completed", "Completed", "Completed")


@pytest.mark.parametrize(
    "path",
    [*files("nvidia-smi-q/mock-nvml/fabric-only_*_variants-states.txt"), *files("nvidia-smi-q-xml/*/fabric-only_*")],
    ids=lambda p: p.name,
)
def test_states_per_driver(path):
    """Eight GPUs in eight states: healthy, three that are not there, degraded, recovering, unhealthy, mask of zero."""
    found, driver = fabrics(path), version(path.name)
    if driver < (535, 0):
        assert all(f.state is None and f.joined is None for f in found)
        return
    assert [f.state for f in found] == list(STATES)
    if driver < (550, 0):
        assert [f.joined for f in found] == [None, False, False, False, None, None, None, None]
        return
    assert [f.joined for f in found] == [True, False, False, False, True, True, True, True]
    assert found[4].healthy is False
    if driver >= (570, 0):
        assert [f.healthy for f in found] == [True, None, None, None, False, False, False, None]


@each("nvidia-smi-q/mock-nvml/fabric-only_*_variants-incorrectcfg*.txt")
def test_incorrect_configuration_per_driver(path):
    """One GPU is right and seven are wrong, each in its own way; from 580 on every one of them is named."""
    found, driver = fabrics(path), version(path.name)
    if driver < (580, 0):
        return
    assert found[0].healthy is True
    assert all(f.healthy is False for f in found[1:])
    if driver >= (580, 126):
        wrong = [f.health.incorrect_configuration for f in found[1:]]
        assert wrong[-1] == "GPU State Invalid"
        assert len(set(wrong)) == 7


def test_every_status_text():
    """Success joins; every other NVML text, and a bare number, is a refusal in the driver's own words."""
    rows = csv.DictReader((CAPTURES / "nvidia-smi-q/mock-nvml/STATUS-CODE-TABLE.tsv").open(), delimiter="\t")
    seen = 0
    for row in rows:
        if not row["CliqueId"]:
            continue
        block = f"GPU 00000000:01:00.0\n    Fabric\n        State : {row['State']}\n        Status : {row['Status']}\n"
        block += f"        CliqueId : {row['CliqueId']}\n        ClusterUUID : {row['ClusterUUID']}\n"
        root = read_text(block)
        assert root is not None
        fabric = fabric_of(root.all("GPU")[0])
        assert fabric.joined == (row["Status"] == "Success"), row
        assert fabric.status == row["Status"]
        seen += 1
    assert seen > 80


def test_excerpts_of_field_reports():
    """A refusal on a rack, an unhealthy tray, a fabric manager that never answered, and a clique above 2^31."""

    def first(name: str):
        body = text(CAPTURES / "nvidia-smi-q" / name)
        body = body[body.index("Fabric") :]
        lines = body.split("\n--")[0].replace("\nFabric", "\n    Fabric")
        indent = "    " if "\n    State" in lines else ""
        root = read_text("GPU 00000000:01:00.0\n    " + lines.replace("\n", "\n" + indent))
        assert root is not None
        return fabric_of(root.all("GPU")[0])

    refused = first("issue_azhpc-images506_gb_insufficient-resources_excerpt.txt")
    assert (refused.state, refused.status, refused.joined) == ("Completed", "Insufficient Resources", False)
    assert refused.cluster_uuid == ZERO_UUID
    gb300 = first("file_srtctl_gb300_R580_fabric_grep_excerpt.txt")
    assert (gb300.clique_id, gb300.healthy) == (32766, True)
    pdsh = text(CAPTURES / "nvidia-smi-q/file_topograph_pdsh-prefixed_grep_excerpt.txt")
    root = read_text("node-10: GPU 00000000:01:00.0\nnode-10:     Fabric\n" + pdsh)
    assert root is not None
    assert fabric_of(root.all("GPU")[0]).clique_id == 4000000004


# --- failures ---------------------------------------------------------------------------------------------------


@each("failures/mock-nvml/*__q.out")
def test_one_gpu_of_four_is_bad(path):
    """By any driver and in any form, the host is not readable: broken, or with the lost GPU named or counted."""
    err = text(path.with_suffix(".err"))
    code = int(re.findall(r"\[rc=(\d+)\]", err)[0])
    said = Output(text(path), err, code)
    query = Output(text(path.parent / path.name.replace("__q.out", "___query_gpu_in.out")))
    found = gpus.PROBE.read({"nvidia-smi-q": said, gpus.QUERY: query})
    if found.broken:
        assert version(path.name) < (570, 0)
        assert "device handle for GPU1" in found.why
        return
    assert (found.value.attached, len(found.value.gpus), found.value.all_readable) == (4, 3, False)
    assert found.value.lost
    if path.name.startswith("handle-rc15"):
        assert "GPU is lost" in found.value.lost[0]


def test_every_nvml_failure():
    """No NVML, in 25 ways and five drivers: broken, with the first line of what it said."""
    rows = list(csv.reader((CAPTURES / "failures/real-binary_nvmlInit-errors.tsv").open(), delimiter="\t"))
    rows = [r for r in rows if len(r) >= 4 and r[2].isdigit()]
    assert len(rows) > 50
    for row in rows:
        said = Output(row[3].replace("|", "\n"), "", int(row[2]))
        found = gpus.PROBE.read({"nvidia-smi-q": said})
        assert found.broken
        assert row[3].split("|")[0][:80] in found.why


# --- imex -------------------------------------------------------------------------------------------------------

SCENES = {  # domain state and cells of four daemons, as each scene was set up
    "A_3of4": ("DEGRADED", {"C": 9, "N": 3, "I": 4}),
    "B_all": ("UP", {"C": 16}),
    "C_killed3": ("DEGRADED", {"C": 9, "R": 3, "I": 4}),
    "D_kill9_4": ("DEGRADED", {"C": 4, "R": 4, "I": 8}),
}


@each("imex/nogpu/*_N*.txt")
def test_tables_of_real_daemons(path):
    """The table of each program version, as text, with host names and as JSON; 550 and 570 -H have none."""
    found = re.match(r"[a-z0-9]+_([ABCD]_\w+)_ctl([\d.]+)_(N|NH|Nj)\.txt", path.name)
    assert found is not None
    scene, driver, option = found.groups()
    if version(driver) < (570, 0) or (version(driver) < (580, 0) and option == "NH"):
        with pytest.raises(NoTable):
            read_table(text(path))
        return
    table = read_table(text(path))
    state, cells = SCENES[scene]
    assert (table.domain_state, dict(Counter(table.cells.values()))) == (state, cells)
    assert [n.host for n in table.nodes] == [f"10.99.0.{i}" for i in range(1, 5)]
    marked = [n.index for n in table.nodes if n.local]
    assert marked == ([0] if version(driver) >= (580, 0) and option != "Nj" else [])


@each("imex/nogpu/*_Nj.txt")
def test_json_and_text_say_the_same(path):
    """Nodes, cells and state of one moment are equal in both forms (the local mark is the text's alone)."""
    twin = path.with_name(path.name.replace("_Nj.", "_N."))
    if "ctl550" in path.name or not twin.exists():
        pytest.skip("no table")
    a, b = read_table(text(path)), read_table(text(twin))
    assert (a.cells, a.domain_state) == (b.cells, b.domain_state)
    assert [(n.index, n.host, n.status, n.version) for n in a.nodes] == [
        (n.index, n.host, n.status, n.version) for n in b.nodes
    ]


@each("imex/nogpu/*_q.txt")
def test_states_of_real_daemons(path):
    """READY by every program but 550's, which mistranslates the answer of a newer daemon."""
    expected = "SHUTTING_DOWN" if "ctl550" in path.name else "READY"
    assert imex.state_of(Output(text(path))) == (expected, "")


def shown(path: Path) -> Output:
    """$ command, --stdout--, --stderr--, --rc=N--."""
    _, _, rest = text(path).partition("--stdout--\n")
    out, _, rest = rest.partition("--stderr--\n")
    err, _, code = rest.rpartition("--rc=")
    return Output(out, err, int(code.strip("-\n")))


@each("imex/errors/norun_q_*.txt")
def test_nobody_answers(path):
    """Exit code 0 or 255, an empty stdout: down."""
    assert imex.state_of(shown(path))[0] == "DOWN"


@each("imex/errors/noconfig_q_*.txt")
def test_without_configuration_nothing_can_be_asked(path):
    state, why = imex.state_of(shown(path))
    assert (state, "configuration file" in why) == ("", True)


@each("imex/errors/norun_N*_*.txt")
def test_a_table_of_nobody_is_down(path):
    """A full table that says UNAVAILABLE everywhere comes with exit code 0."""
    if "550" in path.name:
        return
    table = read_table(shown(path).stdout)
    assert table.domain_state == "DOWN"
    assert set(table.cells.values()) == {"I"}
    assert {n.status for n in table.nodes} == {"UNAVAILABLE"}


@each("imex/lab/*.txt")
def test_transcripts_of_the_lab(path):
    """Every table in every transcript can be read, and the mismatched lists show as cells."""
    body = text(path)
    shown_tables = re.findall(r"Connectivity Table Legend:.*?\nNode #.*?Domain State: \w+", body, re.S)
    tables = [read_table(part) for part in shown_tables]
    tables += [read_table(line) for line in body.split("\n") if line.startswith('{"nodes"')]
    assert all(t.nodes and t.cells and t.domain_state in ("UP", "DEGRADED", "DOWN") for t in tables)
    if path.name.startswith("06-"):
        assert "!M!" in {cell for t in tables for cell in t.cells.values()}


def test_published_tables():
    """Seventeen trays with two down, eighteen up, and a table without a Version column."""
    azure = read_table(text(next(iter(files("imex/azure-*.txt")))))
    assert (len(azure.nodes), azure.domain_state) == (17, "DEGRADED")
    assert [n.host for n in azure.nodes if n.status == "UNAVAILABLE"] == ["1.1.1.2", "1.1.1.4"]
    assert [n.host for n in azure.nodes if n.local] == ["1.1.1.5"]
    aws = read_table(text(next(iter(files("imex/aws-*.txt")))))
    assert (len(aws.nodes), set(aws.cells.values()), aws.nodes[17].version) == (18, {"C"}, "570.172")
    dcgm = read_table(text(next(iter(files("imex/DCGM*.json")))))
    assert [n.index for n in dcgm.nodes] == [1, 3]
    assert dcgm.cells == {(3, 1): "C", (3, 6): "C", (1, 0): "C", (1, 1): "C"}
