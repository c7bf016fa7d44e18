"""The racks of the page: every domain with its trays in physical order, those that are missing or elsewhere too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llmgwctl.model.fabric import Domain, DomainHost, FabricMap
from llmgwctl.model.fact import fact
from llmgwctl.model.host import HostFacts, Snapshot
from llmgwctl.render.html_view import ShardView, TrayView, tray
from llmgwctl.render.words import out_of_domain, short_domain

Facts = Mapping[str, HostFacts]
Shards = Mapping[str, tuple[ShardView, ...]]


@fact
class RackView:
    """A domain as a rack. `state`: ok | warn | bad; `light`: whether any GPU is joined, so that the backplane glows."""

    anchor: str
    name: str
    domain: str
    short: str
    state: str
    light: bool
    joined: int
    expected: int
    eligible: int
    gpus_joined: int
    gpus: int
    lanes: int
    trays: tuple[TrayView, ...]
    partition: str = ""
    partition_anchor: str = ""

    @property
    def says(self) -> str:
        """The state in a word, so that colour is never alone."""
        return {"ok": "whole", "warn": "needs a look", "bad": "no tray can be used"}[self.state]


@fact
class Fleet:
    """All that the racks are drawn from."""

    fmap: FabricMap
    snapshot: Snapshot
    facts: Facts
    shards: Shards
    anchors: Mapping[str, str]  # domain id -> where it stands in the page
    elsewhere: Mapping[
        str, Sequence[tuple[DomainHost, Domain]]
    ]  # domain id -> trays of its chassis in other partitions


def racks(fmap: FabricMap, snapshot: Snapshot, shards: Shards | None = None) -> tuple[RackView, ...]:
    facts = {f.host.name: f for f in snapshot.hosts}
    anchors = {d.id: f"rack-{i}" for i, d in enumerate(fmap.domains, 1)}
    fleet = Fleet(fmap, snapshot, facts, shards or {}, anchors, _elsewhere(fmap))
    return tuple(_rack(d, fleet) for d in fmap.domains)


def _rack(domain: Domain, fleet: Fleet) -> RackView:
    fmap, facts, anchors = fleet.fmap, fleet.facts, fleet.anchors
    drawn = _in_order(domain, fleet)
    eligible = sum(fmap.verdicts[n].eligible for n in domain.names)
    joined, total, lanes = _count(domain, facts)
    expected = domain.expected_hosts or len(domain.hosts) + len(domain.missing)
    if domain.partition_of:
        expected = len(domain.hosts)  # the rest of the chassis is drawn, and counted, with the main partition
    whole = eligible == len(domain.hosts) and domain.joined_hosts >= expected - len(fleet.elsewhere.get(domain.id, ()))
    return RackView(
        anchor=anchors[domain.id],
        name=_name(domain),
        domain=domain.id,
        short=short_domain(domain.id),
        state="ok" if whole else "warn" if eligible else "bad",
        light=joined > 0,
        joined=domain.joined_hosts,
        expected=expected,
        eligible=eligible,
        gpus_joined=joined,
        gpus=total,
        lanes=lanes,
        trays=drawn,
        partition=short_domain(domain.partition_of) if domain.partition_of else "",
        partition_anchor=anchors.get(domain.partition_of or "", ""),
    )


def _name(domain: Domain) -> str:
    if not domain.rack:
        return "rack not named"
    name = f"chassis {domain.rack}" if domain.rack in domain.chassis else f"rack {domain.rack}"
    return f"{name}, partition {domain.clique_id}" if domain.partition_of else name


def _count(domain: Domain, facts: Facts) -> tuple[int, int, int]:
    """GPUs joined, GPUs in all (of a tray that was not read, what the inventory expects), and lanes to draw."""
    reports = [r for n in domain.names if (r := facts[n].gpus.value)]
    joined = sum(g.fabric.joined is True for r in reports for g in r.gpus)
    attached = [r.attached for r in reports]
    hoped = sum(facts[n].host.expect.gpus or 0 for n in _missing_here(domain))
    return joined, sum(attached) + hoped, max(attached, default=4)


def _elsewhere(fmap: FabricMap) -> dict[str, list[tuple[DomainHost, Domain]]]:
    """Trays of the same chassis that are in another partition; drawn in the main partition's rack, as what they are."""
    found: dict[str, list[tuple[DomainHost, Domain]]] = {}
    for d in fmap.domains:
        if d.partition_of:
            found.setdefault(d.partition_of, []).extend((h, d) for h in d.hosts)
    return found


def _in_order(domain: Domain, fleet: Fleet) -> tuple[TrayView, ...]:
    here: list[tuple[int | None, str, TrayView]] = [(_place(h), h.name, _placed(h, fleet)) for h in domain.hosts]
    for host, other in fleet.elsewhere.get(domain.id, ()):
        says = f"in another partition, {short_domain(other.id)}"
        _insert(here, _place(host), fleet.facts, TrayView(host.name, "elsewhere", place=_slot(host), says=says))
    for name in _missing_here(domain):
        _insert(here, None, fleet.facts, _missing(name, fleet))
    return tuple(view for _, _, view in here)


def _missing_here(domain: Domain) -> tuple[str, ...]:
    """A tray of which nothing is known is drawn once, in the main partition of its rack."""
    return () if domain.partition_of else domain.missing


def _insert(here: list[tuple[int | None, str, TrayView]], place: int | None, facts: Facts, view: TrayView) -> None:
    """Before the first tray that is known to stand after it: by its place, else by the order of the inventory."""
    order = facts[view.name].host.order

    def after(other: tuple[int | None, str, TrayView]) -> bool:
        if place is not None and other[0] is not None:
            return other[0] > place
        return facts[other[1]].host.order > order

    at = next((i for i, other in enumerate(here) if after(other)), len(here))
    here.insert(at, (place, view.name, view))


def _placed(host: DomainHost, fleet: Fleet) -> TrayView:
    name = host.name
    return tray(fleet.facts[name], fleet.fmap.verdicts[name], fleet.snapshot, _slot(host), fleet.shards.get(name, ()))


def _missing(name: str, fleet: Fleet) -> TrayView:
    """A tray of this rack of which nothing is known: it is drawn, empty, with what is known of why."""
    reasons = out_of_domain(fleet.fmap.verdicts.get(name)) or ("not read",)
    return TrayView(name, "missing", imex="unknown", reasons=reasons, shards=fleet.shards.get(name, ()))


def _place(host: DomainHost) -> int | None:
    return host.tray if host.tray is not None else host.slot


def _slot(host: DomainHost) -> str:
    place = host.slot if host.slot is not None else host.tray
    return "" if place is None else str(place)


def with_problem(views: tuple[RackView, ...]) -> frozenset[str]:
    """Names of trays about which there is something to say."""
    return frozenset(t.name for r in views for t in r.trays if t.state != "ok" or t.notes)
