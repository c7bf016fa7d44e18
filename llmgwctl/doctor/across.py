"""LG92: the all-reduce across hosts, over NVLink and over the network: what its ranks said, against floors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from llmgwctl.doctor.base import Across, Answer, Check, Found, Unknown, View
from llmgwctl.doctor.deep import FLOORS_GBPS
from llmgwctl.model.fact import fact
from llmgwctl.model.host import HostFacts
from llmgwctl.model.numbers import document
from llmgwctl.model.product import token_of

WAYS = {"nvlink": "NVLink", "scale-out": "InfiniBand or RoCE"}
NOT_THERE = "import"  # the stage in which nothing of the hosts' hardware was touched
WAITED = ("rendezvous", "time")  # stages in which a rank fails because another one has
RAILS_SHARE = 0.5  # of what the adapters carry; a whole fabric reaches nine tenths of it
MOST_GBPS = 1e5
MOST_VALUES = 10**12
MAX_LINES = 200_000


def read(test: Across, mark: str, said: Mapping[str, str], ranks: Mapping[str, range]) -> Across:
    """What the ranks printed (by host): how fast the slowest was and what was wrong, or where the first one failed.

    `ranks`: those of each host. A host speaks for its own alone, whatever it prints.
    """
    lines = {host: text.split("\n")[-MAX_LINES:] for host, text in said.items()}
    told = [(host, d) for host, one in lines.items() for d in _documents(mark, one)]
    failures = [_Failure.of(host, d, ranks[host]) for host, d in told if "failed" in d]
    if failures:
        return _failed(test, failures, lines)
    results = dict(r for host, d in told if (r := _result(d, ranks[host])) is not None)
    if len(results) < test.world:
        warned = _warning(lines)
        return replace(test, failed=f"{test.world - len(results)} of {test.world} ranks ended without a result{warned}")
    return replace(test, bus_gbps=min(s for s, _ in results.values()), wrong=sum(w for _, w in results.values()))


def _result(told: Mapping[str, object], own: range) -> tuple[int, tuple[float, int]] | None:
    """Rank, GB/s and wrong values; None where one of them is not what it should be."""
    rank, speed, wrong = told.get("rank"), told.get("bus_gbps"), told.get("wrong")
    if type(rank) is not int or rank not in own or type(wrong) is not int or not isinstance(speed, int | float):
        return None
    return (rank, (float(speed), wrong)) if 0 < speed < MOST_GBPS and 0 <= wrong <= MOST_VALUES else None


def _documents(mark: str, lines: Iterable[str]) -> Iterator[Mapping[str, object]]:
    for line in lines:
        if line.startswith(mark) and isinstance(found := document(line[len(mark) :]), dict):
            yield found


@fact
class _Failure:
    """What a host says of one of its ranks that failed. `rank`: None where the host does not say which of its own."""

    host: str
    rank: int | None
    stage: str
    why: str

    @classmethod
    def of(cls, host: str, told: Mapping[str, object], own: range) -> _Failure:
        rank, stage, why = told.get("rank"), told.get("failed"), told.get("why")
        return cls(
            host,
            rank if type(rank) is int and rank in own else None,
            stage[:20] if isinstance(stage, str) else "?",
            why[:200] if isinstance(why, str) else "it does not say why",
        )

    @property
    def graveness(self) -> int:
        """What a rank met itself, then that nothing was tried, then that it waited for others, who are to blame."""
        return 2 if self.stage in WAITED else 1 if self.stage == NOT_THERE else 0


def _failed(test: Across, failures: Sequence[_Failure], lines: Mapping[str, Sequence[str]]) -> Across:
    """Without torch nothing was tried; after that a failure is an answer."""
    first = min(failures, key=lambda f: (f.graveness, f.stage == WAITED[1]))
    if first.stage == NOT_THERE:
        return replace(test, untold=f"{first.host}: {first.why}", absent=True)
    which = "" if first.rank is None else f", rank {first.rank}"
    return replace(test, failed=f"{first.host}{which}, in {first.stage}: {first.why[:160]}{_warning(lines)}")


def _warning(lines: Mapping[str, Sequence[str]]) -> str:
    """NCCL's own reason, which stands in its warning and not in the exception."""
    warned = (line.partition("NCCL WARN ")[2].strip() for one in lines.values() for line in one if "NCCL WARN " in line)
    first = next((w for w in warned if w), "")
    return f" (NCCL: {first[:160]})" if first else ""


def floor(test: Across, facts: Sequence[HostFacts]) -> float | None:
    """In GB/s. Over adapters it is what they carry that counts, and never more than NVLink within the hosts gives."""
    tokens = {token_of(f.gpus.value.gpus[0].name) for f in facts if f.gpus.value and f.gpus.value.gpus}
    own = FLOORS_GBPS.get(tokens.pop()) if len(tokens) == 1 else None
    if test.path == "nvlink":
        return own
    rails = RAILS_SHARE * test.rails_gbps if test.rails_gbps else None
    return min(rails, own) if rails is not None and own is not None else rails


def _judged(view: View) -> Iterator[Answer]:
    here = {f.host.name: f for f in view.hosts}
    for test in view.deep.across if view.deep is not None else ():
        over = f"over {WAYS[test.path]}"
        if test.untold:
            yield Unknown(test.hosts, f"all-reduce {over}: {test.untold}", right=test.absent)
        elif test.failed:
            yield Found(test.hosts, (f"all-reduce {over} failed: {test.failed}",), "block")
        elif test.wrong:
            yield Found(test.hosts, (f"all-reduce {over} gave {test.wrong} wrong values",), "block")
        else:
            yield from _speed(test, over, [here[n] for n in test.hosts if n in here])


def _speed(test: Across, over: str, facts: Sequence[HostFacts]) -> Iterator[Answer]:
    reached = f"all-reduce {over} with {test.world} GPUs: {test.bus_gbps:.0f} GB/s"
    least = floor(test, facts)
    if test.other:
        yield Found(test.hosts, (f"{reached}, but {test.other}",))
    elif least is None:
        yield Unknown(test.hosts, f"{reached}; no floor is known for this product", right=True)
    elif test.bus_gbps < least:
        yield Found(test.hosts, (f"{reached}, at least {least:.0f} is usual",))


CHECKS = (
    Check(
        "LG923",
        "The all-reduce across hosts fails, or is slow or wrong",
        "degrade",
        _judged,
        seen="llmgwctl doctor --deep -w HOSTS",
        action="over NVLink look at LG1, LG2 and LG3 of these hosts, over adapters at LG7; then at clocks (LG524)",
        who="host admin",
        scope="fleet",
    ),
)
