"""A site of two real SSH hosts with one profile of a real engine: the command line, and what is left on the hosts."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w
from netns import Bed, Done

# Every process whose environment has our marker, and whatever else of an engine still runs.
PROCESSES = """for f in /proc/[0-9]*; do
    if grep -qz "^LLMGWCTL_S" "$f/environ" 2>/dev/null; then
        echo "${f##*/} $(tr "\\0" " " <"$f/cmdline" | head -c 300)"
    fi
done"""
ENGINES = re.compile(r"ray|gcs_server|vllm|VLLM|llama|rpc-server")


@dataclass
class Site:
    bed: Bed
    inventory: Path

    @classmethod
    def make(cls, bed: Bed, engines: Mapping[str, Any], profile: Mapping[str, Any]) -> Site:
        """The hosts of the bed, with builds and with one profile called "real"."""
        text = bed.inventory.read_text()
        head = text[: text.index("[profiles.")]
        more = {"engines": dict(engines), "profiles": {"real": {"pool": pool_of(text), **profile}}}
        file = bed.directory / "real.toml"
        file.write_text(head + tomli_w.dumps(more))
        return cls(bed, file)

    def __call__(self, *words: str, timeout_s: float = 300) -> Done:
        argv = (sys.executable, "-m", "llmgwctl", "-i", str(self.inventory), *words)
        return self.bed.run(*argv, timeout_s=timeout_s)

    def json(self, *words: str) -> Any:
        done = self("--json", *words)
        assert done.out, done.err
        return json.loads(done.out)

    def place(self, timeout_s: float = 300) -> dict[str, Any]:
        """Bring it up; its row in ps."""
        done = self("place", "real", "-v", timeout_s=timeout_s)
        assert done.code == 0, done.err
        (row,) = self.json("ps")["replicas"]
        assert row["state"] == "ready", row
        return row

    def ask(self, path: str, body: Mapping[str, Any] | None = None, *, limit_s: int = 60) -> tuple[int, str]:
        """A request to the endpoint of the only replica, as anybody on the network sends it: status and answer."""
        (row,) = self.json("ps")["replicas"]
        words = ["-sS", "-m", str(limit_s), "-w", "\n%{http_code}", f"{row['endpoint']}{path}"]
        if body is not None:
            words += ["-H", "Content-Type: application/json", "-d", json.dumps(body)]
        said = self.bed.run("curl", *words).out
        text, _, status = said.rpartition("\n")
        return int(status or 0), text

    def chat(self, words: str, tokens: int = 12) -> str:
        status, text = self.ask("/v1/chat/completions", {**asked(tokens), "messages": [message(words)]})
        assert status == 200, text
        return json.loads(text)["choices"][0]["message"]["content"]

    def complete(self, words: str, tokens: int = 4) -> str:
        status, text = self.ask("/v1/completions", {**asked(tokens), "prompt": words})
        assert status == 200, text
        return json.loads(text)["choices"][0]["text"]

    def failed(self, within_s: float = 60) -> str:
        """Why ps says that the replica has failed, once it does."""

        def look() -> str:
            (row,) = self.json("ps")["replicas"]
            return row["why"] if row["state"] == "failed" else ""

        return until(look, within_s)

    def stop(self) -> None:
        """Everything is gone on both hosts, also what no process group holds."""
        done = self("stop", "--all", timeout_s=300)
        assert done.code == 0, done.err
        self.nothing_left()

    def nothing_left(self) -> None:
        assert self.json("ps")["replicas"] == []
        for host in self.bed.hosts:
            assert self.processes(host) == {}
            assert [line for line in self.everything(host) if ENGINES.search(line)] == []
            files = self.bed.inside(
                host, "sh", "-c", "ls /run/lock/llmgwctl /root/.local/state/llmgwctl/*/; ls -d /tmp/*"
            )
            assert not re.search(r"gpu-|slot-|\.r\d|ray", files.out), files.out

    def processes(self, host: str) -> dict[int, str]:
        """pid -> command line of every process on a host that bears our marker."""
        lines = self.bed.inside(host, "sh", "-c", PROCESSES).out.splitlines()
        return {int(pid): words for pid, _, words in (line.partition(" ") for line in lines)}

    def everything(self, host: str) -> list[str]:
        return self.bed.inside(host, "ps", "-eo", "args=").out.splitlines()

    def pid(self, host: str, pattern: str) -> int:
        """The process whose command line looks so."""
        found = [pid for pid, words in self.processes(host).items() if re.search(pattern, words)]
        assert len(found) == 1, self.processes(host)
        return found[0]


def pool_of(text: str) -> str:
    found = re.search(r'^pool = "(.*)"', text, re.MULTILINE)
    assert found
    return found[1]


def asked(tokens: int) -> dict[str, Any]:
    return {"model": "real", "max_tokens": tokens, "temperature": 0}


def message(words: str) -> dict[str, str]:
    return {"role": "user", "content": words}


def until(look: Callable[[], Any], within_s: float) -> Any:
    """What `look` finds as soon as it finds something."""
    end = time.monotonic() + within_s
    while not (found := look()):
        assert time.monotonic() < end, f"not within {within_s} s"
        time.sleep(0.5)
    return found
