"""A host's own row of the IMEX table: how it is connected to each node of the list."""

from __future__ import annotations

from llmgwctl.fabric.imex import WORDS, addressed, own_node
from llmgwctl.model.fact import fact
from llmgwctl.model.host import HostFacts

NOT_TOLD = "?"


@fact
class ImexPeer:
    """`cell` is the token of the table, or NOT_TOLD; `local`: the host itself."""

    host: str
    status: str
    version: str
    cell: str
    local: bool = False

    @property
    def words(self) -> str:
        return "connected" if self.cell == "C" else WORDS.get(self.cell, "not told")


def own_row(facts: HostFacts) -> tuple[ImexPeer, ...]:
    """Empty without a table."""
    imex, network = facts.imex.value, facts.network.value
    if imex is None or imex.table is None:
        return ()
    mine = network.own_addresses() if network else frozenset()
    own = own_node(addressed(imex, imex.table), mine)
    cells = imex.table.cells
    return tuple(
        ImexPeer(
            n.host,
            n.status,
            n.version,
            cells.get((own.index, n.index), NOT_TOLD) if own else NOT_TOLD,
            own is not None and n.index == own.index,
        )
        for n in imex.table.nodes
    )
