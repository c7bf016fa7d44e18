"""/proc/net in place of `ip`: addresses from fib_trie and if_inet6, routes from route and ipv6_route."""

from __future__ import annotations

import ipaddress
import re
from itertools import pairwise

from llmgwctl.model.network import Route
from llmgwctl.probe.smi_tree import number

RTF_UP, RTF_GATEWAY, RTF_REJECT = 0x1, 0x2, 0x200
LEAF = re.compile(r"\|-- (\d{1,3}(?:\.\d{1,3}){3})$")
HEX2 = re.compile(r"[0-9A-Fa-f]{2}")
HEX8 = re.compile(r"[0-9A-Fa-f]{8}")
HEX32 = re.compile(r"[0-9A-Fa-f]{32}")
LISTEN = re.compile(r"([0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4})")
LOOPBACK4 = ipaddress.ip_network("127.0.0.0/8")

Found = tuple[str, str]  # interface, address as CIDR
Connected = dict[tuple[int, int], str]  # length of the prefix and network -> interface: found without a search


def from_proc(tables: dict[str, list[str]]) -> tuple[list[Found], list[Route]]:
    """(interface, CIDR) of each address, and the main table."""
    routes4, connected = _routes4(tables.get("route", []))
    addresses = _addresses4(tables.get("fib_trie", []), connected)
    addresses += [a for row in tables.get("if_inet6", []) if (a := _address6(row)) is not None]
    return addresses, routes4 + [r for row in tables.get("ipv6_route", []) if (r := _route6(row)) is not None]


def _routes4(rows: list[str]) -> tuple[list[Route], Connected]:
    """All routes, and apart from them the networks without a gateway, which tell on which interface an address is."""
    routes: list[Route] = []
    connected: Connected = {}
    for row in rows:
        words = row.split()
        if len(words) < 8 or not HEX8.fullmatch(words[1]) or not HEX8.fullmatch(words[7]):
            continue
        net = _net4(words[1], words[7])
        flags = int(words[3], 16) if HEX8.fullmatch(words[3].zfill(8)) else 0
        if net is None or not flags & RTF_UP or flags & RTF_REJECT:
            continue
        routes.append(Route(str(net), words[0], "", number(words[6]) or 0))
        if not flags & RTF_GATEWAY and net.prefixlen:
            place = (net.prefixlen, int(net.network_address))
            connected[place] = max(words[0], connected.get(place, ""))
    return routes, connected


def _net4(address: str, mask: str) -> ipaddress.IPv4Network | None:
    """Both are little-endian hex: 0001010A is 10.1.1.0."""
    quad, dotted = (".".join(str(b) for b in bytes.fromhex(text)[::-1]) for text in (address, mask))
    try:
        return ipaddress.IPv4Network(f"{quad}/{dotted}", strict=False)
    except ValueError:
        return None


def _addresses4(trie: list[str], connected: Connected) -> list[Found]:
    """A leaf with `/32 host LOCAL` is one of ours; the narrowest connected network says on which interface."""
    own = dict.fromkeys(
        found[1]
        for leaf, kind in pairwise(trie)
        if (found := LEAF.search(leaf)) is not None and kind.split()[:3] == ["/32", "host", "LOCAL"]
    )
    return [place for text in own if (place := _placed(text, connected)) is not None]


def _placed(text: str, connected: Connected) -> Found | None:
    try:
        address = ipaddress.IPv4Address(text)
    except ValueError:
        return None
    if address in LOOPBACK4:
        return ("lo", f"{text}/8")
    lengths = (n for n in range(32, 0, -1) if (n, int(address) >> (32 - n) << (32 - n)) in connected)
    length = next(lengths, None)
    if length is None or address.is_link_local:
        return None
    return connected[length, int(address) >> (32 - length) << (32 - length)], f"{text}/{length}"


def _address6(row: str) -> Found | None:
    """ADDRESS INDEX PREFIXLEN SCOPE FLAGS NAME, all hex."""
    words = row.split()
    if len(words) != 6 or not HEX32.fullmatch(words[0]) or not HEX2.fullmatch(words[2]):
        return None
    address, length = ipaddress.IPv6Address(int(words[0], 16)), int(words[2], 16)
    return None if address.is_link_local or length > 128 else (words[5], f"{address}/{length}")


def _route6(row: str) -> Route | None:
    """DESTINATION LEN SOURCE LEN NEXTHOP METRIC REFCNT USE FLAGS NAME, all hex."""
    words = row.split()
    if (
        len(words) != 10
        or not HEX32.fullmatch(words[0])
        or not HEX8.fullmatch(words[5])
        or not HEX8.fullmatch(words[8])
    ):
        return None
    flags, length = int(words[8], 16), int(words[1], 16) if re.fullmatch(r"[0-9A-Fa-f]{2}", words[1]) else 999
    if not flags & RTF_UP or flags & RTF_REJECT or length > 128 or words[9] == "lo":
        return None
    net = ipaddress.IPv6Network((int(words[0], 16), length), strict=False)
    return None if net.is_link_local or net.is_multicast else Route(str(net), words[9], "", int(words[5], 16))


def listener(text: str) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int] | None:
    """ADDRESS:PORT of /proc/net/tcp: words of four bytes, each little-endian; a mapped IPv4 address is that address."""
    found = LISTEN.fullmatch(text)
    if found is None:
        return None
    words = bytes.fromhex(found[1])
    packed = b"".join(words[i : i + 4][::-1] for i in range(0, len(words), 4))
    address = ipaddress.ip_address(packed)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address, int(found[2], 16)
