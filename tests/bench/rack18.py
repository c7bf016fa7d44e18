"""Eighteen real OpenSSH hosts: the whole command against pdsh, and what starting costs. Needs root (namespaces)."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import hosts, lightfleet, tools
from bench.cases import COLUMNS, Bench, cpu, median, nothing, refused, row, said
from bench.measure import Run, Spread, ratio
from bench.report import Bar, Case, spread
from bench.tools import Tool, Wrong

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))

import netns

from llmgwctl.probe import FABRIC_SET
from llmgwctl.rack.fleet import nvl72
from llmgwctl.remote import script_text
from llmgwctl.transport import frames

_NONCE = "benchbenchbench1"
_KEX = "KexAlgorithms curve25519-sha256\nCiphers aes128-gcm@openssh.com\n"
_STARTS = 10  # of a round: each is short


@dataclass(frozen=True, slots=True)
class OpenSshHosts:
    """Hosts in namespaces, as a fleet of the bench. `framer`: a command that reads the same sections as llmgwctl."""

    hosts: Sequence[lightfleet.LightHost]
    inventory: Path
    addresses: Path
    config: Path
    framer: str
    inside: tuple[str, ...]  # runs a command as the controller, in its place

    def as_controller(self, tool: Tool, name: str = "") -> Tool:
        return Tool(name or tool.name, (*self.inside, *tool.argv), tool.env)


@contextmanager
def openssh_hosts(count: int, directory: Path) -> Iterator[OpenSshHosts]:
    """Their sshd offers the one key exchange and the one cipher of the bench."""
    netns.SSHD_CONFIG += "" if _KEX in netns.SSHD_CONFIG else _KEX
    shared = Path("/var/lib") / f"llmgw-bench-{os.getpid()}"  # not below /tmp, which each host has for itself
    shared.mkdir(mode=0o755)
    try:
        framer = _framer(shared)
        with netns.Bed(nvl72(trays=count, hgx=0), shared=[shared]) as bed:
            addresses, config = directory / "addresses", directory / "ssh_config"
            addresses.write_text("".join(f"{bed.address(n)}\n" for n in bed.hosts))
            config.write_text(hosts.ssh_config(bed.directory, 22, bed.user))
            known = tuple(lightfleet.LightHost(m) for m in bed.healthy.values())
            inside = ("ip", "netns", "exec", f"{bed.label}-ctl")
            yield OpenSshHosts(known, bed.inventory, addresses, config, framer, inside)
    finally:
        shutil.rmtree(shared)


def _framer(shared: Path) -> str:
    """The framer and what it is asked, as files on the hosts: pdsh sends no standard input to each of them."""
    (shared / "probe.sh").write_text(script_text("probe.sh"))
    (shared / "asked").write_bytes(frames.payload([s for p in FABRIC_SET for s in p.sections]))
    return f"exec sh {shared}/probe.sh '' '~/.local/state/llmgwctl' 100 {_NONCE} '' <{shared}/asked"


def check_frames(text: str, count: int) -> None:
    """Each host's answer begins, has every section, and ends."""
    said_by = tools.by_host(text, "pdsh")
    wanted = {s.name for p in FABRIC_SET for s in p.sections}
    for address, lines in said_by.items():
        seen = {line.split()[1] for line in lines if line.startswith("@ ")}
        whole = f"LLMGWCTL-BEGIN {_NONCE}" in lines and any(x.startswith(f"LLMGWCTL-END {_NONCE}") for x in lines)
        if not whole or not wanted <= seen:
            raise Wrong(f"pdsh: the framer's answer of {address} is not whole")
    if len(said_by) != count:
        raise Wrong(f"pdsh: {len(said_by)} hosts of {count} answered")


def openssh_18(bench: Bench) -> Case:
    count = bench.size(18)
    if lacking := netns.missing():
        raise Wrong(f"OpenSSH hosts need {', '.join(lacking)}")
    with openssh_hosts(count, bench.directory) as fleet:
        texts = _texts_of(bench, fleet)
        ours = fleet.as_controller(tools.llmgwctl(fleet.inventory, "nvlink", "--json"))
        whole = fleet.as_controller(tools.pdsh(fleet.addresses, fleet.config, fleet.framer), "pdsh, the same sections")
        fetch = fleet.as_controller(tools.pdsh(fleet.addresses, fleet.config), "pdsh, nvidia-smi -q alone")
        ansible = fleet.as_controller(tools.ansible(fleet.addresses, fleet.config), "ansible -m raw, nvidia-smi -q")
        runs = bench.in_turn(
            [
                (ours, lambda text: tools.check_nvlink(text, fleet.hosts)),
                (whole, lambda text: check_frames(text, count)),
                (fetch, lambda text: tools.check_texts(text, texts, "pdsh")),
                (ansible, lambda text: tools.check_texts(text, texts, "ansible")),
            ]
        )
    entrants = (ours, whole, fetch, ansible)
    rows = [row(t.name, r, count, None if t is ours else runs[0]) for t, r in zip(entrants, runs, strict=True)]
    times = ratio([r.wall_s for r in runs[0]], [r.wall_s for r in runs[1]]).median
    start, bare, start_rows = _starts(bench)
    bars = (
        Bar("wall of the whole command, against pdsh that runs the same sections", 1.4, times, "times"),
        Bar("start-up against importing typer and asyncssh", 1.6, ratio(start, bare).median, "times"),
    )
    return Case(f"{count} OpenSSH hosts, whole command", COLUMNS, [*rows, *start_rows], bars, _NOTES)


_NOTES = (
    "Start-up is the whole command with one host that refuses, on a rack that is not there.",
    "On these hosts every section really runs, on this machine: most of the time on the clock is theirs.",
)


def _texts_of(bench: Bench, fleet: OpenSshHosts) -> dict[str, str]:
    """What `nvidia-smi -q` prints on each host, asked without SSH's peers: by OpenSSH's own client, one by one."""
    found = {}
    for h in fleet.hosts:
        argv = (*fleet.inside, "ssh", "-F", str(fleet.config), h.address, tools.COMMAND)
        out = bench.run(Tool(f"ssh {h.name}", argv, os.environ), lambda text: None).stdout
        found[h.address] = out.read_text()
    return found


def _starts(bench: Bench) -> tuple[list[float], list[float], list[tuple[str, ...]]]:
    """CPU seconds of the command without hosts, and of a Python that imports the two libraries."""
    bare = Tool("importing typer and asyncssh", (sys.executable, "-c", "import typer, asyncssh"), os.environ)
    ours = refused(bench)
    first: list[Run] = []
    second: list[Run] = []
    for _ in range(bench.rounds * _STARTS):
        first.append(bench.run(ours, nothing))
        second.append(bench.run(bare, lambda text: None))
    said(f"  start-up: {median(cpu(first, 1)):.0f} ms against {median(cpu(second, 1)):.0f} ms")
    rows = [_start_row("start-up: the command without hosts", first), _start_row(f"start-up: {bare.name}", second)]
    return cpu(first, 1), cpu(second, 1), rows


def _start_row(name: str, runs: Sequence[Run]) -> tuple[str, ...]:
    wall, memory = Spread.of([r.wall_s for r in runs]), Spread.of([r.peak_mib for r in runs])
    return (name, f"{spread(Spread.of(cpu(runs, 1)))} in all", spread(wall), spread(memory), "")
