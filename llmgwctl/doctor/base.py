"""A check as data, and what it answers: something found, or something that could not be told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import Literal

from llmgwctl.model.fabric import Domain, FabricMap, HostVerdict
from llmgwctl.model.fact import fact
from llmgwctl.model.finding import CheckCard, Severity, Who
from llmgwctl.model.host import HostFacts, Snapshot
from llmgwctl.model.plan import ReplicaPlan
from llmgwctl.model.product import Product, product_of
from llmgwctl.model.profile import Profile
from llmgwctl.model.reading import Reading
from llmgwctl.model.weights import ModelFiles


@fact
class Found:
    """A problem on these hosts, with the values read. What is None or empty is as the check says."""

    hosts: tuple[str, ...]
    values: tuple[str, ...]
    severity: Severity | None = None
    action: str = ""
    who: Who | None = None


@fact
class Unknown:
    """What a check could not tell, and why: the command or the right that is missing. Never "fine".

    `need`: the reading that is missing; `right`: all that is missing is a right, or a program that need not be there.
    """

    hosts: tuple[str, ...]
    why: str
    need: str = ""
    right: bool = False
    action: str = ""
    who: Who | None = None


Answer = Found | Unknown


@fact
class Launch:
    """A placed replica that is about to start: what the checks of the launch look at.

    `models`: what each host that reads the model has at its path, or in words why that could not be told. `shm`: its
    engine shares memory between its processes, as NCCL does.
    """

    replica: ReplicaPlan
    profile: Profile
    models: Mapping[str, ModelFiles | str] = field(default_factory=dict)
    shm: bool = True


@fact
class AllReduce:
    """What nccl-tests said on one host: bus bandwidth in GB/s, wrong values. `absent`: they are not installed."""

    bus_gbps: float = 0.0
    wrong: int = 0
    why: str = ""
    absent: bool = False


@fact
class Across:
    """An all-reduce over all GPUs of several hosts by one path. `bus_gbps`: GB/s of its slowest rank.

    `failed`: it was started and did not end well; `untold`: why it was not, or not judged (`absent`: nothing there that
    could run it); `other`: another path was used than the one that was asked for. `rails_gbps`: what the adapters of
    the host with the fewest carry, in GB/s.
    """

    path: Literal["nvlink", "scale-out"]
    hosts: tuple[str, ...]
    world: int = 0
    bus_gbps: float = 0.0
    wrong: int = 0
    failed: str = ""
    untold: str = ""
    absent: bool = False
    other: str = ""
    rails_gbps: float = 0.0


@fact
class Deep:
    """Active tests. `tcp`: (from, to) -> why not, "" when connected; `untested`: hosts that could not be tested."""

    tcp: Mapping[tuple[str, str], str] = field(default_factory=dict)
    ports: Mapping[str, int] = field(default_factory=dict)
    all_reduce: Mapping[str, AllReduce] = field(default_factory=dict)
    untested: Mapping[str, str] = field(default_factory=dict)
    across: tuple[Across, ...] = ()


@fact
class View:
    """What a check looks at. `hosts`: those that answered and of which every reading that it needs is there."""

    snapshot: Snapshot
    fmap: FabricMap
    hosts: tuple[HostFacts, ...]
    domains: Mapping[str, Domain]  # by id
    launches: tuple[Launch, ...] = ()
    deep: Deep | None = None

    @classmethod
    def of(cls, snapshot: Snapshot, fmap: FabricMap, launches: Iterable[Launch] = (), deep: Deep | None = None) -> View:
        return cls(snapshot, fmap, snapshot.hosts, {d.id: d for d in fmap.domains}, tuple(launches), deep)

    def verdict(self, facts: HostFacts) -> HostVerdict:
        return self.fmap.verdicts.get(facts.host.name) or HostVerdict(facts.host.name)

    def domain(self, facts: HostFacts) -> Domain | None:
        return self.domains.get(self.verdict(facts).domain or "")

    def judging(self, hosts: tuple[HostFacts, ...]) -> View:
        return replace(self, hosts=hosts)

    def by_replica(self) -> Iterator[View]:
        """The hosts of each replica that is about to start, by themselves: what others have among each other is nothing
        to it. Without one: everything at once."""
        for launch in self.launches:
            names = {s.host for s in launch.replica.shards}
            yield replace(self, hosts=tuple(f for f in self.hosts if f.host.name in names), launches=(launch,))
        if not self.launches:
            yield self


Problems = Callable[[View], Iterable[Answer]]
OfHost = Callable[[HostFacts, View], Iterable[Answer]]


def _any_host(_: HostFacts) -> bool:
    return True


@fact
class Check(CheckCard):
    """One line of CHECKS. A reading of `needs` that is broken makes it unknown, one that is absent makes it quiet.

    `hides`: beginnings of ids that follow from this one on the same host; `explains`: readings that it takes away.
    """

    problems: Problems
    applies: Callable[[HostFacts], bool] = field(default=_any_host, kw_only=True)
    hides: tuple[str, ...] = field(default=(), kw_only=True)
    explains: tuple[str, ...] = field(default=(), kw_only=True)


def each(of_host: OfHost) -> Problems:
    """A check of single hosts: one host that it stumbles over costs that host's answer and no other's."""

    def problems(view: View) -> Iterator[Answer]:
        for facts in view.hosts:
            try:
                yield from tuple(of_host(facts, view))
            except Exception as e:  # a check that crashes has not said that anything is fine
                yield Unknown((facts.host.name,), f"the check failed: {type(e).__name__}: {e}"[:200])

    return problems


def found(
    facts: HostFacts, *values: str, severity: Severity | None = None, action: str = "", who: Who | None = None
) -> Found:
    return Found((facts.host.name,), values, severity, action, who)


def product(facts: HostFacts) -> Product | None:
    report = facts.gpus.value
    return product_of(report.gpus[0].name) if report and report.gpus else None


def reading(facts: HostFacts, need: str) -> Reading[object]:
    value = getattr(facts, need)
    assert isinstance(value, Reading)  # noqa: S101 - a need that is no reading is a mistake in CHECKS
    return value
