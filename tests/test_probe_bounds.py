"""What a host prints has bounds: beyond them its own section is broken, and nobody's memory is spent on it."""

from __future__ import annotations

import pytest
import smi
from smi import Card, trays

from llmgwctl.probe import gpus, hcas, imex, network
from llmgwctl.probe.base import Output
from llmgwctl.probe.imex_table import LIMIT_NODES, NoTable, read_table
from llmgwctl.probe.same import _first, same
from llmgwctl.transport import frames


def only(card: Card):
    (gpu,) = gpus.PROBE.read({"nvidia-smi-q": Output(smi.text("580.126", [card]))}).value.gpus
    return gpu


def report(q: str):
    return gpus.PROBE.read({"nvidia-smi-q": Output(q), gpus.QUERY: Output(smi.query(trays()))})


@pytest.mark.parametrize("attached", [65, 9_999_999_999_999])
@pytest.mark.parametrize("form", [smi.text, smi.xml])
def test_no_host_has_so_many_gpus(attached, form):
    """The number is drawn, a chip a GPU: 9999999999999 of them were no page."""
    reading = report(form("580.126", trays(), attached))
    assert reading.broken
    assert "more than 64 GPUs" in reading.why


def test_nor_describes_so_many():
    reading = report(smi.text("580.126", [Card(0)] * 100, 4))
    assert reading.broken


def test_a_uuid_names_one_gpu():
    """Claims are made by it: two GPUs of one UUID are one claim, and the host is left alone."""
    said = smi.text("580.126", trays()).replace(Card(1).uuid, Card(0).uuid)
    reading = gpus.PROBE.read({"nvidia-smi-q": Output(said)})
    assert not reading.value.all_readable
    assert f"2 GPUs say that they are {Card(0).uuid}".lower() in reading.value.lost[0].lower()


def test_interfaces_and_adapters():
    said = "link eth0 up 0x1 1500\naddr 2: eth0 inet 10.0.0.1/24 x\n" + "route4 10.0.0.0/8 dev eth0\n" * 200_000
    assert network.PROBE.read({"network": Output(said)}).broken
    assert hcas.PROBE.read({"hcas": Output("hca a\nport 1\n" + "gid 0 x - -\n" * 60_000 + "end\n")}).broken


def test_imex_files():
    files = imex.read_files("node 10.0.0.1\n" * 100_000)
    assert len(files.nodes) == imex.LIMIT_LINES


@pytest.mark.parametrize(
    "value",
    ["x" * 300, ("a",) * 300, ("x" * 20_000,), (("node", ("x" * 20_000,)),), (("node", ("10.0.0.1",) * 300),)],
    ids=["a string", "entries", "a long entry", "a long entry within", "entries within"],
)
def test_what_is_large_is_not_kept_for_the_next_host(value):
    """A host that says something new and large with each reading holds no memory once its reading is gone."""
    before = _first.cache_info().currsize
    assert same(value) is value
    assert _first.cache_info().currsize == before


def test_what_is_small_is_kept_for_the_next_host():
    """The node list of a rack of 36 with its addresses, as each of its hosts says it, is one tuple."""
    said = lambda: tuple((f"r1-t{i:02}", (f"10.0.0.{i}",)) for i in range(36))  # noqa: E731
    assert same(said()) is same(said())
    assert same("x" * len("10.0.0.1")) is same("".join(["x"] * 8))


def test_words_of_the_fabric_are_cut():
    """They are kept between readings, and no driver has a word of a hundred letters."""
    for row in ("Summary", "Bandwidth", "Incorrect Configuration"):
        gpu = only(Card(health={row: "x" * 5_000}))
        assert len(repr(gpu.fabric)) < 1000
    assert len(only(Card(status="x" * 5_000)).fabric.status) == 100


def test_a_table_of_imex():
    node = "Node #{}   - 10.0.0.1    - READY          - Version: 580.1\n"
    with pytest.raises(NoTable, match="more than"):
        read_table("Nodes:\n" + node.format(1) * (LIMIT_NODES + 1) + "Domain State: UP\n")
    entry = '"{}": {{"host": "a", "status": "READY"}}'
    with pytest.raises(NoTable, match="more than"):
        read_table('{"nodes": {' + ",".join(entry.format(i) for i in range(LIMIT_NODES + 1)) + "}}")


def test_a_section_keeps_to_its_limit():
    """Whatever answers in the framer's place may say more: it is cut, and it is known to be."""
    size = frames.MAX_SECTION_BYTES + 10
    data = f"LLMGWCTL-BEGIN n\n@ a 0 1 {size} {size} ran 0\n".encode() + b"x" * (2 * size) + b"LLMGWCTL-END n 1\n"
    output = frames.parse(data, "n").outputs["a"]
    assert (len(output.stdout), len(output.stderr), output.truncated) == (size - 10, size - 10, True)
