"""One more look at the hosts that a plan chose: the engine, the model, the image, and files that change NCCL."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from llmgwctl.cli.common import Session
from llmgwctl.cli.reading import engine_section
from llmgwctl.doctor import model_files as model_script
from llmgwctl.engines import model_files, preflight
from llmgwctl.engines.base import Build, Engine, Problem, ShardContext
from llmgwctl.engines.env import environment
from llmgwctl.engines.preflight import Image, Placed, Seen
from llmgwctl.engines.programs import script
from llmgwctl.model.errors import InventoryError, NoPlacement, Unreachable
from llmgwctl.model.gpu import Gpu
from llmgwctl.model.host import Host, Snapshot
from llmgwctl.model.plan import Plan
from llmgwctl.model.profile import Profile
from llmgwctl.probe import nccl
from llmgwctl.probe.base import Output, Section, failure
from llmgwctl.probe.engines import MISSING

LIMIT_S = 20
CONFIG_BYTES = 1 << 20
MODEL, CONFIG, IMAGE = "model-files", "model-config", "image"

Outputs = Mapping[str, Output]


@dataclass(frozen=True, slots=True)
class Checked:
    """`builds`: by host, with the versions that were read. `notes`: what passes, and what could not be checked."""

    builds: Mapping[str, Build]
    profile: tuple[Problem, ...] = ()
    hosts: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(map(str, (*self.profile, *self.hosts)))

    def refuse(self) -> None:
        """A wrong profile is the inventory's fault; hosts that cannot run it are no place for it."""
        if self.profile:
            raise InventoryError("\n".join(self.problems))
        if self.hosts:
            raise NoPlacement("\n".join(self.problems))


async def check(s: Session, made: Plan, profile: Profile, engine: Engine, snapshot: Snapshot) -> Checked:
    """Read each chosen host once, over the connection that is open already, and judge every replica of the plan."""
    ranks = {shard.host: shard.rank for r in made.replicas for shard in r.shards}
    hosts = [h for h in s.hosts if h.name in ranks]
    told = {h.name: s.inventory.build_for(engine.name, h) for h in hosts}
    asked = [tuple(_sections(h, profile, engine, told[h.name], ranks[h.name])) for h in hosts]
    answers = await asyncio.gather(*(_ask(s, h, a) for h, a in zip(hosts, asked, strict=True)))
    seen = {h.name: _seen(a, profile, engine) for h, a in zip(hosts, answers, strict=True)}
    builds = {name: preflight.build_on(told[name], engine, seen[name]) for name in seen}
    placed = []
    for r in made.replicas:
        gpus = gpus_of(snapshot, {u for shard in r.shards for u in shard.gpu_uuids})
        placed.append(Placed(r, profile, engine, builds, seen, gpus))
    return _judged(placed, builds, seen)


def _judged(placed: Sequence[Placed], builds: Mapping[str, Build], seen: Mapping[str, Seen]) -> Checked:
    verdicts = [preflight.judge(p) for p in placed]
    notes = [*(n for p in placed for n in _notes(p)), *preflight.unknown(seen)]
    return Checked(
        builds,
        _once(x for v in verdicts for x in v.profile),
        _once(x for v in verdicts for x in v.hosts),
        tuple(dict.fromkeys(notes)),
    )


def _notes(p: Placed) -> Iterable[str]:
    """What the engine says of its own, and settings of NCCL that no environment shows."""
    yield from p.engine.notes(p.profile, tuple(g for some in p.gpus.values() for g in some))
    if p.engine.uses_nccl:
        contexts = [ShardContext(p.replica, shard, p.profile, p.builds[shard.host]) for shard in p.replica.shards]
        ours = {c.shard.host: [v.name for v in environment(c, p.engine)] for c in contexts}
        yield from preflight.hidden({h: p.seen[h] for h in ours}, ours)


def _once(found: Iterable[Problem]) -> tuple[Problem, ...]:
    return tuple(dict.fromkeys(found))


def gpus_of(snapshot: Snapshot, uuids: set[str]) -> dict[str, tuple[Gpu, ...]]:
    """Those GPUs as they were read, by host."""
    reports = {f.host.name: f.gpus.value for f in snapshot.hosts if f.gpus.value}
    return {name: some for name, r in reports.items() if (some := tuple(g for g in r.gpus if g.uuid in uuids))}


# --- one host -------------------------------------------------------------------------------------------------------


async def _ask(s: Session, host: Host, sections: Sequence[Section]) -> Outputs | Unreachable:
    if not sections:
        return {}
    try:
        return await s.transport.read(host, sections)
    except Unreachable as e:
        return e


def _sections(host: Host, profile: Profile, engine: Engine, build: Build, rank: int) -> Iterable[Section]:
    if engine.uses_nccl:
        yield from nccl.SECTIONS
    if profile.container is not None:
        box = profile.container
        yield Section(IMAGE, "sys", LIMIT_S, text=script("image.sh"), args=(box.runtime, box.image))
    elif engine.version is not None:
        yield engine_section(engine.name, engine.version, build)
    if profile.model_path.startswith("/") and engine.reads_model(rank):
        folder = model_files.folder_of(profile.model_path)
        words = (host.root_prefix, host.state_dir, "", folder)
        yield Section(MODEL, "sys", LIMIT_S, text=model_script.script(), args=words)
        if not profile.model_path.endswith(".gguf"):
            file = f"{host.root_prefix}{profile.model_path.rstrip('/')}/config.json"
            yield Section(CONFIG, "sys", LIMIT_S, argv=("head", "-c", str(CONFIG_BYTES), file))


def _seen(said: Outputs | Unreachable, profile: Profile, engine: Engine) -> Seen:
    if isinstance(said, Unreachable):
        return Seen(unknown=(f"engine, model and files that change NCCL: {said}",))
    seen, unknown = Seen(), []
    for name, output in said.items():
        result = failure(output) or _read(name, seen, output, profile, engine)
        if isinstance(result, str):
            unknown.append(f"{_what(name, profile, engine)}: {result}")
        else:
            seen = result
    return replace(seen, unknown=tuple(unknown))


def _read(name: str, seen: Seen, said: Output, profile: Profile, engine: Engine) -> Seen | str:
    """What one section adds to what was seen, or why it says nothing."""
    if name == MODEL:
        return _model(seen, said, profile.model_path)
    if name == CONFIG:
        return _config(seen, said)
    if name == IMAGE:
        return _image(seen, said)
    return _nccl(seen, said) if name == "nccl" else _engine(seen, said, engine)


def _what(name: str, profile: Profile, engine: Engine) -> str:
    known = {MODEL: f"files of {profile.model_path}", CONFIG: f"{profile.model_path}/config.json", IMAGE: "the image"}
    return known.get(name, "files that change NCCL" if name == "nccl" else f"version of {engine.name}")


def _engine(seen: Seen, said: Output, engine: Engine) -> Seen | str:
    words = said.stderr.strip()[-200:]
    if said.exit_code not in (0, MISSING):
        return words or f"exit code {said.exit_code}"
    return replace(seen, engine=preflight.engine_seen(engine, said.stdout, words))


def _model(seen: Seen, said: Output, path: str) -> Seen | str:
    if "path unreadable" in said.stdout.splitlines():
        return "this account cannot read it"
    files = model_files.read(said.stdout, path)
    return "the list of files ends early" if files is None else replace(seen, model=files)


def _config(seen: Seen, said: Output) -> Seen | str:
    """That it is not there is no news: the list of files says so, or the model has none."""
    if said.exit_code:
        return seen
    found = preflight.read_config(said.stdout)
    return "it is no JSON" if found is None else replace(seen, config=found)


def _image(seen: Seen, said: Output) -> Seen | str:
    lines = said.stdout.splitlines()
    digest = next((line.removeprefix("digest ") for line in lines if line.startswith("digest ")), "")
    if not lines or (not digest and lines[0] not in ("runtime missing", "image missing")):
        return said.stderr.strip()[-200:] or "the runtime says nothing"
    env = [line.removeprefix("env ").partition("=") for line in lines[:200] if line.startswith("env ")]
    settings = tuple((name, value) for name, _, value in env)
    return replace(seen, image=Image(None if lines[0] == "runtime missing" else digest, settings))


def _nccl(seen: Seen, said: Output) -> Seen | str:
    reading = nccl.PROBE.read({"nccl": said})
    if reading.broken:
        return reading.why
    files: Sequence[object] = reading.value if isinstance(reading.value, tuple) else ()
    return replace(seen, nccl_files=tuple(files))  # type: ignore[arg-type]
