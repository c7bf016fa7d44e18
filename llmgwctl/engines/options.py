"""The arguments of a profile, read the way an engine's own parser would read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from llmgwctl.engines.base import Problem
from llmgwctl.model.profile import Profile


def flag_of(arg: str) -> str:
    """`--tensor_parallel_size=8` -> `--tensor-parallel-size`: both engines in Python take "_" for "-"."""
    name = arg.split("=", 1)[0]
    return name.replace("_", "-") if name.startswith("--") else name


def value_of(args: Sequence[str], *flags: str) -> str | None:
    """What an option was given, as `--flag VALUE` or `--flag=VALUE`; the last one counts, as for the parser."""
    found = None
    for i, arg in enumerate(args):
        if flag_of(arg) in flags:
            after = args[i + 1] if i + 1 < len(args) else ""
            found = arg.split("=", 1)[1] if "=" in arg else after
    return found


def fighting_args(profile: Profile, generated: Iterable[str], *, abbreviations: bool = True) -> Iterable[Problem]:
    """Arguments that say again what the placement decides, also shortened as argparse allows (`--tensor-par 8`)."""
    names = tuple(generated)
    for arg in profile.args:
        flag = flag_of(arg)
        hit = flag in names
        if abbreviations and not hit and flag.startswith("--") and len(flag) > 2:
            hit = any(n.startswith(flag) for n in names)
        if hit:
            what = f"profile {profile.name}: args has {arg.split('=', 1)[0]}, which llmgwctl generates"
            yield Problem(what, "take it out and use the profile's own keys (tp, pp, dp, ep, nodes, port ...)")


def key_in_args(profile: Profile, *flags: str) -> Iterable[Problem]:
    """A key in an argument list is in the inventory, in `ps` of every host, and in every log of it."""
    if any(flag_of(a) in flags for a in profile.args):
        yield Problem(f"profile {profile.name}: args holds an API key", "use api_key_file")


def without(args: Sequence[str], *flags: str) -> tuple[str, ...]:
    """The arguments without some options and their values."""
    kept: list[str] = []
    skip = False
    for arg in args:
        if skip:
            skip = False
        elif flag_of(arg) in flags:
            skip = "=" not in arg
        else:
            kept.append(arg)
    return tuple(kept)
