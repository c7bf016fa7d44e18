"""`rack`: a fleet of simulated hosts on this machine, to try everything on."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from llmgwctl.cli.common import QuietOption, look, note, out

if TYPE_CHECKING:
    from llmgwctl.rack import Rack, RackSpec

KINDS = ("nvl72", "hgx", "hgx-roce", "mixed")


def register(app: typer.Typer) -> None:
    app.command()(rack)


def rack(
    *,
    kind: Annotated[str, typer.Argument(metavar="KIND", help=f"One of {', '.join(KINDS)}.")] = "nvl72",
    fault: Annotated[
        list[str] | None,
        typer.Option("--fault", metavar="HOST:FAULT", help="What is wrong with a host; may be given many times."),
    ] = None,
    faults: Annotated[bool, typer.Option("--faults", help="List the faults that there are, and end.")] = False,
    trays: Annotated[int, typer.Option("--trays", min=1, max=72, help="Trays of each NVL72 rack.")] = 18,
    racks: Annotated[int, typer.Option("--racks", min=1, max=100, help="NVL72 racks.")] = 1,
    hgx: Annotated[int, typer.Option("--hgx", min=0, max=250, help="HGX hosts beside them.")] = 2,
    port: Annotated[
        int, typer.Option("--port", min=1024, max=65535, help="SSH port on every loopback address.")
    ] = 2222,
    directory: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="Where keys, inventory and hosts are kept afterwards.")
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Serve a simulated rack: real SSH servers on loopback addresses, with invented hardware, until Ctrl-C.

    Example: llmgwctl rack nvl72 --fault r1-t03:imex-down --fault r1-t07:gpu-not-joined:2

    It prints the inventory to use: llmgwctl -i FILE nvlink.
    """
    from llmgwctl.render.text import draw, table

    if faults:
        from llmgwctl.rack.faults import FAULTS

        out(draw([table(("FAULT", ""), ((f.usage, f.help) for f in FAULTS))], look()))
        return
    spec = _spec(kind, trays, racks, hgx, _by_host(fault or []))
    if directory is not None:
        _ours(directory)
        _serve(spec, directory, port, quiet=quiet)
        return
    with TemporaryDirectory(prefix="llmgwctl-rack-") as temporary:
        _serve(spec, Path(temporary), port, quiet=quiet)


def _spec(kind: str, trays: int, racks: int, hgx: int, faults: dict[str, list[str]]) -> RackSpec:
    from llmgwctl import rack as simulated
    from llmgwctl.inventory import nearest
    from llmgwctl.model.errors import UsageError

    if kind == "nvl72":
        return simulated.nvl72(trays, racks, hgx, faults=faults)
    if kind == "mixed":
        return simulated.mixed(trays, hgx, hgx, faults=faults)
    if kind in ("hgx", "hgx-roce"):
        return simulated.hgx(max(hgx, 1), roce=kind == "hgx-roce", faults=faults)
    raise UsageError(f"there is no rack of kind {kind!r}; {nearest(kind, KINDS, 'known kind')}")


def _by_host(given: list[str]) -> dict[str, list[str]]:
    """HOST:FAULT as given, by host; ranges of hosts are welcome."""
    from llmgwctl.inventory import expand
    from llmgwctl.model.errors import UsageError

    found: dict[str, list[str]] = {}
    for text in given:
        hosts, _, fault = text.partition(":")
        if not hosts or not fault:
            raise UsageError(f"--fault {text!r}: write it as HOST:FAULT, for example r1-t03:imex-down")
        try:
            names = expand(hosts)
        except ValueError as e:
            raise UsageError(f"--fault {text!r}: {e}") from None
        for name in names:
            found.setdefault(name, []).append(fault)
    return found


def _ours(directory: Path) -> None:
    """A folder that is new, or of a rack before: what is in it is written anew, and `hosts` there is emptied."""
    from llmgwctl.model.errors import UsageError
    from llmgwctl.rack.inventory_text import HEAD

    if str(directory) in ("", "."):
        raise UsageError("--dir names a folder of its own, not the one that you are in")
    inventory = directory / "inventory.toml"
    try:
        ours = inventory.exists() and inventory.read_text(errors="replace").startswith(HEAD)
        if not ours and (inventory.exists() or (directory / "hosts").exists()):
            raise UsageError(f"--dir {directory} holds what is no simulated rack's: give an empty or a new folder")
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(directory, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as e:
        raise UsageError(f"--dir {directory}: cannot be written: {e.strerror}") from None


def up(rack: Rack) -> str:
    """How many hosts can be reached, and how the others are, as was asked for."""
    from llmgwctl.render.words import counted

    ways = {name: rack.machine(name).ssh for name in rack.hosts}
    others = [f"{name} is {way}" for name, way in ways.items() if way in ("refused", "dead", "silent")]
    if not others:
        return f"{counted(len(ways), 'host')} up"
    return f"{len(ways) - len(others)} of {counted(len(ways), 'host')} up ({', '.join(others)})"


def _serve(spec: RackSpec, directory: Path, port: int, *, quiet: bool) -> None:
    from llmgwctl.rack import main_loop

    for event in main_loop(spec, directory, port=port):
        if event.kind == "up":
            out(str(event.rack.inventory))
        if quiet:
            continue
        if event.kind == "up":
            note(f"{up(event.rack)}. In another terminal: llmgwctl nvlink -i {event.rack.inventory}")
            note("Ctrl-C ends them and everything that runs on them.")
        else:
            note(" ".join(event.words) if event.words else "the rack has ended")
