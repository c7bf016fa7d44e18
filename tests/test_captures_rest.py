"""Real outputs of the IMEX tools beside their tables, excerpts of reports, and that no capture is left unread."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from captures import CAPTURES, each, files, needed, text, version

from llmgwctl.probe import gpus, imex, topology
from llmgwctl.probe.base import Output
from llmgwctl.probe.imex_table import NoTable, read_table
from llmgwctl.probe.smi_fabric import fabric_of
from llmgwctl.probe.smi_text import read_text

pytestmark = needed

COVERED = {  # who reads what: a new file that nobody reads makes the test below fail
    "test_captures": (
        "nvidia-smi-q/**/*",
        "nvidia-smi-q-xml/**/*",
        "failures/mock-nvml/*__q.*",
        "failures/real-binary_nvmlInit-errors.tsv",
        "imex/nogpu/*_N*.txt",
        "imex/nogpu/*_q.txt",
        "imex/errors/norun_[qN]*",
        "imex/errors/noconfig_q_*",
        "imex/lab/*",
        "imex/azure-*",
        "imex/aws-*",
        "imex/DCGM*",
    ),
    "test_captures_links": ("topo/**/*", "nvlink/**/*", "csv/**/*", "ib/**/*", "failures/**/*"),
    "test_captures_rest": ("imex/**/*",),
}


def test_no_capture_is_left_unread():
    """Each file belongs to a test of values; only the table of contents belongs to none."""
    read = {p for patterns in COVERED.values() for pattern in patterns for p in CAPTURES.glob(pattern)}
    left = {str(p.relative_to(CAPTURES)) for p in CAPTURES.rglob("*") if p.is_file() and p not in read}
    assert left == {"INDEX.md"}


# --- imex -------------------------------------------------------------------------------------------------------


def shown(path: Path) -> Output:
    _, _, rest = text(path).partition("--stdout--\n")
    out, _, rest = rest.partition("--stderr--\n")
    err, _, code = rest.rpartition("--rc=")
    return Output(out, err, int(code.strip("-\n")))


@each("imex/errors/nonodes_*")
def test_without_a_node_list(path):
    """-q still says that nobody answers; -N has no table and says which file it wants, whatever its exit code."""
    said = shown(path)
    if "_q_" in path.name:
        assert imex.state_of(said)[0] == "DOWN"
        return
    outputs = {imex.FILES: Output("config present\n"), imex.QUERY: Output("READY\n"), imex.TEXT: said}
    found = imex.PROBE.read(outputs).value
    assert found.table is None
    assert "-N" in found.table_why if "550" in path.name else "node configuration file" in found.table_why


@each("imex/errors/noconfig_N*")
def test_without_configuration_there_is_no_table(path):
    said = shown(path)
    with pytest.raises(NoTable):
        read_table(said.stdout)
    assert said.exit_code == 1
    assert "configuration file" in said.stderr or "-N" in said.stderr


@each("imex/errors/noop_*")
def test_no_operation_is_the_table(path):
    """From 580 on, the command alone is -N; before, an error."""
    said = shown(path)
    if version(path.name) < (580, 0):
        with pytest.raises(NoTable):
            read_table(said.stdout)
        return
    table = read_table(said.stdout)
    assert {n.status for n in table.nodes} == {"UNAVAILABLE"}
    assert table.domain_state == "DOWN"


@each("imex/errors/norun_qa_*")
def test_all_nodes_at_once_is_not_asked(path):
    """-q -a prints a document twice, or does not exist: it is no state and no table."""
    said = shown(path)
    assert imex.state_of(said)[0] in ("", "DOWN")
    with pytest.raises(NoTable):
        read_table(said.stdout)


def test_rights_and_the_command_service():
    """Without the right to read the list there is no table; a command service that is off is unknown, not down."""
    body = text(CAPTURES / "imex/errors/permission_and_cmd-disabled.txt")
    seen = Counter()
    for block in re.split(r"^\$ ", body, flags=re.M)[1:]:
        command, _, rest = block.partition("\n")
        said, _, code = rest.rpartition("rc=")
        output = Output("", said, int(code.split()[0]))
        if " -q" in command:
            state, why = imex.state_of(output)
            disabled = "disabled" in said
            assert (state, why) == (("", "its command service is disabled") if disabled else ("DOWN", why))
            seen["disabled" if disabled else "down"] += 1
        else:
            found = imex.PROBE.read(
                {imex.FILES: Output("config present\n"), imex.QUERY: Output("READY"), imex.TEXT: output}
            )
            assert found.value.table is None
            assert found.value.table_why
    assert min(seen["disabled"], seen["down"]) >= 1


@each("imex/config/*.cfg")
def test_shipped_configurations(path, tmp_path):
    """The command service is off in the file of 550 and on from 570.172 on, and the script reads it so."""
    home = tmp_path / "etc/nvidia-imex"
    home.mkdir(parents=True)
    (home / "config.cfg").write_bytes(path.read_bytes())
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/devices").write_text("506 nvidia-caps-imex-channels\n")
    argv = ["sh", "-c", imex.SECTIONS[0].body(), "imex-files", str(tmp_path), ""]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    enabled = re.search(r"^IMEX_CMD_ENABLED=1", text(path), re.M) is not None
    assert imex.read_files(said).cmd_enabled is enabled
    assert enabled == (version(path.name) >= (570, 0))
    assert "set IMEX_NODE_CONFIG_FILE=/etc/nvidia-imex/nodes_config.cfg" in said
    assert imex.read_files(said).major == 506


@pytest.mark.parametrize(
    "path", [*files("imex/help/*"), *files("imex/logs/*"), *files("imex/config/*.service")], ids=lambda p: p.name
)
def test_usage_logs_and_units_are_no_answers(path):
    """Whatever else the tools and the daemon print is neither a state nor a table."""
    assert imex.state_of(Output(text(path), "", 1))[0] == ""
    with pytest.raises(NoTable):
        read_table(text(path))


NO_TABLE = re.compile(
    r"\.err$|_ctl550|_ctl570\.\d+\.\d+_NH|_(q|qa|ping|pingj|get_error_countersj?)\.txt$|_ctl595.*_sanity"
)


@each("imex/nogpu/*")
def test_every_file_of_the_daemons_is_taken(path):
    """Tables as tables; options that are not ours (-D, -ping, counters) give no table or that of the same nodes."""
    said = Output(text(path))
    state, why = imex.state_of(said)
    assert state in imex.STATES | {"", "DOWN"}
    assert bool(state) != bool(why) or state == "DOWN"
    if NO_TABLE.search(path.name):
        with pytest.raises(NoTable):
            read_table(said.stdout)
        return
    table = read_table(said.stdout)
    assert len(table.nodes) == 4
    assert table.domain_state


def test_published_excerpts():
    """Host names in the column that may be addresses, early tables without versions, slots that nobody fills."""
    excerpt = text(CAPTURES / "imex/srtctl_imex-ctl_N_H_580.173.02_excerpts.txt")
    nodes = read_table(excerpt + "Domain State: DEGRADED\n").nodes
    assert [(n.index, n.host, n.status, n.version) for n in nodes if n.index in (1, 11)] == [
        (1, "10.66.6.9", "READY", "580.173.02"),
        (11, "10.66.6.19", "UNAVAILABLE", ""),
    ]
    assert [n.index for n in nodes if n.local] == [1]
    early = read_table(text(CAPTURES / "imex/dra-driver-doc_imex-ctl_q_N_R570-early_no-version-column.txt"))
    assert (early.cells, early.nodes[0].version, early.nodes[0].local) == ({(0, 0): "C"}, "", None)
    slots = read_table(text(CAPTURES / "imex/dra-daemon_18-dns-slots_3-ready_DEGRADED_excerpt.txt"))
    assert (slots.domain_state, [n.version for n in slots.nodes]) == ("DEGRADED", ["NO_GPU"] * 3)
    assert slots.cells[1, 2] == "C"
    azure = read_table(text(CAPTURES / "imex/nvidia-imex-ctl-H-580.95.09-degraded.txt"))
    assert [n.host for n in azure.nodes if n.status == "UNAVAILABLE"] == ["1.1.1.2", "1.1.1.4"]
    for name in ("gpu-driver-container149_ls_imex-channels_excerpt.txt", "channel-and-modprobe-recipes.txt"):
        assert not imex.read_files(text(CAPTURES / "imex" / name)).channels


# --- excerpts of reports ----------------------------------------------------------------------------------------


def excerpt(name: str):
    """The first Fabric block of an excerpt as it stands there."""
    body = text(next(iter(files(f"nvidia-smi-q/{name}*"))))
    block = body[body.index("    Fabric\n") :].split("\n--\n")[0].split("\n\n")[0]
    root = read_text("GPU 00000000:01:00.0\n" + block)
    assert root is not None
    return fabric_of(root.all("GPU")[0])


@pytest.mark.parametrize(
    ("name", "state", "joined", "healthy", "clique"),
    [
        ("file_R580-late", "N/A", False, None, None),
        ("file_consumer", "N/A", False, None, None),
        ("file_gh200", "N/A", False, None, None),
        ("file_rtx6000ada", "N/A", False, None, None),
        ("issue_dra-driver626", "Completed", True, False, 2),
        ("issue_gpu-operator2511", "In Progress", False, None, None),
    ],
)
def test_excerpts(name, state, joined, healthy, clique):
    """Consumer cards and a lone GH200 have no fabric; an unhealthy tray is joined; one waits for ever."""
    found = excerpt(name)
    assert (found.state, found.joined, found.healthy, found.clique_id) == (state, joined, healthy, clique)


def test_seven_of_eight_attached():
    """The other nodes of that report count seven: what is printed is what is told."""
    body = text(next(iter(files("nvidia-smi-q/issue_gpu-operator2511*"))))
    for part in body.split("==============NVSMI LOG==============")[1:]:
        reading = gpus.PROBE.read({"nvidia-smi-q": Output("==============NVSMI LOG==============" + part)})
        assert reading.broken or not reading.value.all_readable  # each of them was cut


def test_one_display_of_the_report_is_not_all_of_it():
    """-q -d PAGE_RETIREMENT has eight GPUs and no identity: none of them is taken for a readable one."""
    for path in files("nvidia-smi-q/azhc_*"):
        report = gpus.PROBE.read({"nvidia-smi-q": Output(text(path))}).value
        assert (report.attached, report.gpus, report.all_readable) == (8, (), False)
        assert all("ends early" in why for why in report.lost)


@each("nvidia-smi-q/exporter-full/*")
def test_whole_captures_of_contributors(path):
    """One file with every command of a machine one after another: the report and the matrix are found in it."""
    report = gpus.PROBE.read({"nvidia-smi-q": Output(text(path))})
    assert not report.why.startswith("could not be understood")
    matrix = topology.read_matrix(text(path))
    if "linux" in path.name:
        assert not isinstance(matrix, str)
        assert matrix.gpus == (0,)
