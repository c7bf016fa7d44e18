"""Files and folders that others read while they are written: whole, or as they were."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from llmgwctl import publish
from llmgwctl.model.errors import LlmgwError, UsageError
from llmgwctl.publish import Busy, locked, write_file, write_tree


def listed(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_a_file_is_replaced_and_others_can_read_it(tmp_path):
    """node_exporter is another account; the mode of a file that was there stays."""
    path = tmp_path / "a.prom"
    write_file(path, "one\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    path.chmod(0o640)
    write_file(path, "two\n")
    assert path.read_text() == "two\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert listed(tmp_path) == ["a.prom"]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real" / "file")
    write_file(tmp_path / "link", "x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "file").read_text() == "x"


@pytest.mark.parametrize("where", ["replace", "fsync"])
def test_what_was_there_survives_a_failure_at_any_step(tmp_path, monkeypatch, where):
    """The disk is full, the machine goes: the old file is whole, and nothing is left beside it."""
    path = tmp_path / "state.json"
    write_file(path, "old")

    def fails(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as m:
        m.setattr(os, where, fails)
        with pytest.raises(LlmgwError, match="No space left") as caught:
            write_file(path, "new")
    assert caught.value.exit_code == 1, "the command line was right"
    assert path.read_text() == "old"
    assert listed(tmp_path) == ["state.json"]


def test_a_folder_that_is_not_there_is_said(tmp_path):
    with pytest.raises(UsageError, match="nowhere"):
        write_file(tmp_path / "nowhere" / "x", "")


@pytest.mark.parametrize("linked", [False, True])
def test_a_pipe_gets_the_text_and_stays_a_pipe(tmp_path, linked):
    """So does a device: a page for /dev/null, written by root, must not put a file where /dev/null was."""
    pipe = path = tmp_path / "pipe"
    os.mkfifo(pipe)
    if linked:
        path = tmp_path / "link"
        path.symlink_to(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_file(path, "text")
    assert os.read(reader, 99) == b"text"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert path.is_symlink() == linked


def test_a_device_that_is_full_is_said(tmp_path, monkeypatch):
    """As /dev/full says it; a pipe in its place, so that wrong code takes nothing away from the machine."""

    def fails(*_, **__):
        raise OSError(28, "No space left on device")

    os.mkfifo(tmp_path / "full")
    monkeypatch.setattr(Path, "open", fails)
    with pytest.raises(LlmgwError, match=r"full: cannot be written: No space left") as caught:
        write_file(tmp_path / "full", "text")
    assert caught.value.exit_code == 1


def test_a_site_for_which_there_is_no_room_is_said_with_its_folder(tmp_path, monkeypatch):
    """It is no trouble of stdout; the old site stays, and nothing is left beside it."""
    write_tree(tmp_path / "site", [("index.html", "old")])

    def fails(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as m:
        m.setattr(Path, "write_text", fails)
        with pytest.raises(LlmgwError, match=r"site: cannot be written: No space left") as caught:
            write_tree(tmp_path / "site", [("index.html", "new")])
    assert caught.value.exit_code == 1
    assert (tmp_path / "site/index.html").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["site"]


def test_one_at_a_time(tmp_path):
    """A second one is told so at once; the lock ends with its holder."""
    path = tmp_path / "state"
    with locked(path), pytest.raises(Busy), locked(path):
        pass
    with locked(path):
        pass


def test_a_lock_leaves_no_file_and_keeps_out_who_opened_it_before(tmp_path, monkeypatch):
    """A lock file that was removed between opening and locking it is nobody's lock."""
    path, made = tmp_path / "state", os.open
    with locked(path):
        assert (tmp_path / ".state.lock").exists()
    assert not (tmp_path / ".state.lock").exists()
    opened = []

    def late(file, *rest):
        opened.append(made(file, *rest))
        if len(opened) == 1:
            os.unlink(file)
        return opened[-1]

    monkeypatch.setattr(os, "open", late)
    with locked(path):
        assert os.path.samestat(os.fstat(opened[-1]), os.stat(tmp_path / ".state.lock"))
    assert len(opened) == 2


def test_a_lock_of_another_process_counts(tmp_path):
    handle = os.open(tmp_path / ".state.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with pytest.raises(Busy), locked(tmp_path / "state"):
        pass
    os.close(handle)


def test_a_tree_is_put_in_place_and_replaced_as_a_whole(tmp_path):
    site = tmp_path / "www" / "site"
    assert write_tree(site, [("index.html", "1"), ("nodes/a.html", "a")]) == 2
    assert write_tree(site, [("index.html", "2")]) == 1
    assert listed(site) == [publish.MARKER, "index.html"]
    assert (site / "index.html").read_text() == "2"
    assert [p.name for p in site.parent.iterdir() if "new" in p.name] == []


@pytest.mark.parametrize("exchange", [True, False])
def test_a_reader_never_sees_half_a_site(tmp_path, monkeypatch, exchange):
    """A reader that reads all the time finds all pages of one age, on a file system that can exchange two folders."""
    if not exchange:
        monkeypatch.setattr(publish, "_exchanged", lambda *_: False)
    site, stop, odd = tmp_path / "site", threading.Event(), []
    write_tree(site, [(f"{i}.html", "0") for i in range(20)])

    def read():
        while not stop.is_set():
            try:
                folder = os.open(site, os.O_RDONLY | os.O_DIRECTORY)
            except FileNotFoundError:
                odd.append("no site")
                continue
            try:
                ages = set()
                for i in range(20):
                    handle = os.open(f"{i}.html", os.O_RDONLY, dir_fd=folder)
                    ages.add(os.read(handle, 9))
                    os.close(handle)
                if len(ages) != 1:
                    odd.append(ages)
            except FileNotFoundError:
                pass  # the old one, while it is being removed
            finally:
                os.close(folder)

    reader = threading.Thread(target=read)
    reader.start()
    for age in range(1, 15):
        write_tree(site, [(f"{i}.html", str(age)) for i in range(20)])
    stop.set()
    reader.join()
    assert [o for o in odd if o != "no site" or exchange] == []


def test_a_folder_of_something_else_is_never_replaced(tmp_path):
    """A mistyped path costs nothing."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").write_text("years")
    with pytest.raises(UsageError, match="no site of llmgwctl"):
        write_tree(tmp_path / "home", [("index.html", "x")])
    assert listed(tmp_path) == ["home/thesis.txt"]


def test_a_failure_while_it_is_filled_leaves_the_old_site(tmp_path):
    write_tree(tmp_path / "site", [("index.html", "old")])

    def half():
        yield "index.html", "new"
        raise RuntimeError("a page could not be made")

    with pytest.raises(RuntimeError):
        write_tree(tmp_path / "site", half())
    assert (tmp_path / "site/index.html").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir() if ".new-" in p.name] == []


def test_what_a_killed_run_left_is_cleared_away(tmp_path):
    (tmp_path / ".site.new-dead" / "nodes").mkdir(parents=True)
    write_tree(tmp_path / "site", [("index.html", "x")])
    assert not (tmp_path / ".site.new-dead").exists()


def test_an_empty_folder_that_is_there_already_is_taken(tmp_path):
    (tmp_path / "site").mkdir()
    assert write_tree(tmp_path / "site", [("index.html", "x")]) == 1
    assert (tmp_path / "site/index.html").exists()


WRITER = """
import sys; from pathlib import Path; from llmgwctl.publish import write_file
print("up", flush=True)
while True:
    for letter in "ab":
        write_file(Path(sys.argv[1]), letter * 300_000)
"""


def test_a_file_survives_a_kill_at_any_moment(tmp_path):
    """Killed again and again while it writes: what is there is always one whole text."""
    path = tmp_path / "state.json"
    write_file(path, "a" * 300_000)
    for i in range(12):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            time.sleep(0.003 * i)
            process.kill()
        text = path.read_text()
        assert text in ("a" * 300_000, "b" * 300_000)


@pytest.mark.parametrize("name", ["../x", "nodes/../../x", "/tmp/llmgwctl-test-x", "nodes/../../../../x", ".", ""])
def test_no_page_is_written_outside_of_its_folder(tmp_path, name):
    """Whatever a host is called: nothing is written there, and the site that was there stays."""
    (tmp_path / "a").mkdir()
    write_tree(tmp_path / "a" / "site", [("index.html", "old")])
    with pytest.raises(UsageError, match="outside of"):
        write_tree(tmp_path / "a" / "site", [("index.html", "new"), (name, "evil")])
    assert listed(tmp_path) == ["a/site/.llmgwctl-site", "a/site/index.html"]
    assert (tmp_path / "a" / "site" / "index.html").read_text() == "old"
