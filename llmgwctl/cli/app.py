"""All commands in one place, in the order in which they are needed. Only the one that is asked for is loaded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from inspect import Parameter
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from llmgwctl import __version__
from llmgwctl.cli.common import SHARED, Asked, shared_parameters, taken, with_signature

HELP = "Run LLM inference on NVIDIA NVL72 racks and HGX hosts: from one workstation, over SSH, no daemon anywhere."
EPILOG = "Example: llmgwctl init 'r1-t[01-18]' && llmgwctl nvlink && llmgwctl place deepseek-r1"
# Module of llmgwctl.cli -> the commands that it registers.
MODULES = {
    "init": ("init",),
    "hosts": ("hosts",),
    "fleet": ("probe", "nvlink"),
    "node": ("node",),
    "doctor": ("doctor",),
    "pages": ("metrics", "site", "watch"),
    "planning": ("plan", "env", "engines"),
    "life": ("place", "ensure", "restart", "ps", "logs", "stop"),
    "racks": ("rack",),
    "demo": ("demo",),
}


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


def app(argv: Sequence[str] = ()) -> typer.Typer:
    """The command line for these words: with all commands, unless the first word that is no option names one."""
    made = typer.Typer(
        name="llmgwctl",
        help=HELP,
        epilog=EPILOG,
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    )
    version = Parameter("version", Parameter.KEYWORD_ONLY, default=False, annotation=_VERSION)
    context = Parameter("ctx", Parameter.KEYWORD_ONLY, annotation=typer.Context)
    made.callback()(with_signature(_before_the_command, [context, version, *shared_parameters()]))
    for module in _needed(argv):
        import_module(f"llmgwctl.cli.{module}").register(made)
    _without_bool(made)
    return made


def _needed(argv: Sequence[str]) -> Sequence[str]:
    """The modules whose commands can be meant. Where that is not plain, all of them: help, a word that is none."""
    if list(argv) == ["--version"]:
        return ()
    word = None if "_LLMGWCTL_COMPLETE" in os.environ else _command(argv)
    found = [module for module, commands in MODULES.items() if word in commands]
    return found or tuple(MODULES)


def _command(argv: Sequence[str]) -> str | None:
    """The first word behind the shared options; None at anything that is none of those."""
    with_value = {name: default is not False for kind, default in SHARED.values() for name in _names(kind)}
    words = iter(argv)
    for word in words:
        if not word.startswith("-"):
            return word
        if word not in with_value:
            return None
        if with_value[word]:
            next(words, None)
    return None


def _names(option: Any) -> Sequence[str]:
    """--inventory and -i."""
    info = option.__metadata__[0]
    return (info.default, *info.param_decls)
