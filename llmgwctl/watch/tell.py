"""Changes put together by what they mean: seventy-two GPUs of one domain that drop at once are one message."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from llmgwctl.model.fact import fact
from llmgwctl.model.names import fold
from llmgwctl.model.numbers import ranges
from llmgwctl.watch.changes import Change, Severity
from llmgwctl.watch.seen import GpuSeen, Seen


@fact
class Transition:
    """One message. `kind` is a stable word; `text` is for people."""

    kind: str
    severity: Severity
    text: str
    at: float
    hosts: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()  # UUIDs
    domain: str = ""
    replica: str = ""

    def document(self) -> dict[str, object]:
        return {
            "schema": "llmgwctl.transition/v1",
            "at": datetime.fromtimestamp(self.at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            "kind": self.kind,
            "severity": self.severity,
            "text": self.text,
            "domain": self.domain or None,
            "replica": self.replica or None,
            "hosts": list(self.hosts),
            "gpus": list(self.gpus),
        }


Cards = Sequence[tuple[str, bool, GpuSeen]]
"""GPUs of one domain, or that were in it last: their host, whether that was read, and the GPU."""


def tell(before: Seen, after: Seen, found: Sequence[Change]) -> tuple[Transition, ...]:
    """Whole domains first, then what is left, hosts that say the same in one message; what got worse comes first."""
    told: list[Transition] = []
    used: set[Change] = set()
    names, was, now = renamed(before, after), _by_home(before), _by_home(after)
    of_home: dict[str, list[Change]] = defaultdict(list)
    for c in found:
        of_home[c.home].append(c)
    homes = dict.fromkeys(c.home for c in found if c.kind in ("gpu-left", "gpu-moved", "gpu-rejoined") and c.home)
    for home in homes:
        change = _Home(home, was.get(home, ()), now.get(home, ()), after)
        whole, explained = _domain(change, of_home[home], home in names)
        told += whole
        used |= set(explained)
    told += grouped([c for c in found if c not in used], after.taken_at)
    return tuple(sorted(told, key=lambda t: ("worse", "changed", "better").index(t.severity)))


def _by_home(seen: Seen) -> Mapping[str, Cards]:
    found: dict[str, list[tuple[str, bool, GpuSeen]]] = defaultdict(list)
    for name, host in seen.hosts.items():
        for gpu in host.gpus.values():
            found[gpu.home].append((name, host.read, gpu))
    return found


@fact
class _Home:
    """A domain before and now."""

    id: str
    was: Cards
    now: Cards
    after: Seen


Told = tuple[list[Transition], list[Change]]  # and the changes that this explains


def _domain(home: _Home, found: Sequence[Change], has_new_name: bool) -> Told:
    """What happened to the domain as a whole. Cards that were lost, or flap, move without a change to say so."""
    moved = [c for c in found if c.kind == "gpu-moved"]
    if has_new_name and moved:
        return [_reidentified(home, moved)], moved
    left = [c for c in found if c.kind == "gpu-left"]
    rejoined = [c for c in found if c.kind == "gpu-rejoined"]
    spread = len({host for host, _, _ in home.was}) > 1
    unseen = sum(g.joined is True and not read for _, read, g in home.now)  # joined when their host was read last
    if left and not _joined(home.now) and spread and len(left) > unseen:
        return [_dropped(home, left)], left
    if rejoined and not _joined(home.was) and spread:
        return [_back(home, rejoined)], rejoined
    return [], []


def _joined(cards: Cards) -> bool:
    """Whether a GPU is joined to it, on a host that was read."""
    return any(read and g.joined is True for _, read, g in cards)


def renamed(before: Seen, after: Seen) -> dict[str, str]:
    """Domains that have another name now: GPUs of it are in one other domain, and none is in it any more."""
    to: dict[str, set[str]] = defaultdict(set)
    stayed = {g.home for h in after.hosts.values() if h.read for g in h.gpus.values() if g.joined}
    for name, now in after.hosts.items():
        was = before.hosts.get(name)
        if was is None or not now.read:
            continue
        for uuid, gpu in now.gpus.items():
            old = was.gpus.get(uuid)
            if old and old.home and gpu.joined and gpu.home != old.home:
                to[old.home].add(gpu.home)
    return {old: next(iter(new)) for old, new in to.items() if len(new) == 1 and old not in stayed}


def _about(home: _Home, found: Iterable[Change]) -> str:
    hosts = home.after.hosts
    racks = sorted({hosts[n].rack for c in found for n in c.hosts if n in hosts} - {""})
    return short(home.id) + (f" (rack {', '.join(racks)})" if racks else "")


def _dropped(home: _Home, left: Sequence[Change]) -> Transition:
    count, about = len(left), _about(home, left)
    if count > sum(g.joined is False for _, _, g in home.was):
        text = f"NVLink domain {about}: all {count} GPUs dropped at once (fabric manager restart suspected)"
    else:
        text = f"NVLink domain {about}: the last {count} GPUs have dropped, none is joined any more"
    return _made("domain-dropped", "worse", text, left, at=home.after.taken_at, domain=home.id)


def _reidentified(home: _Home, moved: Sequence[Change]) -> Transition:
    to = moved[0].to
    text = f"NVLink domain {_about(home, moved)} came back as {short(to)}: re-identified, not lost"
    if home.now:
        text += f" ({len(moved)} GPUs, {len(home.now)} not yet)"
    return _made("domain-reidentified", "changed", text, moved, at=home.after.taken_at, domain=to)


def _back(home: _Home, rejoined: Sequence[Change]) -> Transition:
    out = [name for name, _, g in home.now if not g.joined]
    text = f"NVLink domain {_about(home, rejoined)} is back: {len(rejoined)} GPUs joined"
    if out:
        text += f", {len(out)} not: {fold(set(out))}"
    return _made("domain-back", "better", text, rejoined, at=home.after.taken_at, domain=home.id)


def _made(kind: str, severity: Severity, text: str, found: Sequence[Change], *, at: float, domain: str) -> Transition:
    return Transition(kind, severity, text, at, _hosts(found), tuple(c.uuid for c in found if c.uuid), domain)


def _hosts(found: Iterable[Change]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(h for c in found for h in c.hosts))


# --- what is left, folded -------------------------------------------------------------------------------------------


def grouped(found: Iterable[Change], at: float) -> Iterator[Transition]:
    """One message for the hosts of a domain of which the same is to be said."""
    alike: dict[tuple[str, ...], list[Change]] = defaultdict(list)
    for c in found:
        alike[c.kind, _what(c), c.home, c.to, _replica(c), c.why].append(c)
    for same in alike.values():
        for numbers, members in _by_cards(same):
            one, hosts = members[0], _hosts(members)
            uuids = tuple(dict.fromkeys(c.uuid for c in members if c.uuid))
            text = f"{_replica(one) or fold(hosts or uuids)}: {_words(one, numbers)}"
            yield Transition(one.kind, one.severity, text, at, hosts, uuids, one.to or one.home, _replica(one))


def _what(change: Change) -> str:
    return change.subject.partition(":")[0]


def _replica(change: Change) -> str:
    return change.subject.partition(":")[2] if _what(change) == "replica" else ""


def _by_cards(same: Iterable[Change]) -> Iterator[tuple[tuple[int, ...], list[Change]]]:
    """Hosts of which the same cards are spoken of together."""
    of_host: dict[tuple[str, ...], list[Change]] = defaultdict(list)
    for c in same:
        of_host[c.hosts].append(c)
    alike: dict[tuple[int, ...], list[Change]] = defaultdict(list)
    for members in of_host.values():
        alike[tuple(sorted({c.gpu for c in members if c.gpu is not None}))] += members
    yield from alike.items()


def _words(change: Change, numbers: Sequence[int]) -> str:
    cards = f"GPU{'s' if len(numbers) > 1 else ''} {ranges(numbers)}" if numbers else ""
    because = f": {change.why}" if change.why else ""
    home, to = short(change.home), short(change.to)
    subject = {
        "host": "the host",
        "gpus": "reading the GPUs",
        "imex": "IMEX",
        "replica": "the replica",
        "bandwidth": f"the NVLink bandwidth of {cards}",
        "health": f"the fabric health of {cards}",
    }.get(_what(change), cards)
    return {
        "gpu-left": f"{cards} left NVLink domain {home}",
        "gpu-rejoined": f"{cards} rejoined NVLink domain {home}",
        "gpu-moved": f"{cards} moved from NVLink domain {home} to {to} (another partition)",
        "gpu-lost": f"{cards} cannot be read any more",
        "gpu-back": f"{cards} can be read again",
        "gpu-replaced": f"{cards} taken out".lstrip(),
        "bandwidth-degraded": f"NVLink bandwidth of {cards} is degraded",
        "bandwidth-restored": f"NVLink bandwidth of {cards} is full again",
        "gpu-unhealthy": f"NVLink fabric unhealthy for {cards}",
        "gpu-healthy": f"NVLink fabric healthy again for {cards}",
        "imex-down": "IMEX is down",
        "imex-degraded": "IMEX is up, but not connected to all of the others",
        "imex-up": "IMEX is up again",
        "host-gone": f"not reachable{because}",
        "host-back": "reachable again",
        "gpus-unread": f"the GPUs cannot be read any more{because}",
        "gpus-read": "the GPUs can be read again",
        "replica-failed": f"failed{because}",
        "replica-ready": "ready",
        "replica-starting": "starting",
        "replica-unknown": f"not known how it is{because}",
        "replica-gone": "stopped",
        "flapping": f"{subject} keeps changing: quiet from now on, until it has settled",
        "settled": f"{subject} has settled, and is well",
        "settled-bad": f"{subject} has settled, and is not well",
    }[change.kind]


def short(domain: str) -> str:
    """nvl:5e1fab1e….32766: the first group of the ClusterUUID, and the clique."""
    uuid, _, clique = domain.removeprefix("nvl:").rpartition(".")
    return f"nvl:{uuid[:8]}….{clique}" if len(uuid) == 36 else domain
