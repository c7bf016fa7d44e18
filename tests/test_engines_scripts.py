"""The scripts that engines send along, run here as they would be on a host."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from llmgwctl.engines.programs import script
from llmgwctl.engines.versions import parse


def run(tmp_path: Path, name: str, *args: str, path: str | None = None) -> subprocess.CompletedProcess:
    (tmp_path / name).write_text(script(name))
    env = os.environ | ({"PATH": f"{path}:{os.environ['PATH']}"} if path else {})
    return subprocess.run(
        ["sh", name, *args], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False
    )


def program(where: Path, text: str) -> Path:
    where.parent.mkdir(parents=True, exist_ok=True)
    where.write_text(text)
    where.chmod(0o755)
    return where


@pytest.mark.parametrize("name", ["ggml-rpc-server", "rpc-server", "llama-rpc-server"])
def test_the_rpc_worker_is_found_under_each_of_its_names(tmp_path, name):
    """In a folder and on PATH; its arguments arrive as they were."""
    program(tmp_path / "b" / name, '#!/bin/sh\nprintf "%s|" "$0" "$@"\n')
    assert run(tmp_path, "rpc_server.sh", f"{tmp_path}/b/", "-H", "a b").stdout == f"{tmp_path}/b/{name}|-H|a b|"
    assert run(tmp_path, "rpc_server.sh", "", "-p", "1", path=f"{tmp_path}/b").stdout.endswith(f"{name}|-p|1|")


def test_the_newer_name_comes_first_and_none_is_said_with_the_way_out(tmp_path):
    for name in ("rpc-server", "ggml-rpc-server"):
        program(tmp_path / "b" / name, f"#!/bin/sh\necho {name}\n")
    assert run(tmp_path, "rpc_server.sh", f"{tmp_path}/b/").stdout == "ggml-rpc-server\n"
    none = run(tmp_path, "rpc_server.sh", f"{tmp_path}/none/")
    assert none.returncode == 127
    assert "GGML_RPC=ON" in none.stderr


RAY = """#!/bin/sh
[ "$1 $2 $3" = "status --address 10.0.0.1:21002" ] || exit 9
n=$(cat counter 2>/dev/null || echo 0)
echo $((n + 1)) >counter
case $n in
    0) exit 1 ;;
    1) gpus=4.0 ;;
    *) gpus=12.0 ;;
esac
echo 'Usage:'
echo ' 0.0/2.0 CPU'
echo " 0.0/$gpus GPU"
echo ' 0.0/2.0 accelerator_type:GB200'
"""


def test_the_server_starts_when_the_cluster_has_all_its_gpus(tmp_path):
    """Not while Ray does not answer, not while GPUs are missing; then the same process becomes the server."""
    ray = str(program(tmp_path / "ray", RAY))
    done = run(tmp_path, "ray_wait.sh", ray, "10.0.0.1:21002", "12", "60", "sh", "-c", 'echo "it $1"', "x", "a b")
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if "llmgwctl" in line] == [
        "llmgwctl: the Ray cluster at 10.0.0.1:21002 has 0 of 12 GPUs, waiting for the rest",
        "llmgwctl: the Ray cluster at 10.0.0.1:21002 has 4 of 12 GPUs, waiting for the rest",
    ]
    assert done.stdout.endswith("it a b\n")


def test_a_cluster_that_never_gets_whole_is_given_up_with_the_number(tmp_path):
    ray = str(program(tmp_path / "ray", RAY))
    done = run(tmp_path, "ray_wait.sh", ray, "10.0.0.1:21002", "16", "3", "echo", "started")
    assert done.returncode == 1
    assert "still has 12 of 16 GPUs" in done.stderr
    assert "started" not in done.stdout


@pytest.mark.parametrize(
    "head",
    [
        "#!{python}\n",
        "#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\n",
    ],
)
def test_versions_come_from_the_interpreter_of_the_program(tmp_path, head):
    """Whatever way pip wrote its first line; nothing is imported, what is not installed is not there."""
    vllm = program(tmp_path / "bin" / "vllm", head.format(python=sys.executable) + "raise SystemExit('never run')\n")
    done = run(tmp_path, "python_versions.sh", str(vllm), "pytest", "no-such-package")
    assert done.returncode == 0, done.stderr
    found = parse(done.stdout)
    assert found == {"python": ".".join(map(str, sys.version_info[:3])), "pytest": pytest.__version__}


def test_versions_of_a_python_itself_and_of_nothing(tmp_path):
    assert "pytest" in parse(run(tmp_path, "python_versions.sh", sys.executable, "pytest").stdout)
    none = run(tmp_path, "python_versions.sh", "no-such-program", "pytest")
    assert (none.returncode, none.stderr) == (127, "no program no-such-program\n")
    binary = program(tmp_path / "binary", "\x7fELF\n")
    assert "does not say which Python" in run(tmp_path, "python_versions.sh", str(binary)).stderr


def test_the_version_of_llama_cpp(tmp_path):
    """It prints it on the error channel, between other lines."""
    server = program(
        tmp_path / "llama-server",
        "#!/bin/sh\nprintf 'ggml_cuda_init: found 4 devices\\nversion: 9822 (abc1234)\\nbuilt with x\\n' >&2\n",
    )
    assert parse(run(tmp_path, "llama_version.sh", str(server)).stdout) == {"llama.cpp": "9822 (abc1234)"}


def test_the_python_that_sim_runs_on_is_what_path_finds(tmp_path):
    """The first on PATH counts, however old; one that is not there is 127; one that does not run tells why."""
    python = tmp_path / "bin" / "python3"
    program(python, f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    found = run(tmp_path, "sim_python.sh", path=str(python.parent))
    assert parse(found.stdout) == {"python3": ".".join(map(str, sys.version_info[:3]))}, found.stderr
    program(python, "#!/bin/sh\necho broken >&2\nexit 3\n")
    assert run(tmp_path, "sim_python.sh", path=str(python.parent)).returncode == 3
    none = subprocess.run(
        ["/bin/sh", "sim_python.sh"],
        cwd=tmp_path,
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (none.returncode, none.stdout, none.stderr) == (127, "", "no program python3\n")


@pytest.mark.parametrize("client", [True, False])
def test_a_ray_head_gets_a_client_port_only_where_ray_takes_one(tmp_path, client):
    """With grpc installed it would take 10001 of the host; without, it refuses to be given a port."""
    answer = "exit 0" if client else "exit 1"
    python = program(tmp_path / "bin" / "python3", f'#!/bin/sh\n[ "$2" = "import grpc" ] && {answer}\nsh "$@"\n')
    ray = program(tmp_path / "bin" / "ray", f'#!{python}\nprintf "%s|" "$@"\n')
    done = run(tmp_path, "ray_head.sh", str(ray), "21012", "--head", "--block")
    assert done.stdout.startswith("start|--head|--block|"), done.stderr
    assert ("--ray-client-server-port=21012|" in done.stdout) == client


def test_enroot_runs_what_it_is_given(tmp_path):
    assert run(tmp_path, "enroot_rc.sh", "printf", "%s|", "a b", "c").stdout == "a b|c|"
