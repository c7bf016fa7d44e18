"""IMEX between hosts: who is connected to whom, each judged by its own answer, never by index or domain word."""

from __future__ import annotations

from collections.abc import Sequence

from llmgwctl.model.fact import fact
from llmgwctl.model.host import HostFacts
from llmgwctl.model.imex import Imex, ImexNode, ImexTable


@fact
class ImexView:
    """What a host's own row says: addresses that it is connected to, its version, and which channels it may use."""

    addresses: frozenset[str] = frozenset()
    connected: frozenset[str] = frozenset()
    cells: tuple[tuple[str, str], ...] = ()  # (address, token), for words
    version: str = ""
    channels: frozenset[int] = frozenset()
    why_unknown: str = ""  # the table or the addresses could not be read


def view(facts: HostFacts) -> ImexView:
    """The host's own view. A name in the node list counts with every address that it resolves to on that host."""
    imex, network = facts.imex.value, facts.network.value
    if imex is None:
        return ImexView(why_unknown=facts.imex.why or "IMEX is not there")
    channels = frozenset(usable_channels(imex))
    if network is None:
        return ImexView(channels=channels, why_unknown=f"its addresses could not be read: {facts.network.why}")
    mine = network.own_addresses()
    if imex.table is None:
        return ImexView(mine, channels=channels, why_unknown=imex.table_why or "no connection table")
    return _from_table(imex, imex.table, mine, channels)


def _from_table(imex: Imex, table: ImexTable, mine: frozenset[str], channels: frozenset[int]) -> ImexView:
    rows = addressed(imex, table)
    own = own_node(rows, mine)
    if own is None:
        return ImexView(mine, channels=channels, why_unknown="this host is not in its own IMEX node list")
    cells = [(a, table.cells.get((own.index, n.index), "I")) for n, addresses in rows for a in addresses]
    connected = frozenset(a for a, cell in cells if cell == "C")
    return ImexView(mine, connected, tuple(cells), own.version, channels)


def addressed(imex: Imex, table: ImexTable) -> list[tuple[ImexNode, list[str]]]:
    """The nodes of the table, each with its line and every address that this resolves to on the host."""
    resolved = {line: sorted({line, *found}) for line, found in imex.node_addresses}
    return [(n, resolved.get(n.host) or [n.host]) for n in table.nodes]


def own_node(rows: Sequence[tuple[ImexNode, list[str]]], mine: frozenset[str]) -> ImexNode | None:
    """The host itself: found by its own addresses, never by index."""
    return next((n for n, addresses in rows if not mine.isdisjoint(addresses)), None)


def usable_channels(imex: Imex) -> tuple[int, ...]:
    """Channels that are writable and whose device has the major that the kernel gives now (a stale node has not)."""
    return tuple(c.number for c in imex.channels if c.writable and c.major == imex.channel_major)


def apart(a: ImexView, b: ImexView, name_a: str, name_b: str) -> str | None:
    """Why two hosts cannot share memory over IMEX; None when they are connected both ways with one version."""
    for view_, name in ((a, name_a), (b, name_b)):
        if view_.why_unknown:
            return f"IMEX of {name}: {view_.why_unknown}"
    if b.addresses.isdisjoint(a.connected):
        return f"IMEX: {name_a} reports {_token(a, b)} to {name_b}"
    if a.addresses.isdisjoint(b.connected):
        return f"IMEX: {name_b} reports {_token(b, a)} to {name_a}"
    if a.version != b.version:
        return f"IMEX versions differ: {name_a} {a.version or '?'}, {name_b} {b.version or '?'}"
    return None


WORDS = {
    "N": "never connected",
    "R": "connection lost, recovering",
    "D": "disconnected",
    "A": "authenticating",
    "I": "no status",
    "!V!": "version mismatch",
    "!M!": "node list mismatch",
    "!A!": "authentication error",
    "!R!": "blocking recovery",
}


def _token(a: ImexView, b: ImexView) -> str:
    token = next((t for address, t in a.cells if address in b.addresses), None)
    return "no entry" if token is None else f"{WORDS.get(token, token)} ({token})"
