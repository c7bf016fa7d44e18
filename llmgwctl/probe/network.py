"""Interfaces and routes: from `ip` where a host has it, from the kernel's tables where it has not."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from itertools import pairwise

from llmgwctl.model.network import Interface, Network, Route
from llmgwctl.model.reading import Reading, broken, ok
from llmgwctl.probe.base import NOT_SAVED, Output, Probe, Section, failure
from llmgwctl.probe.network_proc import from_proc, listener
from llmgwctl.probe.smi_tree import number

SECTIONS = (Section("network", "sys", 20, script="network.sh"),)
LIMIT_LINES = 100_000
HEX = re.compile(r"0x[0-9a-fA-F]{1,8}")
IFF_UP, IFF_LOOPBACK = 0x1, 0x8
DEFAULT = {4: "0.0.0.0/0", 6: "::/0"}
NO_WAY = frozenset({"unreachable", "blackhole", "prohibit", "throw", "broadcast", "multicast", "anycast", "local"})


@dataclass(slots=True)
class Lines:
    """network.sh as it printed, by kind."""

    reached: str = ""
    links: list[str] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)
    routes: list[tuple[int, str]] = field(default_factory=list)
    proc: dict[str, list[str]] = field(default_factory=dict)
    listeners: list[str] | None = None


def parse(outputs: dict[str, Output]) -> Reading[object]:
    """Interfaces in the kernel's order of names; broken when not one could be seen."""
    said = outputs.get("network", NOT_SAVED)
    if (why := failure(said)) is not None:
        return broken(why)
    if said.stdout.count("\n") > LIMIT_LINES:
        return broken(f"more than {LIMIT_LINES} interfaces, addresses and routes")
    lines = _sorted_out(said.stdout)
    if lines.proc:
        addresses, routes = from_proc(lines.proc)
    else:
        addresses = [a for line in lines.addresses if (a := _address(line)) is not None]
        routes = [r for version, line in lines.routes for r in _routes(version, line)]
    interfaces = _interfaces(lines.links, addresses)
    if not interfaces or said.truncated:
        return broken(said.stderr.strip()[:200] or "the list of interfaces could not be read")
    return ok(Network(interfaces, tuple(routes), lines.reached, _listening(lines.listeners, interfaces)))


def _sorted_out(text: str) -> Lines:
    lines = Lines()
    for kind, _, rest in (line.partition(" ") for line in text.replace("\r", "").split("\n")):
        if kind == "reached":
            lines.reached = rest if address_of(rest) else ""
        elif kind == "link":
            lines.links.append(rest)
        elif kind == "addr":
            lines.addresses.append(rest)
        elif kind in ("route4", "route6"):
            lines.routes.append((int(kind[-1]), rest))
        elif kind == "proc":
            table, _, row = rest.partition(" ")
            lines.proc.setdefault(table, []).append(row)
        elif kind == "listeners":
            lines.listeners = lines.listeners or []
        elif kind == "listen" and lines.listeners is not None:
            lines.listeners.append(rest)
    return lines


def _listening(texts: list[str] | None, interfaces: tuple[Interface, ...]) -> tuple[int, ...] | None:
    """Ports on any address of this host, or on all of them."""
    if texts is None:
        return None
    own = {a.split("/")[0] for i in interfaces for a in i.addresses}
    found = [at for text in texts if (at := listener(text)) is not None]
    return tuple(sorted({port for address, port in found if address.is_unspecified or str(address) in own}))


def address_of(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _interfaces(links: list[str], addresses: list[tuple[str, str]]) -> tuple[Interface, ...]:
    """`NAME OPERSTATE FLAGS MTU` of sysfs, joined with (name, CIDR); an address of an unknown interface adds it."""
    known = {words[0]: words[1:4] for line in links if len(words := line.split()) >= 4}
    by_name: dict[str, list[str]] = {name: [] for name in known}
    for name, cidr in addresses:
        by_name.setdefault(name, []).append(cidr)
    return tuple(_interface(name, known.get(name, ["-", "-", "-"]), found) for name, found in by_name.items())


def _interface(name: str, link: list[str], addresses: list[str]) -> Interface:
    """Loopback and tunnels have no operstate of their own (`unknown`): there the flag alone says up."""
    operstate, flag_text, mtu = link
    flags = int(flag_text, 16) if HEX.fullmatch(flag_text) else 0
    up = operstate == "up" or (operstate in ("unknown", "-") and bool(flags & IFF_UP))
    return Interface(name, up, bool(flags & IFF_LOOPBACK) or name == "lo", tuple(dict.fromkeys(addresses)), number(mtu))


def _address(line: str) -> tuple[str, str] | None:
    """`4: eth0    inet 10.1.1.7/24 brd ...`, or `inet 10.0.0.1 peer 10.0.0.2/32`. Link-local ones are left out."""
    words = line.split()
    if len(words) < 4 or words[2] not in ("inet", "inet6") or not {"tentative", "dadfailed"}.isdisjoint(words):
        return None
    host, _, length = words[3].partition("/")
    if not length and words[4:5] == ["peer"] and len(words) > 5:
        length = words[5].partition("/")[2]
    try:
        found = ipaddress.ip_interface(f"{host}/{length}" if length else host)
    except ValueError:
        return None
    return None if found.is_link_local else (words[1].split("@")[0], found.with_prefixlen)


def _routes(version: int, line: str) -> list[Route]:
    """One line of `ip -o route`; of several next hops each is a route of its own."""
    words = line.replace("\\", " ").split()
    if not words or words[0] in NO_WAY:
        return []
    to = _destination(version, words[0])
    head, *hops = _split_hops(words[1:])
    metric, source = number(_after(head, "metric")) or 0, _after(head, "src") or ""
    source = source if address_of(source) else ""
    devices = [d for part in (head, *hops) if (d := _after(part, "dev"))]
    return [Route(to, device, source, metric) for device in devices] if to else []


def _destination(version: int, text: str) -> str:
    """CIDR; "" for what is no destination, and for link-local ones, which lead nowhere in particular."""
    if text == "default":
        return DEFAULT[version]
    try:
        net = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return ""
    return "" if net.is_link_local else str(net)


def _split_hops(words: list[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for word in words:
        if word == "nexthop":
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _after(words: list[str], key: str) -> str | None:
    return next((b for a, b in pairwise(words) if a == key), None)


PROBE = Probe("network", SECTIONS, parse, fabric_set=True)
