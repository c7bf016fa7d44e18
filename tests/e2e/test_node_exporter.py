"""A real node_exporter reads what `metrics --textfile` writes and serves it, also while it is being written."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from llmgwctl.cli import main

RACK = Path(__file__).parents[1] / "racks" / "seven-faults"
PROGRAM = "prometheus-node-exporter"


@pytest.fixture
def exporter(tmp_path) -> Iterator[str]:
    """The address of a node_exporter that reads text files from the test's folder, and nothing else."""
    program = shutil.which(PROGRAM)
    assert program, f"LLMGW_E2E=1, but this machine lacks the package {PROGRAM}"
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{s.getsockname()[1]}"
    argv = [program, "--collector.disable-defaults", "--collector.textfile", f"--web.listen-address={address}"]
    argv.append(f"--collector.textfile.directory={tmp_path}")
    with subprocess.Popen(argv, stderr=subprocess.DEVNULL) as process:
        yield f"http://{address}/metrics"
        process.terminate()


def scraped(url: str) -> dict[tuple[str, frozenset], float]:
    """Series -> value, as a scrape gets them."""
    until = time.monotonic() + 20
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10) as reply:  # noqa: S310
                text = reply.read().decode()
            break
        except OSError:
            assert time.monotonic() < until, "node_exporter does not answer"
            time.sleep(0.1)
    return series(text)


def series(text: str) -> dict[tuple[str, frozenset], float]:
    families = text_string_to_metric_families(text)
    return {(s.name, frozenset(s.labels.items())): s.value for f in families for s in f.samples}


def written(folder: Path) -> Path:
    file = folder / "llmgw.prom"
    argv = ["-i", str(RACK / "inventory.toml"), "--from", str(RACK / "hosts"), "metrics", "-q", "--textfile", str(file)]
    assert main(argv) == 0
    return file


def test_every_series_is_served(exporter, tmp_path):
    """All that was written, with its value, and no complaint about the file."""
    file = written(tmp_path)
    found = scraped(exporter)
    ours = series(file.read_text())
    assert len(ours) > 300
    assert {k: v for k, v in found.items() if k[0].startswith("llmgw_")} == ours
    assert found["node_textfile_scrape_error", frozenset()] == 0


def test_a_scrape_never_meets_half_a_file(exporter, tmp_path):
    """While it is written again and again every scrape has all of it."""
    count = len(series(written(tmp_path).read_text()))
    done = threading.Event()
    writer = threading.Thread(target=lambda: [written(tmp_path) for _ in range(6)] and done.set())
    writer.start()
    scrapes = 0
    while not done.is_set():
        found = scraped(exporter)
        assert sum(k[0].startswith("llmgw_") for k in found) == count
        assert found["node_textfile_scrape_error", frozenset()] == 0
        scrapes += 1
    writer.join()
    assert scrapes > 3
