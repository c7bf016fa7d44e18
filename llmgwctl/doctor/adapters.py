"""LG7: adapters and their ports against those of hosts of the same kind, from sysfs alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import field

from llmgwctl.doctor.base import Answer, Check, Found, View, each, found
from llmgwctl.doctor.fleet import kind
from llmgwctl.doctor.names import few, folded, odd_ones
from llmgwctl.model.fact import fact
from llmgwctl.model.host import HostFacts
from llmgwctl.model.network import Hca, Port

IB = "/sys/class/infiniband/HCA/ports/N"
UNUSED = ("NVSwitch management", "may be an NVSwitch", "virtual function", "bonded", "bridge", "default route")


@fact
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


def compute(facts: HostFacts, view: View) -> Iterator[Hca]:
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
            for hca in compute(facts, view)
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
    ports = [(h, p) for h in compute(facts, view) for p in h.ports]
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
        for hca in compute(facts, view):
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
            there = (h for h in compute(facts, view) if h.ports)
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
)
