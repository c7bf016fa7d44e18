"""IMEX between the hosts of a domain: each cell from the host's own answer, and the host named that is to blame."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from llmgwctl.doctor.base import Answer, Found, View
from llmgwctl.doctor.names import few, folded, odd_ones
from llmgwctl.doctor.verdicts import unknown
from llmgwctl.fabric.imex import WORDS, ImexView
from llmgwctl.fabric.imex import view as imex_view
from llmgwctl.model.host import HostFacts

LIST_TOKENS = ("", "!M!")  # "": not in its list at all
Cells = dict[tuple[str, str], str]  # (host, peer) -> token of host's own row


def domains(view: View) -> Iterator[list[HostFacts]]:
    """The hosts of each domain whose IMEX is up: the others are named by other checks."""
    facts = {f.host.name: f for f in view.hosts}
    for domain in view.fmap.domains:
        mine = [facts[n] for n in domain.names if n in facts]
        yield [f for f in mine if f.imex.value is not None and f.imex.value.ready]


def cells(hosts: Sequence[HostFacts]) -> Cells:
    """What each host says of each other one; hosts whose table could not be read say nothing."""
    views = {f.host.name: imex_view(f) for f in hosts}
    told = {n: v for n, v in views.items() if not v.why_unknown}
    return {(a, b): _token(told[a], views[b]) for a in told for b in views if a != b and views[b].addresses}


def _token(a: ImexView, b: ImexView) -> str:
    if b.addresses & a.connected:
        return "C"
    return next((t for address, t in a.cells if address in b.addresses), "")


def pairs(view: View) -> Iterator[Answer]:
    """Pairs that are not connected, said of the host that all others complain of, else of the one that says it."""
    for hosts in domains(view):
        yield from (unknown(f, r) for f in hosts for r in view.verdict(f).reasons if r.code == "imex-table")
        bad = {p: t for p, t in cells(hosts).items() if t not in ("C", "!V!", *LIST_TOKENS)}
        names = [f.host.name for f in hosts]
        yield from _blamed(bad, names)


def _blamed(bad: Cells, names: Sequence[str]) -> Iterator[Found]:
    towards: dict[str, list[str]] = defaultdict(list)
    for a, b in bad:
        towards[b].append(a)
    hurt = [b for b in names if len(towards[b]) == len(names) - 1 and len(names) > 2]
    for b in hurt:
        back = [p for p in bad if p[0] == b]
        token = bad[towards[b][0], b]
        said = f"{_word(token)} says each of the {len(towards[b])} other hosts"
        reaches = "it is connected to none of them either" if len(back) == len(names) - 1 else "it reaches them"
        yield Found((b,), (f"{said}; {reaches}: TCP 50000 to it is blocked, or its daemon is gone",))
    rest = {p: t for p, t in bad.items() if p[0] not in hurt and p[1] not in hurt}
    yield from _reported(rest)


def _reported(bad: Cells) -> Iterator[Found]:
    """By the host that cannot reach others; where both say it, the pair is named once."""
    mutual = {p for p in bad if (p[1], p[0]) in bad}
    for a, b in sorted(mutual):
        if a < b:
            yield Found((a, b), (f"{_word(bad[a, b])} says {a} of {b}, and {_word(bad[b, a])} says {b} of {a}",))
    one_way: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (a, b), token in bad.items():
        if (a, b) not in mutual:
            one_way[a, token].append(b)
    for (a, token), peers in one_way.items():
        yield Found((a,), (f"{_word(token)} to {folded(peers)}, which is connected to it",))


def _word(token: str) -> str:
    return f"{WORDS.get(token, token)} ({token})"


def lists_differ(view: View) -> Iterator[Answer]:
    """The set of nodes counts, not the order of lines. Different files that still connect bite at the next start."""
    for hosts in domains(view):
        said = cells(hosts)
        lists = {f.host.name: _entries(f) for f in hosts if f.imex.value and f.imex.value.node_list}
        main, odd = odd_ones(lists)
        broken = {n for p, t in said.items() if t in LIST_TOKENS for n in p}
        if main is None:
            yield from _halves(lists, broken)
            continue
        for name, mine in odd.items():
            yield Found((name,), (_difference(mine, main),), None if name in broken else "warn")
        blamed = set(odd)
        left = {p: t for p, t in said.items() if t in LIST_TOKENS and not blamed & set(p)}
        yield from _unlisted(left)


def _entries(facts: HostFacts) -> frozenset[str]:
    """A name counts as what it is on that host, so that names and addresses may stand for each other."""
    imex = facts.imex.value
    known = dict(imex.node_addresses) if imex else {}
    return frozenset(min(known.get(line) or (line,)) for line in (imex.node_list if imex else ()))


def _halves(lists: Mapping[str, frozenset[str]], broken: set[str]) -> Iterator[Found]:
    names = tuple(lists)
    if len(set(lists.values())) > 1:
        sizes = ", ".join(str(len(s)) for s in dict.fromkeys(lists.values()))
        text = f"{len(set(lists.values()))} different lists ({sizes} entries), none of which most hosts have"
        yield Found(names, (text,), None if broken else "warn")


def _difference(mine: frozenset[str], main: frozenset[str]) -> str:
    lacks, extra = sorted(main - mine), sorted(mine - main)
    parts = [f"its list lacks {few(lacks)}"] if lacks else []
    parts += [f"has {few(extra)}, which the others have not"] if extra else []
    return " and ".join(parts) if parts else "its list differs"


def _unlisted(left: Cells) -> Iterator[Found]:
    """Equal files, and still no entry or a mismatch: a daemon that has not read its file since."""
    towards: dict[str, list[str]] = defaultdict(list)
    for a, b in left:
        towards[b].append(a)
    worst = max(map(len, towards.values()), default=0)
    for b, sayers in towards.items():
        if len(sayers) == worst:
            word = "a node list mismatch (!M!)" if left[sayers[0], b] else "no entry"
            yield Found((b,), (f"{folded(sayers)} shows {word} for it, though the files are equal",))


def versions_differ(view: View) -> Iterator[Answer]:
    for hosts in domains(view):
        versions = {f.host.name: v.version for f in hosts if (v := imex_view(f)).version}
        main, odd = odd_ones(versions)
        if main is None and odd:
            said = ", ".join(f"{folded(n for n in odd if odd[n] == v)} {v}" for v in dict.fromkeys(odd.values()))
            yield Found(tuple(odd), (said,))
            continue
        for name, version in odd.items():
            yield Found((name,), (f"{version}, the others {main}",))


def wrong_port(view: View) -> Iterator[Answer]:
    """A row that could not be fetched, of a host to which this one is connected and which is READY by its own word."""
    for hosts in domains(view):
        blocked: dict[str, list[str]] = defaultdict(list)
        views = {f.host.name: imex_view(f) for f in hosts}
        for facts in hosts:
            own, missing = views[facts.host.name], _rows_missing(facts)
            for name, peer in views.items():
                if name != facts.host.name and peer.addresses & missing & own.connected:
                    blocked[name].append(facts.host.name)
        for name, sayers in blocked.items():
            yield Found((name,), (f"{folded(sayers)} cannot read its status (row of I), and is connected to it",))


def _rows_missing(facts: HostFacts) -> frozenset[str]:
    """Nodes of which this host's table has nothing but I."""
    table = facts.imex.value.table if facts.imex.value else None
    if table is None:
        return frozenset()
    told = {i for (i, _), cell in table.cells.items() if cell != "I"}
    return frozenset(n.host for n in table.nodes if n.index not in told)
