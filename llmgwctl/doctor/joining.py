"""LG1: whether each GPU has joined the NVLink fabric, and whether the hosts of a rack are in one domain."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Literal

from llmgwctl.doctor.base import Answer, Check, Found, View, each, found, product
from llmgwctl.doctor.names import odd_ones
from llmgwctl.doctor.verdicts import Shape, expects_domain, has, reasons
from llmgwctl.fabric.domains import chassis_of, may_span
from llmgwctl.model.fabric import Domain
from llmgwctl.model.finding import Severity
from llmgwctl.model.host import HostFacts

Situation = Literal["some", "tray", "rack", "hgx"]
STARTING_S = 720  # the fabric manager of a machine may take 12 minutes after boot
SMI = "nvidia-smi -q | grep -A4 Fabric"
WAIT = "wait and read again: the host is up for {minutes:.0f} min, and a fabric may take 12"


def _situation(facts: HostFacts, view: View) -> Situation:
    """Where to look for the cause: one GPU, the tray, the whole rack, or the machine's own fabric manager."""
    known = product(facts)
    if known is not None and known.host_fabric_manager:
        return "hgx"
    report = facts.gpus.value
    if report is None or any(g.fabric.joined for g in report.gpus):
        return "some"
    domain = view.domain(facts)
    dark = domain is not None and domain.cluster_uuid is None and len(domain.hosts) > 1
    return "rack" if dark else "tray"


def _young(facts: HostFacts) -> str | None:
    """What to do with a host that has only just started."""
    system = facts.system.value
    young = system is not None and 0 < system.uptime_s < STARTING_S
    return WAIT.format(minutes=system.uptime_s / 60) if system and young else None


def _not_joined(wanted: Situation) -> Shape:
    def shape(facts: HostFacts, view: View, texts: tuple[str, ...]) -> Found | None:
        if _situation(facts, view) != wanted:
            return None
        wait = _young(facts)
        return found(facts, *texts, severity="warn", action=wait) if wait else found(facts, *texts)

    return shape


def _no_fabric(facts: HostFacts, view: View, texts: tuple[str, ...]) -> Found | None:
    """A board of GB200s without a rack around it prints N/A too: an error only where a domain is expected."""
    domain = view.domain(facts)
    expected = expects_domain(facts) or (expects_domain(facts) is None and domain is not None and domain.multi_host)
    return found(facts, *texts) if expected else found(facts, *texts, severity="info")


def _two_domains(view: View) -> Iterator[Answer]:
    """Hosts of one rack (or chassis) that are in another domain than most of it."""
    places: dict[str, dict[str, str]] = defaultdict(dict)
    expecting = set()
    for facts in view.hosts:
        place, domain = facts.host.rack or chassis_of(facts), view.domain(facts)
        if place and domain is not None and domain.cluster_uuid and expects_domain(facts) is not False:
            places[place][facts.host.name] = domain.id
            expecting |= {facts.host.name} if expects_domain(facts) else set()
    for place, said in places.items():
        main, odd = odd_ones(said)
        for domain_id in dict.fromkeys(odd.values()):
            names = tuple(n for n in odd if odd[n] == domain_id)
            yield _split(
                place, names, view.domains[domain_id], view.domains.get(main or ""), bool(expecting & {*names})
            )


def _split(place: str, names: tuple[str, ...], mine: Domain, main: Domain | None, expected: bool) -> Found:
    """A tray that is left alone in another partition can share memory with nobody: that is more than a remark."""
    same_chassis = main is not None and bool(set(main.chassis) & set(mine.chassis))
    what = f"partition (clique {mine.clique_id})" if same_chassis else f"domain ({mine.id})"
    beside = (
        f"{len(main.hosts)} hosts of {place} are in clique {main.clique_id}" if main else f"{place} has no main one"
    )
    severity: Severity | None = "block" if expected and not mine.multi_host else None
    return Found(names, (f"another {what} than its rack: {beside}",), severity)


def _alone(facts: HostFacts, view: View, texts: tuple[str, ...]) -> Found:
    return found(facts, "the only host of its NVLink domain that was read in this run")


def _expected(facts: HostFacts, view: View) -> Iterator[Answer]:
    """The inventory expects a domain of several hosts, and this machine's NVLink cannot leave it; or the other way."""
    if expects_domain(facts) and has(view, facts, "one-machine"):
        report = facts.gpus.value
        name = report.gpus[0].name if report and report.gpus else "this product"
        yield found(facts, f"expect.domain is true, and the NVLink of {name} does not leave the machine")
    domain = view.domain(facts)
    if expects_domain(facts) is False and domain is not None and domain.multi_host:
        yield found(facts, f"expect.domain is false, and it is in {domain.id} with {len(domain.hosts) - 1} others")


def _missing(view: View) -> Iterator[Answer]:
    """A domain of a rack that is short of hosts which nobody else reports: they are read, healthy, and not in it."""
    standing: dict[str, list[str]] = defaultdict(list)  # rack -> its hosts that are in no domain
    for facts in view.hosts:
        if facts.host.rack and expects_domain(facts) and view.verdict(facts).domain is None and not may_span(facts):
            standing[facts.host.rack].append(facts.host.name)
    for domain in view.fmap.domains:
        strangers = standing.get(domain.rack, []) if domain.multi_host and domain.rack else []
        if strangers:
            text = f"in rack {domain.rack}, whose domain has {len(domain.hosts)} hosts, and in no domain"
            yield Found(tuple(strangers), (text,))


CHECKS = (
    Check(
        "LG101",
        "Some GPUs of a host have not joined the NVLink fabric",
        "block",
        reasons("not-joined", "joining-unknown", shape=_not_joined("some")),
        seen=SMI,
        action="drain the host, then reset that GPU or reboot (look for Xid 136, 149, 150 in the kernel log first)",
        who="host admin",
        disturbs="everything on the host",
        matters=True,
        hides=("LG111", "LG206"),
    ),
    Check(
        "LG102",
        "No GPU of a tray has joined, while other trays of its rack have",
        "block",
        reasons("not-joined", shape=_not_joined("tray")),
        seen=SMI,
        action="ask for this tray's registration, partition and cables on the switch side (NMX-C); start nothing on it",
        who="rack operator",
        hides=("LG3", "LG4", "LG111", "LG203", "LG206"),
        matters=True,
    ),
    Check(
        "LG103",
        "No GPU of a whole rack has joined",
        "block",
        reasons("not-joined", shape=_not_joined("rack")),
        seen=SMI,
        action="look at NMX-C / the fabric manager on the switch trays, and whether a partition exists",
        who="rack operator",
        scope="domain",
        hides=("LG3", "LG4", "LG111", "LG203", "LG206"),
        matters=True,
    ),
    Check(
        "LG104",
        "GPUs of an NVSwitch machine wait for its own fabric manager",
        "block",
        reasons("not-joined", shape=_not_joined("hgx")),
        seen=f"{SMI}; systemctl show nvidia-fabricmanager -p ActiveState",
        action="start nvidia-fabricmanager in exactly the driver's version, wait 10 s, read again",
        who="host admin",
        matters=True,
    ),
    Check(
        "LG105",
        "The fabric manager refused a GPU",
        "block",
        reasons("refused"),
        seen=SMI,
        action="ask why the fabric manager refuses it (resources, partition); State alone says Completed",
        who="rack operator",
        matters=True,
        hides=("LG106", "LG111"),
    ),
    Check(
        "LG106",
        "A rack's GPU is joined to nothing: ClusterUUID is zero",
        "block",
        reasons("zero-uuid"),
        seen=SMI,
        action="have the rack's NVLink fabric initialised (Azure: report category nvlink_down)",
        who="rack operator",
        matters=True,
        hides=("LG3", "LG4", "LG111"),
    ),
    Check(
        "LG107",
        "A GPU of a rack sees no NVLink fabric at all",
        "block",
        reasons("no-fabric", shape=_no_fabric),
        seen=SMI,
        action="check the board and its switch cables; where there is no rack, set expect.domain = false",
        who="rack operator",
        matters=True,
        hides=("LG3", "LG4", "LG111"),
    ),
    Check(
        "LG108",
        "GPUs of one host are in different cliques",
        "block",
        reasons("two-cliques"),
        seen=SMI,
        action="keep the host out until a re-partitioning is finished, or reset the stale GPU",
        who="rack operator",
        disturbs="everything on the host",
        matters=True,
    ),
    Check(
        "LG109",
        "Hosts of one rack are in different NVLink domains",
        "warn",
        _two_domains,
        seen=f"{SMI}, on all hosts of the rack",
        action="if nobody partitioned the rack on purpose, ask for one partition; else correct `rack` in the inventory",
        who="rack operator",
        disturbs="everything in the partitions that change",
        scope="domain",
        needs=("gpus",),
        hides=("LG111",),
    ),
    Check(
        "LG110",
        "A host stands in a rack, and not in the rack's domain",
        "warn",
        _missing,
        seen=f"{SMI}, on all hosts of the rack",
        action="see what this host is: another product, or a tray that is not wired",
        who="rack operator",
        scope="domain",
        needs=("gpus",),
        hides=("LG112",),
    ),
    Check(
        "LG111",
        "A host is alone in its NVLink domain",
        "info",
        reasons("alone", shape=_alone),
        seen=SMI,
        action="nothing, when only this host was asked; else read the whole rack",
        who="job owner",
    ),
    Check(
        "LG112",
        "A host is not in the domain that the inventory expects",
        "warn",
        each(_expected),
        seen=SMI,
        action="correct expect.domain in the inventory, or the host",
        who="job owner",
        needs=("gpus",),
    ),
)
