"""Bundles: what is saved is what is replayed, and a folder with one file is a host."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmgwctl.model.errors import LlmgwError, NotLive, Unreachable
from llmgwctl.model.host import Host
from llmgwctl.probe.base import NOT_SAVED, Output, Section
from llmgwctl.transport import replay as replay_module
from llmgwctl.transport.base import Script
from llmgwctl.transport.bundle import folder_name, read_meta, save
from llmgwctl.transport.replay import Replay

SMI = Section("nvidia-smi-q", "gpu", 60, argv=("nvidia-smi", "-q"), alternatives=("nvidia-smi-q.xml",))
IMEX = Section("nvidia-imex-ctl-q", "imex", 30, argv=("nvidia-imex-ctl", "-q"))
TRAY = Host("r1-t01", address="10.0.0.1")
SAID = {
    "nvidia-smi-q": Output("Attached GPUs : 4\r\nünïcode\0", "warning\n", 0, 1234),
    "nvidia-imex-ctl-q": Output("", "", 127, 3),
}


async def test_what_is_saved_is_what_is_replayed(tmp_path):
    """Outputs, errors, exit codes, times and the clock; plain files that a person can read."""
    save(tmp_path, TRAY, SAID, 1_700_000_000.25, 2.5)
    replay = Replay(tmp_path)
    assert await replay.read(TRAY, (SMI, IMEX)) == SAID
    assert replay.when(TRAY) == (1_700_000_000.25, 2.5)
    assert (tmp_path / "r1-t01/nvidia-smi-q.txt").read_bytes() == "Attached GPUs : 4\r\nünïcode\0".encode()
    assert (tmp_path / "r1-t01/nvidia-smi-q.stderr.txt").read_text() == "warning\n"
    meta = json.loads((tmp_path / "r1-t01/meta.json").read_text())
    assert meta["schema"] == "llmgwctl.bundle/v1"
    assert (meta["host"], meta["address"]) == ("r1-t01", "10.0.0.1")
    assert meta["sections"]["nvidia-smi-q"]["exit_code"] == 0


OUTPUT = st.builds(
    Output,
    stdout=st.text(max_size=50),
    stderr=st.text(max_size=20),
    exit_code=st.one_of(st.none(), st.integers(0, 255)),
    ms=st.integers(0, 10**6),
    state=st.just("ran"),
    note=st.text(max_size=20),
    truncated=st.booleans(),
)
QUIET = st.builds(
    Output, exit_code=st.none(), state=st.sampled_from(["skipped", "unneeded", "not-saved"]), note=st.text(max_size=9)
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(smi=st.one_of(OUTPUT, QUIET), imex=st.one_of(OUTPUT, QUIET))
async def test_any_answer_survives(tmp_path, smi, imex):
    """Every state, any text: the readings of a replay are those of the run."""
    said = {"nvidia-smi-q": smi, "nvidia-imex-ctl-q": imex}
    save(tmp_path, TRAY, said, 1.0)
    assert await Replay(tmp_path).read(TRAY, (SMI, IMEX)) == said


async def test_a_host_that_did_not_answer_stays_so(tmp_path):
    save(tmp_path, TRAY, Unreachable("10.0.0.1: connection refused", "refused"), 5.0)
    with pytest.raises(Unreachable, match="connection refused") as e:
        await Replay(tmp_path).read(TRAY, (SMI,))
    assert e.value.kind == "refused"
    assert Replay(tmp_path).when(TRAY) == (5.0, 0.0)


@pytest.mark.parametrize("name", ["nvidia-smi-q.txt", "nvidia-smi-q.xml"])
async def test_a_folder_with_one_file_is_a_host(tmp_path, name):
    """What somebody sends by mail: other readings are not saved, which is not the same as absent."""
    (tmp_path / "r1-t01").mkdir()
    (tmp_path / "r1-t01" / name).write_text("text")
    replay = Replay(tmp_path)
    said = await replay.read(TRAY, (SMI, IMEX))
    assert said == {"nvidia-smi-q": Output("text"), "nvidia-imex-ctl-q": NOT_SAVED}
    assert [h.name for h in replay.hosts()] == ["r1-t01"]


async def test_a_folder_of_files_is_a_fleet(tmp_path):
    """DIR/HOST.txt, each what nvidia-smi -q said."""
    (tmp_path / "b.txt").write_text("NVSMI LOG of b")
    (tmp_path / "a.xml").write_text("<nvidia_smi_log> of a")
    (tmp_path / "notes.txt").write_text("call the vendor")
    replay = Replay(tmp_path)
    assert [h.name for h in replay.hosts()] == ["a", "b"]
    assert (await replay.read(Host("b"), (SMI, IMEX)))["nvidia-smi-q"].stdout == "NVSMI LOG of b"
    assert (await replay.read(Host("b"), (SMI, IMEX)))["nvidia-imex-ctl-q"] == NOT_SAVED
    assert replay.when(Host("b"))[0] == (tmp_path / "b.txt").stat().st_mtime


async def test_a_file_that_was_taken_out_is_not_saved(tmp_path):
    """An answer whose text is missing is no answer that was empty."""
    save(tmp_path, TRAY, SAID)
    (tmp_path / "r1-t01/nvidia-smi-q.txt").unlink()
    assert (await Replay(tmp_path).read(TRAY, (SMI,)))["nvidia-smi-q"] == NOT_SAVED


async def test_hosts_of_a_bundle(tmp_path):
    """By name, with their addresses; what is no host is none."""
    save(tmp_path, Host("r1-t02", address="10.0.0.2"), SAID)
    save(tmp_path, TRAY, SAID)
    (tmp_path / "empty").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "notes.md").write_text("x")
    hosts = Replay(tmp_path).hosts()
    assert [(h.name, h.address, h.order) for h in hosts] == [("r1-t01", "10.0.0.1", 0), ("r1-t02", "10.0.0.2", 1)]
    assert Replay(tmp_path / "nowhere").hosts() == ()


async def test_what_is_no_bundle(tmp_path):
    """Folders of anything else are no hosts; one that must not be looked into is one beside others, and unread."""
    other = tmp_path / "etc"
    (other / "ssl").mkdir(parents=True)
    (other / "ssl/readme.txt").write_text("x")
    assert Replay(other).hosts() == ()
    assert Replay(other).empty()
    save(other, TRAY, SAID)
    assert not Replay(other).empty()
    with pytest.raises(FileNotFoundError):
        Replay(tmp_path / "nowhere").empty()


async def test_a_folder_that_is_locked_is_a_host_that_is_not_read(tmp_path, monkeypatch):
    save(tmp_path, TRAY, SAID)
    save(tmp_path, Host("r1-t02"), SAID)
    monkeypatch.setattr("os.access", lambda path, _: not str(path).endswith("t02"))
    assert [h.name for h in Replay(tmp_path).hosts()] == ["r1-t01", "r1-t02"]
    with pytest.raises(Unreachable, match="cannot be read"):
        await Replay(tmp_path).read(Host("r1-t02"), (SMI,))
    assert Replay(tmp_path).when(Host("r1-t02"))[1] == 0.0


async def test_a_host_that_is_not_there(tmp_path):
    with pytest.raises(Unreachable) as e:
        await Replay(tmp_path).read(TRAY, (SMI,))
    assert e.value.kind == "not-saved"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"host": 1}', "\xff"])
async def test_a_meta_file_that_makes_no_sense_costs_its_host(tmp_path, text):
    save(tmp_path, TRAY, SAID)
    (tmp_path / "r1-t01/meta.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(Unreachable, match="cannot be understood") as e:
        await Replay(tmp_path).read(TRAY, (SMI,))
    assert e.value.kind == "bundle-broken"
    assert [h.name for h in Replay(tmp_path).hosts()] == ["r1-t01"]


@pytest.mark.parametrize("name", ["../outside", "..", "/etc", "a/b", ".hidden", "", "-rf", "a b\n"])
async def test_no_name_leads_out_of_the_bundle(tmp_path, name):
    """Neither when it is read nor when it is written."""
    inside = tmp_path / "bundle"
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/nvidia-smi-q.txt").write_text("secret")
    inside.mkdir()
    with pytest.raises(Unreachable):
        await Replay(inside).read(Host(name), (SMI,))
    target = save(inside, Host(name), SAID)
    assert target.parent == inside
    assert (await Replay(inside).read(Host(name), (SMI, IMEX))) == SAID
    assert Replay(inside).hosts()[0].name == folder_name(name)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bundle", "outside"]


async def test_no_link_leads_out_of_the_bundle(tmp_path):
    """A bundle from a stranger cannot show us a file of this machine."""
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    inside = tmp_path / "bundle"
    (inside / "r1-t01").mkdir(parents=True)
    (inside / "r1-t01/nvidia-smi-q.txt").symlink_to(secret)
    (inside / "r1-t01/nvidia-imex-ctl-q.stderr.txt").symlink_to(secret)
    (inside / "r1-t01/nvidia-imex-ctl-q.txt").write_text("READY")
    (inside / "r1-t02").symlink_to(tmp_path)
    (inside / "flat.txt").symlink_to(secret)
    said = await Replay(inside).read(TRAY, (SMI, IMEX))
    assert said == {"nvidia-smi-q": NOT_SAVED, "nvidia-imex-ctl-q": Output("READY")}
    assert [h.name for h in Replay(inside).hosts()] == ["r1-t01"]


async def test_a_pipe_in_a_bundle_is_not_read(tmp_path):
    """It would never end."""
    (tmp_path / "r1-t01").mkdir()
    os.mkfifo(tmp_path / "r1-t01/nvidia-smi-q.txt")
    assert (await Replay(tmp_path).read(TRAY, (SMI,)))["nvidia-smi-q"] == NOT_SAVED


async def test_a_huge_file_is_cut_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(replay_module, "MAX_FILE_BYTES", 10)
    save(tmp_path, TRAY, {"nvidia-smi-q": Output("0123456789abc")})
    said = (await Replay(tmp_path).read(TRAY, (SMI,)))["nvidia-smi-q"]
    assert (said.stdout, said.truncated) == ("0123456789", True)


async def test_saving_again_replaces_the_whole_answer(tmp_path):
    """No file of the older answer stays, and nothing half written."""
    save(tmp_path, TRAY, SAID)
    save(tmp_path, TRAY, {"nvidia-imex-ctl-q": Output("READY\n")})
    assert sorted(p.name for p in (tmp_path / "r1-t01").iterdir()) == ["meta.json", "nvidia-imex-ctl-q.txt"]
    assert [p.name for p in tmp_path.iterdir()] == ["r1-t01"]


def test_a_folder_that_is_not_ours_is_left_alone(tmp_path):
    (tmp_path / "r1-t01").mkdir()
    (tmp_path / "r1-t01/thesis.txt").write_text("years of work")
    with pytest.raises(LlmgwError, match="nothing was overwritten"):
        save(tmp_path, TRAY, SAID)
    assert (tmp_path / "r1-t01/thesis.txt").read_text() == "years of work"
    assert [p.name for p in tmp_path.iterdir()] == ["r1-t01"]


def test_a_place_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LlmgwError, match="cannot be saved"):
        save(tmp_path / "file", TRAY, SAID)


@given(st.text(max_size=80), st.text(max_size=80))
def test_folder_names_are_plain_and_do_not_meet(one, other):
    """Whatever a host is called: one path segment, and never the folder of another host."""
    name = folder_name(one)
    assert Path(name).name == name
    assert not name.startswith((".", "-"))
    assert (folder_name(other) == name) == (one == other)


async def test_nothing_runs_in_a_bundle(tmp_path):
    """run and connect need a live host, and say so."""
    save(tmp_path, TRAY, SAID)
    replay = Replay(tmp_path)
    with pytest.raises(NotLive, match="r1-t01"):
        await replay.run(TRAY, Script("shard.sh"), 1)
    with pytest.raises(NotLive):
        await replay.connect(TRAY, "127.0.0.1", 1)
    await replay.close()


@pytest.mark.parametrize("name", ["../../../x", "/etc/x", "..", "x[1-99999999]", "[red]", "a b", "a\x1b[2J", "", "-x"])
def test_a_name_of_a_host_is_one(tmp_path, name):
    """meta.json may say any: pages are files of that name. The folder's own name counts then."""
    save(tmp_path, Host(name), SAID)
    assert [h.name for h in Replay(tmp_path).hosts()] == [folder_name(name)]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_a_number_that_json_lacks_costs_its_host(tmp_path, number):
    folder = save(tmp_path, TRAY, SAID, seconds=7.25)
    meta = folder / "meta.json"
    meta.write_text(meta.read_text().replace("7.25", number))
    with pytest.raises(Unreachable, match="cannot be understood"):
        read_meta(folder)
