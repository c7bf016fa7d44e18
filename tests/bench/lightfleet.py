"""A fleet of light hosts: who they are, what each of them answers, and the files that lead a client to them.

Every answer comes from a tray of a simulated rack, which the framer really read once; what is a host's own in it (its
name, addresses, ids) is then a mark, and each host has values of its own for the marks.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import random
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count
from pathlib import Path

import tomli_w
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from llmgwctl.probe import PROBES
from llmgwctl.probe.base import Output
from llmgwctl.rack import host as rack_host
from llmgwctl.rack.fleet import RackSpec, nvl72
from llmgwctl.rack.inventory_text import blocks
from llmgwctl.rack.machine import Machine, invented_uuid
from llmgwctl.rack.tree import Tree
from llmgwctl.remote import script_text
from llmgwctl.transport import frames
from llmgwctl.transport.command import boot

PORT = 2922
USER = "ops"
TRAYS = 18  # of a rack
MARK = "\x02"  # before and after the name of a value; no output of a host has it
READINGS = ("GPU Current Temp", "Memory Current Temp", "Average Power Draw", "Instantaneous Power Draw", "Encoder")
_READING = re.compile(rf"^( +(?:{'|'.join(READINGS)}) +: )\d+", re.MULTILINE)
_NONCE = "template"
_OWN = ("run/lock", "dev/shm", "tmp", "home/ops")

Values = dict[str, str]
Template = dict[str, Output]


@dataclass(frozen=True, slots=True)
class LightHost:
    """One host of the fleet. `mode`: normal, dead (drops what arrives), silent (never greets), hanging (never ends)."""

    machine: Machine
    mode: str = "normal"

    @property
    def name(self) -> str:
        return self.machine.name

    @property
    def address(self) -> str:
        return self.machine.address

    @property
    def seed(self) -> bytes:
        """Of its host key: the same each time, so that a fleet needs no key files."""
        return hashlib.sha256(f"light host {self.address}".encode()).digest()

    @property
    def public_key(self) -> str:
        raw = Ed25519PrivateKey.from_private_bytes(self.seed).public_key().public_bytes_raw()
        blob = b"".join(len(part).to_bytes(4, "big") + part for part in (b"ssh-ed25519", raw))
        return f"ssh-ed25519 {base64.b64encode(blob).decode()}"


# --- who they are ---------------------------------------------------------------------------------------------------


def fleet(hosts: int, modes: dict[int, str] | None = None) -> tuple[LightHost, ...]:
    """That many trays, rack after rack (the last one may be short); `modes` by place, for those that are not normal."""
    spec = nvl72(TRAYS, -(-hosts // TRAYS), hgx=0)
    machines = [_placed(m, number // TRAYS) for number, m in enumerate(spec.machines[:hosts])]
    return tuple(LightHost(m, (modes or {}).get(number, "normal")) for number, m in enumerate(machines))


def _placed(m: Machine, rack: int) -> Machine:
    """On loopback, with room for thousands of racks: 127.2.1.1 is the first tray of the first."""
    net = net_of(rack)
    assert m.imex is not None
    imex = replace(m.imex, nodes=tuple(f"{net}{i + 1}" for i in range(len(m.imex.nodes))))
    address = net + m.address.rsplit(".", 1)[1]
    interfaces = tuple(replace(i, address=f"{address}/8") for i in m.interfaces)
    return replace(
        m, address=address, imex=imex, interfaces=interfaces, boot_id=invented_uuid("boot", m.name), gpus=m.gpus
    )


def net_of(rack: int) -> str:
    return f"127.{2 + rack // 250}.{rack % 250 + 1}."


def values(m: Machine) -> Values:
    """What is a host's own in its answer: its ids, and what it has measured."""
    measured = random.Random(m.name)
    return ids(m) | {f"reading{i}": str(measured.randrange(20, 90)) for i in range(len(READINGS) * len(m.gpus))}


def ids(m: Machine) -> Values:
    assert m.place is not None
    found = {
        "name": m.name,
        "net": m.address.rsplit(".", 1)[0] + ".",
        "cluster": m.gpus[0].cluster,
        "chassis": m.place.serial,
        "boot": m.boot_id,
    }
    found |= {f"uuid{g.index}": g.uuid for g in m.gpus}
    found |= {f"serial{g.index}": g.serial for g in m.gpus}
    return found | {f"guid{i}": a.guid for i, a in enumerate(m.adapters)}


# --- what they answer -----------------------------------------------------------------------------------------------


def templates(directory: Path, racks: Sequence[LightHost] | None = None) -> list[Template]:
    """The marked answers of the trays of one rack, by place."""
    trays = [h.machine for h in (racks or fleet(TRAYS))]
    peers = {m.address: m for m in trays}
    return [{n: with_marks(o, ids(m)) for n, o in read_tree(directory / m.name, m, peers).items()} for m in trays]


def read_tree(root: Path, m: Machine, peers: dict[str, Machine]) -> dict[str, Output]:
    """Every section of a simulated machine, really run by the framer on this machine."""
    Tree(root).write(rack_host.entries(m, peers, datetime.now().astimezone()))
    for place in _OWN:
        (root / place).mkdir(parents=True, exist_ok=True)
    sections = [s for p in PROBES for s in p.sections]
    script = script_text("probe.sh").encode()
    line = boot(script, (str(root), "~/.local/state/llmgwctl", "60", _NONCE, ""), 70)
    path = f"{root}/usr/bin:{os.environ['PATH']}"
    environment = {"PATH": path, "HOME": f"{root}/home/ops", "USER": USER, "LOGNAME": USER}
    said = subprocess.run(
        ["sh", "-c", line],
        input=script + frames.payload(sections),
        stdout=subprocess.PIPE,
        env=environment,
        check=True,
    )
    answer = frames.parse(said.stdout, _NONCE)
    assert answer.ended, f"{m.name}: the framer did not come to its end"
    return answer.outputs


def with_marks(output: Output, own: Values) -> Output:
    text = _with_readings(marked(output.stdout, own))
    return replace(output, stdout=text, stderr=marked(output.stderr, own))


def _with_readings(text: str) -> str:
    """Temperatures, power and clocks move all the time: no two hosts print the same ones."""
    number = count()
    return _READING.sub(lambda found: f"{found[1]}{MARK}reading{next(number)}{MARK}", text)


def marked(text: str, own: Values) -> str:
    """Longest first: a name may be a part of an id."""
    assert MARK not in text
    for name, value in sorted(own.items(), key=lambda item: -len(item[1])):
        text = text.replace(value, f"{MARK}{name}{MARK}")
    return text


def filled(text: str, own: Values) -> str:
    """What the light host makes of a marked text."""
    parts = text.split(MARK)
    parts[1::2] = [own[name] for name in parts[1::2]]
    return "".join(parts)


# --- what leads to them ---------------------------------------------------------------------------------------------


def description(
    hosts: Iterable[LightHost], made: list[Template], client_key: str, delay_s: float = 0, port: int = PORT
) -> str:
    """What the light hosts' server reads."""
    document = {
        "port": port,
        "client_key": client_key,
        "delay_ms": round(delay_s * 1000),
        "templates": [{n: _section(o) for n, o in t.items()} for t in made],
        "hosts": {
            h.address: {
                "template": place % TRAYS,
                "seed": base64.b64encode(h.seed).decode(),
                "mode": h.mode,
                "values": values(h.machine),
            }
            for place, h in enumerate(hosts)
        },
    }
    return json.dumps(document)


def _section(o: Output) -> dict[str, object]:
    rc = "-" if o.exit_code is None else str(o.exit_code)
    return {"rc": rc, "ms": o.ms, "state": o.state, "note": o.note, "out": o.stdout, "err": o.stderr}


def inventory(
    hosts: Sequence[LightHost], directory: Path, ssh: dict[str, object], *, jump: str = "", port: int = PORT
) -> str:
    """The inventory of these hosts; `ssh` is put over the usual keys of its [ssh] table."""
    common: dict[str, object] = {"port": port} | ({"proxy_jump": jump} if jump else {})
    table = {
        "user": USER,
        "identity_file": str(directory / "id_ed25519"),
        "known_hosts": str(directory / "known_hosts"),
        "config_file": "/dev/null",
    }
    spec = RackSpec(tuple(h.machine for h in hosts))
    return tomli_w.dumps({"ssh": table | ssh, "hosts": blocks(spec, common)})


def known_hosts(hosts: Iterable[LightHost], *, hashed: bool = False, port: int = PORT) -> str:
    return "".join(f"{line_name(h.address, hashed=hashed, port=port)} {h.public_key}\n" for h in hosts)


def line_name(address: str, *, hashed: bool, port: int = PORT) -> str:
    """The first word of a line of known_hosts, as ssh-keygen -H writes it when it is hashed."""
    name = address if port == 22 else f"[{address}]:{port}"
    if not hashed:
        return name
    salt = hashlib.sha1(name.encode(), usedforsecurity=False).digest()  # its own for each line, and repeatable
    digest = hmac.digest(salt, name.encode(), "sha1")
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


def strangers(count: int, *, hashed: bool) -> Iterator[str]:
    """Lines of hosts that are in no fleet here, as a file has them that has grown for years."""
    for i in range(count):
        h = LightHost(replace(_SOMEBODY, address=f"10.{i // 62500}.{i // 250 % 250}.{i % 250}"))
        yield f"{line_name(h.address, hashed=hashed)} {h.public_key}\n"


_SOMEBODY = nvl72(1, 1, hgx=0).machines[0]
