"""What a version script printed, and what of it must be equal on all hosts of a replica."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from llmgwctl.engines.base import Problem, VersionProbe

Installed = dict[str, str]  # name -> version, as printed
_LINE = re.compile(r"([A-Za-z0-9._-]{1,80}) ([^\x00-\x1f\x7f]{1,200})\Z")


def parse(text: str) -> Installed:
    """Lines "NAME VERSION"; whatever else a login prints is not one."""
    found = (_LINE.match(line) for line in text.splitlines()[:200])
    return {m.group(1): m.group(2).strip() for m in found if m}


def nccl_of(installed: Mapping[str, str]) -> str:
    """The NCCL that came with torch, "" when it is not known."""
    return next((v for n, v in installed.items() if n.startswith("nvidia-nccl")), "")


def differing(profile: str, probe: VersionProbe, hosts: Mapping[str, Mapping[str, str]]) -> Iterable[Problem]:
    """Hosts of one replica that do not have the same: engines, NCCL and Ray refuse or hang on it much later."""
    for name in probe.same:
        by_version: dict[str, list[str]] = {}
        for host, installed in hosts.items():
            by_version.setdefault(installed.get(name, "none"), []).append(host)
        if len(by_version) > 1:
            told = ", ".join(f"{', '.join(names)}: {version}" for version, names in by_version.items())
            what = f"profile {profile}: {name} differs between hosts ({told})"
            yield Problem(what, "install one version on all (LG904)")
