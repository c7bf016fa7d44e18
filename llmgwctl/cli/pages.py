"""What people look at and what machines scrape: metrics, site, watch."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llmgwctl.cli.common import Asked, Session, out, out_json, run, session, shared

if TYPE_CHECKING:
    from llmgwctl.model.fabric import FabricMap
    from llmgwctl.model.finding import Report
    from llmgwctl.model.host import Snapshot
    from llmgwctl.model.replica import ReplicaState


def register(app: typer.Typer) -> None:
    from llmgwctl.cli.watching import watch

    for command in (metrics, site, watch):
        app.command()(command)


@shared
def metrics(
    *,
    asked: Asked,
    textfile: Annotated[
        Path | None,
        typer.Option("--textfile", metavar="PATH", help="Write them there at once, for node_exporter's collector."),
    ] = None,
    file_sd: Annotated[
        Path | None,
        typer.Option("--file-sd", metavar="PATH", help="Write where the replicas' own metrics are, for Prometheus."),
    ] = None,
) -> None:
    """Print the metrics of the fleet: NVLink, IMEX, adapters, hosts, replicas.

    Example: llmgwctl metrics -q --textfile /var/lib/prometheus/node-exporter/llmgw.prom

    What is not known has no sample. Exit code 0 once they are written: a host that does not answer is in them.
    """
    run(_metrics(asked, textfile, file_sd))


async def _metrics(asked: Asked, textfile: Path | None, file_sd: Path | None) -> None:
    from llmgwctl.publish import write_file
    from llmgwctl.render import prom

    async with session(asked) as s:
        snapshot = await s.collect()
        fmap, replicas = seen(s, snapshot)
    report = _judged(s, snapshot, fmap)
    text = prom.metrics(fmap, snapshot, replicas, report.findings, _last_seen(textfile), ended=report.ended)
    if textfile is not None:
        write_file(textfile, text)
    if file_sd is not None:
        from llmgwctl.engines import ENGINES

        write_file(file_sd, prom.file_sd(replicas, {e: x.metrics_path for e, x in ENGINES.items()}))
    if asked.json:
        out_json(prom.document(text))
    elif textfile is None and file_sd is None:
        out(text)


def _last_seen(textfile: Path | None) -> dict[str, float]:
    """When hosts last answered, out of the file that is about to be replaced: it is the only memory there is."""
    from llmgwctl.render.prom import seen_before

    if textfile is None:
        return {}
    try:
        return seen_before(textfile.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return {}


@shared
def site(
    *,
    asked: Asked,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder, or one that `site` wrote before.")],
    refresh: Annotated[
        int, typer.Option("--refresh", metavar="S", min=0, help="Pages load themselves again after so many seconds.")
    ] = 0,
) -> None:
    """Write the pages, the JSON document and the metrics as a static site, for any web server.

    Example: llmgwctl site /srv/www/llmgw --refresh 60

    It is written beside and put in place at once: a reader never sees half of it. Exit code 0 once it is written.
    """
    run(_site(asked, directory, refresh))


async def _site(asked: Asked, directory: Path, refresh_s: int) -> None:
    from llmgwctl.cli.reading import engine_sections
    from llmgwctl.probe import PROBES
    from llmgwctl.publish import Busy, write_tree
    from llmgwctl.render import prom
    from llmgwctl.render import site as render
    from llmgwctl.render.html_doctor import doctor_page

    async with session(asked) as s:
        snapshot = await s.collect(probes=PROBES, extra=engine_sections(s.inventory))
        fmap, replicas = seen(s, snapshot)
    report, now = _judged(s, snapshot, fmap), time.time()
    before = _last_seen(directory / "metrics")
    numbers = prom.metrics(fmap, snapshot, replicas, report.findings, before, ended=report.ended)
    doctor = doctor_page(report, snapshot, made_at=now, home_href="index.html")
    files = render.site(fmap, snapshot, replicas, numbers, made_at=now, refresh_s=refresh_s, doctor=doctor)
    try:
        count = write_tree(directory, files)
    except Busy as e:
        s.note(f"{e}: this run leaves it alone")
        return
    if asked.json:
        out_json({"schema": "llmgwctl.site/v1", "directory": str(directory), "files": count})
    else:
        s.note(f"{count} files in {directory}")


def seen(s: Session, snapshot: Snapshot) -> tuple[FabricMap, tuple[ReplicaState, ...]]:
    """The map of what was read, and the replicas that run on it."""
    from llmgwctl.launch.state import replicas

    return s.map(snapshot), replicas(snapshot)


def _judged(s: Session, snapshot: Snapshot, fmap: FabricMap) -> Report:
    """The doctor's report, less what the operator does not want to hear of; what has ended of that is said."""
    from llmgwctl.doctor import diagnose
    from llmgwctl.doctor.choose import suppress

    day = datetime.fromtimestamp(snapshot.taken_at, UTC).date()
    report = suppress(diagnose(snapshot, fmap), s.inventory.suppressions, day)
    for old in report.ended:
        s.note(old.epitaph)
    return report


def write_rack_page(s: Session, path: Path, fmap: FabricMap, snapshot: Snapshot) -> None:
    """`nvlink --html FILE`."""
    from llmgwctl.launch.state import replicas
    from llmgwctl.render.html import rack_page

    _write_page(s, path, rack_page(fmap, snapshot, replicas(snapshot), made_at=time.time()))


def write_node_page(s: Session, path: Path, fmap: FabricMap, snapshot: Snapshot) -> None:
    """`node HOST --html FILE`."""
    from llmgwctl.launch.state import replicas
    from llmgwctl.render.html import node_page

    name = snapshot.hosts[0].host.name
    _write_page(s, path, node_page(name, fmap, snapshot, replicas(snapshot), made_at=time.time()))


def _write_page(s: Session, path: Path, text: str) -> None:
    """ "-" is stdout."""
    from llmgwctl.publish import write_file

    if str(path) == "-":
        out(text)
    else:
        write_file(path, text)
        s.note(f"written to {path}")
