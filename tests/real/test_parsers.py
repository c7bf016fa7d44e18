"""Every generated command line is accepted by the engine's own parser, in the versions that are installed here."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
from engine_cases import cases, contexts

from llmgwctl.engines import ENGINES, sglang

pytestmark = pytest.mark.real

# One process reads all command lines: importing an engine takes ten times longer than parsing.
VLLM = """
import inspect, json, sys
import vllm.entrypoints.cli.serve as s
parser = s.make_arg_parser(inspect.signature(s.make_arg_parser).parameters["parser"].annotation(prog="vllm serve"))
def parse(argv):
    args = parser.parse_args(argv)
    args.subparser = "serve"
    s.validate_parsed_serve_args(args)
"""
SGLANG = """
import json, sys
from sglang.srt.server_args import prepare_server_args as parse
"""
EACH = """
said = []
for argv in json.load(sys.stdin):
    try:
        parse(argv)
        said.append("")
    except BaseException as e:
        said.append(f"{type(e).__name__}: {e}")
print("SAID" + json.dumps(said))
"""


def command_lines(engine: str) -> dict[str, tuple[str, ...]]:
    """case and rank and command -> argv, of every golden case that is not in a container."""
    found = {}
    for name, (profile, fleet, build) in cases().items():
        if profile.engine == engine:
            for ctx in contexts(replace(profile, container=None), fleet, build):
                for c in ENGINES[engine].commands(ctx):
                    found[f"{name} rank {ctx.shard.rank} {c.name}"] = c.argv
    return found


def refused(python: Path, code: str, lines: dict[str, list[str]], cwd: Path, **env: str) -> dict[str, str]:
    """Which command lines the parser refuses, with its words."""
    done = subprocess.run(
        [str(python), "-c", code + EACH],
        input=json.dumps(list(lines.values())),
        env=os.environ | {"HF_HUB_OFFLINE": "1"} | env,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    answer = next((line[4:] for line in done.stdout.splitlines() if line.startswith("SAID")), None)
    assert answer, done.stderr[-2000:]
    said = dict(zip(lines, json.loads(answer), strict=True))
    return {name: f"{why} {done.stderr[-300:]}" for name, why in said.items() if why}


def test_vllm(real, tmp_path):
    """All that llmgwctl would hand to `vllm serve`; a flag that it does not have is noticed."""
    lines = {n: list(a[a.index("serve") + 1 :]) for n, a in command_lines("vllm").items() if "serve" in a}
    lines["control"] = ["/m", "--no-such-flag"]
    assert len(lines) > 25
    assert set(refused(real("vllm/bin/vllm").with_name("python"), VLLM, lines, tmp_path)) == {"control"}


def test_sglang(real, tmp_path):
    """All that llmgwctl would hand to SGLang, its API key from the file that would lie beside it."""
    lines = {n: list(a[3:]) for n, a in command_lines("sglang").items() if "older" not in n}
    lines["control"] = ["--model-path", "/m", "--no-such-flag"]
    for name, text in sglang.key_files('k"ey: #1').items():
        (tmp_path / name).write_text(text)
    python = real("vllm/bin/python")
    assert set(refused(python, SGLANG, lines, tmp_path, PYTHONPATH=str(real("sglang")))) == {"control"}


def test_sglang_takes_the_key_as_it_is(real, tmp_path):
    """Whatever is in a key, it arrives unchanged through the file."""
    key = "sk-\"quoted\" 'x' #1: {y} \\n é"
    for name, text in sglang.key_files(key).items():
        (tmp_path / name).write_text(text)
    code = SGLANG.replace("as parse", "as told") + (
        "\ndef parse(argv):\n    got = told(argv[1:]).api_key\n    assert got == argv[0], repr(got)\n"
    )
    lines = {"key": [key, "--model-path", "/m", "--config", sglang.KEY_FILE]}
    assert refused(real("vllm/bin/python"), code, lines, tmp_path, PYTHONPATH=str(real("sglang"))) == {}


def test_ray(real):
    """`ray start` knows every option; --help comes after the options are read and before anything starts."""
    found = command_lines("vllm").values()
    heads = {("start", *a[4:], f"--ray-client-server-port={a[3]}") for a in found if a[1] == "ray_head.sh"}
    lines = heads | {a[1:] for a in found if a[1] == "start"}
    assert len(lines) > len(heads) > 2
    for argv in lines:
        done = subprocess.run([real("vllm/bin/ray"), *argv, "--help"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    done = subprocess.run([real("vllm/bin/ray"), "start", "--no-such", "--help"], capture_output=True, check=False)
    assert done.returncode != 0


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_llamacpp(real, tmp_path):
    """The worker listens where it was told; the server gets past its arguments, to the missing model."""
    folder = real("llama-build/bin/llama-server").parent
    profile, fleet, build = cases()["llamacpp-infiniband"]
    leader, other = contexts(profile, fleet, replace(build, path=f"{folder}/"))
    engine, port = ENGINES["llamacpp"], free_port()
    local = {"10.9.0.1": "127.0.0.1", "10.9.0.2": "127.0.0.1", "21000": str(port), "8000": str(free_port())}
    for name, text in engine.files(other).items():
        (tmp_path / name).write_text(text)
    worker = subprocess.Popen(told(engine, other, local), cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        wait_for(port, worker)
        server = subprocess.run(told(engine, leader, local), capture_output=True, text=True, timeout=120, check=False)
    finally:
        worker.terminate()
        worker.communicate(timeout=30)
    assert server.returncode == 1, server.stderr[-2000:]
    assert "invalid argument" not in server.stderr
    assert "error loading model" in server.stderr or "failed to load model" in server.stderr, server.stderr[-2000:]
    wrong = subprocess.run([folder / "llama-server", "--no-such"], capture_output=True, text=True, check=False)
    assert "invalid argument" in wrong.stderr


def told(engine, ctx, local: dict[str, str]) -> list[str]:
    """The argv of a shard's only command, with addresses and ports of this machine."""
    (command,) = engine.commands(ctx)
    words = [local.get(w, w) for w in command.argv]
    return [w.replace("10.9.0.2:21000", f"127.0.0.1:{local['21000']}") for w in words]


def wait_for(port: int, process: subprocess.Popen) -> None:
    for _ in range(300):
        assert process.poll() is None, process.communicate()
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    pytest.fail(f"nothing listens on {port}")
