"""node HOST: one host in full."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llmgwctl.cli.common import Asked, finish, look, on_hosts, out, out_json, run, session, shared

if TYPE_CHECKING:
    from llmgwctl.model.fabric import FabricMap


def register(app: typer.Typer) -> None:
    app.command()(node)


@shared
def node(
    *,
    asked: Asked,
    host: Annotated[str, typer.Argument(metavar="HOST", help="One host of the inventory or the bundle.")],
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the node page: one file, no network needed.")
    ] = None,
) -> None:
    """Show one host in full: GPU by GPU matrix, NUMA, nearest adapters, IMEX and its peers, processes, health.

    Example: llmgwctl node r1-t07 --json | jq '.gpus[] | {index, joined, nearest}'

    Exit code 3 when it could not be reached, or a reading that matters could not be made.
    """
    run(_node(asked, host, html))


def _by_itself(fmap: FabricMap) -> FabricMap:
    """Only this host was asked: that no other stands beside it in its domain says nothing."""
    verdicts = {
        n: replace(v, reasons=tuple(r for r in v.reasons if r.code != "alone")) for n, v in fmap.verdicts.items()
    }
    return replace(fmap, verdicts=verdicts)


async def _node(asked: Asked, name: str, html: Path | None) -> None:
    from llmgwctl.cli.fleet import unsure
    from llmgwctl.model.errors import UsageError
    from llmgwctl.probe import PROBES
    from llmgwctl.render import node as render

    async with session(on_hosts(asked, name)) as s:
        if len(s.hosts) != 1:
            raise UsageError(f"node shows one host, and {name} is {len(s.hosts)}")
        snapshot = await s.collect(probes=PROBES, doing="reading")
        fmap = _by_itself(s.map(snapshot))
    (facts,) = snapshot.hosts
    if html is not None:
        from llmgwctl.cli.pages import write_node_page

        write_node_page(s, html, fmap, snapshot)
    elif asked.json:
        out_json(render.document(facts, fmap))
    else:
        out(render.text(facts, fmap, snapshot, look()))
    finish(unsure(s, fmap))
