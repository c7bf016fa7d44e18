"""All commands in one place, in the order in which they are needed."""

from __future__ import annotations

from inspect import Parameter
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from llmgwctl import __version__
from llmgwctl.cli import demo, doctor, fleet, init, life, node, pages, planning, racks
from llmgwctl.cli.common import Asked, shared_parameters, taken, with_signature

app = typer.Typer(
    name="llmgwctl",
    help="Run LLM inference on NVIDIA NVL72 racks and HGX hosts: from one workstation, over SSH, no daemon anywhere.",
    epilog="Example: llmgwctl init 'r1-t[01-18]' && llmgwctl nvlink && llmgwctl place deepseek-r1",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)


class _Params:
    """A flag has no value: nothing stands where the kind of a value would."""

    def get_params(self, ctx: Any) -> list[Any]:
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for one in found:
            if getattr(one, "is_flag", False) and one.metavar is None:
                one.metavar = ""
        return found


class _Command(_Params, TyperCommand):
    pass


class _Group(_Params, TyperGroup):
    pass


def _without_bool(some: typer.Typer) -> None:
    some.info.cls = _Group
    for command in some.registered_commands:
        command.cls = _Command
    for group in some.registered_groups:
        if group.typer_instance is not None:
            _without_bool(group.typer_instance)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"llmgwctl {__version__}")
        raise typer.Exit


_VERSION = Annotated[
    bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
]


def _before_the_command(ctx: typer.Context, version: bool, **given: Any) -> None:
    """The shared options may stand before the command too."""
    ctx.obj = Asked(**taken(given))


app.callback()(
    with_signature(
        _before_the_command,
        [
            Parameter("ctx", Parameter.KEYWORD_ONLY, annotation=typer.Context),
            Parameter("version", Parameter.KEYWORD_ONLY, default=False, annotation=_VERSION),
            *shared_parameters(),
        ],
    )
)

for group in (init, fleet, node, doctor, pages, planning, life, racks, demo):
    group.register(app)
_without_bool(app)
