"""One rank of the sim engine: joins its peers, checks what it was given, serves an OpenAI-like API on rank 0.

One file of the standard library for any python3 from 3.8 on: it is sent to the host and run there.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MAX_BODY = 1 << 20
NOTICE_S = 1.0
# What a shard must have been given, by the tier of its replica; "=" asks for a value.
MULTI_HOST = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_IB_DISABLE", "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS")
REQUIRED = {
    "nvlink": (*MULTI_HOST, "NCCL_MNNVL_ENABLE=1", "NCCL_CUMEM_ENABLE=1"),
    "scale-out": (*MULTI_HOST, "NCCL_IB_HCA"),
    "tcp": (*MULTI_HOST, "NCCL_IB_DISABLE=1"),
    "single-host": (),
}

# Invented, in the shape that NCCL gives them: this engine computes nothing and opens no fabric.
NCCL = {
    "nvlink": (
        "MNNVL busId 0x{rank}000000 fabric UUID 1e5fab1e0000.40008000 cliqueId 0x7ffe state 3 healthMask 0x0",
        "MNNVL 1 cliqueId 7ffe cliqueSize {world} cliqueRank {rank}",
        "Channel 00/0 : {rank}[0] -> {next}[0] via P2P/MNNVL",
    ),
    "ib": ("Using network IB", "Channel 00/0 : {rank}[0] -> {next}[0] [send] via NET/IB/0/GDRDMA"),
    "tcp": (
        "NET/IB : No device found.",
        "Using network Socket",
        "Channel 00/0 : {rank}[0] -> {next}[0] [send] via NET/Socket/0",
    ),
}


def say_nccl(args: argparse.Namespace) -> None:
    world = args.gpus * args.ranks or args.ranks
    for line in NCCL.get(args.nccl, ()):
        told = line.format(rank=args.rank, next=(args.rank + 1) % args.ranks, world=world)
        say("sim:{0}:{0} [0] NCCL INFO {1}".format(os.getpid(), told))


def say(text: str) -> None:
    sys.stdout.write(text + "\n")  # in one piece: several threads speak
    sys.stdout.flush()


def arguments(argv: list[str] | None) -> argparse.Namespace:
    p = argparse.ArgumentParser(prog="sim_server.py", allow_abbrev=False)
    p.add_argument("--replica", required=True)
    p.add_argument("--rank", type=int, required=True)
    p.add_argument("--ranks", type=int, required=True)
    p.add_argument("--tier", choices=sorted(REQUIRED), required=True)
    p.add_argument("--own-address", required=True)
    p.add_argument("--leader-address", required=True)
    p.add_argument("--peer-port", type=int, default=0)
    p.add_argument("--host", default="127.0.0.1")
    p.add_argument("--port", type=int, default=8000)
    p.add_argument("--served-model-name", required=True)
    p.add_argument("--gpus", type=int, default=0)
    p.add_argument("--die-after", type=float, metavar="S", help="exit S seconds after all ranks have joined")
    p.add_argument("--die-rank", type=int, metavar="R", help="the rank that --die-after means (all without it)")
    p.add_argument("--exit-code", type=int, default=1, help="the code of that exit")
    p.add_argument("--hang-at-start", action="store_true", help="do nothing at all, for ever")
    p.add_argument("--never-ready", action="store_true", help="join, and answer 503 for ever")
    p.add_argument("--refuse", metavar="WHY", help="complain about WHY and exit 2, as about a flag that is not known")
    p.add_argument("--ignore-term", action="store_true", help="do not end on SIGTERM")
    p.add_argument("--nccl", choices=sorted(NCCL), help="say the lines by which NCCL would name this transport")
    p.add_argument("--orphan", action="store_true", help="leave a process in a session of its own behind")
    args = p.parse_args(argv)
    if args.refuse is not None:
        p.error("unrecognized arguments: " + args.refuse)
    return args


# --- what it was given ----------------------------------------------------------------------------------------------


def check(args: argparse.Namespace) -> list[str]:
    """What is wrong with this shard's environment, in words; nothing: it could run."""
    return _variables(args) + _interface(args) + _gpus(args)


def _variables(args: argparse.Namespace) -> list[str]:
    wrong = []
    for want in REQUIRED[args.tier]:
        name, _, value = want.partition("=")
        if name not in os.environ:
            wrong.append("{} is not set".format(name))
        elif value and os.environ[name] != value:
            wrong.append("{} is {!r}, not {!r}".format(name, os.environ[name], value))
    return wrong


def _interface(args: argparse.Namespace) -> list[str]:
    wrong = []
    for variable in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        name = os.environ.get(variable, "").lstrip("=")
        if name and not os.path.isdir("{}/sys/class/net/{}".format(os.environ.get("LLMGWCTL_ROOT", ""), name)):
            wrong.append("{} names {}, and there is no such interface".format(variable, name))
    return wrong


def _gpus(args: argparse.Namespace) -> list[str]:
    given = [g for g in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if g]
    if len(given) != args.gpus:
        return ["{} GPUs asked for, CUDA_VISIBLE_DEVICES gives {!r}".format(args.gpus, ",".join(given))]
    if not given:
        return []
    command = ["nvidia-smi", "--query-gpu=index,uuid,compute_cap", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as e:
        return ["the GPUs could not be listed: {}".format(e)]
    there = {line.split(",")[0].strip() for line in done.stdout.decode("utf-8", "replace").splitlines()}
    return ["GPU {} is not on this host".format(g) for g in given if g not in there]


# --- joining --------------------------------------------------------------------------------------------------------


class Group:
    """Who has joined. A rank that goes away again ends this one, as a collective that lost a rank would."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.lock = threading.Lock()
        self.joined = {0}
        self.complete = threading.Event()
        self.peers: list[socket.socket] = []
        if ranks == 1:
            self.complete.set()

    def add(self, rank: int, peer: socket.socket) -> bool:
        with self.lock:
            if rank in self.joined or not 0 < rank < self.ranks:
                return False
            self.joined.add(rank)
            self.peers.append(peer)
            if len(self.joined) < self.ranks:
                return True
        for p in self.peers:
            p.sendall(b"all joined\n")
        self.complete.set()
        return True


def listen(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    server = socket.socket(family, socket.SOCK_STREAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((address, port))
    server.listen(128)
    return server


def accept_peers(args: argparse.Namespace, group: Group, server: socket.socket) -> None:
    while True:
        peer, address = server.accept()
        threading.Thread(target=welcome, args=(args, group, peer, address), daemon=True).start()


def welcome(args: argparse.Namespace, group: Group, peer: socket.socket, address: tuple[Any, ...]) -> None:
    """A peer says which rank of which replica it is; whoever says something else is shown the door."""
    peer.settimeout(10)
    try:
        words = peer.makefile("r", encoding="utf-8", errors="replace").readline(200).split()
        peer.settimeout(None)
    except (OSError, ValueError):
        words = []
    if len(words) != 2 or words[0] != args.replica or not words[1].isdigit() or not group.add(int(words[1]), peer):
        peer.close()
        return
    say("rank {} joined from {}".format(words[1], address[0]))
    while True:
        try:
            if peer.recv(1) == b"":
                break
        except OSError:
            break
    broken("rank {} is gone".format(words[1]))


def join(args: argparse.Namespace) -> socket.socket:
    """Connect to rank 0, however late it comes, and wait until everybody is there."""
    while True:
        try:
            here = (args.own_address, 0)  # the path that was planned, not the one that the kernel would choose
            peer = socket.create_connection((args.leader_address, args.peer_port), timeout=5, source_address=here)
            break
        except OSError:
            time.sleep(0.2)
    peer.settimeout(None)
    peer.sendall("{} {}\n".format(args.replica, args.rank).encode())
    line = b""
    while not line.endswith(b"\n"):
        more = peer.recv(64)
        if not more:
            say("rank 0 at {}:{} sent us away".format(args.leader_address, args.peer_port))
            leave(1)
        line += more
    return peer


# --- serving --------------------------------------------------------------------------------------------------------


class Counters:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.requests = 0
        self.tokens = 0

    def add(self, tokens: int) -> None:
        with self.lock:
            self.requests += 1
            self.tokens += tokens


class Handler(BaseHTTPRequestHandler):
    """Echoes: the tokens of an answer are the words of the question, as many as were asked for."""

    protocol_version = "HTTP/1.1"
    path = ""
    args = argparse.Namespace()
    group = Group(1)
    counters = Counters()
    api_key = ""

    def log_message(self, format: str, *values: Any) -> None:
        if not self.path.startswith(("/health", "/metrics")):
            say("http {} {}".format(self.client_address[0], format % values))

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        if path == "/health":
            ready = self.group.complete.is_set() and not self.args.never_ready
            self.answer(200 if ready else 503, b"")
        elif path == "/metrics":
            self.answer(200, self.metrics().encode(), "text/plain; version=0.0.4")
        elif not self.allowed():
            self.error(401, "the API key is missing or wrong")
        elif path == "/v1/models":
            model = {"id": self.args.served_model_name, "object": "model", "owned_by": "llmgwctl-sim"}
            self.json(200, {"object": "list", "data": [model]})
        else:
            self.error(404, "no such path")

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        if length > MAX_BODY:
            self.close_connection = True
            self.error(413, "too long")
            return
        body = self.rfile.read(length)
        path = self.path.split("?")[0]
        if not self.allowed():
            self.error(401, "the API key is missing or wrong")
        elif path not in ("/v1/completions", "/v1/chat/completions"):
            self.error(404, "no such path")
        elif not self.group.complete.is_set() or self.args.never_ready:
            self.error(503, "not ready")
        else:
            self.complete(path, body)

    def allowed(self) -> bool:
        return not self.api_key or self.headers.get("Authorization") == "Bearer " + self.api_key

    def complete(self, path: str, body: bytes) -> None:
        chat = path.endswith("/chat/completions")
        try:
            asked = json.loads(body.decode("utf-8"))
            words = prompt_of(asked, chat).split() or ["(nothing)"]
            limit = max(1, int(asked.get("max_tokens") or asked.get("max_completion_tokens") or 16))
        except (ValueError, TypeError, AttributeError, LookupError):
            self.error(400, "the request is not understood")
            return
        if asked.get("model") not in (None, self.args.served_model_name):
            self.error(404, "the model {!r} does not exist".format(asked.get("model")))
            return
        tokens = words[:limit]
        self.counters.add(len(tokens))
        if asked.get("stream"):
            self.stream(tokens, chat)
        else:
            reason = "length" if len(words) > limit else "stop"
            usage = {"prompt_tokens": len(words), "completion_tokens": len(tokens)}
            usage["total_tokens"] = sum(usage.values())
            self.json(200, dict(self.head(chat), choices=[choice(" ".join(tokens), chat, reason)], usage=usage))

    def head(self, chat: bool, chunk: bool = False) -> dict[str, Any]:
        kind = ("chat.completion" + (".chunk" if chunk else "")) if chat else "text_completion"
        made = {"id": "sim-{}".format(self.counters.requests), "object": kind, "created": int(time.time())}
        return dict(made, model=self.args.served_model_name)

    def stream(self, tokens: list[str], chat: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for i, token in enumerate(tokens):
            text = token if i == 0 else " " + token
            self.event(json.dumps(dict(self.head(chat, True), choices=[choice(text, chat, None, True)])))
        self.event(json.dumps(dict(self.head(chat, True), choices=[choice("", chat, "stop", True)])))
        self.event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def event(self, text: str) -> None:
        data = "data: {}\n\n".format(text).encode()
        self.wfile.write("{:x}\r\n".format(len(data)).encode() + data + b"\r\n")

    def metrics(self) -> str:
        label = '{{model_name="{}"}}'.format(self.args.served_model_name.replace("\\", "\\\\").replace('"', '\\"'))
        rows = (
            ("sim:request_success_total", "counter", self.counters.requests),
            ("sim:generation_tokens_total", "counter", self.counters.tokens),
            ("sim:ranks_joined", "gauge", len(self.group.joined)),
        )
        return "".join("# TYPE {0} {1}\n{0}{2} {3}\n".format(n, kind, label, value) for n, kind, value in rows)

    def json(self, status: int, value: Any) -> None:
        self.answer(status, json.dumps(value).encode(), "application/json")

    def error(self, status: int, text: str) -> None:
        self.json(status, {"error": {"message": text, "type": "sim", "code": status}})

    def answer(self, status: int, body: bytes, kind: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def prompt_of(asked: dict[str, Any], chat: bool) -> str:
    if not chat:
        prompt = asked.get("prompt") or ""
        return prompt if isinstance(prompt, str) else " ".join(map(str, prompt))
    content = asked["messages"][-1]["content"]
    return content if isinstance(content, str) else " ".join(str(part.get("text", "")) for part in content)


def choice(text: str, chat: bool, reason: str | None, chunk: bool = False) -> dict[str, Any]:
    said: Any = {"role": "assistant", "content": text} if chat else text
    return {"index": 0, "finish_reason": reason, ("delta" if chunk else "message") if chat else "text": said}


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def server_bind(self) -> None:
        # Not HTTPServer's, which asks a name server for our own name and may wait long for it.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])


def serve(args: argparse.Namespace, group: Group) -> None:
    Handler.args, Handler.group = args, group
    Handler.api_key = os.environ.get("SIM_API_KEY", "")
    if ":" in args.host:
        Server.address_family = socket.AF_INET6
    server = Server((args.host, args.port), Handler)
    say("serving {} at {}:{}".format(args.served_model_name, args.host, args.port))
    threading.Thread(target=server.serve_forever, daemon=True).start()


# --- the life of a rank ---------------------------------------------------------------------------------------------


def leave(code: int) -> None:
    sys.stdout.flush()
    os._exit(code)


def broken(why: str) -> None:
    """A collective that lost a rank notices it after a while, not at once: who died first can be told."""
    say(why)
    time.sleep(NOTICE_S)
    say("the group is broken")
    leave(1)


def on_term(signum: int, frame: Any) -> None:
    # os.write: the interrupted thread may hold the lock of sys.stdout.
    os.write(1, b"told to end\n")
    os._exit(0)


def misbehave_after_join(args: argparse.Namespace) -> None:
    if args.die_after is not None and args.die_rank in (None, args.rank):
        time.sleep(args.die_after)
        say("rank {} dies, as it was told to".format(args.rank))
        leave(args.exit_code)


def main(argv: list[str] | None = None) -> None:
    args = arguments(argv)
    signal.signal(signal.SIGTERM, signal.SIG_IGN if args.ignore_term else on_term)
    if args.orphan:
        subprocess.Popen(["sleep", "3600"], start_new_session=True)
    while args.hang_at_start:
        time.sleep(3600)
    wrong = check(args)
    if wrong:
        sys.exit("\n".join("sim: " + text for text in wrong))
    say_nccl(args)
    if args.rank == 0:
        lead(args)
    else:
        follow(args)


def lead(args: argparse.Namespace) -> None:
    group = Group(args.ranks)
    if args.ranks > 1:
        peers = listen(args.own_address, args.peer_port)
        threading.Thread(target=accept_peers, args=(args, group, peers), daemon=True).start()
    serve(args, group)
    group.complete.wait()
    say("all {} ranks have joined".format(args.ranks))
    misbehave_after_join(args)
    while True:
        time.sleep(3600)


def follow(args: argparse.Namespace) -> None:
    leader = join(args)
    say("rank {} of {} has joined {}".format(args.rank, args.ranks, args.leader_address))
    threading.Thread(target=misbehave_after_join, args=(args,), daemon=True).start()
    with contextlib.suppress(OSError):
        leader.recv(1)
    broken("rank 0 is gone")


if __name__ == "__main__":
    main()
