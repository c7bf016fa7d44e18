"""What `ip` prints on a simulated host, and the same facts as /proc/net has them."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator

from llmgwctl.rack.machine import Interface, Machine

_FLAGS = "BROADCAST,MULTICAST"


def answers(m: Machine) -> dict[str, str]:
    """By the name under which the fake program finds it: object, family (.4, .6), style (.o, .j)."""
    found = {"first": f"{m.interfaces[0].name} {m.address}\n"}
    for family in ("", ".4", ".6"):
        shown = family != ".6"  # these hosts have no IPv6 but on the loopback
        found[f"addr{family}"] = "".join(_address_block(m, i, k) for k, i in _all(m)) if shown else ""
        found[f"addr{family}.o"] = "".join(_address_line(i, k) for k, i in _all(m)) if shown else ""
        found[f"addr{family}.j"] = _json([_address_json(i, k) for k, i in _all(m)] if shown else [])
        found[f"route{family}"] = found[f"route{family}.o"] = (
            "".join(_route_line(i) for i in m.interfaces if i.up) if shown else ""
        )
        found[f"route{family}.j"] = _json([_route_json(i) for i in m.interfaces if i.up] if shown else [])
    found["link"] = "".join(_link_block(i, k) for k, i in _all(m))
    found["link.o"] = "".join(_link_block(i, k).replace("\n    ", "\\    ") for k, i in _all(m))
    found["link.j"] = _json([_link_json(i, k) for k, i in _all(m)])
    return found


_LO = Interface("lo", "127.0.0.1/32", "00:00:00:00:00:00", 65536)


def _all(m: Machine) -> Iterator[tuple[int, Interface]]:
    yield from enumerate((_LO, *m.interfaces), 1)


def _json(rows: list[dict[str, object]]) -> str:
    return json.dumps(rows, separators=(",", ":")) + "\n"


def _flags(i: Interface) -> str:
    if i is _LO:
        return "LOOPBACK,UP,LOWER_UP"
    return f"{_FLAGS},UP,LOWER_UP" if i.up else _FLAGS


def _state(i: Interface) -> str:
    return "UNKNOWN" if i is _LO else "UP" if i.up else "DOWN"


def _brd(i: Interface) -> str:
    return str(ipaddress.ip_interface(i.address).network.broadcast_address)


def _link_block(i: Interface, k: int) -> str:
    kind = "loopback" if i is _LO else "ether"
    end = "00:00:00:00:00:00" if i is _LO else "ff:ff:ff:ff:ff:ff"
    head = f"{k}: {i.name}: <{_flags(i)}> mtu {i.mtu} qdisc mq state {_state(i)} mode DEFAULT group default qlen 1000"
    return f"{head}\n    link/{kind} {i.mac} brd {end}\n"


def _inet(i: Interface) -> str:
    if i is _LO:
        return f"inet {i.address} scope host {i.name}"
    return f"inet {i.address} brd {_brd(i)} scope global {i.name}"


def _address_block(m: Machine, i: Interface, k: int) -> str:
    head = _link_block(i, k).replace(" mode DEFAULT", "")
    return f"{head}    {_inet(i)}\n       valid_lft forever preferred_lft forever\n"


def _address_line(i: Interface, k: int) -> str:
    return f"{k}: {i.name}    {_inet(i)}\\       valid_lft forever preferred_lft forever\n"


def _link_json(i: Interface, k: int) -> dict[str, object]:
    return {
        "ifindex": k,
        "ifname": i.name,
        "flags": _flags(i).split(","),
        "mtu": i.mtu,
        "operstate": _state(i),
        "link_type": "loopback" if i is _LO else "ether",
        "address": i.mac,
    }


def _address_json(i: Interface, k: int) -> dict[str, object]:
    local, length = i.address.split("/")
    scope = "host" if i is _LO else "global"
    info = {"family": "inet", "local": local, "prefixlen": int(length), "scope": scope, "label": i.name}
    return {**_link_json(i, k), "addr_info": [info]}


def _network(i: Interface) -> str:
    return str(ipaddress.ip_interface(i.address).network)


def _route_line(i: Interface) -> str:
    return f"{_network(i)} dev {i.name} proto kernel scope link src {i.address.split('/')[0]} \n"


def _route_json(i: Interface) -> dict[str, object]:
    source = i.address.split("/")[0]
    return {"dst": _network(i), "dev": i.name, "protocol": "kernel", "scope": "link", "prefsrc": source, "flags": []}


def proc_net(m: Machine) -> dict[str, str]:
    """Files of /proc/net for hosts without `ip`."""
    head = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
    rows = "".join(_proc_route(i) for i in m.interfaces if i.up)
    return {"route": head + rows, "fib_trie": _fib_trie(m), "if_inet6": ""}


def _proc_route(i: Interface) -> str:
    network = ipaddress.ip_interface(i.address).network
    destination = _little_endian(network.network_address.packed)
    return f"{i.name}\t{destination}\t00000000\t0001\t0\t0\t0\t{_little_endian(network.netmask.packed)}\t0\t0\t0\n"


def _little_endian(packed: bytes) -> str:
    return packed[::-1].hex().upper()


def _fib_trie(m: Machine) -> str:
    own = "".join(f"        |-- {i.address.split('/')[0]}\n           /32 host LOCAL\n" for _, i in _all(m))
    return f"Main:\n  +-- 0.0.0.0/0 3 0 5\nLocal:\n  +-- 0.0.0.0/0 3 0 5\n{own}"
