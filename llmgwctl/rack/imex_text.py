"""What nvidia-imex-ctl prints on a tray: its own word, the table and the matrix as text and as JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from llmgwctl.model.fact import fact
from llmgwctl.rack.machine import Imex, Machine
from llmgwctl.rack.smi_text import Answer

_LEGEND = (
    "Connectivity Table Legend:",
    "I - Invalid - Node wasn't reachable, no connection status available",
    "N - Never Connected",
    "R - Recovering - Connection was lost, but clean up has not yet been triggered.",
    "D - Disconnected - Connection was lost, and clean up has been triggreed.",
    "A - Authenticating - If GSSAPI enabled, client has initiated mutual authentication.",
    "!V! - Version mismatch, communication disabled.",
    "!M! - Node map mismatch, communication disabled.",
    "!A! - Authentication error, communication disabled.",
    "!R! - Not yet connected, but blocking the service from proceeding past WAITING_FOR_RECOVERY.",
    "C - Connected - Ready for operation",
)
_WORDS = {"C": "CONNECTED", "N": "NEVER_CONNECTED", "R": "RECOVERING", "I": "INVALID"}
_NOBODY = (
    "Query Status returned error code: 14 - failed to connect to all addresses; last error: UNKNOWN: "
    "ipv6:%5B::1%5D:50005: Failed to connect to remote host: Connection refused\nQuery Status failed.\n"
)


@fact
class View:
    """The table as one tray sees it. Node i is `hosts[i]`, in the daemon's order: sorted by address."""

    local: str
    hosts: tuple[str, ...]
    names: tuple[str, ...]
    versions: tuple[str, ...]
    up: tuple[bool, ...]
    cells: tuple[tuple[str, ...], ...]

    @property
    def state(self) -> str:
        if not any(self.up):
            return "DOWN"
        return "UP" if all(c == "C" for row in self.cells for c in row) else "DEGRADED"


def view(m: Machine, imex: Imex, fleet: Mapping[str, Machine]) -> View:
    """`fleet`: machines by address. Where the own daemon is down, no peer's state is known either."""
    hosts = tuple(sorted(set(imex.nodes), key=lambda a: tuple(map(int, a.split(".")))))
    peers = [fleet.get(h) for h in hosts]
    up = tuple(imex.up and _serves(p) for p in peers)
    cells = tuple(tuple(_cell(peers[i], peers[j], up[i], up[j]) for j in range(len(hosts))) for i in range(len(hosts)))
    versions = tuple(p.driver if p and u else "" for p, u in zip(peers, up, strict=True))
    return View(m.address, hosts, tuple(p.name if p else "N/A" for p in peers), versions, up, cells)


def _serves(p: Machine | None) -> bool:
    return p is not None and p.powered and p.imex is not None and p.imex.up and p.ssh != "dead"


def _cell(here: Machine | None, there: Machine | None, here_up: bool, there_up: bool) -> str:
    if not here_up or here is None or here.imex is None:
        return "I"
    if not there_up or there is None:
        return "R"
    return "N" if there.name in here.imex.cut_to else "C"


def answers(m: Machine, fleet: Mapping[str, Machine], taken: str) -> dict[str, Answer]:
    """By the name under which the fake program finds it."""
    if m.imex is None:
        return {}
    seen = view(m, m.imex, fleet)
    word = Answer("READY\n") if m.imex.up else Answer(err=_NOBODY, code=255 if m.release >= (615,) else 0)
    return {
        "q": word,
        "N": Answer(text(m, seen, taken)),
        "N-H": Answer(text(m, seen, taken, hostnames=True)),
        "N-j": Answer(as_json(m, seen, taken)),
    }


def text(m: Machine, v: View, taken: str, hostnames: bool = False) -> str:
    """`-N`, with the host names of -H when asked."""
    nodes = [_node_line(m, v, i, hostnames) for i in range(len(v.hosts))]
    head = " Nodes From\\To " + "".join(f" {i:<3}" for i in range(len(v.hosts)))
    rows = [f"{i:>8}       " + "".join(f"{c:^3} " for c in row) for i, row in enumerate(v.cells)]
    return "\n".join([*_LEGEND, "", taken, "Nodes:", *nodes, "", head, *rows, f"Domain State: {v.state}"]) + "\n"


def _node_line(m: Machine, v: View, i: int, hostnames: bool) -> str:
    host, status = v.hosts[i], "READY" if v.up[i] else "UNAVAILABLE"
    if m.release < (580,):  # nobody is marked, and the columns are narrower
        return f"Node #{i:<3} - {host:<15} - {status:<20} - Version: {v.versions[i]}"
    shown = f"* {host} *" if host == v.local and m.imex and m.imex.up else f"- {host}"
    line = f"Node #{i:<3} {shown:<20} - {status:<20} - Version: {v.versions[i]:<16}"
    return f"{line}- Hostname: {v.names[i]:<28}" if hostnames else line


def as_json(m: Machine, v: View, taken: str) -> str:
    """`-N -j`: one line, its keys in no order that means anything."""
    order = sorted(range(len(v.hosts)), key=lambda i: hashlib.md5(v.hosts[i].encode(), usedforsecurity=False).digest())
    nodes = {str(i): _node(m, v, i, order) for i in order}
    return json.dumps({"nodes": nodes, "timestamp": taken, "status": v.state}, separators=(",", ":")) + "\n"


def _node(m: Machine, v: View, i: int, order: list[int]) -> dict[str, object]:
    links = {
        str(j): {"host": v.hosts[j], "status": _WORDS[v.cells[i][j]], "changed": v.up[i]}
        for j in order[i % len(order) :] + order[: i % len(order)]
    }
    node: dict[str, object] = {
        "status": "READY" if v.up[i] else "UNAVAILABLE",
        "host": v.hosts[i],
        "connections": links,
        "changed": v.up[i],
        "version": v.versions[i],
        "hostName": "",
    }
    if m.release >= (595,):
        node["nodeDetails"] = {"serverPort": 0, "uptimeSeconds": 0}
    return node
