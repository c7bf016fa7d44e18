"""Hosts as the inventory names them, and what was read from them, equal hosts on one line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from llmgwctl.fabric.cordons import words
from llmgwctl.model.gpu import GpuReport
from llmgwctl.model.host import READINGS, Host, HostFacts, Snapshot
from llmgwctl.model.life import Cordon
from llmgwctl.model.network import Hca
from llmgwctl.model.numbers import ranges
from llmgwctl.model.product import product_of, token_of
from llmgwctl.model.reading import Reading
from llmgwctl.render.fold import alike, fold
from llmgwctl.render.rack import chips
from llmgwctl.render.text import PLAIN, Look, draw, say, table
from llmgwctl.render.words import short_domain, together

SHORT = {"InfiniBand": "IB", "Ethernet": "Eth"}


Cordons = Mapping[str, Sequence[Cordon]]


def hosts(
    found: Sequence[Host], states: Mapping[str, str] | None = None, look: Look = PLAIN, cordons: Cordons | None = None
) -> str:
    """Hosts by pool and rack, folded; with `states` also how each of them was reached; then what is cordoned."""
    by_name = {h.name: h for h in found}
    alike_ones = alike((h.name, (h.pool, h.rack or "-", *_way(h), (states or {}).get(h.name, ""))) for h in found)
    rows = (
        (fold(names), str(len(names)), pool, rack, _by([by_name[n] for n in names], jump), state)
        for names, (pool, rack, _, _, _, jump, state) in alike_ones
    )
    heads = ("HOSTS", "COUNT", "POOL", "RACK", "BY", "STATE" if states is not None else "")
    parts: list[RenderableType] = [table(heads, rows)]
    kept_out = list(alike((h.name, _cordoned(c)) for h in found for c in (cordons or {}).get(h.name, ())))
    if kept_out:
        parts += [Text(), say("Cordoned", "bold yellow"), table(("", ""), ((fold(n), why) for n, why in kept_out))]
    return draw(parts, look)


def reached(snapshot: Snapshot, word: str) -> Iterator[tuple[str, str]]:
    """How each host was reached: the word for those that answered, why not for the others."""
    yield from ((f.host.name, word) for f in snapshot.hosts if f.reachable.ok)
    silent = together((f.host.name, f.reachable.why, f.host) for f in snapshot.hosts if not f.reachable.ok)
    yield from ((name, why) for names, why in silent for name in names)


def _cordoned(cordon: Cordon) -> str:
    return (f"GPU {ranges(cordon.gpus)}: " if cordon.gpus else "") + words(cordon)


def _way(host: Host) -> tuple[str, bool, int | None, str]:
    """How the inventory says that it is reached, but for the address, which differs for each."""
    return (host.user or "", bool(host.address), host.port, host.proxy_jump or "")


def _by(alike_ones: Sequence[Host], jump: str) -> str:
    """The addresses (the names, where they are the addresses) of hosts that are reached alike, folded."""
    first = alike_ones[0]
    user = f"{first.user}@" if first.user else ""
    where = fold([h.address or h.name for h in alike_ones])
    port = f"{' port ' if where.count(':') > 1 else ':'}{first.port}" if first.port else ""
    return f"{user}{where}{port}{f' via {jump}' if jump else ''}"


def hosts_document(
    found: Sequence[Host], states: Mapping[str, str] | None = None, cordons: Cordons | None = None
) -> dict[str, Any]:
    return {
        "schema": "llmgwctl.hosts/v1",
        "hosts": [
            {
                "name": h.name,
                "address": h.address or h.name,
                "pool": h.pool,
                "rack": h.rack,
                "user": h.user,
                "port": h.port,
                **({"state": states[h.name]} if states is not None else {}),
                "cordons": [_cordon(c) for c in (cordons or {}).get(h.name, ())],
            }
            for h in found
        ],
    }


def _cordon(cordon: Cordon) -> dict[str, Any]:
    return {
        "reason": cordon.reason,
        "until": cordon.until,
        "by": cordon.by,
        "at": cordon.at,
        "gpus": list(cordon.gpus),
        "account": cordon.account or None,
    }


def probed(snapshot: Snapshot, look: Look = PLAIN) -> str:
    """Equal hosts on one line by range, what differs beside it; then who did not answer, and what could not be read."""
    answered = alike((f.host.name, _summary(f)) for f in snapshot.hosts if f.reachable.ok)
    silent = together((f.host.name, f.reachable.why, f.host) for f in snapshot.hosts if not f.reachable.ok)
    broken = list(_broken(snapshot.hosts))
    heads = ("HOSTS", "GPUS", "JOINED", "DOMAIN", "DRIVER", "IMEX", "HCAS")
    parts: list[RenderableType] = []
    if answered:
        parts.append(table(heads, ((fold(names), *said) for names, said in answered), keep=(1, 2, 3, 4, 6)))
    if silent:
        parts += [say("Not reachable", "bold red"), table(("", ""), ((fold(names), why) for names, why in silent))]
    if broken:
        parts += [say("Could not be read", "bold red"), table(("", "", ""), broken)]
    return draw(parts, look)


def _summary(facts: HostFacts) -> tuple[str, ...]:
    return (
        told(facts.gpus, _gpus),
        told(facts.gpus, _joined),
        told(facts.gpus, _domains),
        told(facts.gpus, lambda r: r.driver or "?"),
        told(facts.imex, lambda i: i.state or f"? {i.why}"),
        told(facts.hcas, _hcas),
    )


def told(reading: Reading[Any], of: Any) -> str:
    """A reading in a cell: its value, "-" when it is absent, "?" when it is broken (the reason stands below)."""
    if reading.ok:
        return str(of(reading.value))
    return "-" if reading.state == "absent" else "?"


def _gpus(report: GpuReport) -> str:
    names = {token_of(g.name) for g in report.gpus}
    return f"{len(report.gpus)}x {'/'.join(sorted(names)) or '?'}" + (
        f" of {report.attached}" if report.attached != len(report.gpus) else ""
    )


def _joined(report: GpuReport) -> str:
    """A chip a GPU, where the product can be in a domain of several hosts."""
    products = {product_of(g.name) for g in report.gpus}
    return "-" if all(p is not None and not p.multi_host_domain for p in products) else chips(report)


def _domains(report: GpuReport) -> str:
    pairs = sorted({g.fabric.pair for g in report.gpus if g.fabric.pair})
    return ", ".join(short_domain(f"nvl:{uuid}.{clique}")[4:] for uuid, clique in pairs) or "-"


def _hcas(hcas: tuple[Hca, ...]) -> str:
    """Adapters that have an active port, by their kind of link: 4 IB."""
    kinds = [p.link_layer for h in hcas for p in h.ports[:1] if any(q.active for q in h.ports)]
    active = ", ".join(f"{kinds.count(k)} {SHORT.get(k, k)}" for k in dict.fromkeys(kinds))
    down = len(hcas) - len(kinds)
    return ", ".join(filter(None, (active, f"{down} down" if down else ""))) or "-"


def _broken(facts: Iterable[HostFacts]) -> Iterator[tuple[str, str, str]]:
    """Range, section, why; of hosts that answered at all."""
    answered = [f for f in facts if f.reachable.ok]
    for section in READINGS:
        broken = [(f.host.name, r.why, f.host) for f in answered if (r := getattr(f, section)).broken]
        for names, why in together(broken):
            yield fold(names), section, why
