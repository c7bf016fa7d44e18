"""llama.cpp for real: a server and an RPC worker on two SSH hosts, and a small real model."""

from __future__ import annotations

import time

import pytest
from site_of import Site

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("real")]


@pytest.fixture
def site(bed, real):
    """The replica: its layers lie on both hosts. Whatever a test does, afterwards nothing is left."""
    build = real("llama-build/bin/llama-server").parent
    real("llama-build/bin/ggml-rpc-server")
    model = real("models/gemma-270m.gguf")
    profile = {
        "engine": "llamacpp",
        "nodes": 2,
        "gpus_per_node": 1,
        "model_path": str(model),
        "served_model_name": "real",
        "fabric": "allow-tcp",
        "port": "8000-8099",
        "ready_timeout_s": 120,
        "stop_grace_s": 10,
        "args": ["-c", "512", "-t", "1", "--no-ui"],
    }
    made = Site.make(bed, {"llamacpp": {"path": f"{build}/"}}, profile)
    yield made
    made.stop()


def test_a_chat_over_two_hosts_a_dead_worker_and_a_clean_stop(site: Site):
    """An answer, a chat, layers on the other host; the worker is killed, and ps says which rank and why."""
    row = site.place()
    worker = row["shards"][1]["host"]
    assert "France" in site.complete("The capital of France is", tokens=24)
    assert site.chat("What is the capital of France?").strip()
    assert "Accepted client connection" in site("logs", "real-0", "--rank", "1").out
    assert site("ps", "--check").code == 0

    pid = site.pid(worker, r"^\S*ggml-rpc-server")
    site.bed.inside(worker, "kill", "-9", str(pid))
    assert f"rank 1 on {worker}" in site.failed()
    assert "rpc-server exited with code 137" in site.failed()
    assert site("ps", "--check").code == 1
    site.stop()


def test_a_flag_that_it_refuses_is_told_in_seconds_with_its_own_words(site: Site):
    """Rank, host, exit code and the last lines of llama-server; and everything else is rolled back."""
    text = site.inventory.read_text()
    site.inventory.write_text(text.replace('"--no-ui"', '"--no-such-flag"'))
    began = time.monotonic()
    done = site("place", "real")
    assert done.code == 1
    assert "real-0 rank 0 on" in done.err
    assert "llama-server exited with code 1" in done.err
    assert "error: invalid argument: --no-such-flag" in done.err
    assert time.monotonic() - began < 30
    site.nothing_left()


def test_an_api_key_guards_the_endpoint_and_stands_in_no_argument_list(site: Site):
    """From a file of the operator's: place gets through with it, others get 401, and ps on a host shows nothing."""
    key = "sk-real-0123456789"
    file = site.inventory.with_name("key")
    file.write_text(f"{key}\n")
    text = site.inventory.read_text()
    site.inventory.write_text(text.replace("[profiles.real]\n", f'[profiles.real]\napi_key_file = "{file}"\n'))
    row = site.place()
    assert site.ask("/v1/models")[0] == 401
    assert site.ask("/health")[0] == 200
    url = f"{row['endpoint']}/v1/models"
    assert '"real"' in site.bed.run("curl", "-sS", "-H", f"Authorization: Bearer {key}", url).out
    for host in site.bed.hosts:
        assert not [line for line in site.everything(host) if key in line]


def test_versions_and_the_model_are_read_on_the_hosts(site: Site):
    """The version of the build is listed; a model that is not there is refused before anything starts."""
    said = site("engines").out
    assert "llama.cpp" in said
    text = site.inventory.read_text()
    site.inventory.write_text(text.replace("gemma-270m.gguf", "other.gguf"))
    done = site("place", "real")
    assert done.code == 4
    assert "other.gguf is not there" in done.err
