"""What a full reading asks beside the probes, and how its answers are saved."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llmgwctl.collect import Answer
    from llmgwctl.engines.base import Build, VersionProbe
    from llmgwctl.inventory import Inventory
    from llmgwctl.model.host import Host
    from llmgwctl.model.profile import Profile
    from llmgwctl.probe.base import Section


def engine_section(name: str, probe: VersionProbe, build: Build) -> Section:
    """The version script of an engine for one build, after the file that the build has sourced first."""
    from llmgwctl.engines.programs import script
    from llmgwctl.probe.engines import section

    text, args = script(probe.script), probe.args(build)
    if not build.source:
        return section(name, text, args)
    return section(name, script("source_first.sh") + text, (build.source, *args))


def engine_sections(inventory: Inventory) -> Callable[[Host], Sequence[Section]]:
    """For each engine that can be asked for its version: the engine's own script, for the build of that host."""
    from llmgwctl.engines import ENGINES

    asked = [(e.name, e.version) for e in ENGINES.values() if e.version is not None]

    def of(host: Host) -> Sequence[Section]:
        return tuple(engine_section(n, v, inventory.build_for(n, host)) for n, v in asked)

    return of


def neighbours(profile: Profile) -> Callable[[Host], Sequence[Section]]:
    """What a choice between the GPUs of a host needs beside the fabric set: NUMA nodes and the matrix of links. Where
    a profile takes every GPU there is no choice, and nothing more is asked."""
    from llmgwctl.probe import NEIGHBOURS

    sections = tuple(s for p in NEIGHBOURS for s in p.sections)

    def of(host: Host) -> Sequence[Section]:
        return sections if host.pool == profile.pool and 0 < profile.gpus_per_node < _most_gpus(profile, host) else ()

    return of


def _most_gpus(profile: Profile, host: Host) -> int:
    """How many GPUs a host may have, as far as is known before it is read."""
    from llmgwctl.model.product import products_of
    from llmgwctl.probe.gpus import MAX_GPUS

    if host.expect.gpus is not None:
        return host.expect.gpus
    token = profile.gpu_class or host.expect.gpu
    return max((n for p in products_of(token) for n in p.host_gpus), default=MAX_GPUS) if token else MAX_GPUS


def saver(
    directory: Path, hosts: Sequence[str], *, mask: bool, names: bool
) -> Callable[[Host, Answer, float, float], Path]:
    """Writes each answer into the bundle, masked when asked: the key is thrown away, and nobody can undo it."""
    from llmgwctl.model.errors import Unreachable
    from llmgwctl.probe.mask import Mask
    from llmgwctl.transport.bundle import save

    stand_in = {name: f"host-{i:04d}" for i, name in enumerate(hosts, 1)} if names else {}
    made = Mask(secrets.token_bytes(32), stand_in) if mask else None

    def keep(host: Host, answer: Answer, taken_at: float, seconds: float) -> Path:
        if made is None:
            return save(directory, host, answer, taken_at, seconds)
        if isinstance(answer, Unreachable):
            hidden: Answer = Unreachable(made.text(str(answer)), answer.kind)
        else:
            hidden = {name: made.output(said) for name, said in answer.items()}
        other = replace(host, name=stand_in.get(host.name, host.name), address=made.text(host.address))
        return save(directory, other, hidden, taken_at, seconds)

    return keep
