"""Which traces on hosts belong to one launch: a host speaks for a rank only where the launch's own shards name it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from llmgwctl.model.host import HostFacts, Snapshot
from llmgwctl.model.life import MAX_RANKS, Claim, Note, ShardRecord
from llmgwctl.model.names import is_name

_ENDPOINT = re.compile(r"https?://(\[[0-9A-Fa-f:.%]{2,60}\]|[A-Za-z0-9._-]{1,253})(:\d{1,5})?/?", re.ASCII)

Place = tuple[int, str]  # a rank and its host
Remembered = Callable[[Note], ShardRecord | None]


@dataclass
class Traces:
    """All traces of one launch: records and claims with the host that each was found on.

    `places`: the ranks and hosts that its specs name, all of them the same; none: no spec was seen that names them.
    """

    replica: str
    launch: str
    places: frozenset[Place] = frozenset()
    records: list[tuple[HostFacts, ShardRecord]] = field(default_factory=list)
    claims: list[tuple[HostFacts, Claim]] = field(default_factory=list)
    seen: list[tuple[Note, ShardRecord]] = field(default_factory=list)  # what other hosts remember of it

    @property
    def leader(self) -> ShardRecord | None:
        """The record of rank 0, from the host that all specs name for it."""
        return next((r for _, r in self.records if r.rank == 0), None)

    @property
    def spec(self) -> ShardRecord | None:
        """The record that tells most: the leader's, else any, else what others remember."""
        own = next((r for _, r in sorted(self.records, key=lambda x: x[1].rank) if r.directory), None)
        return own or next((r for _, r in self.seen), None)

    @property
    def unseen_s(self) -> float | None:
        """How long ago all of it was seen last, by the clock of a host that remembers it."""
        return min((n.age_s for n, _ in self.seen if n.age_s is not None), default=None)

    def recorded(self, place: Place) -> bool:
        return any((r.rank, f.host.name) == place for f, r in self.records)


def launches(snapshot: Snapshot, remembered: Remembered) -> tuple[Traces, ...]:
    """The launches of a fleet, by name. What a host says of a launch that does not name it stands alone, or counts

    for nothing: a claim with a launch's id on some host decides neither whose that launch is nor how it is.
    """
    sorter = _Sorter()
    for facts in snapshot.hosts:
        life = facts.life.value
        for record in life.shards if life else ():
            sorter.record(facts, record)
        for note in life.notes if life else ():
            if (told := remembered(note)) is not None:
                sorter.remember(note, told)
    sorter.sort_rest()
    for facts in snapshot.hosts:
        for claim in facts.life.value.claims if facts.life.value else ():
            sorter.claim(facts, claim)
    return sorter.all


@dataclass
class _Sorter:
    found: dict[tuple[str, str], dict[object, Traces]] = field(default_factory=dict)
    rest: list[tuple[HostFacts, ShardRecord]] = field(default_factory=list)

    @property
    def all(self) -> tuple[Traces, ...]:
        return tuple(t for key in sorted(self.found) for t in self.found[key].values())

    def record(self, facts: HostFacts, record: ShardRecord) -> None:
        places = places_of(record)
        if (record.rank, facts.host.name) in places:
            self._of(record.replica, record.launch, places, places).records.append((facts, record))
        else:
            self.rest.append((facts, record))

    def remember(self, note: Note, told: ShardRecord) -> None:
        places = places_of(told)
        self._of(told.replica, told.launch, places, places).seen.append((note, told))

    def sort_rest(self) -> None:
        """Of processes whose directory is gone, and of specs that do not name their host."""
        for facts, record in self.rest:
            self._where(facts, record.replica, record.launch, record.rank).records.append((facts, record))

    def claim(self, facts: HostFacts, claim: Claim) -> None:
        if not claim.launch:
            return
        known = self.found.get((claim.replica, claim.launch), {}).values()
        if any(t.places for t in known) and not any(_holds(t, claim.rank, facts) for t in known):
            return
        self._where(facts, claim.replica, claim.launch, claim.rank).claims.append((facts, claim))

    def _where(self, facts: HostFacts, replica: str, launch: str, rank: int) -> Traces:
        known = self.found.get((replica, launch), {})
        belongs = next((t for t in known.values() if _holds(t, rank, facts)), None)
        if belongs is not None:
            return belongs
        alone = facts.host.name if any(t.places for t in known.values()) else None
        return self._of(replica, launch, alone, frozenset())

    def _of(self, replica: str, launch: str, key: object, places: frozenset[Place]) -> Traces:
        known = self.found.setdefault((replica, launch), {})
        return known.setdefault(key or None, Traces(replica, launch, places))


def _holds(traces: Traces, rank: int, facts: HostFacts) -> bool:
    return (rank, facts.host.name) in traces.places or traces.recorded((rank, facts.host.name))


def places_of(record: ShardRecord) -> frozenset[Place]:
    return frozenset((rank, host) for rank, host, _ in expected(record))


def expected(told: ShardRecord | None) -> Iterable[tuple[int, str, tuple[int, ...]]]:
    """The ranks that a spec names: it comes from a host, so what is not of the right kind is passed over."""
    listed = told.spec.get("shards") if told else None
    for entry in listed[:MAX_RANKS] if isinstance(listed, list) else ():
        if isinstance(entry, dict) and _rank(entry.get("rank")) and _host(entry.get("host")):
            yield entry["rank"], entry["host"], indexes(entry.get("gpus"))


def indexes(value: object) -> tuple[int, ...]:
    """Numbers of GPUs."""
    return tuple(v for v in value[:64] if _rank(v)) if isinstance(value, list) else ()


def _rank(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_RANKS


def _host(value: object) -> bool:
    return isinstance(value, str) and is_name(value)


def endpoint(text: str) -> str:
    """The address of a server, and nothing else: it becomes a link, and a target for Prometheus."""
    return text if _ENDPOINT.fullmatch(text) else ""
