"""The hosts that the inventory has: listing them; keeping them out of placement and emptying them are below it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from llmgwctl.cli import cordoning, draining
from llmgwctl.cli.common import Asked, Session, finish, look, out, out_json, run, session, shared, unless_more_follows

if TYPE_CHECKING:
    from llmgwctl.model.life import Cordon

COULD_NOT_TELL = 3


def register(app: typer.Typer) -> None:
    group = typer.Typer(invoke_without_command=True)
    group.callback()(hosts)
    cordoning.register(group)
    draining.register(group)
    app.add_typer(group, name="hosts")


@unless_more_follows
@shared
def hosts(
    *,
    asked: Asked,
    check: Annotated[bool, typer.Option("--check", help="Also try to reach each of them.")] = False,
) -> None:
    """List the hosts of the inventory, folded into ranges, with what is cordoned; cordon them and drain them.

    Example: llmgwctl hosts --check -w 'r1-t[01-18]'

    Cordons that lie on the hosts alone are read with --check. Exit code 3 when it could not reach one of them.
    """
    run(_hosts(asked, check=check))


async def _hosts(asked: Asked, *, check: bool) -> None:
    from llmgwctl.render import fleet as render

    async with session(asked) as s:
        states, missed = None, 0
        cordons = in_force_now(s)
        if check:
            from llmgwctl.probe import life, system
            from llmgwctl.render.fleet import reached

            snapshot = await s.collect(probes=(system.PROBE, life.PROBE), doing="reaching hosts")
            missed = sum(not f.reachable.ok for f in snapshot.hosts)
            states = dict(reached(snapshot, "reachable" if asked.bundle is None else "answered when saved"))
            cordons |= {f.host.name: f.life.value.cordons for f in snapshot.hosts if f.life.value}
    shown = [replace(h, user=h.user or s.inventory.ssh.user) for h in s.hosts]
    if asked.json:
        out_json(render.hosts_document(shown, states, cordons))
    else:
        out(render.hosts(shown, states, look(), cordons))
    finish(COULD_NOT_TELL if missed else 0)


def in_force_now(s: Session) -> dict[str, tuple[Cordon, ...]]:
    import time

    from llmgwctl.fabric.cordons import in_force

    return {name: found for name, ours in s.cordons.items() if (found := in_force(ours, time.time()))}
