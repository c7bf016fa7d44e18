"""The rack on a terminal: each domain from the front, its trays of GPU chips, and what keeps each tray out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.box import SQUARE
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from llmgwctl.model.fabric import Domain, FabricMap, HostVerdict, Outside
from llmgwctl.model.gpu import Gpu, GpuReport
from llmgwctl.model.host import HostFacts, Snapshot
from llmgwctl.render.fold import alike, fold
from llmgwctl.render.json import moment
from llmgwctl.render.text import PLAIN, Look, draw, say, table
from llmgwctl.render.words import bandwidth, condensed, out_of_domain, short_domain, together

GOOD, BAD, SLOW, UNKNOWN, LOST = "■", "□", "▣", "?", "✕"
STYLE = {GOOD: "green", BAD: "bold red", SLOW: "yellow", UNKNOWN: "yellow", LOST: "bold red"}
LEGEND = f"{GOOD} joined  {SLOW} degraded  {BAD} not joined  {LOST} not readable  {UNKNOWN} unknown"
IMEX_STYLE = {"up": "green", "down": "bold red", "degraded": "yellow", "unknown": "yellow"}
MAX_RACK = 110  # columns
FOLD_ABOVE = 6  # domains; beyond that, trays that say the same stand on one line


def racks(fmap: FabricMap, snapshot: Snapshot, look: Look = PLAIN, *, every_tray: bool = False) -> str:
    """The whole fleet: racks, then hosts outside of them, then hosts that did not answer."""
    facts = {f.host.name: f for f in snapshot.hosts}
    folded = len(fmap.domains) > FOLD_ABOVE and not every_tray
    parts: list[RenderableType] = []
    for domain in fmap.domains:
        parts += [*_domain(domain, fmap, facts, look, folded=folded), Text()]
    if fmap.outside:
        parts += [Text("Outside of any NVLink domain", style="bold"), _outside(fmap), Text()]
    if fmap.unreachable:
        parts += [Text("Not reachable", style="bold red"), _unreachable(fmap.unreachable, facts), Text()]
    parts += [say(LEGEND, "dim"), say(f"read at {moment(snapshot.taken_at)}", "dim")]
    return draw(parts, look)


def _domain(
    domain: Domain, fmap: FabricMap, facts: Mapping[str, HostFacts], look: Look, *, folded: bool
) -> Iterator[RenderableType]:
    width = min(look.width, MAX_RACK)
    band = Text(" NVLink Switch ".center(width - 4, "═"), style="cyan" if domain.joined_hosts else "dim")
    trays = table(("", "", "", "", ""), _trays(domain, fmap, facts, folded=folded), keep=(0, 1, 2, 3))
    yield _title(domain, fmap)
    yield Panel(Group(band, trays), box=SQUARE, border_style="dim", width=width, padding=(0, 1))


def _title(domain: Domain, fmap: FabricMap) -> Text:
    expected = domain.expected_hosts or len(domain.hosts) + len(domain.missing)
    eligible = sum(fmap.verdicts[n].eligible for n in domain.names)
    title = Text(short_domain(domain.id), style="bold")
    if domain.rack:
        title.append(f"   rack {domain.rack}", style="none")
    title.append(f"   {domain.joined_hosts} of {expected} trays joined", style="none")
    title.append(f"   {eligible} eligible", style="green" if eligible else "red")
    if domain.partition_of:
        title.append(f"   another partition of {short_domain(domain.partition_of)}", style="yellow")
    return title


def _trays(
    domain: Domain, fmap: FabricMap, facts: Mapping[str, HostFacts], *, folded: bool
) -> Iterator[tuple[Text, Text, Text, Text, Text]]:
    rows = [
        (h.name, (_slot(h.slot, h.tray) if not folded else "", _tray(facts[h.name], fmap.verdicts[h.name])))
        for h in domain.hosts
    ]
    groups = alike(rows) if folded else [([name], said) for name, said in rows]
    for names, (slot, (chips, imex, why)) in groups:
        yield Text(slot), say(fold(names)), _colored(chips), _imex(imex), _why(why)
    for name in domain.missing:
        yield Text(), say(name, "dim"), Text("····", style="dim"), Text(), say(_missing(fmap.verdicts.get(name)), "red")


def _missing(verdict: HostVerdict | None) -> str:
    return "missing: " + ("; ".join(out_of_domain(verdict)) or "nothing is known of it")


def _slot(slot: int | None, tray: int | None) -> str:
    if slot is None and tray is None:
        return ""
    return f"{slot if slot is not None else tray:>2}"


def _tray(facts: HostFacts, verdict: HostVerdict) -> tuple[str, str, tuple[str, ...]]:
    """Chips, the word about IMEX, and what keeps the tray out."""
    return chips(facts.gpus.value), verdict.imex, out_of_domain(verdict)


def chips(report: GpuReport | None) -> str:
    """One sign a GPU; GPUs that nvidia-smi counts and cannot read come last."""
    if report is None:
        return UNKNOWN
    return "".join(map(chip, report.gpus)) + LOST * max(0, report.attached - len(report.gpus))


def chip(gpu: Gpu) -> str:
    joined = gpu.fabric.joined
    if joined is None:
        return UNKNOWN
    if not joined:
        return BAD
    if bandwidth(gpu) == "degraded" or gpu.fabric.healthy is False:
        return SLOW
    return UNKNOWN if gpu.fabric.health.unread else GOOD


def _colored(signs: str) -> Text:
    text = Text()
    for sign in signs:
        text.append(sign, style=STYLE.get(sign, ""))
    return text


def _imex(state: str) -> Text:
    return Text(f"IMEX {state}", style=IMEX_STYLE.get(state, "dim"))


def _why(reasons: tuple[str, ...]) -> Text:
    return say("; ".join(reasons), "red") if reasons else Text("eligible", style="green")


def _outside(fmap: FabricMap) -> RenderableType:
    rows = alike((o.name, (_reasons_of(fmap, o), o.fabrics)) for o in fmap.outside)
    return table(
        ("", "", ""),
        ((fold(names), "; ".join(why), _fabrics(fabrics)) for names, (why, fabrics) in rows),
    )


def _reasons_of(fmap: FabricMap, outside: Outside) -> tuple[str, ...]:
    """The reason of the map, then what else keeps the host out of everything."""
    verdict = fmap.verdicts.get(outside.name)
    hard = condensed(r.text for r in verdict.reasons if r.scope == "any") if verdict else ()
    return tuple(dict.fromkeys((outside.why, *hard)))


def _fabrics(fabrics: tuple[str, ...]) -> str:
    return f"in {', '.join(fabrics)}" if fabrics else "no scale-out fabric"


def _unreachable(hosts: tuple[Outside, ...], facts: Mapping[str, HostFacts]) -> RenderableType:
    rows = together((o.name, o.why, facts[o.name].host) for o in hosts)
    return table(("", ""), ((fold(names), why) for names, why in rows))
