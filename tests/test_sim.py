"""The sim engine: real processes that join each other, check what they were given, serve, and misbehave when told."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from local_hosts import replica_plan, until

from llmgwctl.engines import sim
from llmgwctl.engines.base import ShardContext
from llmgwctl.engines.env import environment
from llmgwctl.model.host import Host
from llmgwctl.model.profile import Profile

SERVER = Path(sim.__file__).with_name("sim_server.py")


def free_port(address="127.0.0.2"):
    with socket.socket() as s:
        s.bind((address, 0))
        return s.getsockname()[1]


class Ranks:
    """The processes of one replica on this machine, each with an address of its own."""

    def __init__(self, tmp_path):
        self.root = tmp_path
        (tmp_path / "sys/class/net/eth0").mkdir(parents=True)
        self.started = []
        self.port = free_port()

    def start(self, count=2, profile=None, gpus=0, ranks=None, env=None, tier="tcp"):
        """Every rank with the argv and the environment that the engine makes."""
        p = profile or Profile("p", "sim", nodes=count, served_model_name="m")
        plan = replica_plan([Host(f"h{i}") for i in range(count)], "p-0", gpus=gpus, tier=tier, http=self.port)
        for shard in plan.shards:
            if ranks is None or shard.rank in ranks:
                ctx = ShardContext(plan, shard, p)
                (command,) = sim.ENGINE.commands(ctx)
                given = {v.name: v.value for v in environment(ctx, sim.ENGINE)}
                self.run(command.argv, {**given, **(env or {})})
        return self

    def run(self, argv, env):
        log = (self.root / f"log{len(self.started)}").open("w+b")
        argv = [sys.executable, str(SERVER), *argv[2:]]
        env = {k: v for k, v in {**os.environ, "LLMGWCTL_ROOT": str(self.root), **env}.items() if v is not None}
        self.started.append(subprocess.Popen(argv, env=env, stdout=log, stderr=log, cwd=self.root))

    def log(self, rank):
        return (self.root / f"log{rank}").read_text()

    def code(self, rank):
        return self.started[rank].wait(10)

    def ask(self, path, body=None, key=None):
        """(status, text)"""
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.2:{self.port}{path}", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=5) as reply:  # noqa: S310 (our own address)
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()
        except OSError:
            return None, ""

    def ready(self):
        until(lambda: self.ask("/health")[0] == 200)
        return self


@pytest.fixture
def ranks(tmp_path):
    made = Ranks(tmp_path)
    yield made
    for process in made.started:
        process.kill()
        process.wait()


def test_argv_says_everything_that_a_rank_must_know():
    """The whole of it, word by word: the leader serves at its own address, the others only join."""
    plan = replica_plan([Host("a"), Host("b")], "p-0", gpus=2, http=8000)
    profile = Profile("p", "sim", nodes=2, gpus_per_node=2, served_model_name="m", args=("--die-after", "5"))
    words = [" ".join(sim.ENGINE.commands(ShardContext(plan, s, profile))[0].argv) for s in plan.shards]
    common = "python3 sim_server.py --replica p-0 --served-model-name m --rank {} --ranks 2 --tier tcp --gpus 2 "
    address = "--own-address 127.0.0.{} --leader-address 127.0.0.2 --peer-port 8001 "
    assert words == [
        common.format(0) + address.format(2) + "--host 127.0.0.2 --port 8000 --die-after 5",
        common.format(1) + address.format(3) + "--die-after 5",
    ]


def test_generated_arguments_cannot_be_given_twice():
    """A profile that says --port again is refused with the way out."""
    (problem,) = sim.ENGINE.validate(Profile("p", "sim", args=("--port=1",)), ())
    assert "--port" in str(problem)


def test_two_ranks_join_and_the_leader_serves(ranks):
    """503 until all have joined; then the model's name, completions, chat, a stream, and counters."""
    ranks.start(ranks=(0,))
    until(lambda: ranks.ask("/health")[0] is not None)
    assert ranks.ask("/health")[0] == 503
    assert ranks.ask("/v1/completions", {"model": "m", "prompt": "x"})[0] == 503
    ranks.start(ranks=(1,)).ready()
    assert json.loads(ranks.ask("/v1/models")[1])["data"][0]["id"] == "m"
    status, text = ranks.ask("/v1/completions", {"model": "m", "prompt": "one two three", "max_tokens": 2})
    said = json.loads(text)
    assert (status, said["choices"][0]["text"], said["usage"]["completion_tokens"]) == (200, "one two", 2)
    chat = {"model": "m", "messages": [{"role": "user", "content": "hello you"}]}
    assert json.loads(ranks.ask("/v1/chat/completions", chat)[1])["choices"][0]["message"]["content"] == "hello you"
    assert streamed(ranks.ask("/v1/chat/completions", {**chat, "stream": True})[1]) == "hello you"
    metrics = ranks.ask("/metrics")[1]
    assert 'sim:generation_tokens_total{model_name="m"} 6' in metrics
    assert 'sim:request_success_total{model_name="m"} 3' in metrics
    assert 'sim:ranks_joined{model_name="m"} 2' in metrics
    assert "has joined" in ranks.log(1)


def streamed(text):
    """The words of a stream of server-sent events, which must end with [DONE]."""
    events = [line.removeprefix("data: ") for line in text.splitlines() if line]
    assert events[-1] == "[DONE]"
    return "".join(json.loads(e)["choices"][0]["delta"]["content"] for e in events[:-1])


def test_wrong_requests_are_answered_as_wrong(ranks):
    """Another model 404, no JSON 400, no such path 404; the server lives on."""
    ranks.start(1).ready()
    assert ranks.ask("/v1/completions", {"model": "other", "prompt": "x"})[0] == 404
    assert ranks.ask("/v1/completions", "no object")[0] == 400
    assert ranks.ask("/v1/chat/completions", {"messages": []})[0] == 400
    assert ranks.ask("/nothing")[0] == 404
    assert ranks.ask("/health")[0] == 200


def test_an_api_key_from_the_environment_guards_the_api(ranks):
    """It stands in no argument list; /health stays open, as with the real ones."""
    ranks.start(1, env={"SIM_API_KEY": "s3cret"}).ready()
    assert ranks.ask("/v1/models")[0] == 401
    assert ranks.ask("/v1/completions", {"prompt": "x"}, key="wrong")[0] == 401
    assert ranks.ask("/v1/models", key="s3cret")[0] == 200
    assert b"s3cret" not in Path(f"/proc/{ranks.started[0].pid}/cmdline").read_bytes()


def test_term_ends_it_with_zero(ranks):
    """As real engines do: the code of a stopped one says nothing."""
    ranks.start(1).ready()
    ranks.started[0].send_signal(signal.SIGTERM)
    assert ranks.code(0) == 0


def test_a_lost_rank_breaks_the_group(ranks):
    """Rank 1 dies: rank 0 ends as a collective would."""
    ranks.start().ready()
    ranks.started[1].kill()
    assert ranks.code(0) == 1
    assert "rank 1 is gone" in ranks.log(0)


@pytest.mark.parametrize(
    ("args", "dies", "code"),
    [
        (("--die-after", "0.1", "--die-rank", "1", "--exit-code", "0"), 1, 0),
        (("--die-after", "0.1", "--die-rank", "0", "--exit-code", "9"), 0, 9),
    ],
)
def test_it_dies_when_and_where_it_is_told(ranks, args, dies, code):
    """The rank and the code are the profile's; 0 too, as engines do."""
    ranks.start(profile=Profile("p", "sim", nodes=2, served_model_name="m", args=args))
    assert ranks.code(dies) == code


def test_it_hangs_and_is_never_ready_when_told(ranks):
    """--hang-at-start opens no port; --never-ready answers 503 for ever."""
    ranks.start(1, profile=Profile("p", "sim", served_model_name="m", args=("--never-ready",)))
    until(lambda: ranks.ask("/health")[0] is not None)
    assert ranks.ask("/health")[0] == 503
    ranks.started[0].kill()
    ranks.started[0].wait()
    ranks.start(1, profile=Profile("p", "sim", served_model_name="m", args=("--hang-at-start",)))
    with pytest.raises(subprocess.TimeoutExpired):
        ranks.started[1].wait(0.5)
    assert ranks.ask("/health")[0] is None


@pytest.mark.parametrize("args", [("--no-such-flag",), ("--refuse=--max-tokens-per-second",)])
def test_a_refused_flag_exits_two_with_the_usual_words(ranks, args):
    """Unknown flags are refused as argparse refuses them."""
    ranks.start(1, profile=Profile("p", "sim", served_model_name="m", args=args))
    assert ranks.code(0) == 2
    assert "unrecognized arguments: --" in ranks.log(0)


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ({"NCCL_SOCKET_IFNAME": "=eth9"}, "eth9, and there is no such interface"),
        ({"NCCL_DEBUG": None}, "NCCL_DEBUG is not set"),
        ({"NCCL_IB_DISABLE": "0"}, "NCCL_IB_DISABLE is '0'"),
        ({"CUDA_VISIBLE_DEVICES": "0"}, "0 GPUs asked for"),
    ],
)
def test_it_refuses_an_environment_that_is_not_whole(ranks, env, says):
    """The drill fails where a real engine would go wrong quietly."""
    ranks.start(env=env, ranks=(0,))
    assert ranks.code(0) == 1
    assert says in ranks.log(0)


def test_gpus_must_be_there(ranks):
    """An index that nvidia-smi does not list is named."""
    tool = ranks.root / "nvidia-smi"
    tool.write_text("#!/bin/sh\nprintf '0, GPU-a, 10.0\\n1, GPU-b, 10.0\\n'\n")
    tool.chmod(0o755)
    path = {"PATH": f"{ranks.root}:{os.environ['PATH']}"}
    ranks.start(1, gpus=2, env=path).ready()
    ranks.start(1, gpus=3, env=path)
    assert ranks.code(1) == 1
    assert "GPU 2 is not on this host" in ranks.log(1)


@pytest.mark.parametrize("tier", ["nvlink", "scale-out"])
def test_what_a_tier_needs_is_required(ranks, tier):
    """Without the variables that carry the tier a rank does not start."""
    name = {"nvlink": "NCCL_MNNVL_ENABLE", "scale-out": "NCCL_IB_HCA"}[tier]
    ranks.start(tier=tier, env={name: None}, ranks=(0,))
    assert ranks.code(0) == 1
    assert f"{name} is not set" in ranks.log(0)


def test_a_stranger_cannot_join(ranks):
    """Who does not name the replica and a missing rank is sent away, and the group waits on."""
    ranks.start(ranks=(0,))
    until(lambda: ranks.ask("/health")[0] == 503)
    for words in (b"other 1\n", b"p-0 0\n", b"p-0 7\n", b"\xff\xff\n", b"x" * 500):
        with socket.create_connection(("127.0.0.2", ranks.port + 1), timeout=5) as s:
            s.sendall(words)
            s.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionResetError):
                assert s.recv(1) == b""
    ranks.start(ranks=(1,)).ready()


def test_the_server_is_python_38():
    """It is sent to hosts as it is: its syntax and its imports are those of the oldest python3 it promises."""
    tree = ast.parse(SERVER.read_text(), feature_version=(3, 8))
    imported = {a.name.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    imported |= {n.module.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert imported <= sys.stdlib_module_names
    assert not [n for n in ast.walk(tree) if isinstance(n, ast.Match | ast.TryStar)]
