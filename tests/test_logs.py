"""What ranks said: known failures named, earliest first; time spans; following; parts that have moved."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from local_hosts import directory, kill_tree, make_host, run_script, sh, started, until, words
from test_life_cli import Cli, cli  # noqa: F401 (a fixture)

from llmgwctl.cli import logbook
from llmgwctl.cli.secrets import hider
from llmgwctl.inventory import Inventory
from llmgwctl.launch.logs import MORE_BYTES, CommandLog, _from_a_line, split
from llmgwctl.launch.secrets import hide
from llmgwctl.launch.signatures import SIGNATURES, Part, dated, moment, named, of_line, since
from llmgwctl.model.host import Host
from llmgwctl.model.profile import Profile
from llmgwctl.transport.settings import SshSettings

# One line a signature, in the words of the field; names, numbers and addresses are invented.
LINES = {
    "imex-channel": "t1:5:5 [0] NCCL WARN MNNVL (cliqueSize 8) is available but not working on this system. Check the "
    "IMEX channel configuration (/dev/nvidia-caps-imex-channels). Set NCCL_MNNVL_ENABLE=0 to ignore this issue.",
    "imex-daemon": "NCCL WARN MNNVL (cliqueSize 8) is available but not working on this system. Check the IMEX "
    "configuration (nvidia-imex-ctl -N). Set NCCL_MNNVL_ENABLE=0 to ignore this issue.",
    "mnnvl-unsupported": "NCCL WARN MNNVL is not supported on this system",
    "imex-permission": "transport/p2p.cc:275 NCCL WARN Cuda failure 800 'operation not permitted'",
    "imex-import": "transport/p2p.cc:275 NCCL WARN Cuda failure 400 'invalid resource handle'",
    "custom-all-reduce": "RuntimeError: custom_all_reduce.cuh:143 'invalid resource handle'",
    "nvls": "NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 1",
    "p2p-hardware": "NCCL WARN P2P is disabled between NVLINK connected GPUs 2 and 3. Probably a hardware issue",
    "nccl-version": "NCCL WARN Mismatched NCCL version detected : rank 0 version 22703 rank 4 version 22802",
    "nccl-duplicate-gpu": "NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 9000",
    "ib-timeout": "NCCL WARN NET/IB : Got completion from peer 10.9.0.2<4> with status=12 opcode=0 len=0",
    "ib-link-types": "NCCL WARN NET/IB : Try selecting NICs of only one link type using NCCL_IB_HCA",
    "ib-no-device": "NCCL INFO NET/IB : No device found.",
    "nccl-no-net": "NCCL WARN Failed to initialize any NET plugin",
    "memlock": "NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory",
    "shm": "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-AbCdEf (size 33030528)",
    "gloo-loopback": "RuntimeError: Gloo connectFullMesh failed with timed out connecting: remote=[127.0.0.1]:4",
    "gloo-interface": "RuntimeError: Unable to find address for: ^lo",
    "nccl-no-interface": "NCCL WARN NET/IB : No IP interface found.",
    "cuda-oom": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "kv-cache": "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",
    "port": "OSError: [Errno 98] Address already in use",
    "ray-version": "RuntimeError: Version mismatch: The cluster was started with: Ray: 2.60.0",
    "ray-address": "Every node should have a unique IP address. Got 2 nodes with node ids",
    "model-missing": "OSError: /models/x does not appear to have a file named config.json",
    "library": "vllm: error while loading shared libraries: libcudart.so.13: cannot open shared object file",
    "driver": "RuntimeError: CUDA driver version is insufficient for CUDA runtime version",
    "xid": "CUDA error: uncorrectable ECC error encountered",
    "stack": "NCCL WARN Stack size limit (unlimited) is unsafe; will use 8192KB",
    "nccl-timeout": "[rank4] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9)",
}


def test_every_signature_has_a_line_of_the_field():
    assert set(LINES) == {s.name for s in SIGNATURES}


@pytest.mark.parametrize("name", LINES)
def test_a_known_text_is_named_with_its_fix(name):
    """As that one and no other, and the fix is a next step."""
    found = of_line(LINES[name])
    assert found is not None
    assert found.name == name
    assert len(found.fix) > 10


@pytest.mark.parametrize(
    "line",
    [
        "NCCL INFO MNNVL busId 0x8000000 fabric UUID 1.2 cliqueId 0x7ffe state 3 healthMask 0x0",
        "NCCL INFO MNNVL 1 cliqueId 7ffe cliqueSize 8 cliqueRank 0",
        "INFO 12-01 06:00:00 [gpu_model_runner.py:1] Loading model weights took 83.2 GB",
        "all 2 ranks have joined",
        "NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>",
    ],
)
def test_what_is_well_is_no_failure(line):
    assert of_line(line) is None


def test_the_earliest_across_ranks_stands_first():
    """By the time in the lines; where there is none, the rank that ended first; a consequence only where alone."""
    oom, timeout = LINES["cuda-oom"], LINES["nccl-timeout"]
    a = Part(0, "n0", "main", f"ERROR 12-01 06:00:09 {LINES['port']}\n{timeout}")
    b = Part(1, "n1", "main", f"[2026-12-01 06:00:03 TP4] start\n{oom}\n{oom}")
    assert [(f.signature.name, f.rank) for f in named([a, b])] == [("cuda-oom", 1), ("port", 0)]
    late, early = Part(0, "n0", "main", LINES["port"], 3.0), Part(1, "n1", "main", oom, 9.0)
    assert [f.rank for f in named([late, early])] == [1, 0]
    assert [f.signature.name for f in named([Part(0, "n0", "main", timeout)])] == ["nccl-timeout"]


def test_spans_of_time():
    """By the stamps of vLLM and SGLang; continued lines belong to the line before; New Year is passed."""
    assert moment("INFO 12-01 06:00:00 [x.py:1] y") == "12-01 06:00:00"
    assert moment("[2026-12-01 06:00:00 TP0] y") == "12-01 06:00:00"
    lines = ("12-01 05:00:00 a", "more of a", "12-01 07:00:00 b", "more of b")
    assert since(lines, "12-01 06:00:00") == lines[2:]
    assert since(("x", "y"), "12-01 06:00:00") == ("x", "y")
    assert dated("\n".join(lines))
    assert not dated("x\nof 12-01\n")
    assert since(("12-31 23:00:00 a", "01-01 00:10:00 b"), "12-31 23:30:00") == ("01-01 00:10:00 b",)


@pytest.fixture
def host(tmp_path):
    yield make_host(tmp_path, "n0")
    kill_tree(tmp_path)


def after(p, *known, most=1_000_000):
    said = run_script(p.host, "logs.sh", "after", *words(p), "N", str(most), *map(str, known))
    assert said.exit_code == 0, said
    return split(said.stdout, "N")


def test_what_is_new_is_what_has_come_since(host):
    """From where the last answer ended, and no further than its limit, over the parts of which a log is made."""
    p = started(host, sh("main", "echo one; sleep 300"), log_bytes=10)
    log = directory(p) / "cmd.0/log"
    until(lambda: log.exists() and log.read_text() == "one\n")
    assert after(p, "main", 0) == [("main", "one\n", 4, 0)]
    assert after(p, "main", 4) == [("main", "", 4, 0)]
    assert after(p, "main", 0, most=2) == [("main", "on", 2, 0)]
    assert after(p, "main", 2, most=2) == [("main", "e\n", 4, 0)]
    write(log, "0123456789", {1: "abcdefghij", 2: "kl"})
    assert after(p, "main", 20) == [("main", "kl", 22, 0)]
    assert after(p, "main", 4, most=8) == [("main", "456789ab", 12, 0)]
    assert after(p, "main", 12, most=10) == [("main", "cdefghijkl", 22, 0)]


def test_what_is_not_kept_any_more_is_counted(host):
    """Parts in the middle are dropped: as many bytes as were not seen of them; a part that was begun anew is new."""
    p = started(host, sh("main", "sleep 300"), log_bytes=10)
    log = directory(p) / "cmd.0/log"
    until(log.exists)
    write(log, "0123456789", {9: "abcdefghij", 10: "kl"})
    assert after(p, "main", 8) == [("main", "89abcdefghijkl", 102, 80)]
    assert after(p, "main", 8, most=2) == [("main", "89", 10, 0)]
    assert after(p, "main", 10) == [("main", "abcdefghijkl", 102, 80)]
    assert after(p, "main", 25, most=3) == [("main", "abc", 93, 65)]
    assert after(p, "main", 93) == [("main", "defghijkl", 102, 0)]
    assert after(p, "main", 105) == [("main", "kl", 102, 0)]
    said = split(run_script(p.host, "logs.sh", "tail", *words(p), "N", "13").stdout, "N")
    assert ("main", "9abcdefghijkl", 102, 0) in said


def write(log: Path, first: str, parts: dict[int, str]) -> None:
    for old in log.parent.glob("log.*"):
        old.unlink()
    log.write_text(first)
    for number, text in parts.items():
        log.with_name(f"log.{number}").write_text(text)


def test_a_shard_that_is_gone_ends_the_following(host):
    p = started(host, sh("main", "sleep 300"))
    run_script(host, "shard.sh", "stop", *words(p), "KILL", "0")
    run_script(host, "shard.sh", "clean", *words(p))
    assert run_script(host, "logs.sh", "after", *words(p), "N", "10").exit_code == 14


async def test_more_than_one_answer_holds_is_read_on_at_once(monkeypatch, capsys):
    """Nothing is left out between two polls, and there is no pause until it is caught up."""
    total, line = 5 * MORE_BYTES + 77, "x" * 15 + "\n"
    text = line * (total // 16) + "y" * (total % 16 - 1) + "\n"
    asked, pauses = [], []

    async def more(_targets, _transport, seen):
        at = seen.get((0, "h"), {}).get("sim", 0)
        asked.append(at)
        if at == total:
            return (CommandLog(0, "h", why="it is gone", gone=True),)
        end = min(at + MORE_BYTES, total)
        return (CommandLog(0, "h", "sim", text[at:end], end),)

    async def pause(seconds):
        pauses.append(seconds)

    monkeypatch.setattr(logbook, "fetch_more", more)
    monkeypatch.setattr(logbook.asyncio, "sleep", pause)
    following = follower()
    following.s.transport = None
    following.targets = [SimpleNamespace(rank=0, host=Host("h"))]
    await following.run([CommandLog(0, "h", "sim", "", 0)])
    assert capsys.readouterr().out.replace("r0 sim | ", "") == text
    assert asked == [*range(0, total, MORE_BYTES), total]
    assert pauses == [logbook.POLL_S, 0, 0, 0, 0, 0, logbook.POLL_S]


async def test_a_host_that_always_has_more_is_given_a_pause(monkeypatch):
    """Answers without end, each as long as can be: after so many of them in a row it is asked once a second."""
    pauses = []

    async def more(_targets, _transport, _seen):
        return (CommandLog(0, "h", "sim", "x" * MORE_BYTES),)

    async def pause(seconds):
        pauses.append(seconds)
        if len(pauses) > 3 * logbook.BURST:
            following.targets.clear()

    monkeypatch.setattr(logbook, "fetch_more", more)
    monkeypatch.setattr(logbook.asyncio, "sleep", pause)
    following = follower()
    following.s.transport = None
    following.targets = [SimpleNamespace(rank=0, host=Host("h"))]
    await following.run([CommandLog(0, "h", "sim", "", 0)])
    assert [n for n, p in enumerate(pauses) if p] == [0, logbook.BURST, 2 * logbook.BURST, 3 * logbook.BURST]


def test_a_line_that_is_cut_is_said_to_be(capsys):
    """Once for each such line, however many answers it takes; its beginning is shown, as of every long line."""
    following, said = follower(), []
    following.s.note = said.append
    parts = ["one\n" + "a" * 60000, "b" * 60000, "c" * 60000, "end\nshort\n", "d" * 80000, "\nnext ", "line\n"]
    for text in parts:
        following._print(CommandLog(1, "h", "sim", text))
    lines = capsys.readouterr().out.replace("r1 sim | ", "").splitlines()
    assert lines == ["one", "a" * 2000 + "...", "short", "d" * 2000 + "...", "next line"]
    assert said == ["rank 1 on h: a line of sim is longer than 65536 characters: the rest of it is left out"] * 2
    following = follower(grep="end")
    for text in parts:
        following._print(CommandLog(1, "h", "sim", text))
    assert capsys.readouterr().out == ""  # what is left out is not looked through


def test_what_was_missed_is_said(capsys):
    """With how much, of what and where. Of the lines in which the gap begins and ends, which may hold the halves of a
    secret, nothing is shown."""
    following, said = follower("tok-1234567"), []
    following.s.note = said.append
    following._print(CommandLog(1, "h", "sim", "one\nHF_TOKEN=tok-12"))
    for text, size, missed in (("7 of a", 90, 40), (" line\nmore\n", 99, 0), ("end\n", 104, 0)):
        log = CommandLog(1, "h", "sim", text, size, missed)
        following._tell_missed(log)
        following._print(log)
    assert capsys.readouterr().out == "r1 sim | one\nr1 sim | more\nr1 sim | end\n"
    assert said == ["rank 1 on h: 40 bytes of sim are left out: its host keeps no more"]


# --- what is secret in them -------------------------------------------------------------------------------------------


def follower(*secrets: str, grep: str | None = None) -> logbook._Follow:
    def hidden(logs: Sequence[CommandLog]) -> tuple[CommandLog, ...]:
        return tuple(replace(x, text=hide(x.text, secrets)) for x in logs)

    session = SimpleNamespace(note=lambda _text: None)
    return logbook._Follow(session, [], logbook.Wish(grep=re.compile(grep) if grep else None), hidden)


def test_the_secrets_of_every_profile_are_hidden_the_longest_first():
    """A host may say that a replica is of another profile; and what is left of a longer one would tell it."""
    envs = {
        "a": (("HF_TOKEN", "tok-1234567"),),
        "b": (("DB_PASSWORD", "pre-tok-1234567-post"), ("LEVEL", "informative")),
    }
    profiles = {n: Profile(n, "sim", "/m", env=env, api_key_env=f"NOT_SET_{n}") for n, env in envs.items()}
    hidden = hider(Inventory(None, (), SshSettings(), profiles=profiles))
    (log,) = hidden([CommandLog(0, "h", "sim", "pre-tok-1234567-post tok-1234567 informative")])
    assert log.text == "*** *** informative"


def test_a_secret_that_comes_in_two_answers_is_hidden(capsys):
    """Engines flush when they like: the line is looked through when it is whole, and printed once."""
    following = follower("tok-1234567")
    for text in ("HF_TOKEN=tok-12", "34", "567 and more\nnext ", "line\n"):
        following._print(CommandLog(0, "h", "sim", text))
    assert capsys.readouterr().out == "r0 sim | HF_TOKEN=*** and more\nr0 sim | next line\n"


def test_what_was_shown_first_ends_with_a_whole_line(capsys):
    """The beginning of a secret in the last words so far is not shown, and joined with what comes."""
    (log,), rests = logbook.unfinished([CommandLog(0, "h", "sim", "one\nHF_TOKEN=tok-12")])
    assert log.text == "one\n"
    following = follower("tok-1234567")
    following.rests |= rests
    following._print(CommandLog(0, "h", "sim", "34567\n"))
    assert capsys.readouterr().out == "r0 sim | HF_TOKEN=***\n"


def test_the_last_line_of_a_rank_needs_no_line_break(capsys):
    """It is shown when nothing more comes; --grep chooses from it too."""
    for grep, shown in ((None, "r1 sim | bye\n"), ("hello", "")):
        following = follower(grep=grep)
        following._print(CommandLog(1, "h", "sim", "bye"))
        following._print(CommandLog(10, "i", "sim", "not yet"))
        following._end(1)
        assert capsys.readouterr().out == shown
        assert list(following.rests) == ["r10 sim"]


def test_a_log_that_was_cut_begins_with_a_whole_line():
    """Half a secret at its beginning would not be known for one."""
    assert _from_a_line(CommandLog(0, "h", "sim", "34567\nnext\n", 500), 12).text == "next\n"
    assert _from_a_line(CommandLog(0, "h", "sim", "all\nof it\n", 10), 12).text == "all\nof it\n"


# --- at the command line --------------------------------------------------------------------------------------------


async def test_logs_are_followed_filtered_and_explained(cli: Cli) -> None:  # noqa: F811
    """With labels of ranks; a known text is named on stderr; what is over ends the following."""
    cli.change("[profiles.sim-nvl]\n", '[profiles.sim-nvl]\nargs = ["--nccl", "tcp"]\n')
    code, _, err = await cli("place", "sim-nvl")
    assert code == 0
    assert "PLANNED OVER NVLINK, AND NCCL USES TCP" in err
    follower = await cli.begin("logs", "-f", "sim-nvl-0")
    code, out, err = await cli("logs", "sim-nvl-0", "--grep", "Using network")
    assert code == 0
    assert re.search(r"^r0 sim \| sim:\d+:\d+ \[0\] NCCL INFO Using network Socket$", out, re.M)
    assert len(out.splitlines()) == 2
    assert "[ib-no-device]" in err
    code, out, err = await cli("logs", "sim-nvl-0", "--since", "10m")
    assert out.startswith("r0 sim | ")
    assert "sim of ranks 0-1 writes no times: --since cuts nothing there" in err
    code, out, err = await cli("logs", "sim-nvl-0", "--rank", "1", "--since", "10m")
    assert out.startswith("r1 sim | ")
    assert "sim of rank 1 writes no times" in err
    assert "writes no times" not in (await cli("logs", "sim-nvl-0"))[2]
    told = await cli.json("logs", "sim-nvl-0")
    assert [k["name"] for k in told["known"]] == ["ib-no-device"]
    assert all(len(x["text"].splitlines()) > 1 for x in told["logs"] if x["command"] == "sim")
    told = await cli.json("logs", "sim-nvl-0", "--grep", "Using network")
    said = [x["text"] for x in told["logs"] if x["text"]]
    assert [text.partition("Using")[2] for text in said] == [" network Socket\n"] * 2
    told = await cli.json("logs", "sim-nvl-0", "--tail", "1")
    assert all(x["text"].count("\n") == 1 for x in told["logs"] if x["command"] == "sim")
    assert "writes no times" in (await cli("--json", "logs", "sim-nvl-0", "--since", "10m"))[2]
    for wrong in (("--grep", "("), ("--since", "soon")):
        assert (await cli("logs", "sim-nvl-0", *wrong))[0] == 2
    assert (await cli("stop", "sim-nvl-0"))[0] == 0
    out_, err_ = await asyncio.wait_for(follower.communicate(), 60)
    assert follower.returncode == 0
    assert b"told to end" in out_ or b"nothing of it is left" in err_


async def test_a_host_that_could_not_be_asked_is_named(cli: Cli) -> None:  # noqa: F811
    """It may have a rank of the replica: 3, and why. A rank that was asked for by number and is there is enough."""
    assert (await cli("place", "sim-small"))[0] == 0
    cli.rack.set("r1-t02", "refused")
    code, out, err = await cli("logs", "sim-small-0")
    assert (code, out.startswith("r0 sim | ")) == (3, True)
    assert "r1-t02: refused" in err
    code, _, err = await cli("logs", "sim-small-0", "--rank", "0")
    assert (code, "r1-t02" in err) == (0, False)


async def test_no_secret_is_followed(cli: Cli) -> None:  # noqa: F811
    """Neither one of the profile's env nor its API key, in what was there and in what comes: `***` in their places."""
    key = cli.home / "key"
    key.parent.mkdir(exist_ok=True)
    key.write_text("key-7654321\n")
    wanted = f'env = {{ HF_TOKEN = "tok-1234567" }}\napi_key_file = "{key}"\n'
    cli.change("[profiles.sim-small]\n", f"[profiles.sim-small]\n{wanted}")
    assert (await cli("place", "sim-small"))[0] == 0
    (log,) = cli.rack.inventory.parent.glob("**/sim-small-0.r0/cmd.0/log")
    say(log, "before tok-1234567 key-7654321 tok-12")
    process = await cli.begin("logs", "-f", "sim-small-0")
    assert process.stdout is not None
    seen = b""
    say(log, "34567 that was one\n")
    while b"that was one" not in seen:
        seen += await asyncio.wait_for(process.stdout.readline(), 60)
    say(log, "after tok-1234567 key-7654321\n")
    while b"after" not in seen:
        seen += await asyncio.wait_for(process.stdout.readline(), 60)
    assert (await cli("stop", "sim-small-0"))[0] == 0
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert b"r0 sim | before *** *** *** that was one\n" in seen
    assert b"r0 sim | after *** ***\n" in seen
    for secret in (b"tok-12", b"34567", b"key-7654321"):
        assert secret not in seen + out + err


def say(log: Path, text: str) -> None:
    with log.open("a") as file:
        file.write(text)


async def test_a_transport_that_must_be_proved_rolls_back(cli: Cli) -> None:  # noqa: F811
    """Another than planned, or none that is proved: exit 1, nothing left; as planned, its words are shown."""
    code, _, err = await cli("place", "sim-nvl", "--require-transport")
    assert code == 1
    assert "not proved" in err
    cli.change("[profiles.sim-nvl]\n", '[profiles.sim-nvl]\nargs = ["--nccl", "tcp"]\n')
    code, _, err = await cli("place", "sim-nvl", "--require-transport")
    assert code == 1
    assert "planned over nvlink, and NCCL uses TCP" in err
    assert cli.processes() == []
    assert (await cli.json("ps"))["replicas"] == []
    cli.change('"tcp"]', '"nvlink"]')
    code, out, err = await cli("place", "sim-nvl", "--require-transport")
    assert code == 0, err
    assert "over NVLink (MNNVL, clique of 8 of 8 ranks)" in out
    (row,) = (await cli.json("ps", "--transport"))["replicas"]
    assert (row["transport"], row["proof"]) == ("nvlink", "NVLink (MNNVL, clique of 8 of 8 ranks)")
    assert (await cli("ps", "--check", "--transport", "sim-nvl-0"))[0] == 0


@pytest.mark.parametrize("arrived", range(1, 10))
def test_no_part_of_a_secret_is_shown_where_a_line_is_cut(monkeypatch, arrived):
    """However much of it had come when the line grew too long, and wherever in it the line is cut."""
    shown: list[str] = []
    monkeypatch.setattr(logbook.render, "log_lines", lambda rows: shown.append(rows[0][1]) or "")
    for before in range(logbook.LONGEST - 10, logbook.LONGEST + 1):
        following = follower("s3cret-key")
        text = "a" * before + "s3cret-key" + "b" * 90000 + "\n"
        for part in (text[: before + arrived], text[before + arrived : 80000], text[80000:]):
            following._print(CommandLog(1, "h", "sim", part))
    assert len(shown) == 11
    assert not any("s" in text for text in shown)
