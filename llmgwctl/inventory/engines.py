"""[engines.NAME] tables -> the build of each host: its own table's keys, else its pool's, else the general ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from llmgwctl.inventory.context import At, Context
from llmgwctl.inventory.schema import BuildTable, EngineTable
from llmgwctl.model.fact import fact
from llmgwctl.model.host import Host

if TYPE_CHECKING:
    from llmgwctl.engines.base import Build

Keys = Mapping[str, str]


@fact
class Builds:
    """One engine: keys for everywhere, by pool, by host. A key that a narrower table lacks is that of the wider."""

    general: Keys = field(default_factory=dict)
    pools: Mapping[str, Keys] = field(default_factory=dict)
    hosts: Mapping[str, Keys] = field(default_factory=dict)

    def of(self, host: Host) -> Build:
        from llmgwctl.engines.base import Build  # all engines come with it, and looking at hosts needs none

        return Build(**{**self.general, **self.pools.get(host.pool, {}), **self.hosts.get(host.name, {})})


def known_engines() -> tuple[str, ...]:
    from llmgwctl.engines import ENGINES

    return tuple(ENGINES)


def build(name: str, table: EngineTable, context: Context) -> Builds:
    at: At = ("engines", name)
    known = context.known_engine(name, at)
    for pool in table.pools:
        context.known_pool(pool, (*at, "pools", pool))
    for here, keys in _tables(table, at):
        _paths(keys, here, context)
        if known:
            _build_taken(name, keys, here, context)
    return Builds(_keys(table), {p: _keys(t) for p, t in table.pools.items()}, _by_host(table, at, context))


def _tables(table: EngineTable, at: At) -> Iterator[tuple[At, BuildTable]]:
    yield at, table
    for kind, tables in (("pools", table.pools), ("hosts", table.hosts)):
        yield from (((*at, kind, one), keys) for one, keys in tables.items())


def _build_taken(name: str, table: BuildTable, at: At, context: Context) -> None:
    """An engine that is sent along has no build that could be named; only what is sourced before it counts."""
    from llmgwctl.engines import ENGINES

    if ENGINES[name].needs_build:
        return
    for key in BuildTable.model_fields:
        if key != "source" and getattr(table, key) is not None:
            context.faults.add((*at, key), f"{name} takes no build, it is sent along: only source counts")


def _paths(table: BuildTable, at: At, context: Context) -> None:
    """No shell of the host expands them, and nobody knows from which folder a relative one would begin."""
    for key in ("path", "source", "rpc_server"):
        value = getattr(table, key)
        if value and not value.startswith("/") and ("/" in value or key == "source"):
            context.faults.add((*at, key), f"{value[:80]!r} is an absolute path on the hosts, without ~")


def _keys(table: BuildTable) -> Keys:
    return {k: v for k in BuildTable.model_fields if (v := getattr(table, k)) is not None}


def _by_host(table: EngineTable, at: At, context: Context) -> Mapping[str, Keys]:
    found: dict[str, Keys] = {}
    for text, keys in table.hosts.items():
        here = (*at, "hosts", text)
        for host in context.known_hosts(text, here):
            if host in found:
                context.faults.add(here, f"host {host} stands in two tables of this engine")
            found[host] = _keys(keys)
    return found
