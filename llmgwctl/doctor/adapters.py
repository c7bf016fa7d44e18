"""LG7: InfiniBand and RoCE, from sysfs alone: ports against their peers, partitions, addresses, and what RDMA needs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from llmgwctl.doctor.base import Answer, Check, Found, View, each, found
from llmgwctl.doctor.fleet import drifted, kind
from llmgwctl.doctor.names import few, folded, odd_ones
from llmgwctl.model.host import HostFacts
from llmgwctl.model.network import Hca, Port

IB = "/sys/class/infiniband/HCA/ports/N"
RDMA_MEMLOCK_BYTES = 1 << 30  # below it RDMA cannot register what an engine uses
UNUSED = ("NVSwitch management", "may be an NVSwitch", "virtual function", "bonded", "bridge", "default route")


@dataclass(frozen=True, slots=True)
class Usual:
    """What hosts of one kind use for compute: adapter ports that most of them have, with their usual rate."""

    hosts: int = 0
    ports: frozenset[str] = frozenset()
    rates: Mapping[str, int] = field(default_factory=dict)


def usual(view: View) -> dict[str, Usual]:
    """By kind of host. A port is usual when at least half of the hosts of its kind use it."""
    used: dict[str, Counter[str]] = defaultdict(Counter)
    rates: dict[str, dict[str, Counter[int]]] = defaultdict(lambda: defaultdict(Counter))
    members: Counter[str] = Counter()
    of_host = compute_ports(view)
    for facts in view.hosts:
        group = kind(facts)
        if group is None:
            continue
        members[group] += 1
        mine = of_host.get(facts.host.name, frozenset())
        used[group].update(mine)
        for name, port in _named(facts):
            if port.active and port.rate_gbps:
                rates[group][name][port.rate_gbps] += 1
    return {
        group: Usual(
            members[group],
            frozenset(n for n, count in used[group].items() if 2 * count >= members[group]),
            {n: max(c.items(), key=lambda kv: (kv[1], kv[0]))[0] for n, c in rates[group].items()},
        )
        for group in members
    }


def compute_ports(view: View) -> dict[str, frozenset[str]]:
    """Host -> its ports that some scale-out fabric has taken."""
    made: dict[str, set[str]] = defaultdict(set)
    for fabric in view.fmap.scale_out:
        for host, ports in fabric.ports.items():
            made[host] |= {p.name for p in ports}
    return {host: frozenset(ports) for host, ports in made.items()}


def _named(facts: HostFacts) -> Iterator[tuple[str, Port]]:
    for hca in facts.hcas.value or ():
        for port in hca.ports:
            yield f"{hca.name}:{port.number}", port


def _compute(facts: HostFacts, view: View) -> Iterator[Hca]:
    """Adapters that are not known to be for something else."""
    dropped = dict(view.fmap.dropped_hcas.get(facts.host.name, ()))
    for hca in facts.hcas.value or ():
        if not any(word in dropped.get(hca.name, "") for word in UNUSED):
            yield hca


def _down(view: View) -> Iterator[Answer]:
    """A port that is not active, where hosts of its kind use that port; a host alone is held to its own adapters."""
    known, of_host = usual(view), compute_ports(view)
    for facts in view.hosts:
        peers = known.get(kind(facts) or "", Usual())
        expected = peers.ports if peers.hosts > 1 else _twins(facts, of_host.get(facts.host.name, frozenset()))
        lines = tuple(
            f"{hca.name} port {port.number}: {port.state}, {port.phys_state or 'no physical state'}"
            for hca in _compute(facts, view)
            for port in hca.ports
            if not port.active and not _no_manager(port) and f"{hca.name}:{port.number}" in expected
        )
        if lines:
            yield found(facts, *lines)


def _twins(facts: HostFacts, used: frozenset[str]) -> frozenset[str]:
    """First ports of adapters of a type that this host uses for compute."""
    types = {h.hca_type for h in facts.hcas.value or () if h.hca_type and f"{h.name}:1" in used}
    return frozenset(f"{h.name}:1" for h in facts.hcas.value or () if h.hca_type in types)


def _no_manager(port: Port) -> bool:
    return port.state == "INIT" and port.phys_state == "LinkUp" and port.link_layer == "InfiniBand"


def _uninitialised(facts: HostFacts, view: View) -> Iterator[Answer]:
    ports = [(h, p) for h in _compute(facts, view) for p in h.ports]
    lines = tuple(f"{h.name} port {p.number}: INIT, LinkUp, sm_lid {p.sm_lid or 0}" for h, p in ports if _no_manager(p))
    if lines:
        yield found(facts, *lines, severity=None if not any(p.active for _, p in ports) else "degrade")


def _slow(view: View) -> Iterator[Answer]:
    """A rate below that of the same port on most hosts of its kind; a host alone is held to its own adapters."""
    known = usual(view)
    for facts in view.hosts:
        peers = known.get(kind(facts) or "", Usual())
        twins = _twin_rates(facts) if peers.hosts < 2 else {}
        lines = []
        for hca in _compute(facts, view):
            for port in hca.ports:
                name = f"{hca.name}:{port.number}"
                best = peers.rates.get(name, 0) if peers.hosts > 1 else twins.get(hca.hca_type, 0)
                if port.active and port.rate_gbps and port.rate_gbps < best:
                    lines.append(f"{hca.name} port {port.number}: {port.rate_gbps} Gb/s instead of {best}")
        if lines:
            yield found(facts, *lines)


def _twin_rates(facts: HostFacts) -> dict[str, int]:
    """The rate that most ports of one type of adapter have on this host, for types of which there are several."""
    rates: dict[str, Counter[int]] = defaultdict(Counter)
    for hca in facts.hcas.value or ():
        for port in hca.ports:
            if hca.hca_type and port.active and port.rate_gbps:
                rates[hca.hca_type][port.rate_gbps] += 1
    return {t: c.most_common(1)[0][0] for t, c in rates.items() if c.most_common(1)[0][1] > 1}


def _other_adapters(view: View) -> Iterator[Answer]:
    """Names and link layers of the adapters, against hosts of the same kind."""
    groups: dict[str, dict[str, frozenset[str]]] = defaultdict(dict)
    for facts in view.hosts:
        group = kind(facts)
        if group is not None:
            there = (h for h in _compute(facts, view) if h.ports)
            groups[group][facts.host.name] = frozenset(f"{h.name} ({h.ports[0].link_layer})" for h in there)
    for group, said in groups.items():
        main, odd = odd_ones(said)
        if main is None and odd:
            counts = ", ".join(
                f"{folded(n for n in odd if odd[n] == s)}: {len(s)}" for s in dict.fromkeys(odd.values())
            )
            yield Found(tuple(odd), (f"{group} hosts have different adapters ({counts})",))
            continue
        for name, mine in odd.items():
            lacks, extra = sorted((main or frozenset()) - mine), sorted(mine - (main or frozenset()))
            words = [f"lacks {few(lacks)}"] if lacks else []
            words += [f"has {few(extra)} besides"] if extra else []
            yield Found((name,), (" and ".join(words),), "degrade" if lacks and not extra else None)


def _firmware(view: View) -> Iterator[Answer]:
    """By board: the same board should run the same firmware."""
    groups: dict[str, dict[str, str]] = defaultdict(dict)
    for facts in view.hosts:
        by_board: dict[str, set[str]] = defaultdict(set)
        for hca in _compute(facts, view):
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
    for hca in _compute(facts, view):
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
        rails = {dev for hca in _compute(facts, view) for dev in hca.netdevs}
        for one in network.interfaces if network is not None and group is not None else ():
            if one.name in rails and one.mtu and one.up:
                groups[group or "", one.name][facts.host.name] = f"{one.name} has MTU {one.mtu}"
    for (group, _), said in groups.items():
        yield from drifted(said, group)


def _uses_rdma(facts: HostFacts, view: View) -> bool:
    return any(facts.host.name in s.ports for s in view.fmap.scale_out)


def _memlock(facts: HostFacts, view: View) -> Iterator[Answer]:
    system = facts.system.value
    if system is None or system.account == "root" or system.memlock_hard_bytes is None:
        return
    if system.memlock_hard_bytes < RDMA_MEMLOCK_BYTES and _uses_rdma(facts, view):
        kib = system.memlock_hard_bytes // 1024
        yield found(facts, f"hard limit of locked memory is {kib} KiB for {system.account}")


def _gpudirect(facts: HostFacts, view: View) -> Iterator[Answer]:
    """The open kernel module has dmabuf; the closed one needs nvidia_peermem."""
    versions = facts.versions.value
    if versions is None or versions.open_kernel_module is not False or not _uses_rdma(facts, view):
        return
    if not any(name == "nvidia_peermem" for name, _ in versions.modules):
        yield found(facts, "the driver is the closed one, and nvidia_peermem is not loaded")


def _logged(facts: HostFacts, view: View) -> Iterator[Answer]:
    log = facts.kernel_log.value
    lines = log.lines if log is not None else ()
    words = ("insufficient power on the PCIe slot", "High Temperature")
    hit = [x.text for x in lines if x.kind == "mlx5" and any(w in x.text for w in words)]
    if hit:
        yield found(facts, f"{hit[-1][:160]}" + (f" ({len(hit)} such lines)" if len(hit) > 1 else ""))


def _peermem(facts: HostFacts, view: View) -> Iterator[Answer]:
    log = facts.kernel_log.value
    hit = [x for x in (log.lines if log is not None else ()) if "invalid context, skipping" in x.text]
    if hit:
        yield found(facts, f"nvidia_peermem: detected invalid context, {len(hit)} times")


CHECKS = (
    Check(
        "LG701",
        "A port of a compute adapter is not active",
        "degrade",
        _down,
        seen=f"cat {IB}/state {IB}/phys_state",
        action="Polling: reseat or swap cable and transceiver, look at the switch port; Disabled: enable the port",
        who="fabric admin",
        needs=("hcas", "gpus"),
    ),
    Check(
        "LG702",
        "Adapters differ between hosts that should be alike",
        "warn",
        _other_adapters,
        seen="ls /sys/class/infiniband, on all hosts",
        action="find out why one is missing or named otherwise (lspci -d 15b3:; journalctl -k | grep mlx5)",
        who="host admin",
        scope="fleet",
        needs=("hcas", "gpus"),
    ),
    Check(
        "LG703",
        "InfiniBand has no subnet manager",
        "block",
        each(_uninitialised),
        seen=f"cat {IB}/state {IB}/sm_lid",
        action="start or mend the subnet manager of that fabric",
        who="fabric admin",
        needs=("hcas",),
    ),
    Check(
        "LG704",
        "A compute adapter is slower than its peers",
        "degrade",
        _slow,
        seen=f"cat {IB}/rate",
        action="reseat the cable; look for lost lanes (2X, 1X), a split port or an old cable",
        who="fabric admin",
        needs=("hcas", "gpus"),
    ),
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
    Check(
        "LG711",
        "The account may lock too little memory for RDMA",
        "degrade",
        each(_memlock),
        seen="ulimit -H -l, over SSH as the account that launches",
        action="memlock unlimited in /etc/security/limits.d, and LimitMEMLOCK=infinity for the SSH service",
        who="host admin",
        needs=("system", "hcas"),
    ),
    Check(
        "LG712",
        "Adapters cannot read GPU memory directly",
        "degrade",
        each(_gpudirect),
        seen="cat /proc/driver/nvidia/version; lsmod | grep peermem",
        action="use the open kernel module, or load nvidia_peermem",
        who="host admin",
        needs=("versions", "hcas"),
    ),
    Check(
        "LG713",
        "An adapter complains of power or heat",
        "degrade",
        each(_logged),
        seen="journalctl -k -b | grep mlx5",
        action="look at slot, power and cooling of the adapter",
        who="host admin",
        disturbs="everything on the host",
        needs=("kernel_log",),
    ),
    Check(
        "LG714",
        "nvidia_peermem meets contexts that are gone",
        "warn",
        each(_peermem),
        seen="journalctl -k -b | grep -i peermem",
        action="reload nvidia_peermem when the host is drained, or use dmabuf (open kernel module)",
        who="host admin",
        disturbs="RDMA of the host",
        needs=("kernel_log",),
    ),
)
