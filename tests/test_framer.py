"""probe.sh, run by the shells that hosts have, and the parser of what it says."""

from __future__ import annotations

import gzip
import os
import shutil
import signal
import subprocess
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgwctl.probe import base
from llmgwctl.probe.base import Output, Section
from llmgwctl.transport import frames
from llmgwctl.transport.command import boot, script_bytes
from llmgwctl.transport.packed import unpack

FRAMER = Path(base.__file__).parents[1] / "remote" / "probe.sh"
SHELLS = [
    pytest.param(argv, id=argv[0])
    for argv in (["sh"], ["dash"], ["bash", "--posix"], ["busybox", "ash"])
    if shutil.which(argv[0])
]
NONCE = "0123456789abcdef"


class Line(Section):
    """A section whose script is written here and not in a file."""

    def body(self) -> str:
        return self.script


def sh(name: str, text: str, lane: str = "sys", limit: int = 10, **more: str) -> Section:
    """A section that runs a line of shell: $0 is its name, $1 the root prefix, $2 the state directory."""
    return Line(name, lane, limit, script=text, **more)  # type: ignore[arg-type]


class Host:
    """A root prefix with the directories of a host, and framers that run there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.state = root / "state"
        for name in ("proc", "run/lock", "dev/shm", "tmp", "state", "bin"):
            (root / name).mkdir(parents=True)

    def tool(self, name: str, text: str) -> None:
        """A program that the host finds before its own."""
        file = self.root / "bin" / name
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)

    def start(
        self, sections, budget: int = 30, shell=("sh",), payload: bytes | None = None, packing: str | None = None
    ) -> subprocess.Popen[bytes]:
        env = {k: v for k, v in os.environ.items() if k != "XDG_RUNTIME_DIR"}
        env["PATH"] = f"{self.root}/bin:{env['PATH']}"
        argv = [*shell, str(FRAMER), str(self.root), str(self.state), str(budget), NONCE]
        argv += ["", packing] if packing is not None else []
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, start_new_session=True
        )
        assert process.stdin is not None
        process.stdin.write(frames.payload(sections) if payload is None else payload)
        process.stdin.close()
        process.stdin = None
        return process

    def run(self, *sections: Section, **more) -> dict[str, Output]:
        return self.end(self.start(sections, **more), sections)

    def end(self, process: subprocess.Popen[bytes], sections) -> dict[str, Output]:
        out, err = process.communicate(timeout=60)
        said = unpack(out, NONCE, 2**24)
        assert said is not None
        answer = frames.parse(said, NONCE)
        assert answer.begun, (out, err)
        assert answer.ended, (out[-500:], err)
        return answer.complete(sections)

    def leftovers(self) -> list[str]:
        kept = {"run/lock/llmgwctl", "run/lock/llmgwctl/probe.lock"}
        places = [p for d in ("run", "dev", "tmp") for p in (self.root / d).rglob("*")]
        names = {str(p.relative_to(self.root)) for p in places} - {"run/lock", "dev/shm"} - kept
        return sorted(names)


@pytest.fixture
def host(tmp_path) -> Host:
    return Host(tmp_path)


def processes_with(word: str) -> list[int]:
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in file.read_bytes().split(b"\0"):
                found.append(int(file.parent.name))
        except OSError:
            continue
    return found


def test_a_text_gets_its_own_arguments(host):
    """A text of another package gets what it asks for and nothing of ours; an empty one counts."""
    text = 'printf "%s|" $# "$@"; cat'
    said = host.run(Section("mine", "sys", 5, text=text, args=("/opt/a b", "", "$HOME")))
    assert said["mine"].stdout == "3|/opt/a b||$HOME|"
    assert host.run(Section("bare", "sys", 5, text="echo $# $0"))["bare"].stdout == "0 bare\n"


def test_a_section_is_one_of_three_things():
    """An argv, a script or a text: never two of them, and no argument of two lines."""
    for wrong in (
        Section("x", "sys", 5),
        Section("x", "sys", 5, argv=("a",), text="b"),
        Section("x", "sys", 5, text="b", args=("c\nd",)),
    ):
        with pytest.raises(ValueError, match="section 'x'"):
            frames.payload([wrong])


def test_the_clock_is_kept_with_our_times():
    """The host's time at both ends, and ours around it, lie in the section of the clock."""
    began = frames.clocked({"clock": Output("begin 7.5\n")}, 1.0, 2.0, "8.25")
    assert began["clock"].stdout == "begin 7.5\nend 8.25\nsent 1.000000\nreceived 2.000000\n"
    assert frames.clocked({}, 1.0, 2.0, "8.25") == {}
    assert frames.clocked({"clock": Output("begin 7.5\n")}, 1.0, 2.0, "")["clock"].stdout == "begin 7.5\n"


def test_a_gpu_that_gave_no_answer_is_not_asked_again(host):
    """The first nvidia-smi that runs into its limit is the last one; the other lanes go on."""
    host.tool("nvidia-smi", "exec sleep 30")
    said = host.run(
        Section("smi-q", "gpu", 1, argv=("nvidia-smi", "-q")),
        sh("topo", ': >"$2/asked"', lane="gpu"),
        sh("other", "echo fine"),
    )
    assert said["smi-q"].exit_code == 124
    assert (said["topo"].state, "smi-q gave no answer" in said["topo"].note) == ("skipped", True)
    assert said["other"].stdout == "fine\n"
    assert not (host.state / "asked").exists()


# --- one answer -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_gives_the_same_answer(host, shell):
    """Output, errors, exit codes, arguments and the limits of a section, byte for byte, in every shell of a host."""
    host.tool("nvidia-smi", 'echo "smi $*"')
    sections = (
        sh("both", "printf out; printf err >&2; exit 3"),
        sh("cut", "echo begun; exec sleep 30", limit=1),
        Section("words", "gpu", 5, argv=("printf", "%s|", "a b", "$HOME", "", "*", "it's")),
        Section("smi", "gpu", 5, argv=("nvidia-smi", "-q")),
        Section("missing", "imex", 5, argv=("no-such-tool", "-q")),
    )
    said = host.run(*sections, shell=shell)
    assert (said["both"].stdout, said["both"].stderr, said["both"].exit_code) == ("out", "err", 3)
    assert (said["cut"].stdout, said["cut"].exit_code) == ("begun\n", 124)
    assert said["words"].stdout == "a b|$HOME||*|it's|"
    assert said["smi"].stdout == "smi -q\n"
    assert said["missing"].exit_code == 127
    assert {o.state for o in said.values()} == {"ran"}
    assert host.leftovers() == []


def test_a_script_gets_its_name_root_and_state(host, monkeypatch):
    """A .sh section runs with the root prefix and the state directory as its arguments."""
    monkeypatch.setattr(base, "script_text", lambda name: 'echo "$0 $1 $2"; exit 7\n')
    said = host.run(Section("system", "sys", 5, script="system.sh"))
    assert said["system"].stdout == f"system {host.root} {host.state}\n"
    assert said["system"].exit_code == 7


def test_lanes_run_side_by_side_and_gpu_waits_for_the_first_look(host):
    """nvidia-smi starts after the first section of the sys lane, and beside the second; each waits for the other."""
    wait = 'while [ ! -e "$2/{}" ]; do sleep 0.05; done; echo met'
    said = host.run(
        sh("first", 'sleep 0.3; : >"$2/first"'),
        sh("second", wait.format("gpu")),
        sh("gpu", '[ -e "$2/first" ] && echo after; : >"$2/gpu"; ' + wait.format("imex"), lane="gpu"),
        sh("imex", ': >"$2/imex"; ' + wait.format("gpu"), lane="imex"),
    )
    assert said["gpu"].stdout == "after\nmet\n"
    assert said["second"].stdout == "met\n"
    assert said["imex"].stdout == "met\n"


def test_sections_of_one_lane_follow_each_other(host):
    """In the order in which they were asked, never two at a time."""
    text = '[ -e "$2/busy" ] && echo overlap; : >"$2/busy"; sleep 0.1; rm "$2/busy"; echo $0 >>"$2/order"'
    names = ["a", "b", "c"]
    said = host.run(*(sh(n, text, lane="gpu") for n in names))
    assert [o.stdout for o in said.values()] == ["", "", ""]
    assert (host.state / "order").read_text().split() == names


def test_gpu_starts_at_once_where_nothing_else_is_asked(host):
    assert host.run(sh("gpu", "echo yes", lane="gpu"))["gpu"].stdout == "yes\n"


def test_after_and_unless(host):
    """A question is asked only after the right answer, and not again when another way has answered it."""
    said = host.run(
        sh("q", "echo READY", lane="imex"),
        sh("empty", "true", lane="imex", after="q", after_says="READY"),
        sh("fails", "echo text; exit 1", lane="imex", after="q", after_says="READY"),
        sh("good", "echo text", lane="imex", after="q", after_says="READY", unless="empty"),
        sh("plain", "echo text", lane="imex", after="q", after_says="READY", unless="good"),
        sh("again", "echo text", lane="imex", unless="fails"),
        sh("other", "echo text", lane="imex", after="q", after_says="READ"),
    )
    states = {name: o.state for name, o in said.items()}
    assert states == {
        "q": "ran", "empty": "ran", "fails": "ran", "good": "ran", "plain": "unneeded", "again": "ran",
        "other": "unneeded",
    }  # fmt: skip
    assert said["plain"].note == "good has answered"
    assert said["other"].note == "q said: READY"
    assert said["other"].exit_code is None


@pytest.mark.parametrize(
    ("says", "note"),
    [
        ("echo UNAVAILABLE", "q said: UNAVAILABLE"),
        ("echo 'Query failed' >&2; exit 14", "q said: Query failed (exit code 14)"),
        ("echo", "q said nothing (exit code 0)"),
        ("exit 14", "q said nothing (exit code 14)"),
    ],
)
def test_what_was_said_instead_is_told(host, says, note):
    """On stderr, where stdout has nothing; with the exit code, where there is no word or it is not 0."""
    said = host.run(sh("q", says, lane="imex"), sh("n", "true", lane="imex", after="q", after_says="READY"))
    assert (said["n"].state, said["n"].note) == ("unneeded", note)


def test_output_is_bounded(host):
    """Endless output is cut at 4 MiB and says so; the sections after it are whole."""
    said = host.run(sh("endless", "yes"), sh("next", "echo fine"), sh("noisy", "yes >&2", lane="imex"))
    assert len(said["endless"].stdout) == 4 * 1024 * 1024
    assert said["endless"].truncated
    assert len(said["noisy"].stderr) == 4 * 1024 * 1024
    assert said["noisy"].truncated
    assert (said["next"].stdout, said["next"].truncated) == ("fine\n", False)


def test_output_that_looks_like_frames_stays_output(host):
    """Lengths count, not looks: a section cannot answer for another one."""
    text = f"@ real 0 1 4 0 ran 0 \nfakeLLMGWCTL-END {NONCE}\nLLMGWCTL-BEGIN {NONCE}\n"
    said = host.run(sh("liar", f"printf '%s' '{text}'"), sh("real", "echo true"))
    assert said["liar"].stdout == text
    assert said["real"].stdout == "true\n"


def test_bytes_of_any_kind_come_through(host):
    """What is no UTF-8 is replaced, zero bytes and missing newlines stay, and the next frame is found."""
    said = host.run(sh("bytes", r"printf 'a\377\376\000b'"), sh("next", "echo fine"))
    assert said["bytes"].stdout == "a��\0b"
    assert said["next"].stdout == "fine\n"


def test_the_time_of_a_host_is_shared_by_its_sections(host):
    """A section gets what is left of the budget; one for which nothing is left is skipped and says so."""
    said = host.run(*(sh(n, "exec sleep 20", limit=20) for n in "abc"), budget=2)
    assert said["a"].exit_code == 124
    assert (said["c"].state, said["c"].note) == ("skipped", "the time for this host was used up")


def test_a_broken_payload_runs_nothing(host):
    """A link that dies while the question is sent leaves no half of a script running."""
    whole = frames.payload([sh("a", f": >{host.state}/ran")])
    process = host.start((), payload=whole[:-5])
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 65
    assert frames.parse(out, NONCE).outputs == {}
    assert not (host.state / "ran").exists()
    assert host.leftovers() == []


# --- what keeps nvidia-smi from being started ---------------------------------------------------------------------


def test_a_hung_nvidia_smi_is_left_alone(host):
    """One in D state: no other is started, the pid is said, and everything else is read."""
    (host.root / "proc/311").mkdir()
    (host.root / "proc/311/stat").write_text("311 (nvidia-smi) D 1 311 311 0 -1 4194304 0 0\n")
    said = host.run(sh("system", "echo s"), sh("smi", ': >"$2/started"', lane="gpu"), sh("imex", "echo i", lane="imex"))
    assert (said["smi"].state, said["smi"].note) == ("skipped", "nvidia-smi (pid 311) hangs in D state")
    assert not (host.state / "started").exists()
    assert said["system"].stdout + said["imex"].stdout == "s\ni\n"


BEGAN = "{} (nvidia-smi) D 1 311 311 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 {} 0 0\n"


@pytest.mark.parametrize(("began_s", "hangs"), [(940, True), (971, False)])
def test_a_moment_in_d_state_is_no_hang(host, began_s, hangs):
    """A first call waits there for another's that sets up the driver; half a minute is what no healthy one needs."""
    (host.root / "proc/uptime").write_text("1000.50 1.00\n")
    for pid, began in ((310, 990), (311, began_s)):
        (host.root / f"proc/{pid}").mkdir()
        (host.root / f"proc/{pid}/stat").write_text(BEGAN.format(pid, began * 100))
    said = host.run(sh("smi", "echo fine", lane="gpu"))["smi"]
    assert (said.state, said.note) == (("skipped", "nvidia-smi (pid 311) hangs in D state") if hangs else ("ran", ""))


def test_only_nvidia_smi_in_d_state_counts(host):
    """Another program in D state, and an nvidia-smi that works, are no reason."""
    for pid, stat in ((5, "(kworker) D"), (6, "(nvidia-smi) S"), (7, "(my (nvidia-smi) D 1) S")):
        (host.root / f"proc/{pid}").mkdir()
        (host.root / f"proc/{pid}/stat").write_text(f"{pid} {stat} 1 1\n")
    assert host.run(sh("smi", "echo fine", lane="gpu"))["smi"].stdout == "fine\n"


def test_the_lock_file_is_for_everybody(host):
    """A sticky directory that all may use, and a file that any account can lock."""
    host.run(sh("smi", "true", lane="gpu"))
    lock = host.root / "run/lock/llmgwctl"
    assert lock.stat().st_mode & 0o7777 == 0o1777
    assert (lock / "probe.lock").stat().st_mode & 0o777 == 0o666


def test_the_directory_that_is_there_is_used(host):
    """Accounts that may create in different places still meet at one lock."""
    (host.root / "dev/shm/llmgwctl").mkdir(mode=0o1777)
    host.run(sh("smi", "true", lane="gpu"))
    assert (host.root / "dev/shm/llmgwctl/probe.lock").exists()
    assert not (host.root / "run/lock/llmgwctl").exists()


@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_what_is_no_lock_file_is_not_opened(host, tmp_path, kind):
    """Any account may put a pipe there: the section is skipped, and the deadline of the host is not spent."""
    place = host.root / "run/lock/llmgwctl"
    place.mkdir(mode=0o1777)
    lock = place / "probe.lock"
    {"pipe": os.mkfifo, "link": lambda p: p.symlink_to(tmp_path / "x"), "folder": Path.mkdir}[kind](lock)
    said = host.run(sh("system", "true"), sh("smi", "true", lane="gpu"), budget=20)
    assert (said["smi"].state, said["smi"].note) == ("skipped", "no place for the lock that keeps two probes apart")
    assert said["system"].exit_code == 0


def test_hard_cases_that_take_their_time(host, tmp_path):
    """Two probes at once; a child that ignores TERM; one that nothing ends: each costs its own section alone."""
    other, stubborn, hung = (Host(tmp_path / n) for n in ("other", "stubborn", "hung"))
    slow = (sh("system", "true"), sh("smi", ': >"$2/started"; exec sleep 7', lane="gpu", limit=20))
    first = host.start(slow)
    ignores = (sh("deaf", "trap '' TERM; echo on; while :; do sleep 1; done", limit=1), sh("next", "echo fine"))
    second = stubborn.start(ignores)
    # Stands for a process in D state: the one that would wait for it never comes back, whatever it is sent.
    hung.tool("timeout", f'[ "$1" != -k ] && exec {shutil.which("timeout")} "$@"; trap "" TERM; exec sleep 1000.25')
    never = (sh("smi", "true", lane="gpu", limit=1), sh("smi2", "true", lane="gpu", limit=1))
    third = hung.start(never)
    while not (host.state / "started").exists():
        time.sleep(0.05)
    late = host.run(*slow)
    assert (late["smi"].state, late["smi"].note) == ("skipped", "another probe is at work")
    assert late["system"].state == "ran"
    assert host.end(first, slow)["smi"].exit_code == 0
    deaf = stubborn.end(second, ignores)
    assert (deaf["deaf"].exit_code, deaf["deaf"].stdout) == (137, "on\n")
    assert deaf["next"].stdout == "fine\n"
    lost = hung.end(third, never)
    assert lost["smi"].exit_code is None
    assert (lost["smi2"].state, lost["smi2"].note) == ("skipped", "smi hangs")
    assert _locked(hung), "what hangs keeps the lock"
    for pid in processes_with("1000.25"):
        os.kill(pid, signal.SIGKILL)
    assert [h.leftovers() for h in (host, stubborn, hung, other)] == [[], [], [], []]


def _locked(host: Host) -> bool:
    lock = host.root / "run/lock/llmgwctl/probe.lock"
    return subprocess.run(["flock", "-n", str(lock), "true"], check=False).returncode != 0


# --- nothing is left behind ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("ended_by", [signal.SIGTERM, signal.SIGHUP])
def test_a_framer_that_is_ended_takes_everything_with_it(host, shell, ended_by):
    """TERM (as from the timeout around it) or HUP: no process and no temporary file stays."""
    word = f"3600.{os.getpid()}{ended_by}{abs(hash(shell[0])) % 1000}"
    # GNU timeout forgets a child that is younger than its own return from fork().
    text = 'sleep 0.2; touch "$2/$0"; exec sleep ' + word
    process = host.start((sh("a", text), sh("b", text, lane="imex")), shell=shell)
    while not ((host.state / "a").exists() and (host.state / "b").exists()):
        time.sleep(0.02)
    process.send_signal(ended_by)
    process.communicate(timeout=20)
    _until(lambda: not processes_with(word))
    assert processes_with(word) == []
    assert host.leftovers() == []


def test_a_framer_whose_reader_is_gone_ends(host):
    """The connection dies: the next thing that it would say ends it, and it cleans up."""
    process = host.start(
        (
            sh("a", "sleep 0.5; echo a"),
            sh("b", f"sleep 0.5; yes {'x' * 100} | head -n 5000"),
            sh("c", "exec sleep 50", limit=50),
        )
    )
    assert process.stdout is not None
    process.stdout.close()
    process.wait(timeout=20)
    assert process.returncode != 0
    assert host.leftovers() == []


def _until(true, limit_s: float = 10) -> None:
    end = time.monotonic() + limit_s
    while not true() and time.monotonic() < end:
        time.sleep(0.05)


def test_the_whole_way_through_a_login_shell(host):
    """The one line that a login shell sees carries the script, its arguments and its input without a change."""
    body = script_bytes("probe.sh")
    sections = (sh("a", "echo it is me"),)
    command = boot(body, (str(host.root), "~/it's $HOME", "20", NONCE), 30)
    assert "\n" not in command
    done = subprocess.run(
        ["sh", "-c", command], input=body + frames.payload(sections), capture_output=True, check=False
    )
    noisy = b"Welcome!\n@ a 0 0 3 0 ran 0 \nbad" + done.stdout + b"\nlogout"
    answer = frames.parse(noisy, NONCE)
    assert answer.ended
    assert answer.outputs["a"].stdout == "it is me\n"


@pytest.mark.skipif(shutil.which("shellcheck") is None and not os.environ.get("CI"), reason="shellcheck is not here")
def test_shellcheck_has_nothing_to_say():
    subprocess.run(["shellcheck", "-s", "sh", str(FRAMER)], check=True)


# --- the parser alone ---------------------------------------------------------------------------------------------


def framed(*parts: bytes, end: bool = True) -> bytes:
    return b"".join([f"LLMGWCTL-BEGIN {NONCE}\n".encode(), *parts, f"LLMGWCTL-END {NONCE}\n".encode() if end else b""])


A = b"@ a 0 5 3 2 ran 0 \noutEE"
B = b"@ b - 9 0 0 skipped 0 another probe is at work\n"


def test_the_parser_reads_what_the_framer_writes():
    answer = frames.parse(framed(A, B), NONCE)
    assert answer.ended
    assert answer.outputs["a"] == Output(stdout="out", stderr="EE", exit_code=0, ms=5)
    assert answer.outputs["b"] == Output(exit_code=None, ms=9, state="skipped", note="another probe is at work")


def test_an_answer_cut_anywhere_keeps_what_was_whole():
    """Each prefix of an answer gives the sections that are complete in it, and never a wrong one."""
    whole = framed(A, B)
    full = frames.parse(whole, NONCE).outputs
    for cut in range(len(whole)):
        answer = frames.parse(whole[:cut], NONCE)
        assert answer.outputs.items() <= full.items()
        sections = (Section("a", "sys", 1, argv=("x",)), Section("b", "sys", 1, argv=("x",)))
        completed = answer.complete(sections)
        assert list(completed) == ["a", "b"]
        assert all(o.exit_code is None and o.note for n, o in completed.items() if n not in answer.outputs)


def test_nothing_is_read_after_a_misfit():
    """What stands where no frame fits may be the text of a section: it does not become an answer."""
    answer = frames.parse(framed(A, b"garbage\n", B), NONCE)
    assert set(answer.outputs) == {"a"}
    assert not answer.ended


def test_a_section_answers_once():
    assert frames.parse(framed(A, b"@ a 1 0 3 0 ran 0 \nbad"), NONCE).outputs["a"].stdout == "out"


def test_another_runs_frames_are_not_ours():
    assert not frames.parse(framed(A).replace(NONCE.encode(), b"f" * 16), NONCE).begun


HEADERS = st.from_regex(
    rb"@ [a-c] (-|\d{1,3}) \d{1,2} \d{1,2} \d{1,2} (ran|skipped|odd) [012] ?[ -~]{0,8}\n", fullmatch=True
)


@given(st.lists(st.one_of(st.binary(max_size=40), HEADERS, st.just(framed(end=False)), st.just(A)), max_size=12))
def test_any_bytes_give_an_answer(parts):
    """The parser is total: whatever a host sends, there is one output for each section that was asked."""
    sections = (Section("a", "sys", 1, argv=("x",)), Section("z", "sys", 1, argv=("x",)))
    answer = frames.parse(b"".join(parts), NONCE)
    assert list(answer.complete(sections)) == ["a", "z"]


OUTPUTS = st.builds(
    lambda name, out, err, rc, note: (name, out, err, rc, note),
    st.sampled_from(["a", "b-1", "c.d"]),
    st.binary(max_size=60),
    st.binary(max_size=30),
    st.one_of(st.none(), st.integers(0, 255)),
    st.text("abc def:/", max_size=20),
)


@given(st.lists(OUTPUTS, max_size=4, unique_by=lambda t: t[0]), st.binary(max_size=40))
def test_what_was_said_is_what_is_read(said, noise):
    """Any bytes in any section come back exactly, whatever was printed before the beginning."""
    parts = [
        f"@ {n} {'-' if rc is None else rc} 1 {len(out)} {len(err)} ran 0 {note}\n".encode() + out + err
        for n, out, err, rc, note in said
    ]
    answer = frames.parse(noise + framed(*parts), NONCE)
    assert answer.ended
    for n, out, err, rc, note in said:
        got = answer.outputs[n]
        assert (got.stdout, got.stderr) == (out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))
        assert (got.exit_code, got.note) == (rc, note.strip())


@pytest.mark.parametrize(
    "section",
    [
        Section("a b", "sys", 1, argv=("x",)),
        Section("../a", "sys", 1, argv=("x",)),
        Section("a", "sys", 1, argv=("x\ny",)),
        Section("a", "sys", 1),
        Section("a", "sys", 1, argv=("x",), after="q", after_says="two words"),
    ],
    ids=["space", "path", "newline", "nothing to run", "two words"],
)
def test_a_section_that_cannot_be_carried_is_refused_here(section):
    with pytest.raises(ValueError, match="section"):
        frames.payload([section])


def test_a_section_is_asked_once():
    with pytest.raises(ValueError, match="twice"):
        frames.payload([sh("a", "true"), sh("a", "true")])


# --- packed -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", SHELLS)
def test_a_packed_answer_says_the_same(host, shell):
    """In a fraction of the bytes; a section that hangs costs itself, as ever."""
    sections = (sh("long", "seq 20000"), sh("bad", "echo oh >&2; exit 3"), sh("hangs", "exec sleep 1000.5", limit=1))
    process = host.start(sections, shell=shell, packing="gzip")
    out, err = process.communicate(timeout=60)
    assert out.startswith(f"LLMGWCTL-GZIP {NONCE}\n".encode()), (out[:200], err)
    said = unpack(out, NONCE, 2**24)
    assert said is not None
    assert len(out) * 2 < len(said)
    answer = frames.parse(said, NONCE)
    assert answer.ended
    found = answer.complete(sections)
    assert found["long"].stdout == "".join(f"{n}\n" for n in range(1, 20001))
    assert (found["bad"].exit_code, found["bad"].stderr) == (3, "oh\n")
    assert found["hangs"].exit_code == 124
    assert host.leftovers() == []


@pytest.mark.parametrize("packing", ["", "gzip", "zstd"])
def test_a_host_without_the_program_answers_as_it_is(host, packing):
    """And so does one that is asked for something that we do not know."""
    path = host.root / "few"
    path.mkdir()
    for tool in (
        "mkfifo",
        "mktemp",
        "head",
        "wc",
        "grep",
        "cat",
        "rm",
        "timeout",
        "date",
        "echo",
        "sh",
        "tr",
        "tail",
        "seq",
    ):
        (path / tool).symlink_to(shutil.which(tool) or "/bin/false")
    text = FRAMER.read_text().replace("/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin", str(path))
    (host.root / "framer").write_text(text)
    argv = ["sh", str(host.root / "framer"), str(host.root), str(host.state), "30", NONCE, "", packing]
    done = subprocess.run(
        argv, input=frames.payload([sh("a", "seq 3")]), capture_output=True, check=False, env={"PATH": str(path)}
    )
    assert done.stdout.startswith(b"LLMGWCTL-BEGIN"), done
    assert frames.parse(done.stdout, NONCE).outputs["a"].stdout == "1\n2\n3\n"


def test_what_was_said_comes_when_a_packing_framer_is_ended(host):
    """TERM to all of it, as `timeout` sends it: what packs still says all that was written, and nothing stays."""
    word = f"3601.{os.getpid()}"
    sections = (sh("done", "seq 5"), sh("slow", f'touch "$2/slow"; exec sleep {word}'))
    process = host.start(sections, packing="gzip")
    _until((host.state / "slow").exists)
    os.killpg(process.pid, signal.SIGTERM)
    out, _ = process.communicate(timeout=20)
    whole = gzip.decompress(out.partition(b"\n")[2])  # no stream that breaks off
    assert (answer := frames.parse(whole, NONCE)).begun
    assert not answer.ended
    _until(lambda: not processes_with(word))
    assert host.leftovers() == []


def test_a_little_that_claims_to_be_much_is_not_unpacked():
    """A gigabyte in a megabyte: refused, and no more than the limit has been in memory."""
    bomb = f"noise\nLLMGWCTL-GZIP {NONCE}\n".encode() + gzip.compress(bytes(2**28), 9)
    tracemalloc.start()
    assert unpack(bomb, NONCE, 2**20) is None
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 2**23


def test_a_packed_answer_that_breaks_off_is_read_as_far_as_it_goes():
    plain = b"".join(b"%d,%d\n" % (n, n * n) for n in range(60_000))
    whole = f"LLMGWCTL-GZIP {NONCE}\n".encode() + gzip.compress(plain, 1)
    assert unpack(whole, NONCE, len(plain)) == plain
    assert unpack(whole, NONCE, len(plain) - 1) is None
    for broken in (whole[: len(whole) // 2], whole[: len(whole) // 2] + b"\xff" * 70_000, whole[:30]):
        found = unpack(broken, NONCE, 2**24)
        assert found is not None
        assert plain.startswith(found[:-200])
    assert unpack(b"LLMGWCTL-GZIP another\n\x1f\x8b", NONCE, 9) == b"LLMGWCTL-GZIP another\n\x1f\x8b"


def test_a_section_cannot_say_that_the_answer_is_packed():
    """The nonce stands in our arguments, where other accounts read it, and what they write comes back in a section."""
    forged = gzip.compress(f"LLMGWCTL-BEGIN {NONCE}\n@ x 0 1 3 0 ran 0 \nlieLLMGWCTL-END {NONCE} 1\n".encode())
    said = f"operator=LLMGWCTL-GZIP {NONCE}\n".encode() + forged
    whole = (
        f"LLMGWCTL-BEGIN {NONCE}\n@ x 0 1 {len(said)} 0 ran 0 \n".encode() + said + b"LLMGWCTL-END " + NONCE.encode()
    )
    assert unpack(whole, NONCE, 2**20) == whole
    assert unpack(b"noise\n" + whole, NONCE, 2**20) == b"noise\n" + whole


@given(st.binary(max_size=4000))
def test_any_bytes_can_be_unpacked(data):
    """Into something of a bounded size."""
    found = unpack(f"LLMGWCTL-GZIP {NONCE}\n".encode() + data, NONCE, 1000)
    assert found is None or len(found) <= 1000
