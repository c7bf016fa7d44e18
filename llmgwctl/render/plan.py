"""A plan for people: what was looked at, what was chosen and why, and each variable with its reason."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from llmgwctl.model.host import Host
from llmgwctl.model.launch import EnvVar
from llmgwctl.model.numbers import ranges
from llmgwctl.model.plan import Candidate, Plan, ReplicaPlan, ShardPlan
from llmgwctl.render.fold import alike, fold
from llmgwctl.render.json import Launch, Launches
from llmgwctl.render.text import GAP, INDENT, PLAIN, Look, draw, say, table
from llmgwctl.render.words import condensed, short_domain, together

ROOM = 24  # columns that a reason needs beside its variable; else it stands below


def plan(
    made: Plan, launches: Launches, look: Look = PLAIN, hosts: Sequence[Host] = (), *, refused: bool = False
) -> str:
    """`hosts`: with them, what is said of a host by its address is said once for all of the same fate. `refused`: it
    has a place and could not start there."""
    parts: list[RenderableType] = [_head(made, refused=refused)]
    parts += [say(f"! {w}", "bold yellow") for w in made.warnings]
    if made.candidates:
        parts += [Text("\nLooked at", style="bold"), _candidates(made.candidates)]
    for replica in made.replicas:
        parts += [Text(), *_replica(replica, launches, look.width)]
    if made.left_out:
        parts += [Text("\nLeft out", style="bold"), _left_out(made, {h.name: h for h in hosts})]
    return draw(parts, look)


def _head(made: Plan, *, refused: bool) -> Text:
    if not made.replicas:
        return Text.assemble((f"{made.profile}: no placement fits", "bold red"), say(f": {made.why_not}"))
    count = len(made.replicas)
    text = Text(f"{made.profile}: ", style="bold")
    if refused:
        text = Text.assemble((f"{made.profile}: refused", "bold red"), ", for what is said at the end; it would be ")
    text.append(f"{count} replica{'s' if count > 1 else ''} in tier {made.tier}")
    return text.append(f", {made.fabric}" if made.fabric else "")


def _candidates(found: Iterable[Candidate]) -> RenderableType:
    rows = (
        (
            c.tier,
            short_domain(c.fabric) or "-",
            fold(c.eligible) if c.eligible else "no host",
            say(c.why, "green" if c.chosen else ""),
        )
        for c in found
    )
    return table(("TIER", "FABRIC", "ELIGIBLE", "RESULT"), rows, keep=(0, 1))


def _replica(replica: ReplicaPlan, launches: Launches, width: int) -> Iterator[RenderableType]:
    ports = ", ".join(f"{name} {port}" for name, port in replica.ports)
    head = Text(replica.id, style="bold green")
    head.append(f"   engine {replica.engine}, leader {replica.leader.host} ({replica.leader.address}), ports: {ports}")
    yield head
    yield from _shards(replica.shards, width)
    for shard in replica.shards:
        yield from (say(f"  rank {shard.rank}: {note}", "yellow") for note in shard.notes)
    commands = [(str(n), shlex.join(argv)) for n, launch in _ranked(replica, launches) for _, argv in launch[1]]
    yield Text("Commands", style="bold")
    yield table(("RANK", "COMMAND"), commands)
    yield Text("Environment", style="bold")
    yield _variables(("RANK", "VARIABLE", "WHY"), list(_environment(replica, launches)), width)


def _ranked(replica: ReplicaPlan, launches: Launches) -> list[tuple[int, Launch]]:
    return [(s.rank, launches[replica.id, s.rank]) for s in replica.shards]


def _variables(heads: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> RenderableType:
    """Variables stay whole, so that they can be copied; a reason that would find no room stands below its own."""
    *_, variable, _ = heads
    longest = [max((len(row[i]) for row in rows), default=0) for i in range(len(heads) - 1)]
    if sum(longest) + GAP * len(longest) + ROOM <= width:
        return table(heads, rows, keep=range(len(heads) - 1))
    stacked: list[list[RenderableType]] = [
        [*lead, Group(say(name), Padding(say(why, "dim"), INDENT))] for *lead, name, why in rows
    ]
    return table((*heads[:-2], variable), stacked, keep=range(len(heads) - 2))


def _shards(shards: Sequence[ShardPlan], width: int) -> Iterator[RenderableType]:
    """A line a shard. Where the adapters find no room they stand below, once for all ranks that have the same."""
    heads = ("RANK", "HOST", "GPUS", "HCAS", "INTERFACE", "ADDRESS", "IMEX")
    rows = [_shard(s) for s in shards]
    words = [[max(map(len, c.split(" "))) if i == HCAS else len(c) for i, c in enumerate(r)] for r in (heads, *rows)]
    if sum(map(max, zip(*words, strict=True))) + GAP * len(heads) <= width:
        yield table(heads, rows, keep=[i for i in range(len(heads)) if i != HCAS])
        return
    kept = [i for i in range(len(heads)) if i not in (HCAS, INTERFACE)]
    yield table([heads[i] for i in kept], [[r[i] for i in kept] for r in rows], keep=range(len(kept)))
    pairs = ((str(s.rank), (row[HCAS], row[INTERFACE])) for s, row in zip(shards, rows, strict=True))
    for ranks, (hcas, interface) in alike(pairs):
        who = "all" if len(ranks) == len(shards) else f"rank {ranges(map(int, ranks))}"
        yield Padding(say(f"{who}: interface {interface}, HCAs {hcas}"), INDENT)


HCAS, INTERFACE = 3, 4


def _shard(shard: ShardPlan) -> tuple[str, ...]:
    return (
        str(shard.rank),
        shard.host,
        ranges(shard.gpus) or "none",
        ", ".join(shard.hcas) or "none",
        shard.interface or "-",
        shard.address or "-",
        "-" if shard.imex_channel is None else f"channel {shard.imex_channel}",
    )


def _environment(replica: ReplicaPlan, launches: Launches) -> Iterator[tuple[str, str, str]]:
    """Each variable once with the ranks that have it so, in the order of the names."""
    pairs = [
        (str(rank), (v.name, v.shown, v.why, v.overrides))
        for rank, (variables, _) in _ranked(replica, launches)
        for v in variables
    ]
    for ranks, (name, value, why, overrides) in sorted(alike(pairs), key=lambda g: (g[1][0], int(g[0][0]))):
        which = "all" if len(ranks) == len(replica.shards) else ranges(map(int, ranks))
        yield which, f"{name}={value}", f"{why}{_replaced(overrides)}"


def _left_out(made: Plan, hosts: Mapping[str, Host]) -> RenderableType:
    rows = together((o.host, "; ".join(condensed(o.reasons)), hosts.get(o.host)) for o in made.left_out)
    return table(("HOSTS", "WHY"), ((fold(names), why) for names, why in rows))


def explained(made: Plan, hosts: Sequence[Host], look: Look = PLAIN) -> str:
    """Every host, in the order of the inventory: what it carries, or all that speaks against it."""
    carries: dict[str, list[str]] = {}
    for replica in made.replicas:
        for shard in replica.shards:
            why = f" ({shard.gpus_why})" if shard.gpus_why else ""
            what = f"rank {shard.rank} of {replica.id}, GPUs {ranges(shard.gpus) or 'none'}{why}"
            carries.setdefault(shard.host, []).append(what)
    left_out = {o.host: "; ".join(o.reasons) for o in made.left_out}
    eligible = {name: c.fabric for c in made.candidates for name in c.eligible}
    rows = (
        (
            h.name,
            short_domain(eligible.get(h.name, "")) or "-",
            say("; ".join(carries[h.name]), "green") if h.name in carries else left_out.get(h.name, "not looked at"),
        )
        for h in hosts
    )
    return draw([Text("\nEvery host", style="bold"), table(("HOST", "ELIGIBLE IN", "WHY"), rows, keep=(0, 1))], look)


def environment(variables: Sequence[EnvVar], look: Look = PLAIN) -> str:
    """Variables of one shard, each with its reason."""
    rows = [(f"{v.name}={v.shown}", f"{v.why}{_replaced(v.overrides)}") for v in variables]
    return draw([_variables(("VARIABLE", "WHY"), rows, look.width)], look)


def _replaced(overrides: str | None) -> str:
    return f" (replaces {overrides})" if overrides is not None else ""


def shell(variables: Sequence[EnvVar]) -> str:
    """Lines to source. A secret is not in them: it is named, for the reader to fill in."""
    lines = (
        f"# {v.name} is a secret: set it from its file" if v.secret else f"export {v.name}={shlex.quote(v.value)}"
        for v in variables
    )
    return "".join(f"{line}\n" for line in lines)
