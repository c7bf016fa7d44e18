"""Stands for `vllm serve` under Ray: joins the cluster as vLLM's driver does, and serves what Ray's tasks see."""

from __future__ import annotations

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import ray

NAMES = ("VLLM_HOST_IP", "NCCL_SOCKET_IFNAME", "LLMGWCTL_SHARD", "TIED_TO", "RAY_ADDRESS", "CUDA_VISIBLE_DEVICES")


def option(name: str) -> str:
    return sys.argv[sys.argv.index(name) + 1]


def environment() -> dict[str, str]:
    return {n: os.environ[n] for n in NAMES if n in os.environ}


def everywhere() -> dict[str, dict[str, str]]:
    """By the address of each node, what a task there has in its environment."""
    task = ray.remote(environment)
    calls = {
        node["NodeManagerAddress"]: task.options(
            num_cpus=0, resources={f"node:{node['NodeManagerAddress']}": 0.001}
        ).remote()
        for node in ray.nodes()
        if node["Alive"]
    }
    return {address: ray.get(call, timeout=90) for address, call in calls.items()}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        name = option("--served-model-name")
        answers = {"/health": {}, "/v1/models": {"data": [{"id": name}]}}
        self.say(everywhere() if self.path == "/tasks" else answers.get(self.path))

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.say({"choices": [{"text": "x"}], "usage": {"completion_tokens": 1}})

    def say(self, answer: object) -> None:
        body = json.dumps(answer).encode()
        self.send_response(404 if answer is None else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False)
print(f"serving with {ray.cluster_resources().get('GPU', 0):.0f} GPUs in the cluster", flush=True)
ThreadingHTTPServer((option("--host"), int(option("--port"))), Handler).serve_forever()
