"""The rack page and the node page: facts in, one self-contained HTML file out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from llmgwctl.model.fabric import FabricMap, HostVerdict, Outside
from llmgwctl.model.fact import fact
from llmgwctl.model.host import Host, HostFacts, Snapshot
from llmgwctl.model.replica import ReplicaState
from llmgwctl.render.fold import alike, fold
from llmgwctl.render.html_base import page
from llmgwctl.render.html_node import HostView, host_view
from llmgwctl.render.html_rack import RackView, Shards, racks, with_problem
from llmgwctl.render.html_view import CHIPS, ShardView, TrayView, shards_by_host, span, state_of, tray
from llmgwctl.render.json import moment
from llmgwctl.render.words import alike_for, out_of_domain

__all__ = ["node_page", "rack_page"]

FULL_DETAILS = 360  # hosts, twenty racks of 18; beyond that only those with a problem have their details in the page
MAX_DETAILS = 400  # hosts with a problem, in a large fleet
MAX_TROUBLES = 200  # lines of the list on top
MAX_RANGE = 160
KINDS = {"out": "w", "slow": "d", "unknown": "k", "ok": "n"}


@fact
class Trouble:
    """Hosts that say the same of what is wrong."""

    hosts: str
    count: int
    reasons: tuple[str, ...]
    anchor: str
    kind: str  # class in the page: w wrong, d degraded, k could not be told


@fact
class FabricView:
    """Hosts outside of any domain, by the scale-out fabric that they share."""

    name: str
    kind: str
    hosts: tuple[TrayView, ...]


def rack_page(
    fmap: FabricMap,
    snapshot: Snapshot,
    replicas: Sequence[ReplicaState] = (),
    *,
    made_at: float | None = None,
    node_href: str = "",
    doctor_href: str = "",
    refresh_s: int = 0,
) -> str:
    """Every domain as a rack. `made_at`: seconds since the epoch; `node_href`: "nodes/{}.html" inside a site."""
    shards = shards_by_host(replicas)
    views = racks(fmap, snapshot, shards)
    facts = {f.host.name: f for f in snapshot.hosts}
    found = _troubles(fmap, snapshot, views)
    outside = _outside(fmap, facts, snapshot, shards)
    details, unsaid = _details(fmap, facts, snapshot, views)
    return page(
        "racks.html",
        title=_title(views),
        racks=views,
        outside=outside,
        unreachable=[(o, facts[o.name].host) for o in fmap.unreachable],
        replicas=[(r, fold({s.host for s in r.shards})) for r in replicas],
        troubles=found[:MAX_TROUBLES],
        more_troubles=max(0, len(found) - MAX_TROUBLES),
        details=details,
        unsaid=unsaid,
        totals=_totals(fmap, snapshot, views),
        chips=CHIPS,
        read=moment(snapshot.taken_at),
        age=_age(snapshot, made_at),
        node_href=node_href,
        doctor_href=doctor_href,
        refresh_s=refresh_s,
    )


def node_page(
    name: str,
    fmap: FabricMap,
    snapshot: Snapshot,
    replicas: Sequence[ReplicaState] = (),
    *,
    made_at: float | None = None,
    home_href: str = "",
    refresh_s: int = 0,
) -> str:
    """All that is known of one host. KeyError when it is not in the snapshot."""
    facts = next((f for f in snapshot.hosts if f.host.name == name), None)
    if facts is None:
        raise KeyError(name)
    return page(
        "node.html",
        title=name,
        host=host_view(facts, fmap, snapshot),
        tray=tray(facts, fmap.verdicts[name], snapshot, shards=shards_by_host(replicas).get(name, ())),
        chips=CHIPS,
        read=moment(snapshot.taken_at),
        age=_age(snapshot, made_at),
        home_href=home_href,
        refresh_s=refresh_s,
    )


def _title(views: Sequence[RackView]) -> str:
    bad = sum(v.state != "ok" for v in views)
    return f"NVLink: {len(views)} rack{'' if len(views) == 1 else 's'}" + (f", {bad} to look at" if bad else "")


def _age(snapshot: Snapshot, made_at: float | None) -> str:
    return f"{span(made_at - snapshot.taken_at)} before this page was made" if made_at is not None else ""


def _totals(fmap: FabricMap, snapshot: Snapshot, views: Sequence[RackView]) -> dict[str, int]:
    names = {n for d in fmap.domains for n in d.names}
    return {
        "racks": len(views),
        "trays": sum(v.expected for v in views if not v.partition),
        "trays_joined": sum(v.joined for v in views),
        "gpus": sum(v.gpus for v in views),
        "gpus_joined": sum(v.gpus_joined for v in views),
        "eligible": sum(v.eligible for v in views),
        "hosts": len(snapshot.hosts),
        "outside": len(fmap.outside),
        "unreachable": len(fmap.unreachable),
        "troubled": sum(_wrong(fmap, n) for n in names) + sum(_wrong(fmap, o.name) for o in fmap.outside),
    }


def _wrong(fmap: FabricMap, name: str) -> bool:
    return bool(out_of_domain(fmap.verdicts.get(name)))


def _troubles(fmap: FabricMap, snapshot: Snapshot, views: Sequence[RackView]) -> list[Trouble]:
    """What keeps hosts out, hosts that say the same on one line: of one rack, or in a large fleet of all racks."""
    large = len(snapshot.hosts) > FULL_DETAILS
    anchors = {t.name: v.anchor for v in views for t in v.trays if t.state != "elsewhere"}
    places = {f.host.name: anchors.get(f.host.name, _section(f)) for f in snapshot.hosts}
    said = (
        (f.host.name, (_said(v, f.host), KINDS[state_of(v)], "" if large else places[f.host.name]))
        for f in snapshot.hosts
        if (v := fmap.verdicts.get(f.host.name)) and out_of_domain(v)
    )
    return [
        Trouble(
            _short(fold(names)),
            len(names),
            reasons if len(names) > 1 else out_of_domain(fmap.verdicts[names[0]]),
            _anchor(names, places, large),
            kind,
        )
        for names, (reasons, kind, _) in alike(said)
    ]


def _said(verdict: HostVerdict, host: Host) -> tuple[str, ...]:
    """Without its own name and address, so that hosts of the same fate are one line."""
    return tuple(alike_for(text, host) for text in out_of_domain(verdict))


def _short(names: str) -> str:
    """A range of hosts all over the fleet can be long; each of them is drawn in its place as well."""
    return names if len(names) <= MAX_RANGE else f"{names[:MAX_RANGE]}…"


def _section(facts: HostFacts) -> str:
    """Where a host stands that is in no rack."""
    return "outside" if facts.reachable.ok else "unreachable"


def _anchor(names: Sequence[str], places: dict[str, str], large: bool) -> str:
    """The host where it is one (or the first of many, over all racks), else the place that they share."""
    place = places[names[0]]
    if len(names) > 1 and not large:
        return place
    return f"{'u' if place == 'unreachable' else 'h'}-{names[0]}"


def _outside(
    fmap: FabricMap, facts: dict[str, HostFacts], snapshot: Snapshot, shards: Shards
) -> tuple[FabricView, ...]:
    """By the first fabric that each host is in; those in none stand last."""
    strength = {s.id: f"{s.kind}, {s.strength}" for s in fmap.scale_out}
    groups = alike((o.name, o.fabrics[0] if o.fabrics else "") for o in fmap.outside)
    by_name = {o.name: o for o in fmap.outside}
    made = [
        FabricView(
            fabric or "no scale-out fabric",
            strength.get(fabric, ""),
            tuple(_host(by_name[n], fmap, facts[n], snapshot, shards.get(n, ())) for n in names),
        )
        for names, fabric in groups
    ]
    return tuple(sorted(made, key=lambda v: not v.kind))


def _host(
    outside: Outside, fmap: FabricMap, facts: HostFacts, snapshot: Snapshot, shards: tuple[ShardView, ...]
) -> TrayView:
    view = tray(facts, fmap.verdicts[outside.name], snapshot, shards=shards)
    also = tuple(f"also in {f}" for f in outside.fabrics[1:])
    says = outside.why if outside.why not in view.reasons else ""
    return replace(view, notes=(*view.notes, *also), says=says)


def _details(
    fmap: FabricMap, facts: dict[str, HostFacts], snapshot: Snapshot, views: tuple[RackView, ...]
) -> tuple[dict[str, HostView], int]:
    """What the node pages say, folded in; and how many hosts with a problem had no room."""
    names = [n for d in fmap.domains for n in d.names] + [o.name for o in fmap.outside]
    large = len(names) > FULL_DETAILS
    if large:
        troubled = with_problem(views) | {o.name for o in fmap.outside if _wrong(fmap, o.name)}
        names = [n for n in names if n in troubled]
    kept = names[:MAX_DETAILS] if large else names
    return {n: host_view(facts[n], fmap, snapshot) for n in kept}, len(names) - len(kept)
