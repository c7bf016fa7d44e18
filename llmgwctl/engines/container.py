"""An engine from an image: its commands in docker, podman or enroot, with the GPUs and adapters of the shard."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from llmgwctl.engines.base import Command, Engine, Problem, ShardContext
from llmgwctl.engines.env import environment
from llmgwctl.engines.programs import script
from llmgwctl.model.gpu import Gpu
from llmgwctl.model.profile import Container, Profile

RUNTIMES = ("docker", "podman", "enroot")
RC_FILE = "enroot_rc.sh"
STACK_BYTES = 8 << 20  # NCCL before 2.30 overruns a thread's unlimited stack
# By these a process is known as one of ours; the supervisor sets them and the container must hand them on.
MARKERS = ("LLMGWCTL_SHARD", "SPT_NOENV")
CHANNELS = "/dev/nvidia-caps-imex-channels"


def containable(engine: Engine) -> Engine:
    """The same engine, which runs in a container wherever the profile says so."""

    def commands(ctx: ShardContext) -> tuple[Command, ...]:
        box = ctx.profile.container
        return engine.commands(ctx) if box is None else wrap(inside(ctx, box), box, engine)

    def files(ctx: ShardContext) -> dict[str, str]:
        box = ctx.profile.container
        if box is None:
            return engine.files(ctx)
        rc = {RC_FILE: script(RC_FILE)} if box.runtime == "enroot" else {}
        return {**engine.files(inside(ctx, box)), **rc}

    def validate(profile: Profile, gpus: tuple[Gpu, ...]) -> tuple[Problem, ...]:
        return (*engine.validate(profile, gpus), *check(profile))

    return replace(engine, commands=commands, files=files, validate=validate)


def inside(ctx: ShardContext, box: Container) -> ShardContext:
    """The build of the host has no meaning in an image: its programs are on PATH there, or where the profile says."""
    path = f"{box.path.rstrip('/')}/" if box.path else ""
    return replace(ctx, build=replace(ctx.build, path=path, source=""))


def check(profile: Profile) -> Iterable[Problem]:
    box = profile.container
    if box is None:
        return
    if box.runtime not in RUNTIMES:
        yield Problem(f"profile {profile.name}: no container runtime {box.runtime!r}", f"one of {', '.join(RUNTIMES)}")
    if not box.image or box.image.startswith("-"):
        yield Problem(f"profile {profile.name}: container has no image", "its name, or for enroot its .sqsh file")
    if profile.model_path.startswith("/") and ":" in profile.model_path:
        text = f"profile {profile.name}: model_path {profile.model_path} has a colon, and is mounted into a container"
        yield Problem(text, "a path without one: a link to it will do")
    for mount in box.mounts:
        if not mount.startswith("/") or mount.count(":") not in (1, 2):
            yield Problem(f"profile {profile.name}: {mount!r} is no mount", "/on/host:/inside or /on/host:/inside:ro")


def on_hosts(profile: Profile, digests: Mapping[str, str | None]) -> Iterable[Problem]:
    """What the hosts of a replica have of its image: `digests`, "" for no such image, None for no such runtime."""
    box = profile.container
    if box is None:
        return
    for host, digest in digests.items():
        if digest is None:
            what, remedy = f"no {box.runtime} on {host}", "install it, or a profile without container"
            yield Problem(f"profile {profile.name}: {what}", remedy, (host,))
        elif not digest:
            what, remedy = f"no image {box.image} on {host}", "pull it there before, on all hosts"
            yield Problem(f"profile {profile.name}: {what}", remedy, (host,))
    if not _one_image({d for d in digests.values() if d}):
        told = ", ".join(f"{h}: {d}" for h, d in digests.items() if d)
        yield Problem(
            f"profile {profile.name}: image {box.image} is not the same on all hosts ({told})", "pull one digest"
        )


def _one_image(told: set[str]) -> bool:
    """Whether all of it names one image. What two hosts have one digest of is the same, from whichever registry."""
    known, *rest = [{w.rpartition("@")[2] for w in t.split() if "@" in w} or {t} for t in told] or [set()]
    while near := [names for names in rest if not known.isdisjoint(names)]:
        known = known.union(*near)
        rest = [names for names in rest if known.isdisjoint(names)]
    return not rest


def wrap(ctx: ShardContext, box: Container, engine: Engine) -> tuple[Command, ...]:
    made = engine.commands(ctx)
    return tuple(_wrapped(ctx, box, c, engine, len(made) > 1) for c in made)


def _wrapped(ctx: ShardContext, box: Container, command: Command, engine: Engine, several: bool) -> Command:
    name = f"llmgwctl-{ctx.replica.id}.r{ctx.shard.rank}" + (f".{command.name}" if several else "")
    names = _variables(ctx, command, engine)
    if box.runtime == "enroot":
        return replace(command, argv=(*_enroot(ctx, box, names, engine), *command.argv))
    options = (
        *_gpus(ctx, box),
        *_limits(ctx, box, engine),
        *_devices(ctx, engine),
        *_mounts(ctx, box, engine),
        *_passed(names),
    )
    head = (box.runtime, "run", "--rm", "--init", "--pull=never", "--name", name, "--network=host", "--ipc=host")
    program = ("--entrypoint", command.argv[0], box.image, *command.argv[1:])
    # A client that had to be killed leaves its container behind.
    return replace(command, argv=(*head, *options, *program), after=(box.runtime, "rm", "--force", name))


def _variables(ctx: ShardContext, command: Command, engine: Engine) -> tuple[str, ...]:
    """Names alone: the values, keys among them, are in the environment of the client and on no argument list."""
    names = [v.name for v in environment(ctx, engine)] + [n for n, _ in command.env]
    if ctx.profile.has_api_key and ctx.leader and engine.api_key_env:
        names.append(engine.api_key_env)
    return tuple(dict.fromkeys((*names, *MARKERS)))


def _passed(names: Iterable[str]) -> Iterable[str]:
    for name in names:
        yield from ("-e", name)


def _gpus(ctx: ShardContext, box: Container) -> Iterable[str]:
    uuids = ctx.shard.gpu_uuids
    if not uuids:
        return
    if box.runtime == "docker":
        # One value of a list: without quotes of its own the commas would end it.
        yield from ("--gpus", f'"device={",".join(uuids)}"')
        return
    for uuid in uuids:
        yield from ("--device", f"nvidia.com/gpu={uuid}")


def _limits(ctx: ShardContext, box: Container, engine: Engine) -> Iterable[str]:
    yield f"--ulimit=stack={STACK_BYTES}:{STACK_BYTES}"
    if ctx.shard.hcas and engine.uses_nccl:
        yield from ("--ulimit=memlock=-1:-1", "--cap-add=IPC_LOCK")
    if box.runtime == "podman":
        yield "--security-opt=label=disable"  # SELinux keeps devices and host folders away


def _devices(ctx: ShardContext, engine: Engine) -> Iterable[str]:
    if not engine.uses_nccl:
        return
    if ctx.shard.hcas:
        yield from ("--device", "/dev/infiniband")
    channel = ctx.shard.imex_channel
    if channel is not None:
        yield from ("--device", f"{CHANNELS}/channel{channel}", "-e", f"NVIDIA_IMEX_CHANNELS={channel}")


def _mounts(ctx: ShardContext, box: Container, engine: Engine) -> Iterable[str]:
    path = ctx.profile.model_path
    if path.startswith("/"):
        yield from ("-v", f"{_model_folder(path)}:{_model_folder(path)}:ro")
    for mount in box.mounts:
        yield from ("-v", mount)
    for name in _key_files(ctx, engine):
        yield from ("-v", f"./{name}:{key_path(ctx, name)}:ro")  # relative paths: docker 23 and newer


def _key_files(ctx: ShardContext, engine: Engine) -> tuple[str, ...]:
    return tuple(engine.api_key_files("")) if ctx.leader and ctx.profile.has_api_key else ()


def key_path(ctx: ShardContext, name: str) -> str:
    """Where an engine finds a file of its shard's directory, in which it runs."""
    return f"/llmgwctl/{name}" if ctx.profile.container else name


def _model_folder(path: str) -> str:
    """Of a split .gguf all parts are needed."""
    return path.rpartition("/")[0] if path.endswith(".gguf") else path


def _enroot(ctx: ShardContext, box: Container, names: Iterable[str], engine: Engine) -> Iterable[str]:
    """Its processes are ours and share the host's network, IPC, limits and /dev; only the root is another one."""
    yield from ("enroot", "start", "--rw", "--rc", RC_FILE)
    if ctx.shard.gpu_uuids:
        # It keeps the host's /dev, so that all GPUs are there and are chosen by the environment alone.
        yield from ("--env", "NVIDIA_VISIBLE_DEVICES=all")
        yield from ("--env", "NVIDIA_DRIVER_CAPABILITIES=compute,utility")
    if ctx.shard.imex_channel is not None and engine.uses_nccl:
        yield from ("--env", f"NVIDIA_IMEX_CHANNELS={ctx.shard.imex_channel}")
        yield from _bound(f"{CHANNELS}/channel{ctx.shard.imex_channel}", "file")
    if ctx.shard.hcas and engine.uses_nccl:
        yield from _bound("/dev/infiniband", "dir")
    if ctx.profile.model_path.startswith("/"):
        yield from _bound(_model_folder(ctx.profile.model_path), "auto")
    for mount in box.mounts:
        yield from ("--mount", mount)
    for key in _key_files(ctx, engine):
        yield from ("--mount", f"./{key}:{key_path(ctx, key)}:none:x-create=file,bind")
    for name in names:
        yield from ("--env", name)
    yield box.image


def _bound(path: str, kind: str) -> tuple[str, str]:
    return "--mount", f"{path}:{path}:none:x-create={kind},rbind"
