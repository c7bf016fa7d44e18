"""`make bench`: llmgwctl and what people would use instead, side by side; writes docs/benchmarks.md.

`make bench CASE=light-1000 HOSTS=100 ROUNDS=1` tries one case at another size, and only prints.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench import cases, growing, rack18, report, tools
from bench.cases import Bench, said
from bench.report import Case

PAGE = Path(__file__).parents[2] / "docs/benchmarks.md"
CASES: dict[str, Callable[[Bench], Case]] = {
    "light-1000": cases.light_1000,
    "light-10000": cases.light_10000,
    "slow-1000": cases.slow_1000,
    "sick-500": cases.sick_500,
    "openssh-18": rack18.openssh_18,
    "known-hosts": cases.known_hosts,
    "jump": cases.jump,
    "growth": growing.growth,
}


def main() -> int:
    asked = _arguments()
    tools.install_programs()
    tools.peers()
    tools.compiled()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="llmgwctl-bench-") as folder:
        bench = Bench(Path(folder), asked.rounds, asked.hosts)
        found = []
        for name in asked.case or CASES:
            said(f"{name}:")
            found.append(CASES[name](bench))
    said(f"{time.monotonic() - began:.0f} s in all")
    text = report.document(found, machine(), tools.versions(), asked.rounds, time.strftime("%Y-%m-%d", time.gmtime()))
    if asked.case or asked.hosts:
        print("\n".join(map(report.case, found)))
    else:
        PAGE.write_text(text, encoding="utf-8")
        said(f"written: {PAGE.relative_to(Path.cwd()) if PAGE.is_relative_to(Path.cwd()) else PAGE}")
    return 0 if all(b.reached for c in found for b in c.bars) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", nargs="*", help=f"one or more of: {', '.join(CASES)}; all when none is named")
    parser.add_argument("--rounds", type=int, default=3, help="how often each tool runs")
    parser.add_argument("--hosts", type=int, help="another number of hosts, for a quick try")
    asked = parser.parse_args()
    if unknown := [c for c in asked.case if c not in CASES]:
        parser.error(f"there is no case {unknown[0]!r}: {', '.join(CASES)}")
    return asked


def machine() -> str:
    """What the figures were made on, in words; no name of it."""
    text = Path("/proc/cpuinfo").read_text()
    model = next((x.split(":", 1)[1].strip() for x in text.splitlines() if x.startswith("model name")), "")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    release = platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores of {model or platform.machine()}, {memory:.0f} GiB, {release}, Linux {platform.release()}"


if __name__ == "__main__":
    sys.exit(main())
