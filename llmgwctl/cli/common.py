"""What every command shares: its options, and the steps from an inventory to a snapshot. Light to import."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import field, replace
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from llmgwctl.cli import INTERRUPTED
from llmgwctl.cli.streams import forget, letters
from llmgwctl.model.errors import LlmgwError, NotLive, UsageError
from llmgwctl.model.fact import fact

if TYPE_CHECKING:
    from llmgwctl.collect import Save
    from llmgwctl.inventory import Inventory
    from llmgwctl.model.fabric import FabricMap
    from llmgwctl.model.host import Host, Snapshot
    from llmgwctl.model.life import Cordon
    from llmgwctl.probe.base import Probe, Section
    from llmgwctl.render.text import Look
    from llmgwctl.transport.base import Transport
    from llmgwctl.transport.replay import Replay

T = TypeVar("T")
MAX_WIDTH = 160


def _once(option: str) -> Callable[[list[str] | None], list[str] | None]:
    """An option that narrows is not given twice: nobody can know which of the two was meant."""

    def check(given: list[str] | None) -> list[str] | None:
        if given and len(given) > 1:
            raise typer.BadParameter(f"{option} is given {len(given)} times: one range names them all (a[1-3],b7)")
        return given

    return check


InventoryOption = Annotated[
    Path | None,
    typer.Option("--inventory", "-i", metavar="FILE", help="The inventory. Default: $LLMGWCTL_INVENTORY, "
                 "./inventory.toml, ~/.config/llmgwctl/inventory.toml.", show_default=False),
]  # fmt: skip
HostsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--hosts", "-w", metavar="NODESET", help="Only these hosts: r1-t[01-04],r2-t07.", callback=_once("-w")
    ),
]
PoolOption = Annotated[
    list[str] | None,
    typer.Option("--pool", metavar="POOL", help="Only the hosts of this pool.", callback=_once("--pool")),
]
FromOption = Annotated[
    Path | None,
    typer.Option("--from", metavar="DIR", help="Answer from a saved bundle (probe --save) instead of SSH."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the whole answer as one JSON document.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Nothing on stderr but errors.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Say more: also what is fine.")]


class Interrupted(LlmgwError):
    """Ctrl-C, with what became of what had begun."""

    exit_code = INTERRUPTED


@fact
class Asked:
    """The shared options as given. `quiet` and `verbose` change what is said, never what is done."""

    inventory: Path | None = None
    hosts: str | None = None
    pool: str | None = None
    bundle: Path | None = None
    option: str = "-w "  # what `hosts` was given with, for messages; "" where it is an argument of the command
    json: bool = False
    quiet: bool = False
    verbose: bool = False


def shared(command: Callable[..., None]) -> Callable[..., None]:
    """A command that takes `asked: Asked` gets the shared options on its command line in place of it.

    They may also stand before the command (llmgwctl -i FILE nvlink); what stands after it wins.
    """
    hints = get_type_hints(command, include_extras=True)
    own = [p.replace(annotation=hints[p.name]) for p in signature(command).parameters.values() if p.name != "asked"]

    @wraps(command)
    def with_options(ctx: typer.Context, **given: Any) -> None:
        command(asked=_merged(ctx, given), **given)

    context = Parameter("ctx", Parameter.KEYWORD_ONLY, annotation=typer.Context)
    return with_signature(with_options, [context, *own, *shared_parameters()])


def _merged(ctx: typer.Context, given: dict[str, Any]) -> Asked:
    return replace(ctx.obj or Asked(), **taken(given))


def taken(given: dict[str, Any]) -> dict[str, Any]:
    """The shared options out of everything that was given."""
    found = {name: value for name in SHARED if (value := given.pop(name))}
    return {name: value[0] if isinstance(value, list) else value for name, value in found.items()}


def on_hosts(asked: Asked, nodeset: str, argument: str = "HOST") -> Asked:
    """The hosts that an argument of the command names."""
    if asked.hosts is not None:
        raise UsageError(f"{argument} and -w both say which hosts: give one of them")
    return replace(asked, hosts=nodeset, option="")


def only_live(asked: Asked, done: str) -> None:
    """What a bundle says can be read, and that is all."""
    if asked.bundle is not None:
        raise NotLive(f"--from {asked.bundle} answers for hosts: that can be read, and nothing can be {done} there")


def unless_more_follows(command: Callable[..., None]) -> Callable[..., None]:
    """A command that has commands below it: when one of them follows, it only hands on the shared options."""

    @wraps(command)
    def with_more(ctx: typer.Context, **given: Any) -> None:
        if ctx.invoked_subcommand is None:
            command(ctx, **given)
        else:
            ctx.obj = _merged(ctx, given)

    return with_signature(with_more, list(signature(command).parameters.values()))


def shared_parameters() -> list[Parameter]:
    return [Parameter(n, Parameter.KEYWORD_ONLY, default=d, annotation=a) for n, (a, d) in SHARED.items()]


def with_signature(function: Callable[..., None], parameters: list[Parameter]) -> Callable[..., None]:
    """What typer reads instead of the function's own signature."""
    function.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {p.name: p.annotation for p in parameters}
    return function


SHARED: dict[str, tuple[Any, Any]] = {
    "inventory": (InventoryOption, None),
    "hosts": (HostsOption, None),
    "pool": (PoolOption, None),
    "bundle": (FromOption, None),
    "json": (JsonOption, False),
    "quiet": (QuietOption, False),
    "verbose": (VerboseOption, False),
}


@fact
class Session:
    """An inventory, the hosts that were chosen from it, and the way to them."""

    asked: Asked
    inventory: Inventory
    hosts: tuple[Host, ...]
    transport: Transport
    cordons: Mapping[str, tuple[Cordon, ...]] = field(default_factory=dict)  # those beside the inventory

    def note(self, text: str) -> None:
        """A sentence for people, on stderr. Words of hosts may stand in it: none of them reaches the terminal raw."""
        from llmgwctl.render.visible import lines

        if not self.asked.quiet:
            note(lines(text))

    async def collect(
        self,
        hosts: Sequence[Host] | None = None,
        probes: Sequence[Probe] | None = None,
        doing: str = "reading hosts",
        save: Save | None = None,
        extra: Callable[[Host], Sequence[Section]] | None = None,
    ) -> Snapshot:
        """Read hosts (all that were chosen, unless told), with a progress bar on a terminal. Cordons are in it."""
        from llmgwctl.collect import collect
        from llmgwctl.fabric.cordons import applied
        from llmgwctl.render.words import counted

        wanted = self.hosts if hosts is None else tuple(hosts)
        with progress(doing, len(wanted), quiet=self.asked.quiet) as step:
            found = await collect(
                wanted, self.transport, probes, on_host=lambda f: step(f.host.name), save=save, extra=extra
            )
        if self.asked.verbose and found.hosts:
            slow = max(found.hosts, key=lambda f: f.reachable.value or 0)
            self.note(
                f"read {counted(len(found.hosts), 'host')}; the slowest was {slow.host.name}: "
                f"{slow.reachable.value or 0:.1f} s"
            )
        return applied(found, self.cordons)

    def map(self, snapshot: Snapshot) -> FabricMap:
        """The fabric map with what the inventory declares and what is cordoned."""
        from llmgwctl.fabric import fabric_map
        from llmgwctl.fabric.cordons import whole_hosts

        return fabric_map(snapshot, self.inventory.fabrics, whole_hosts(snapshot, self.cordons))


@asynccontextmanager
async def session(asked: Asked) -> AsyncIterator[Session]:
    """Load the inventory, choose the hosts, open the transport; everything is closed at the end."""
    from llmgwctl.inventory.cordons import beside
    from llmgwctl.inventory.cordons import load as load_cordons

    inventory = load_inventory(asked)
    hosts = inventory.select(asked.hosts, asked.pool, asked.option)
    cordons = load_cordons(beside(inventory.path))
    transport = open_transport(asked, inventory, hosts)
    try:
        yield Session(asked, inventory, hosts, transport, cordons)
    finally:
        await transport.close()


def load_inventory(asked: Asked) -> Inventory:
    """The inventory of -i and its defaults. A bundle of hosts that nobody listed is an inventory by itself."""
    from llmgwctl.inventory import default_path, load
    from llmgwctl.model.errors import InventoryError

    try:
        path = default_path(asked.inventory, os.environ, Path.cwd(), Path.home())
    except InventoryError:
        if asked.bundle is None:
            raise
        return bundled_inventory(asked.bundle)
    found = load(path)
    if asked.bundle is None or asked.inventory is not None:
        return found
    bundled = bundled_inventory(asked.bundle)
    shared = {h.name for h in found.hosts} & {h.name for h in bundled.hosts}
    return found if shared else bundled


def bundled_inventory(directory: Path) -> Inventory:
    """The hosts of a bundle, in the order of their names, as an inventory without a file."""
    from llmgwctl.inventory import of_hosts

    return of_hosts(bundle(directory).hosts())


def bundle(directory: Path) -> Replay:
    from llmgwctl.transport.replay import Replay

    found = Replay(directory)
    try:
        empty = found.empty()
    except OSError as e:
        raise UsageError(f"--from {directory}: no bundle can be read there: {e.strerror}") from None
    if empty:
        raise UsageError(f"--from {directory}: no bundle: it holds no folder of a host (`probe --save DIR` writes one)")
    return found


def open_transport(asked: Asked, inventory: Inventory, hosts: Sequence[Host]) -> Transport:
    if asked.bundle is not None:
        return bundle(asked.bundle)
    from llmgwctl.transport import lean
    from llmgwctl.transport.early import Early

    early = Early(inventory.ssh)
    early.begin(hosts)
    lean.load()
    from llmgwctl.transport.ssh import Ssh

    gc.freeze()  # what is loaded by now stays, and need not be looked through again and again among the answers

    for file in () if asked.quiet else dict.fromkeys((inventory.ssh.identity_file, *_identities(inventory))):
        if file is not None and not Path(file).exists():
            note(f"identity_file {file} is not there: only other keys are offered")
    made = Ssh(inventory.ssh, early)
    if made.room.in_flight < min(inventory.ssh.in_flight, len(hosts)) and not asked.quiet:
        files, at_once = made.room.files, made.room.in_flight
        note(f"this machine lets a program open {files} files: {at_once} hosts are at work at once (ulimit -Hn)")
    return made


def _identities(inventory: Inventory) -> Iterator[str | None]:
    return (h.identity_file for h in inventory.hosts)


def run(work: Coroutine[Any, Any, T], interrupted: str = "interrupted") -> T:
    """Run a command's coroutine to its end; Ctrl-C cancels it, and its clean-up still runs."""
    import asyncio

    try:
        return asyncio.run(work)
    except KeyboardInterrupt as e:
        whole = isinstance(e.__context__, asyncio.CancelledError)  # else a second one has cut the clean-up short
        raise Interrupted(interrupted if whole else "interrupted") from None


def out(text: str) -> None:
    """The result, on stdout. A reader that went away does not change the exit code."""
    try:
        sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        forget(sys.stdout)


def out_json(document: object) -> None:
    from llmgwctl.render.visible import dumps

    out(dumps(document, indent=2))


def note(text: str) -> None:
    """Everything that is not the result, on stderr. One that takes nothing is no reason to stop half way."""
    with suppress(OSError):
        typer.echo(text, err=True)


def look() -> Look:
    """How stdout is: colours on a terminal unless NO_COLOR, the width of the terminal, its alphabet."""
    from shutil import get_terminal_size

    from llmgwctl.render.text import Look

    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    width = min(get_terminal_size((100, 24)).columns, MAX_WIDTH)
    return Look(width, color, letters(os.environ, sys.stdout.encoding))


@contextmanager
def progress(doing: str, total: int, *, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """A bar on stderr, where that is a terminal; call what it gives once a thing is done, with its name."""
    if quiet or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda _name: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(doing, total=total)
        yield lambda name: bar.update(task, advance=1, description=f"{doing}: {name}")


def finish(code: int) -> None:
    """End a command with its exit code."""
    if code:
        raise typer.Exit(code)
