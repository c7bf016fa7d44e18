"""Commands that look at the fleet: probe, nvlink."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llmgwctl.cli.common import (
    Asked,
    Session,
    finish,
    look,
    on_hosts,
    out,
    out_json,
    run,
    session,
    shared,
)

if TYPE_CHECKING:
    from llmgwctl.model.fabric import FabricMap
    from llmgwctl.probe.base import Section

COULD_NOT_TELL = 3


def register(app: typer.Typer) -> None:
    app.command()(probe)
    app.command()(nvlink)


@shared
def probe(
    *,
    asked: Asked,
    host: Annotated[str | None, typer.Argument(metavar="HOST", help="One host, or a range; default: all.")] = None,
    raw: Annotated[
        str | None,
        typer.Option(
            "--raw",
            metavar="SECTION",
            help="Print what the host said in one section, unchanged; on a terminal with escapes.",
        ),
    ] = None,
    save: Annotated[
        Path | None, typer.Option("--save", metavar="DIR", help="Write what the hosts said as a bundle, for --from.")
    ] = None,
    mask: Annotated[
        bool, typer.Option("--mask", help="With --save: serials, ids and addresses behind others of the same shape.")
    ] = False,
    mask_names: Annotated[
        bool, typer.Option("--mask-names", help="With --save: names of hosts and people too.")
    ] = False,
    allow_list: Annotated[
        bool,
        typer.Option("--allow-list", help="Read nothing: print what a read-only key must allow (docs/security.md)."),
    ] = False,
) -> None:
    """Read everything of hosts: GPUs, NVLink, IMEX, adapters, kernel log, versions. Equal hosts stand on one line.

    Example: llmgwctl probe r1-t01 --raw nvidia-smi-q

    --json has every reading with its state: ok, absent or broken (and why). Exit code 3 when something that matters
    could not be read.
    """
    if host is not None:
        asked = on_hosts(asked, host)
    if allow_list:
        from llmgwctl.cli import allowing

        run(allowing.allow_list(asked))
    elif raw is not None:
        if asked.json:
            raise typer.BadParameter("--raw prints what the host said, unchanged: it does not go with --json")
        run(_raw(asked, raw))
    else:
        if (mask or mask_names) and save is None:
            raise typer.BadParameter("--mask is for what --save DIR writes: give both")
        run(_probe(asked, save, mask=mask or mask_names, names=mask_names))


async def _probe(asked: Asked, save: Path | None, *, mask: bool = False, names: bool = False) -> None:
    from llmgwctl.cli.reading import engine_sections, saver
    from llmgwctl.probe import PROBES
    from llmgwctl.render import fleet as render
    from llmgwctl.render import json as documents

    async with session(asked) as s:
        keep = saver(save, [h.name for h in s.hosts], mask=mask, names=names) if save else None
        snapshot = await s.collect(probes=PROBES, save=keep, extra=engine_sections(s.inventory))
        fmap = s.map(snapshot)
    if save is not None:
        s.note(f"saved to {save}: llmgwctl nvlink --from {save} shows it again")
    if asked.json:
        out_json(documents.probe(snapshot))
    else:
        out(render.probed(snapshot, look()))
    finish(unsure(s, fmap))


async def _raw(asked: Asked, name: str) -> None:
    """What one section of one host said: its stdout to stdout, its stderr to stderr."""
    from llmgwctl.cli.reading import engine_sections
    from llmgwctl.inventory import nearest
    from llmgwctl.model.errors import UsageError
    from llmgwctl.probe import PROBES
    from llmgwctl.probe.base import failure
    from llmgwctl.render.visible import shown

    async with session(asked) as s:
        sections = {section.name: section for p in PROBES for section in p.sections}
        sections |= {section.name: section for h in s.hosts[:1] for section in engine_sections(s.inventory)(h)}
        wanted = sections.get(name.removesuffix(".txt"))
        if wanted is None:
            raise UsageError(f"there is no section {name!r}; {nearest(name, sections, 'known section')}")
        if len(s.hosts) != 1:
            raise UsageError(f"--raw shows one host, and {len(s.hosts)} are chosen: llmgwctl probe HOST --raw {name}")
        said = (await s.transport.read(s.hosts[0], (*_before(sections, wanted), wanted)))[wanted.name]
    if said.stdout:
        out(shown(said.stdout) if sys.stdout.isatty() else said.stdout)
    trouble = failure(said)
    for text in filter(None, (said.stderr.rstrip(), trouble)):
        s.note(text)
    if not trouble and said.exit_code:
        s.note(f"exit code {said.exit_code}")
    finish(COULD_NOT_TELL if trouble and said.state != "unneeded" else 0)


def _before(sections: Mapping[str, Section], wanted: Section) -> tuple[Section, ...]:
    """The sections on whose answer this one waits."""
    return (*_before(sections, sections[wanted.after]), sections[wanted.after]) if wanted.after else ()


@shared
def nvlink(
    *,
    asked: Asked,
    every_tray: Annotated[bool, typer.Option("--all", help="Each tray on its own line, however many racks.")] = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the rack page: one file, no network needed.")
    ] = None,
) -> None:
    """Draw the NVLink domains as racks: GPUs that joined, IMEX, and what keeps each tray out.

    Example: llmgwctl nvlink --json | jq '.domains[] | {id, joined_hosts, eligible_hosts}'

    Exit code 3 when a host could not be reached, or a reading that matters could not be made.
    """
    run(_nvlink(asked, html, every_tray=every_tray))


async def _nvlink(asked: Asked, html: Path | None, *, every_tray: bool) -> None:
    from llmgwctl.probe import PROBES

    async with session(asked) as s:
        snapshot = await s.collect(probes=PROBES if html is not None else None)
        fmap = s.map(snapshot)
    if html is not None:
        from llmgwctl.cli.pages import write_rack_page

        write_rack_page(s, html, fmap, snapshot)
    elif asked.json:
        from llmgwctl.render import json as documents

        out_json(documents.nvlink(fmap, snapshot))
    else:
        from llmgwctl.render import rack

        out(rack.racks(fmap, snapshot, look(), every_tray=every_tray or asked.verbose))
    finish(unsure(s, fmap))


def unsure(s: Session, fmap: FabricMap) -> int:
    """Exit code 3 when something about a host could not be told; which, is said on stderr."""
    from llmgwctl.render.fold import fold
    from llmgwctl.render.letters import clean
    from llmgwctl.render.words import condensed, together

    unknown = fmap.could_not_tell
    hosts = {h.name: h for h in s.hosts}
    for names, why in together((n, "; ".join(condensed(why)), hosts[n]) for n, why in unknown.items()):
        s.note(f"could not tell: {fold(names)}: {clean(why)}")
    return COULD_NOT_TELL if unknown else 0
