"""Cordons: what stands beside the inventory and what stands on the hosts, which of both counts, and until when."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from facts import hgx, rack, snapshot
from local_hosts import life, make_host, run_script
from test_life_cli import Cli, cli  # noqa: F401 (a fixture)

from llmgwctl.cli.cordoning import moment
from llmgwctl.fabric import fabric_map
from llmgwctl.fabric.cordons import applied, whole_hosts
from llmgwctl.inventory import cordons
from llmgwctl.model.errors import InventoryError, UsageError
from llmgwctl.model.life import Cordon
from llmgwctl.model.profile import Profile
from llmgwctl.placement import plan

# --- on a host ------------------------------------------------------------------------------------------------------


def test_a_host_keeps_a_cordon_that_every_account_can_read(tmp_path):
    """Beside the claims, readable by all; the reason is data and never more lines of the file."""
    host = make_host(tmp_path, "n0")
    said = run_script(host, "cordon.sh", "set", "ann@desk", "2026-12-01T06:00:00Z", "99", "0,2", stdin=b"DIMM\ngpus=7")
    assert said.exit_code == 0, said
    (found,) = life(host).cordons
    assert (found.reason, found.until, found.gpus, found.by) == ("DIMMgpus=7", 99.0, (0, 2), "ann@desk")
    (path,) = Path(host.root_prefix, "run/lock/llmgwctl").glob("cordon-*")
    assert path.stat().st_mode & 0o777 == 0o644
    assert run_script(host, "cordon.sh", "set", "bob@desk", "t", "-", "-", stdin=b"again").exit_code == 0
    (found,) = life(host).cordons
    assert (found.reason, found.until, found.gpus) == ("again", None, ())
    assert run_script(host, "cordon.sh", "clear").exit_code == 0
    assert life(host).cordons == ()


def test_a_link_in_place_of_a_cordon_is_not_followed(tmp_path):
    host = make_host(tmp_path, "n0")
    run_script(host, "cordon.sh", "clear")  # makes the folder
    victim = tmp_path / "victim"
    victim.write_text("mine")
    Path(host.root_prefix, f"run/lock/llmgwctl/cordon-{os.getuid()}").symlink_to(victim)
    run_script(host, "cordon.sh", "set", "ann@desk", "t", "-", "-", stdin=b"x")
    assert victim.read_text() == "mine"


# --- in the map and the plan ----------------------------------------------------------------------------------------


def test_either_counts_and_what_has_expired_does_not():
    """Both reasons of one host are said; a cordon that has ended keeps nobody out."""
    snap = snapshot(rack(3))
    names = [f.host.name for f in snap.hosts]
    now = snap.taken_at
    local = {names[0]: (Cordon("ours", None, "ann"),), names[1]: (Cordon("over", now - 1),)}
    told = applied(snap, {names[0]: (Cordon("theirs", None, account="bob"),), names[2]: (Cordon("later", now + 9),)})
    found = whole_hosts(told, local)
    assert set(found) == {names[0], names[2]}
    assert "ours (by ann)" in found[names[0]]
    assert "theirs (by account bob)" in found[names[0]]
    verdicts = fabric_map(told, (), found).verdicts
    assert not verdicts[names[0]].eligible
    assert verdicts[names[1]].eligible


def test_a_cordoned_gpu_is_not_given_to_anybody():
    """The others of that host are."""
    told = applied(snapshot(hgx(1)), {"h100-001": (Cordon("ECC", None, "ann", gpus=(0, 1, 2, 3)),)})

    def plan_of(gpus):
        profile = Profile("p", "sim", tp=gpus, gpus_per_node=gpus, pool="prod")
        return plan(fabric_map(told), told, profile)

    assert whole_hosts(told, {}) == {}
    four = plan_of(4)
    assert four.replicas[0].shards[0].gpus == (4, 5, 6, 7)
    five = plan_of(5)
    assert not five.replicas
    assert "cordoned: ECC (by ann)" in five.left_out[0].reasons[0]


# --- beside the inventory -------------------------------------------------------------------------------------------


def test_many_at_once_lose_none(tmp_path):
    """Each change is read, made and written alone; a reader never sees half a file."""
    path = tmp_path / cordons.NAME

    def add(n: int) -> None:
        cordons.change(path, lambda found: {**found, f"h{n}": (Cordon(f"r{n}", 1e12, "ann", "t", (n,)),)})

    threads = [threading.Thread(target=add, args=(n,)) for n in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    found = cordons.load(path)
    assert {name: c[0].gpus for name, c in found.items()} == {f"h{n}": (n,) for n in range(16)}
    assert [p.name for p in tmp_path.iterdir()] == [cordons.NAME]


@pytest.mark.parametrize("text", ["x", "schema = 'other/v9'", "schema = 'llmgwctl.cordons/v1'\n[hosts.a]\nwhy = 'b'"])
def test_a_file_that_is_not_ours_is_an_error(tmp_path, text):
    """Passed over it would let shards onto a host that somebody keeps out."""
    path = tmp_path / cordons.NAME
    path.write_text(text)
    with pytest.raises(InventoryError, match="hosts cordon"):
        cordons.load(path)


def test_moments():
    """A span from now, a date in local time; nothing that has passed."""
    now = time.time()
    assert moment("3d", now) == now + 3 * 86400
    assert moment("+12h", now) == now + 12 * 3600
    assert moment("2999-01-01", now) > now
    for text in ("2001-01-01", "soon", "3x", ""):
        with pytest.raises(UsageError):
            moment(text, now)


# --- at the command line --------------------------------------------------------------------------------------------


async def test_cordoned_hosts_are_shown_and_left_out_until_uncordoned(cli: Cli) -> None:  # noqa: F811
    """By the file beside the inventory, and by the host's own when that file is gone."""
    code, out, err = await cli("hosts", "cordon", "r1-t[01-02]", "--reason", "DIMM 3", "--until", "3d")
    assert code == 0, err
    assert out.startswith("cordoned r1-t[01-02]: DIMM 3 (by ")
    shown = (await cli("hosts"))[1]
    assert "Cordoned" in shown
    assert "DIMM 3" in shown
    code, out, _ = await cli("plan", "sim-nvl")
    assert code == 4
    assert "cordoned: DIMM 3" in out
    (cli.rack.inventory.parent / cordons.NAME).unlink()
    assert (await cli("plan", "sim-nvl"))[0] == 4
    rows = (await cli.json("hosts", "--check"))["hosts"]
    assert [len(r["cordons"]) for r in rows] == [1, 1, 0]
    code, out, _ = await cli("hosts", "uncordon", "r1-t[01-03]")
    assert (code, out) == (0, "uncordoned r1-t[01-02]\nnot cordoned before: r1-t03\n")
    rows = (await cli.json("hosts", "uncordon", "r1-t01"))["hosts"]
    assert rows == [{"host": "r1-t01", "changed": False, "told": True, "why": ""}]
    assert (await cli("plan", "sim-nvl"))[0] == 0


async def test_a_cordoned_host_that_is_dead_is_no_doubt(cli: Cli) -> None:  # noqa: F811
    """It is taken out of what could not be told; the cordon itself says that the host was not told."""
    cli.rack.set("r1-t03", "refused")
    assert (await cli("nvlink"))[0] == 3
    code, _, err = await cli("hosts", "cordon", "r1-t03", "--reason", "dead")
    assert code == 0
    assert "r1-t03: the host itself was not told: " in err
    assert (await cli("nvlink"))[0] == 0
    code, out, _ = await cli("hosts", "drain", "r1-t[02-03]")
    assert (code, out) == (3, "no replica is known to use them; what runs on r1-t03 could not be read\n")
    code, out, _ = await cli("hosts", "drain", "r1-t02")
    assert (code, out) == (0, "no replica uses them\n")
    assert (await cli("hosts", "uncordon", "r1-t03"))[0] == 3
