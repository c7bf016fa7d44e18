"""The cases of the bench: each runs what it compares in turn, checks every answer, and gives its table and its bars."""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench import hosts, lightfleet, tools
from bench.hosts import LightHosts, light_hosts
from bench.measure import Run, Spread, measured, ratio
from bench.report import Bar, Case, spread
from bench.tools import Tool, Wrong

Check = Callable[[str], None]


@dataclass(slots=True)
class Bench:
    """What all cases share: a directory, how many rounds, and (for a quick try) another number of hosts."""

    directory: Path
    rounds: int = 3
    hosts: int | None = None
    _made: list[lightfleet.Template] = field(default_factory=list)
    _program: Path | None = None

    def size(self, usual: int) -> int:
        return self.hosts or usual

    @property
    def program(self) -> Path:
        self._program = self._program or hosts.build()
        return self._program

    @property
    def made(self) -> list[lightfleet.Template]:
        self._made = self._made or lightfleet.templates(self.directory / "trees")
        return self._made

    def fleet(self, count: int, modes: Mapping[int, str] | None = None, **how: object):  # type: ignore[no-untyped-def]
        """A context in which these light hosts run."""
        found = lightfleet.fleet(count, dict(modes or {}))
        return light_hosts(self.program, self.directory / "fleet", found, self.made, **how)  # type: ignore[arg-type]

    def run(self, tool: Tool, check: Check, codes: Iterable[int] = (0,), limit_s: float = 300) -> Run:
        """One run, whose answers are right, or the bench is over."""
        done = measured(tool.argv, self.directory / "stdout", tool.env, limit_s)
        said(f"  {tool.name}: {done.wall_s:.2f} s, CPU {done.cpu_s:.2f} s, {done.peak_mib:.0f} MiB")
        if done.code not in codes:
            raise Wrong(f"{tool.name} ended with {done.code}: {done.stderr.read_text(errors='replace')[-2000:]}")
        check(done.stdout.read_text(errors="replace"))
        return done

    def in_turn(self, entrants: Sequence[tuple[Tool, Check]], limit_s: float = 300) -> list[list[Run]]:
        """Rounds in which each of them runs once; every second round in the other direction."""
        found: list[list[Run]] = [[] for _ in entrants]
        for number in range(self.rounds):
            order = list(enumerate(entrants))[:: -1 if number % 2 else 1]
            for place, (tool, check) in order:
                found[place].append(self.run(tool, check, limit_s=limit_s))
        return found


def said(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def cpu(runs: Sequence[Run], count: int) -> list[float]:
    """Milliseconds a host, of each run."""
    return [r.cpu_s / count * 1000 for r in runs]


def row(name: str, runs: Sequence[Run], count: int, ours: Sequence[Run] | None = None) -> tuple[str, ...]:
    """CPU a host, time on the clock, memory, and how many times llmgwctl's CPU that is."""
    times = spread(ratio(cpu(runs, count), cpu(ours, count))) if ours else "1"
    figures = (Spread.of(cpu(runs, count)), Spread.of([r.wall_s for r in runs]), Spread.of([r.peak_mib for r in runs]))
    return (name, *map(spread, figures), times)


COLUMNS = ("", "CPU ms a host", "wall s", "memory MiB", "times llmgwctl's CPU")


def nvlink(fleet: LightHosts, inventory: str = "inventory.toml") -> Tool:
    return tools.llmgwctl(fleet.directory / inventory, "nvlink", "--json")


def right(fleet: LightHosts, lost: Mapping[str, str] | None = None) -> Check:
    return lambda text: tools.check_nvlink(text, fleet.hosts, lost)


def median(figures: Iterable[float]) -> float:
    return statistics.median(figures)


# --- light hosts ----------------------------------------------------------------------------------------------------


def light_1000(bench: Bench) -> Case:
    count = bench.size(1000)
    with bench.fleet(count) as fleet:
        d = fleet.directory
        base = bench.run(refused(bench), nothing)
        texts = tools.wanted_texts(fleet)
        peers = (tools.clush(fleet), tools.pdsh(d / "hosts", d / "ssh_config"), tools.parallel_ssh(fleet))
        entrants = [(nvlink(fleet), right(fleet)), *((p, _texts(texts, p.name)) for p in peers)]
        ours, *others = bench.in_turn(entrants)
        server = fleet.cpu_s() / (bench.rounds * len(entrants) * count) * 1000
    rows = [row("llmgwctl", ours, count)]
    rows += [row(p.name, runs, count, ours) for p, runs in zip(peers, others, strict=True)]
    times = {p.name: ratio(cpu(runs, count), cpu(ours, count)).median for p, runs in zip(peers, others, strict=True)}
    bars = (
        Bar("CPU of probe, parse and map", 2.5, median(cpu(ours, count)), "ms a host"),
        Bar("clush's CPU for the fetch alone", 10, times["clush"], "times ours", at_least=True),
        Bar("pdsh's CPU for the fetch alone", 5, times["pdsh"], "times ours", at_least=True),
        Bar("memory above that of the command without hosts", 60, _over(ours, base), "MiB"),
    )
    notes = (
        f"A light host's own work is {server:.2f} ms of CPU for each answer. parallel-ssh checks no host key.",
        f"The command without hosts (one that refuses) holds {base.peak_mib:.0f} MiB.",
    )
    return Case(f"{count} light hosts", COLUMNS, rows, bars, notes)


def light_10000(bench: Bench) -> Case:
    count = bench.size(10_000)
    with bench.fleet(count) as fleet:
        (ours,) = bench.in_turn([(nvlink(fleet), right(fleet))])
    bars = (
        Bar("wall on this machine, servers included", 25, median(r.wall_s for r in ours), "s"),
        Bar("memory with all facts kept", 350, median(r.peak_mib for r in ours), "MiB"),
    )
    return Case(f"{count} light hosts", COLUMNS, [row("llmgwctl", ours, count)], bars)


def slow_1000(bench: Bench) -> Case:
    count = bench.size(1000)
    with bench.fleet(count, delay_s=2.0) as fleet:
        (ours,) = bench.in_turn([(nvlink(fleet), right(fleet))])
    bars = (Bar("wall", 6, median(r.wall_s for r in ours), "s"),)
    return Case(f"{count} hosts that take 2 s to answer", COLUMNS, [row("llmgwctl", ours, count)], bars)


# --- hosts that are sick --------------------------------------------------------------------------------------------

LAST_LIMIT_S = 15.0
LIMITS: dict[str, object] = {"connect_timeout_s": 3, "login_timeout_s": 5, "host_deadline_s": LAST_LIMIT_S}
_ENDS = {"dead": "connect-timeout", "silent": "login-timeout", "hanging": "command-timeout"}


def sick_500(bench: Bench) -> Case:
    count = bench.size(500)
    modes = sick_places(count)
    with bench.fleet(count, ssh=LIMITS) as fleet:
        (well,) = bench.in_turn([(nvlink(fleet), right(fleet))])
    with bench.fleet(count, modes, ssh=LIMITS) as fleet:
        lost = {fleet.hosts[i].name: _ENDS[mode] for i, mode in modes.items()}
        ours = [bench.run(nvlink(fleet), right(fleet, lost), codes=(3,)) for _ in range(bench.rounds)]
        left = fleet.settled()
    over = median(r.wall_s for r in ours) - median(r.wall_s for r in well)
    rows = [row("all well", well, count, ours), row("with sick ones", ours, count)]
    bars = (
        Bar("wall above that of the same hosts when they are well", LAST_LIMIT_S, over, "s"),
        Bar("connections and commands left on the hosts", 0, left["connections"] + left["sessions"]),
    )
    notes = (
        f"{count - len(modes)} right answers and {len(modes)} named end states: {len(modes) // 3} each of "
        f"{', '.join(_ENDS.values())}. The limits: connect {LIMITS['connect_timeout_s']} s, login "
        f"{LIMITS['login_timeout_s']} s, a host {LAST_LIMIT_S:g} s.",
    )
    return Case(f"{count} hosts, 1 % dead, 1 % silent, 1 % hanging", COLUMNS, rows, bars, notes)


def sick_places(count: int) -> dict[int, str]:
    """One in a hundred of each kind (one at least), spread over the fleet."""
    each = max(1, count // 100)
    step = count // (each * len(_ENDS))
    return {step * (i * len(_ENDS) + k) + step // 2: mode for i in range(each) for k, mode in enumerate(_ENDS)}


# --- host keys, and the way there -----------------------------------------------------------------------------------


def known_hosts(bench: Bench) -> Case:
    count, lines = bench.size(1000), 15_000
    with bench.fleet(count) as fleet:
        names = {}
        for kind, hashed in (("plain", False), ("hashed", True)):
            file = fleet.directory / f"known_hosts_{kind}"
            strangers = "".join(lightfleet.strangers(lines - count, hashed=hashed))
            file.write_text(strangers + lightfleet.known_hosts(fleet.hosts, hashed=hashed))
            names[kind] = f"inventory_{kind}.toml"
            text = lightfleet.inventory(fleet.hosts, fleet.directory, {"known_hosts": str(file)})
            (fleet.directory / names[kind]).write_text(text)
        wanted = right(fleet)
        few, plain, hashed_runs = bench.in_turn(
            [(nvlink(fleet, name), wanted) for name in ("inventory.toml", names["plain"], names["hashed"])]
        )
    rows = [
        row(f"{count} plain lines", few, count, plain),
        row(f"{lines} plain lines", plain, count),
        row(f"{lines} hashed lines", hashed_runs, count, plain),
    ]
    cost = median(cpu(hashed_runs, count)) - median(cpu(plain, count))
    noise = max(cpu(plain, count)) - min(cpu(plain, count))
    bars = (Bar("CPU of hashed lines above plain ones (bar: the spread of the plain runs)", noise, cost, "ms a host"),)
    columns = (*COLUMNS[:-1], f"times {lines} plain lines")
    return Case(f"known_hosts of {lines} lines, {count} hosts", columns, rows, bars)


def jump(bench: Bench) -> Case:
    count = bench.size(500)
    with bench.fleet(count) as fleet:
        d = fleet.directory
        with hosts.jump_host(d, hosts.client_key(d)) as hop:
            known = d / "known_hosts_jump"
            known.write_text((d / "known_hosts").read_text() + hosts.jump_known_hosts(d))
            text = lightfleet.inventory(fleet.hosts, d, {"known_hosts": str(known)}, jump=hop)
            (d / "inventory_jump.toml").write_text(text)
            wanted = right(fleet)
            direct, behind = bench.in_turn([(nvlink(fleet), wanted), (nvlink(fleet, "inventory_jump.toml"), wanted)])
    rows = [row("direct", direct, count), row("behind one jump host", behind, count, direct)]
    times = ratio(cpu(behind, count), cpu(direct, count)).median
    bars = (Bar("CPU behind the jump host", 1.3, times, "times direct"),)
    notes = ("The jump host is OpenSSH's sshd with its own MaxStartups (10:30:100); no host was lost in any run.",)
    return Case(f"{count} hosts behind one jump host", (*COLUMNS[:-1], "times direct"), rows, bars, notes)


# --- what it is compared with when nothing is there -----------------------------------------------------------------


def refused(bench: Bench) -> Tool:
    """The command with one host that refuses at once: everything but hosts."""
    d = bench.directory / "refused"
    d.mkdir(exist_ok=True)
    hosts.client_key(d)
    one = lightfleet.fleet(1)
    (d / "known_hosts").write_text(lightfleet.known_hosts(one))
    text = lightfleet.inventory(one, d, {}).replace(f"port = {lightfleet.PORT}", "port = 1")
    (d / "inventory.toml").write_text(text)
    argv = tools.llmgwctl(d / "inventory.toml", "nvlink", "--json").argv
    # It says so with exit code 3, and that is what is wanted here.
    words = ("sh", "-c", '"$@"; [ $? -eq 3 ]', "sh", *argv)
    return Tool("llmgwctl without hosts", words, os.environ)


def nothing(text: str) -> None:
    rows = json.loads(text)["unreachable"]
    if len(rows) != 1 or "refused" not in rows[0]["why"]:
        raise Wrong(f"one host that refuses was expected: {rows}")


def _texts(wanted: Mapping[str, str], name: str) -> Check:
    return lambda text: tools.check_texts(text, wanted, name)


def _over(runs: Sequence[Run], base: Run) -> float:
    return median(r.peak_mib for r in runs) - base.peak_mib
