"""The commands that are compared, and what each of them said of each host."""

from __future__ import annotations

import compileall
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import zip_longest
from pathlib import Path

from bench import lightfleet
from bench.hosts import LightHosts, cache

import llmgwctl as llmgwctl_package

FANOUT = 64
COMMAND = "nvidia-smi -q"
_PIP = ("ClusterShell", "parallel-ssh", "ansible-core")
_DEBIAN = {
    "go": "golang-go golang-golang-x-crypto-dev",
    "pdsh": "pdsh",
    "sshd": "openssh-server",
    "ssh": "openssh-client",
}


class Wrong(Exception):
    """An answer that is missing, or not what the host said: then its figures are worth nothing."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A command that is measured, with the environment that leads it to the hosts."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]


# --- what has to be there -------------------------------------------------------------------------------------------


def peers() -> Path:
    """The virtual environment of the peers, made when it is not there."""
    place = cache() / "peers"
    if not (place / ".done").exists():
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        subprocess.run([str(place / "bin/pip"), "install", "--quiet", *_PIP], check=True)
        (place / ".done").touch()
    return place


def install_programs() -> None:
    """What the bench needs of the system; installed by apt where we may, else said."""
    lacking = [packages for program, packages in _DEBIAN.items() if _which(program) is None]
    if not lacking:
        return
    words = " ".join(lacking).split()
    if os.geteuid() or shutil.which("apt-get") is None:
        raise SystemExit(f"the bench needs: apt-get install {' '.join(words)}")
    subprocess.run(["apt-get", "update", "-qq"], check=True)
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *words]
    subprocess.run(install, check=True, env=quiet, stdout=subprocess.DEVNULL)


def _which(program: str) -> str | None:
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/local/sbin")


def versions() -> dict[str, str]:
    """Of everything that the figures depend on."""
    python = str(peers() / "bin/python")
    found = {"Python": sys.version.split()[0]}
    found |= {name: version(name) for name in ("asyncssh", "cryptography")}
    for name in _PIP:
        ask = f"import importlib.metadata as m; print(m.version({name!r}))"
        found[name] = _said(python, "-c", ask)
    found["pdsh"] = _said("pdsh", "-V").split()[0].removeprefix("pdsh-")
    found["OpenSSH"] = _said("ssh", "-V").split(",")[0].removeprefix("OpenSSH_")
    return found | {"Go": _said("go", "version").split()[2].removeprefix("go")}


def _said(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return (done.stdout or done.stderr).strip()


# --- llmgwctl -------------------------------------------------------------------------------------------------------


def llmgwctl(inventory: Path, *words: str) -> Tool:
    """The real command, as it is installed beside this interpreter."""
    program = str(Path(sys.executable).with_name("llmgwctl"))
    return Tool("llmgwctl", (program, "-i", str(inventory), *words), os.environ)


def compiled() -> None:
    """As an installed package is: else each run compiles what has changed, where the environment forbids to keep it."""
    compileall.compile_dir(Path(llmgwctl_package.__file__).parent, quiet=1)


def check_nvlink(text: str, hosts: Sequence[lightfleet.LightHost], lost: Mapping[str, str] | None = None) -> None:
    """`nvlink --json` names every host in its rack, with the GPUs that it has, or in the end state that is expected."""
    document = json.loads(text)
    seen = {tray["name"]: (domain, tray) for domain in document["domains"] for tray in domain["hosts"]}
    unreachable = {row["name"]: row["why"] for row in document["unreachable"]}
    expected_lost = dict(lost or {})
    if unreachable.keys() != expected_lost.keys():
        raise Wrong(f"not reached: {sorted(unreachable)[:5]}, expected: {sorted(expected_lost)[:5]}")
    for name, kind in expected_lost.items():
        if kind not in unreachable[name]:
            raise Wrong(f"{name}: {unreachable[name]!r} does not say {kind!r}")
    for h in hosts:
        if h.name not in expected_lost:
            _check_tray(h, seen.get(h.name))


def _check_tray(h: lightfleet.LightHost, found: tuple[dict, dict] | None) -> None:  # type: ignore[type-arg]
    if found is None:
        raise Wrong(f"{h.name} is in no domain")
    domain, tray = found
    said = (domain["cluster_uuid"], tray["address"], tray["imex"]["state"], [g["uuid"] for g in tray["gpus"]])
    wanted = (h.machine.gpus[0].cluster, h.address, "up", [g.uuid for g in h.machine.gpus])
    if said != wanted or not all(g["joined"] and g["healthy"] for g in tray["gpus"]):
        raise Wrong(f"{h.name}: it said {wanted}, and the document has {said}")


# --- the peers ------------------------------------------------------------------------------------------------------


def clush(fleet: LightHosts) -> Tool:
    config = f"-F {fleet.directory}/ssh_config"
    words = ("-q", "-f", str(FANOUT), "-o", config, "--hostfile", str(fleet.directory / "hosts"), COMMAND)
    return Tool("clush", (str(peers() / "bin/clush"), *words), os.environ)


def pdsh(hosts: Path, config: Path, command: str = COMMAND) -> Tool:
    own = {"PDSH_SSH_ARGS_APPEND": f"-F {config}", "PDSH_RCMD_TYPE": "ssh"}
    return Tool("pdsh", ("pdsh", "-f", str(FANOUT), "-w", f"^{hosts}", command), os.environ | own)


def parallel_ssh(fleet: LightHosts) -> Tool:
    """It checks no host key, whatever it is told."""
    words = (str(Path(__file__).with_name("peer_parallel_ssh.py")), str(fleet.directory), str(lightfleet.PORT))
    return Tool("parallel-ssh", (str(peers() / "bin/python"), *words, lightfleet.USER, COMMAND), os.environ)


def ansible(hosts: Path, config: Path) -> Tool:
    own = {
        "ANSIBLE_SSH_ARGS": f"-F {config}",
        "ANSIBLE_HOST_KEY_CHECKING": "True",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_DEPRECATION_WARNINGS": "False",
        "ANSIBLE_LOCALHOST_WARNING": "False",
    }
    words = ("all", "-i", str(hosts), "-m", "raw", "-a", COMMAND, "-f", str(FANOUT))
    return Tool("ansible", (str(peers() / "bin/ansible"), *words), os.environ | own)


def check_texts(text: str, wanted: Mapping[str, str], tool: str) -> None:
    """Every host's text, whole and its own. Ends of lines are not compared: the tools trim them."""
    said = by_host(text, tool)
    if said.keys() != wanted.keys():
        missing = wanted.keys() - said.keys()
        raise Wrong(f"{tool}: {len(said)} hosts of {len(wanted)} answered, not for example {sorted(missing)[:3]}")
    for address, expected in wanted.items():
        has, host_said = _trimmed(said[address]), _trimmed(expected.splitlines())
        if has != host_said:
            pairs = zip_longest(has, host_said)
            differing = next(pair for pair in pairs if pair[0] != pair[1])
            raise Wrong(f"{tool}: {address} said {differing[1]!r}, and it has {differing[0]!r}")


def by_host(text: str, tool: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    if tool == "ansible":
        address = ""
        for line in text.split("\n"):
            head = re.match(r"(\S+) \| \w+ \| rc=0 >>$", line)
            address = head[1] if head else address
            if not head and not re.match(
                r"(Shared c|C)onnection to \S+ closed\.", line
            ):  # ssh's own word, for its terminal
                found.setdefault(address, []).append(line)
        return found
    for line in text.split("\n"):
        address, colon, rest = line.partition(":")
        if colon:
            found.setdefault(address, []).append(rest[1:])
    return found


def _trimmed(lines: Sequence[str]) -> list[str]:
    return [line.rstrip() for line in lines if line.strip()]


def wanted_texts(fleet: LightHosts) -> dict[str, str]:
    """What each light host says when it is asked for `nvidia-smi -q`."""
    texts = [made["nvidia-smi-q"].stdout for made in fleet.made]
    return {
        h.address: lightfleet.filled(texts[place % lightfleet.TRAYS], lightfleet.values(h.machine))
        for place, h in enumerate(fleet.hosts)
    }
