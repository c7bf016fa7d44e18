"""One more look at the hosts that a plan chose: engine, model, image, files that change NCCL, and the doctor's word."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

from llmgwctl.cli import beforehand
from llmgwctl.cli.common import Session
from llmgwctl.cli.launching import MODEL, model_files, model_section, shares_memory
from llmgwctl.cli.reading import engine_section
from llmgwctl.doctor.base import Launch
from llmgwctl.engines import preflight
from llmgwctl.engines.base import Build, Engine, Problem, ShardContext
from llmgwctl.engines.env import environment
from llmgwctl.engines.preflight import Image, Placed, Seen
from llmgwctl.engines.programs import script
from llmgwctl.model.errors import InventoryError, NoPlacement, Unreachable
from llmgwctl.model.fact import fact
from llmgwctl.model.finding import Report
from llmgwctl.model.gpu import Gpu
from llmgwctl.model.host import Host, Snapshot
from llmgwctl.model.plan import Plan
from llmgwctl.model.profile import Profile
from llmgwctl.model.weights import ModelFiles
from llmgwctl.probe import nccl
from llmgwctl.probe.base import NOT_SAVED, Output, Section, failure
from llmgwctl.probe.engines import MISSING, PREFIX
from llmgwctl.render import refusal
from llmgwctl.render.fold import fold
from llmgwctl.render.letters import clean

LIMIT_S = 20
CONFIG_BYTES = 1 << 20
OF_HOSTS = ("LG911", "LG912", "LG913")  # of a replica, and of single hosts all the same: ports, interface, model
CONFIG, IMAGE = "model-config", "image"

Outputs = Mapping[str, Output]


@fact
class Checked:
    """`builds`: by host, with the versions that were read. `notes`: what passes, and what could not be checked.

    `report`: the doctor's findings that block, and its blocking checks that could not be told.
    """

    builds: Mapping[str, Build]
    profile: tuple[str, ...] = ()  # what is wrong with it, with file, line and key
    hosts: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    report: Report = field(default_factory=Report)
    name: str = ""  # of the profile

    @property
    def problems(self) -> tuple[str, ...]:
        """Each is one line: what a host said is not to look like one of ours."""
        blocked = (f"profile {self.name}: {words}" for words in refusal.refusals(self.report))
        return tuple(map(clean, (*self.profile, *map(str, self.hosts), *blocked)))

    @property
    def refused(self) -> bool:
        return bool(self.problems)

    def by_host(self) -> dict[str, str]:
        """Hosts that are why it is refused, each with its reason; none where other hosts would not mend all of it."""
        findings = self.report.findings
        elsewhere = all(f.check.scope == "host" or f.id in OF_HOSTS for f in findings)
        if self.profile or not elsewhere or not all(p.hosts for p in self.hosts):
            return {}
        found = {h: p.what for p in reversed(self.hosts) for h in p.hosts}
        return found | {h: refusal.of_host(f) for f in reversed(findings) for h in f.hosts}

    def refuse(self) -> None:
        """A wrong profile is the inventory's fault; hosts that cannot run it are no place for it."""
        if self.profile:
            raise InventoryError("\n".join(self.problems))
        if self.refused:
            raise NoPlacement("\n".join((*self.problems, *self._ways_out())))

    def _ways_out(self) -> Iterable[str]:
        """What to do with a finding that one cannot mend at once."""
        if self.report.findings:
            first = self.report.findings[0]
            yield (
                f"`llmgwctl doctor --explain {first.id}` says more; "
                f"`llmgwctl hosts cordon {fold(first.hosts)} --reason WHY` has it planned elsewhere; "
                "[[doctor.suppress]] in the inventory sets a finding aside"
            )


async def check(s: Session, made: Plan, profile: Profile, engine: Engine, snapshot: Snapshot) -> Checked:
    """Read each chosen host once, over the connection that is open already, and judge every replica of the plan."""
    ranks = _ranks(made)
    hosts = [h for h in s.hosts if h.name in ranks]
    told = {h.name: s.inventory.build_for(engine.name, h) for h in hosts}
    asked = [(*_sections(h, profile, engine, told[h.name], ranks[h.name]), *beforehand.sections()) for h in hosts]
    answers = await asyncio.gather(*(_ask(s, h, a) for h, a in zip(hosts, asked, strict=True)))
    said = dict(zip((h.name for h in hosts), answers, strict=True))
    models = {h: _model(a, profile) for h, a in said.items() if profile.model_path.startswith("/")}
    seen = {h: _seen(a, models.get(h), profile, engine) for h, a in said.items()}
    builds = {name: preflight.build_on(told[name], engine, seen[name]) for name in seen}
    placed = []
    for r in made.replicas:
        gpus = gpus_of(snapshot, {u for shard in r.shards for u in shard.gpu_uuids})
        placed.append(Placed(r, profile, engine, builds, seen, gpus))
    launches = [Launch(p.replica, profile, _of_readers(p, models), shares_memory(engine)) for p in placed]
    report = beforehand.judged(s, beforehand.with_readings(snapshot, said), launches)
    return _judged(s, placed, report)


def _ranks(made: Plan) -> dict[str, set[int]]:
    """Host -> its ranks: it may be the leader of one replica and a worker of another."""
    found: dict[str, set[int]] = {}
    for shard in (shard for r in made.replicas for shard in r.shards):
        found.setdefault(shard.host, set()).add(shard.rank)
    return found


def _of_readers(p: Placed, models: Mapping[str, ModelFiles | str]) -> Mapping[str, ModelFiles | str]:
    return {x.host: models[x.host] for x in p.replica.shards if x.host in models and p.engine.reads_model(x.rank)}


def _judged(s: Session, placed: Sequence[Placed], report: Report) -> Checked:
    verdicts = [preflight.judge(p) for p in placed]
    first = placed[0]
    unread = refusal.unknown(report, {h.name: h for h in s.hosts})
    notes = [*(n for p in placed for n in _notes(p)), *preflight.unknown(first.seen)]
    return Checked(
        first.builds,
        tuple(
            s.inventory.of_profile(first.profile.name, str(x)) for x in _once(x for v in verdicts for x in v.profile)
        ),
        _once(x for v in verdicts for x in v.hosts),
        tuple(dict.fromkeys((*notes, *unread, *refusal.set_aside(report)))),
        report,
        first.profile.name,
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


def _sections(host: Host, profile: Profile, engine: Engine, build: Build, ranks: Iterable[int]) -> Iterable[Section]:
    if engine.uses_nccl:
        yield from nccl.SECTIONS
    if profile.container is not None:
        box = profile.container
        yield Section(IMAGE, "sys", LIMIT_S, text=script("image.sh"), args=(box.runtime, box.image))
    elif engine.version is not None:
        yield engine_section(engine.name, engine.version, build)
    if profile.model_path.startswith("/") and any(map(engine.reads_model, ranks)):
        yield model_section(host, profile)
        if not profile.model_path.endswith(".gguf"):
            file = f"{host.root_prefix}{profile.model_path.rstrip('/')}/config.json"
            yield Section(CONFIG, "sys", LIMIT_S, argv=("head", "-c", str(CONFIG_BYTES), file))


def _model(said: Outputs | Unreachable, profile: Profile) -> ModelFiles | str:
    if isinstance(said, Unreachable):
        return f"{profile.model_path}: {said}"
    return model_files(said.get(MODEL, NOT_SAVED), profile)


def _seen(said: Outputs | Unreachable, model: ModelFiles | str | None, profile: Profile, engine: Engine) -> Seen:
    if isinstance(said, Unreachable):
        return Seen(unknown=(f"engine, model and files that change NCCL: {said}",))
    seen, unknown = Seen(model=model if isinstance(model, ModelFiles) else None), []
    for name in (n for n in said if n in (CONFIG, IMAGE, "nccl") or n.startswith(PREFIX)):
        output = said[name]
        result = failure(output) or _read(name, seen, output, engine)
        if isinstance(result, str):
            unknown.append(f"{_what(name, profile, engine)}: {result}")
        else:
            seen = result
    return replace(seen, unknown=tuple(unknown))


def _read(name: str, seen: Seen, said: Output, engine: Engine) -> Seen | str:
    """What one section adds to what was seen, or why it says nothing."""
    if name == CONFIG:
        return _config(seen, said)
    if name == IMAGE:
        return _image(seen, said)
    return _nccl(seen, said) if name == "nccl" else _engine(seen, said, engine)


def _what(name: str, profile: Profile, engine: Engine) -> str:
    known = {CONFIG: f"{profile.model_path}/config.json", IMAGE: "the image"}
    return known.get(name, "files that change NCCL" if name == "nccl" else f"version of {engine.name}")


def _engine(seen: Seen, said: Output, engine: Engine) -> Seen | str:
    words = said.stderr.strip()[-200:]
    if said.exit_code not in (0, MISSING):
        return words or f"exit code {said.exit_code}"
    return replace(seen, engine=preflight.engine_seen(engine, said.stdout, words))


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
