"""LG7: what hosts must agree on over their adapters: addresses, partitions, fabrics, firmware, MTU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from llmgwctl.doctor.adapters import IB, compute
from llmgwctl.doctor.base import Answer, Check, Found, View, each, found
from llmgwctl.doctor.fleet import drifted, kind
from llmgwctl.doctor.names import few, odd_ones
from llmgwctl.model.host import HostFacts


def _firmware(view: View) -> Iterator[Answer]:
    """By board: the same board should run the same firmware."""
    groups: dict[str, dict[str, str]] = defaultdict(dict)
    for facts in view.hosts:
        by_board: dict[str, set[str]] = defaultdict(set)
        for hca in compute(facts, view):
            if hca.firmware and (hca.board or hca.hca_type):
                by_board[hca.board or hca.hca_type].add(hca.firmware)
        for board, versions in by_board.items():
            groups[board][facts.host.name] = f"firmware {', '.join(sorted(versions))}"
    for board, said in groups.items():
        yield from drifted(said, board)


def _no_address(facts: HostFacts, view: View) -> Iterator[Answer]:
    """RoCE rails without a routable address, on a host that uses others: where none has one, it is not used at all."""
    dropped = view.fmap.dropped_hcas.get(facts.host.name, ())
    bare = [name for name, why in dropped if why == "no routable RoCE v2 address"]
    rails = any(p.rail for s in view.fmap.scale_out for p in s.ports.get(facts.host.name, ()))
    if bare and rails:
        yield found(facts, f"no routable RoCE v2 address on {few(bare)}")


def _no_address_left(view: View) -> Iterator[Answer]:
    """No rail at all, on a host whose peers have them."""
    used = {h for s in view.fmap.scale_out if s.kind == "Ethernet" for h in s.ports}
    peers = {kind(f) for f in view.hosts if f.host.name in used}
    for facts in view.hosts:
        if facts.host.name in used or kind(facts) not in peers:
            continue
        dropped = view.fmap.dropped_hcas.get(facts.host.name, ())
        bare = [name for name, why in dropped if why == "no routable RoCE v2 address"]
        if bare:
            yield found(facts, f"no routable RoCE v2 address on any of {few(bare)}")


def _partition_keys(facts: HostFacts, view: View) -> Iterator[Answer]:
    """Bit 15 is full membership; 0x7fff alone may only be talked to by full members."""
    lines = []
    for hca in compute(facts, view):
        for port in hca.ports:
            keys = [int(k, 16) for k in port.pkeys if int(k, 16)]
            if port.active and port.link_layer == "InfiniBand" and keys and not any(k & 0x8000 for k in keys):
                lines.append(
                    f"{hca.name} port {port.number}: P_Keys {', '.join(map(hex, keys[:4]))}, none with full membership"
                )
    if lines:
        yield found(facts, *lines)


def _islands(view: View) -> Iterator[Answer]:
    """Hosts of one kind in several fabrics that only look alike."""
    where: dict[str, dict[str, str]] = defaultdict(dict)
    kinds = {f.host.name: kind(f) for f in view.hosts}
    for fabric in view.fmap.scale_out:
        for host in fabric.hosts if fabric.strength == "probable" else ():
            group = kinds.get(host)
            if group is not None:
                where[group][host] = fabric.id
    for group, said in where.items():
        main, odd = odd_ones(said)
        for fabric_id in dict.fromkeys(odd.values()):
            names = tuple(n for n in odd if odd[n] == fabric_id)
            beside = f"most of {group} are in {main}" if main else f"{group} hosts are divided"
            yield Found(names, (f"in {fabric_id}; {beside}",), "warn" if main and len(names) == 1 else None)


def _mtu(view: View) -> Iterator[Answer]:
    groups: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for facts in view.hosts:
        group, network = kind(facts), facts.network.value
        rails = {dev for hca in compute(facts, view) for dev in hca.netdevs}
        for one in network.interfaces if network is not None and group is not None else ():
            if one.name in rails and one.mtu and one.up:
                groups[group or "", one.name][facts.host.name] = f"{one.name} has MTU {one.mtu}"
    for (group, _), said in groups.items():
        yield from drifted(said, group)


CHECKS = (
    Check(
        "LG705",
        "RoCE rails of a host have no address",
        "degrade",
        each(_no_address),
        seen="ip -br a; cat /sys/class/infiniband/HCA/ports/N/gids/*",
        action="give the rail its address (DHCP, or 802.1x: wpa_cli status)",
        who="fabric admin",
        needs=("hcas", "network"),
    ),
    Check(
        "LG706",
        "A host has no RoCE rail that could be used, and its peers have",
        "block",
        _no_address_left,
        seen="ip -br a; cat /sys/class/infiniband/HCA/ports/N/gids/*",
        action="give the rails their addresses (DHCP, or 802.1x: wpa_cli status)",
        who="fabric admin",
        needs=("hcas", "network", "gpus"),
        hides=("LG705",),
    ),
    Check(
        "LG707",
        "An InfiniBand port is a full member of no partition",
        "block",
        each(_partition_keys),
        seen=f"cat {IB}/pkeys/*",
        action="give the port full membership in the partition of its peers",
        who="fabric admin",
        needs=("hcas",),
    ),
    Check(
        "LG708",
        "Hosts of one kind are in different scale-out fabrics",
        "info",
        _islands,
        seen=f"cat {IB}/sm_lid {IB}/gids/0, on all hosts",
        action="declare the fabrics in the inventory, so that nobody has to guess who reaches whom",
        who="fabric admin",
        scope="fleet",
        needs=("hcas", "gpus"),
    ),
    Check(
        "LG709",
        "Firmware of adapters differs between hosts",
        "warn",
        _firmware,
        seen="cat /sys/class/infiniband/*/fw_ver, on all hosts",
        action="bring the adapters to one firmware",
        who="fabric admin",
        disturbs="everything on the host",
        scope="fleet",
        needs=("hcas",),
    ),
    Check(
        "LG710",
        "MTU of a rail differs between hosts",
        "degrade",
        _mtu,
        seen="ip -o link, on all hosts",
        action="set one MTU on the whole rail (9000 usually, 4200 where the fabric says so)",
        who="fabric admin",
        scope="fleet",
        needs=("hcas", "network", "gpus"),
    ),
)
