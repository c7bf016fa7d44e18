"""IMEX: its state by stdout alone, the table in both forms, and its files as the script prints them."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgwctl.model.imex import ImexChannel
from llmgwctl.probe import imex
from llmgwctl.probe.base import NOT_SAVED, Output
from llmgwctl.probe.imex_table import NoTable, read_table

LEGEND = """Connectivity Table Legend:
I - Invalid - Node wasn't reachable, no connection status available
N - Never Connected
!V! - Version mismatch, communication disabled.
C - Connected - Ready for operation

1/2/2026 03:04:05.678
Nodes:
"""
NEW = (
    LEGEND
    + """Node #0   * 10.7.0.1 *         - READY                - Version: 580.126.20      - Hostname: r1-t01
Node #1   - 10.7.0.2           - READY                - Version: 580.126.20      - Hostname: r1-t02
Node #2   - r1-t03.example     - UNAVAILABLE          - Version:                 - Hostname: r1-t03

 Nodes From\\To  0   1   2
       0        C   C  !M!
       1        C   C   R
       2        I   I   I

Domain State: DEGRADED"""
)
CELLS = {(0, 0): "C", (0, 1): "C", (0, 2): "!M!", (1, 0): "C", (1, 1): "C", (1, 2): "R"} | {
    (2, j): "I" for j in range(3)
}
OLD = re.sub(r" *- Hostname: \S+", "", NEW.replace("* 10.7.0.1 *  ", "- 10.7.0.1    ")).replace(
    "\n\nDomain", "\nDomain"
)
EARLY = LEGEND + "Node #0   - 10.7.0.1   - READY\n\n Nodes From\\To  0\n       0        C\nDomain State: UP\n"
WORDS = {"C": "CONNECTED", "!M!": "NODES_MISMATCH", "R": "RECOVERING", "I": "INVALID"}


def as_json(**more) -> str:
    hosts = ("10.7.0.1", "10.7.0.2", "r1-t03.example")
    nodes = {
        str(i): {
            "status": "UNAVAILABLE" if i == 2 else "READY",
            "host": hosts[i],
            "connections": {str(j): {"host": hosts[j], "status": WORDS[CELLS[i, j]]} for j in (1, 0, 2)},
            "changed": True,
            "version": "" if i == 2 else "580.126.20",
        }
        | more
        for i in (2, 0, 1)
    }
    return json.dumps({"nodes": nodes, "timestamp": "1/2/2026 03:04:05.678", "status": "DEGRADED"})


def test_the_table_in_text():
    """Addresses and names as in the node list, the local mark of 580, an empty version, directed cells."""
    table = read_table(NEW)
    assert [(n.index, n.host, n.status, n.version, n.local) for n in table.nodes] == [
        (0, "10.7.0.1", "READY", "580.126.20", True),
        (1, "10.7.0.2", "READY", "580.126.20", None),
        (2, "r1-t03.example", "UNAVAILABLE", "", None),
    ]
    assert table.cells == CELLS
    assert table.domain_state == "DEGRADED"


def test_old_tables():
    """570 marks nobody, and the first of them print no version."""
    assert read_table(OLD).cells == CELLS
    assert [(n.host, n.version, n.local) for n in read_table(OLD).nodes] == [
        ("10.7.0.1", "580.126.20", None),
        ("10.7.0.2", "580.126.20", None),
        ("r1-t03.example", "", None),
    ]
    early = read_table(EARLY)
    assert (early.nodes[0].version, early.cells, early.domain_state) == ("", {(0, 0): "C"}, "UP")
    assert read_table(NEW.replace("\n", "\r\n")) == read_table(NEW)


@pytest.mark.parametrize(
    "text",
    [
        as_json(),
        json.dumps(json.loads(as_json()), indent=1),
        as_json(hostName="", node_detail={"server_port": 0}),
        "Tossing connection status of a node\n" + as_json(),
        as_json() + as_json(),
    ],
)
def test_json_says_what_the_text_says(text):
    """Keys in any order, whatever else newer versions add, and a document that is printed twice."""
    table = read_table(text)
    assert (table.cells, table.domain_state) == (CELLS, "DEGRADED")
    assert [(n.host, n.status, n.version) for n in table.nodes] == [
        (n.host, n.status, n.version) for n in read_table(NEW).nodes
    ]


@pytest.mark.parametrize("token", ["C", "N", "R", "D", "I", "A", "!V!", "!M!", "!A!", "!R!"])
def test_every_cell_token(token):
    assert read_table(EARLY.replace("0        C", f"0        {token}")).cells == {(0, 0): token}


def test_a_word_that_no_version_prints_is_not_connected():
    assert read_table(as_json().replace("NODES_MISMATCH", "HALF_CONNECTED")).cells[0, 2] == "HALF_CONNECTED"


@pytest.mark.parametrize(
    "text", ["", "{", '{"nodes": {}}', '{"nodes": [1]}', '{"nodes":' * 5000, "{" * 5000, NEW[:-30], LEGEND]
)
def test_no_table(text):
    with pytest.raises(NoTable):
        read_table(text)


# --- state ------------------------------------------------------------------------------------------------------

NOBODY = "Query Status returned error code: 14 - failed to connect to all addresses; last error\nQuery Status failed."
DISABLED = "IMEX control service is disabled in config file /etc/nvidia-imex/config.cfg\nMake sure control service"
NO_CONFIG = "Unable to open configuration file at /etc/nvidia-imex/config.cfg\nUsage: nvidia-imex-ctl"


@pytest.mark.parametrize(
    ("said", "state", "why"),
    [
        (Output("READY\n"), "READY", ""),
        (Output("READY", "noise", 255), "READY", ""),
        (Output("WAITING_FOR_PEERS\n"), "WAITING_FOR_PEERS", ""),
        (Output("SHUTTING_DOWN\n"), "SHUTTING_DOWN", ""),
        (Output("", NOBODY, 0), "DOWN", "no IMEX daemon"),
        (Output("", NOBODY, 255), "DOWN", "no IMEX daemon"),
        (Output("", DISABLED, 255), "", "disabled"),
        (Output("", NO_CONFIG, 1), "", "configuration file"),
        (Output("", "timeout: failed to run command", 127), "", "not installed"),
        (Output("", "", 0), "", "no answer"),
        (Output("ALMOST_READY\n"), "", "ALMOST_READY"),
        (Output("READY\nREADY\n"), "", "READY"),
        (Output(exit_code=124, ms=30000), "", "within its limit"),
        (Output(exit_code=None, state="skipped", note="not asked"), "", "not asked"),
    ],
)
def test_state_by_stdout(said, state, why):
    """Exit code 0 with an empty stdout is down, 255 may be ready; a word that is not known is no state."""
    found = imex.state_of(said)
    assert found[0] == state
    assert why in found[1]


# --- the whole reading ------------------------------------------------------------------------------------------

FILES = """unit LoadState=loaded
unit ActiveState=active
unit UnitFileState=enabled
config present
set IMEX_CMD_ENABLED=1
nodes present /etc/nvidia-imex/nodes_config.cfg
node 10.7.0.1
node r1-t03.example
resolved r1-t03.example 10.7.0.3 fd07::3
major 506
channel 11 506 no
channel 0 506 yes
"""
NOTHING_HERE = "config absent\nnodes absent /etc/nvidia-imex/nodes_config.cfg\n"
MISSING = Output("", "timeout: failed to run command 'nvidia-imex-ctl'", 127)
UNNEEDED = Output(state="unneeded", note="nvidia-imex-ctl-q said: ")


def read(files=FILES, query="READY\n", as_json_said=NOT_SAVED, text=NOT_SAVED):
    outputs = {"imex-files": files, "nvidia-imex-ctl-q": query, imex.JSON: as_json_said, imex.TEXT: text}
    return imex.PROBE.read({k: Output(v) if isinstance(v, str) else v for k, v in outputs.items()})


def test_everything_in_its_place():
    found = read(as_json_said=as_json()).value
    assert (found.state, found.ready, found.table.domain_state, found.files_why) == ("READY", True, "DEGRADED", "")
    assert (found.unit_load, found.unit_active, found.unit_file) == ("loaded", "active", "enabled")
    assert (found.node_list, found.cmd_enabled) == (("10.7.0.1", "r1-t03.example"), True)
    assert found.node_addresses == (("r1-t03.example", ("10.7.0.3", "fd07::3")),)
    assert found.channels == (ImexChannel(0, 506, True), ImexChannel(11, 506, False))
    assert found.channel_major == 506


def test_text_where_json_is_not_known():
    """Old programs have no -j, and a bundle may have saved either."""
    old = Output("", 'Unexpected option "-j" provided.', 1)
    assert read(as_json_said=old, text=NEW).value.table.cells == CELLS
    assert read(text=NEW).value.table.cells == CELLS
    nothing = read(as_json_said=old, text=Output("", 'Unexpected option "-N" provided.', 1)).value
    assert (nothing.table, nothing.table_why) == (None, 'Unexpected option "-N" provided.')


def test_trays_that_print_one_table_share_it_whenever_they_printed_it():
    """A rack's trays differ in the moment alone; what they do not share is another table, and one that is broken is
    said to be so each time."""
    one = as_json()
    two = one.replace("04:05.678", "04:07.001")
    assert one != two
    assert read_table(one) is read_table(two)
    assert read_table(one).cells == CELLS
    assert read_table(two.replace('"CONNECTED"', '"RECOVERING"', 1)).cells != CELLS
    for _ in range(2):
        with pytest.raises(NoTable):
            read_table(one[:-9])


def test_no_table_says_why():
    assert read(query=Output("", NOBODY, 0), as_json_said=UNNEEDED, text=UNNEEDED).value.table_why == UNNEEDED.note
    assert read(as_json_said=Output(exit_code=124, ms=60000)).value.table_why == "no answer within its limit (60 s)"
    assert read().value.table_why == "not saved"


def test_absent_needs_all_three():
    """No command, no unit, no configuration: not here. One of them alone: somebody wanted IMEX."""
    assert read(NOTHING_HERE, MISSING).state == "absent"
    assert read(NOTHING_HERE + "unit LoadState=not-found\n", MISSING).state == "absent"
    for files in (NOTHING_HERE + "unit LoadState=loaded\n", "config unreadable\n", "config present\n"):
        found = read(files, MISSING).value
        assert (found.state, "not installed" in found.why) == ("", True)


def test_disabled_command_service_is_judged_by_the_unit():
    found = read(FILES.replace("ENABLED=1", "ENABLED=0"), Output("", DISABLED, 255)).value
    assert (found.state, found.cmd_enabled) == ("", False)
    assert "unit nvidia-imex is active" in found.why


def test_a_key_that_is_absent_means_disabled():
    assert read("config present\n").value.cmd_enabled is False
    assert read("config unreadable\n").value.cmd_enabled is None


def test_what_was_not_saved_is_not_known():
    """A bundle with the command's answers alone has a state; its channels are unknown, not missing."""
    assert read(NOT_SAVED, NOT_SAVED).broken
    found = read(NOT_SAVED, "READY\n", as_json()).value
    assert (found.state, found.files_why, found.channels) == ("READY", "not saved", ())
    assert read(NOT_SAVED, MISSING).value.files_why == "not saved"


PIECES = st.sampled_from([*NEW.split("\n"), *FILES.split("\n"), "channel x y z", "major ²", "set ", "resolved", "node"])


@given(st.one_of(st.text(), st.lists(PIECES).map("\n".join), st.text().map(lambda t: as_json().replace("READY", t))))
@settings(max_examples=150, deadline=None)
def test_any_text_gives_a_reading(text):
    """Total: whatever the program prints, there is a reading and no exception."""
    imex.parse({name: Output(text, text) for name in ("imex-files", "nvidia-imex-ctl-q", imex.JSON, imex.TEXT)})


def test_a_name_of_the_node_list_has_some_addresses_and_not_any_number():
    """A host may make all nodes of its table one name: what it says then grows with nodes times addresses."""
    many = " ".join(f"10.{n >> 8}.{n & 255}.1" for n in range(60_000))
    ((name, addresses),) = imex.read_files(f"resolved all {many}\n").resolved
    assert (name, addresses[0], len(addresses)) == ("all", "10.0.0.1", 32)
