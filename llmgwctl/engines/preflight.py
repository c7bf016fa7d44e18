"""What the chosen hosts say right before a launch, against the profile: engine, model, memory, image. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

from llmgwctl.engines import container, memory, model_config
from llmgwctl.engines.base import Build, Engine, Problem
from llmgwctl.engines.checks import label
from llmgwctl.engines.model_config import Config
from llmgwctl.engines.versions import Installed, differing, nccl_of, parse
from llmgwctl.model.fact import fact
from llmgwctl.model.gpu import Gpu
from llmgwctl.model.machine import NcclFile
from llmgwctl.model.numbers import older
from llmgwctl.model.plan import ReplicaPlan
from llmgwctl.model.profile import Profile
from llmgwctl.model.weights import ModelFiles


@fact
class EngineSeen:
    """The engine on one host. `installed` empty and `missing` set: it is not there, in the words of the host."""

    installed: Installed = field(default_factory=dict)
    missing: str = ""


@fact
class Image:
    """The image on one host: None for no such runtime, "" for no such image. `nccl`: what its own environment sets."""

    digest: str | None
    nccl: tuple[tuple[str, str], ...] = ()


@fact
class Seen:
    """One host. None: not asked, not needed, or it could not be told, and then `unknown` says what and why."""

    engine: EngineSeen | None = None
    model: ModelFiles | None = None  # for the room that its weights take
    config: Config | None = None
    image: Image | None = None
    nccl_files: tuple[NcclFile, ...] = ()
    unknown: tuple[str, ...] = ()


@fact
class Verdict:
    """`profile`: the profile is wrong wherever it runs; `hosts`: these hosts cannot run it as they are."""

    profile: tuple[Problem, ...] = ()
    hosts: tuple[Problem, ...] = ()

    @property
    def all(self) -> tuple[Problem, ...]:
        return (*self.profile, *self.hosts)


def engine_seen(engine: Engine, text: str, error: str = "") -> EngineSeen:
    """What a host's version script said; an engine that is not among what is installed is missing."""
    installed = parse(text)
    name = main_name(engine)
    if name in installed:
        return EngineSeen(installed)
    return EngineSeen(installed, error or f"no {name} is installed beside the program that was asked")


def main_name(engine: Engine) -> str:
    """The package whose version is the engine's, or what an engine without a build runs on."""
    if engine.version is None:
        return ""
    return engine.version.package or next(iter(engine.version.same), "")


def build_on(build: Build, engine: Engine, seen: Seen) -> Build:
    """A build with the versions that its host told; what the inventory says of them counts more."""
    if seen.engine is None:
        return build
    installed = seen.engine.installed
    version = installed.get(main_name(engine), "")
    return replace(build, version=build.version or version, nccl=build.nccl or nccl_of(installed))


@fact
class Placed:
    """A placed replica and what is known of its hosts, by name; `gpus` are those of its shards."""

    replica: ReplicaPlan
    profile: Profile
    engine: Engine
    builds: Mapping[str, Build]
    seen: Mapping[str, Seen]
    gpus: Mapping[str, Sequence[Gpu]]


def judge(p: Placed) -> Verdict:
    """All that stands against a placed replica."""
    cards = tuple(g for s in p.replica.shards for g in p.gpus.get(s.host, ()))
    wrong = (*p.engine.validate(p.profile, cards), *p.engine.refuse(p.replica, p.profile, dict(p.builds)))
    config = next((c for s in p.replica.shards if (c := p.seen[s.host].config) is not None), None)
    if config is not None and p.engine.name in ("vllm", "sglang"):
        version = p.builds.get(p.replica.leader.host, Build()).version
        wrong = (*wrong, *model_config.check(p.profile, config, cards, version))
    return Verdict(tuple(dict.fromkeys(_located(x, p.gpus) for x in wrong)), tuple(_hosts(p)))


def _located(problem: Problem, gpus: Mapping[str, Sequence[Gpu]]) -> Problem:
    """A GPU knows its index and not its host, and a replica has as many GPUs 0 as hosts."""
    for host, cards in gpus.items():
        for g in cards:
            problem = replace(problem, what=problem.what.replace(label(g), f"{label(g)} of {host}"))
    return problem


def _hosts(p: Placed) -> Iterable[Problem]:
    seen = {s.host: p.seen[s.host] for s in p.replica.shards}
    yield from _engines(p.profile, p.engine, seen)
    if len(p.replica.shards) > 1:
        yield from _ray(p.profile, seen, p.builds)
    yield from container.on_hosts(p.profile, {h: x.image.digest for h, x in seen.items() if x.image is not None})
    weights = max((x.model.weights_bytes for x in seen.values() if x.model is not None), default=0)
    for shard in p.replica.shards:
        yield from memory.check(p.profile, p.gpus.get(shard.host, ()), weights, shard.host)


def _engines(profile: Profile, engine: Engine, seen: Mapping[str, Seen]) -> Iterable[Problem]:
    asked = {h: x.engine for h, x in seen.items() if x.engine is not None}
    by_words: dict[str, list[str]] = {}
    for host, found in asked.items():
        if found.missing:
            by_words.setdefault(found.missing, []).append(host)
    for words, hosts in by_words.items():
        yield _missing(profile, engine, hosts, words)
    there = {h: e.installed for h, e in asked.items() if not e.missing}
    yield from _too_old(profile, engine, there)
    if engine.version is not None and len(there) > 1:
        yield from differing(profile.name, engine.version, there)


def _missing(profile: Profile, engine: Engine, hosts: Sequence[str], words: str) -> Problem:
    if engine.needs_build:
        what = f"profile {profile.name}: {engine.name} is missing on {', '.join(hosts)} ({words})"
        remedy = f"install it there, or say where it is: path in [engines.{engine.name}]"
        return Problem(what, remedy, tuple(hosts))
    have = "has none" if len(hosts) == 1 else "have none"
    return _runs_on(profile, engine, hosts, f"{have} ({words})")


def _too_old(profile: Profile, engine: Engine, installed: Mapping[str, Installed]) -> Iterable[Problem]:
    old: dict[str, list[str]] = {}
    for host, versions in installed.items():
        version = versions.get(main_name(engine), "")
        if engine.version is not None and older(version, engine.version.least):
            old.setdefault(version, []).append(host)
    for version, hosts in old.items():
        yield _runs_on(profile, engine, hosts, f"{'has' if len(hosts) == 1 else 'have'} {version}")


def _runs_on(profile: Profile, engine: Engine, hosts: Sequence[str], told: str) -> Problem:
    """Against what an engine that takes no build runs on: there is no path that could name another one."""
    least = engine.version.least if engine.version is not None else ""
    needs = f"profile {profile.name}: {engine.name} needs {main_name(engine)} {least} or newer"
    return Problem(
        f"{needs}, and {', '.join(hosts)} {told}",
        f"install one there and let PATH find it first (the file in `source` of [engines.{engine.name}] may set PATH); "
        f"{engine.name} itself takes no build, it is sent along",
        tuple(hosts),
    )


def _ray(profile: Profile, seen: Mapping[str, Seen], builds: Mapping[str, Build]) -> Iterable[Problem]:
    without = [
        h
        for h, x in seen.items()
        if builds.get(h, Build()).distributed == "ray"
        if x.engine is not None and not x.engine.missing and "ray" not in x.engine.installed
    ]
    if without:
        what = f"profile {profile.name}: Ray is missing on {', '.join(without)}, and distributed is ray"
        remedy = "vLLM has not brought it since 0.18: pip install ray, or distributed = 'mp'"
        yield Problem(what, remedy, tuple(without))


def hidden(seen: Mapping[str, Seen], ours: Mapping[str, Iterable[str]]) -> Iterable[str]:
    """Settings of NCCL that no environment shows. `ours`: the names that a shard's environment sets, by host."""
    said: dict[str, list[str]] = {}
    for host, x in seen.items():
        names = set(ours.get(host, ()))
        for file in x.nccl_files:
            if file.why:
                said.setdefault(f"{file.path} may change NCCL and cannot be read", []).append(host)
            for name, value in file.settings:
                said.setdefault(_setting(file.path, name, value, ours=name in names), []).append(host)
        for name, value in x.image.nccl if x.image is not None else ():
            said.setdefault(_setting("the image", name, value, ours=name in names), []).append(host)
    yield from (f"{', '.join(hosts)}: {words}" for words, hosts in said.items())


def _setting(where: str, name: str, value: str, *, ours: bool) -> str:
    effect = "which the shard's environment overrides" if ours else "and NCCL takes it"
    return f"{where} sets {name}={value}, {effect}"


def unknown(seen: Mapping[str, Seen]) -> Iterable[str]:
    """What was not checked, and why, with the hosts of which that is true."""
    said: dict[str, list[str]] = {}
    for host, x in seen.items():
        for words in x.unknown:
            said.setdefault(words, []).append(host)
    yield from (f"not checked on {', '.join(hosts)}: {words}" for words, hosts in said.items())


def read_config(text: str) -> Config | None:
    """A model's config.json; None when it is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
