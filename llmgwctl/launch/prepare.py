"""From a planned replica to what each host is handed: spec, environment, commands, files. Pure."""

from __future__ import annotations

import hashlib
import json
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from llmgwctl.engines.base import Build, Command, Engine, ShardContext, Stop
from llmgwctl.engines.env import environment, removed
from llmgwctl.model.errors import InventoryError
from llmgwctl.model.fact import fact
from llmgwctl.model.host import Host
from llmgwctl.model.launch import EnvVar, Operator
from llmgwctl.model.life import SPEC_SCHEMA
from llmgwctl.model.plan import ReplicaPlan, ShardPlan
from llmgwctl.model.profile import Profile
from llmgwctl.remote import script_text

LOG_BYTES = 4 * 1024 * 1024  # of the first part, and of each of the two newest ones
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
# Files of a shard's directory that belong to the scripts: no engine file may have such a name.
_OURS = re.compile(
    r"(cmd|go|claim|supervisor)\..*|spec\.json|command\.sh|env|unset|source|grace|log_bytes|claims|marker|boot|pids|exit"
    r"|ready|stopping"
)


@fact
class Launch:
    """One start of a replica: its id marks every process. `created_at` is UTC, ISO 8601."""

    id: str
    created_at: str
    operator: Operator


@fact
class Prepared:
    """One shard, ready to be handed to its host."""

    host: Host
    shard: ShardPlan
    replica: str
    launch: Launch
    keys: tuple[str, ...]
    spec: dict[str, object]
    commands: tuple[Command, ...]
    files: tuple[tuple[str, bytes], ...]

    @property
    def rank(self) -> int:
        return self.shard.rank

    @property
    def payload(self) -> bytes:
        """What shard.sh reads: a header line before the bytes of each file, and `end`: half is not taken for all."""
        parts = [b"file %s %d\n%s" % (name.encode(), len(data), data) for name, data in self.files]
        return b"".join(parts) + b"end\n"


def prepare(
    replica: ReplicaPlan,
    profile: Profile,
    engine: Engine,
    hosts: Mapping[str, Host],
    launch: Launch,
    *,
    builds: Mapping[str, Build] | None = None,
    api_key: str = "",
    log_bytes: int = LOG_BYTES,
) -> tuple[Prepared, ...]:
    """All shards of a replica, rank by rank; hosts and builds by host name."""
    made = []
    for shard in replica.shards:
        ctx = ShardContext(replica, shard, profile, (builds or {}).get(shard.host, Build()))
        key = api_key if engine.serves_http(shard.rank) else ""
        env = (*environment(ctx, engine), *_api_key(engine, key))
        spec = _spec(ctx, engine, hosts[shard.host].pool, launch)
        commands = engine.commands(ctx)
        files = (*_shard_files(ctx, spec, env, log_bytes), *_command_files(commands), *_engine_files(ctx, engine, key))
        keys = tuple(f"gpu-{u}" for u in shard.gpu_uuids) or (f"slot-{replica.id}",)
        made.append(Prepared(hosts[shard.host], shard, replica.id, launch, keys, spec, commands, files))
    return tuple(made)


def fingerprint(profile: Profile) -> str:
    """Changes when what runs would; not with the number of replicas, nor when a new version knows more keys."""
    usual = asdict(Profile(profile.name, profile.engine))
    told = {k: v for k, v in asdict(profile).items() if v != usual[k] or k in ("name", "engine")}
    told = {k: v for k, v in told.items() if k not in ("replicas", "replace_unreachable_after_s", "spare_trays")}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def endpoint(replica: ReplicaPlan) -> str:
    address = replica.leader.address
    return f"http://{f'[{address}]' if ':' in address else address}:{replica.port('http')}"


def _spec(ctx: ShardContext, engine: Engine, pool: str, launch: Launch) -> dict[str, object]:
    replica, shard, profile = ctx.replica, ctx.shard, ctx.profile
    return {
        "schema": SPEC_SCHEMA,
        "replica": replica.id,
        "rank": shard.rank,
        "launch": launch.id,
        "profile": profile.name,
        "profile_fingerprint": fingerprint(profile),
        "pool": pool,
        "engine": engine.name,
        "model": profile.model_name,
        "host": shard.host,
        "tier": replica.tier,
        "fabric": replica.fabric,
        "gpus": list(shard.gpus),
        "gpu_uuids": list(shard.gpu_uuids),
        "hcas": list(shard.hcas),
        "interface": shard.interface,
        "address": shard.address,
        "ports": dict(replica.ports),
        "endpoint": endpoint(replica),
        "health_path": engine.health_path,
        "models_path": engine.models_path,
        "metrics_path": engine.metrics_path,
        "generate_path": engine.generate_path,
        "stop": stop_rule(engine.stop, profile),
        "ready_timeout_s": profile.ready_timeout_s,
        "shards": [{"rank": s.rank, "host": s.host, "gpus": list(s.gpus)} for s in replica.shards],
        "operator": launch.operator.name,
        "workstation": launch.operator.workstation,
        "created_at": launch.created_at,
    }


def stop_rule(stop: Stop, profile: Profile) -> dict[str, object]:
    name = signal.Signals(stop.signal).name.removeprefix("SIG")
    return {"leader_first": stop.leader_first, "signal": name, "grace_s": profile.stop_grace_s}


def _api_key(engine: Engine, key: str) -> tuple[EnvVar, ...]:
    if not key or not engine.api_key_env:
        return ()
    return (EnvVar(engine.api_key_env, key, "the profile's API key", secret=True),)


def _shard_files(
    ctx: ShardContext, spec: dict[str, object], env: Sequence[EnvVar], log_bytes: int
) -> tuple[tuple[str, bytes], ...]:
    where = f"[profiles.{ctx.profile.name}]"
    return (
        ("spec.json", json.dumps(spec, separators=(",", ":"), ensure_ascii=True).encode() + b"\n"),
        ("env", _env_lines(where, [(v.name, v.value) for v in env])),
        ("unset", _lines(where, removed(ctx))),
        ("source", _lines(where, [ctx.build.source] if ctx.build.source else [])),
        ("grace", f"{ctx.profile.stop_grace_s}\n".encode()),
        ("log_bytes", f"{log_bytes}\n".encode()),
        ("supervisor.sh", script_text("supervisor.sh").encode()),
        ("command.sh", script_text("command.sh").encode()),
    )


def _command_files(commands: Sequence[Command]) -> tuple[tuple[str, bytes], ...]:
    made: list[tuple[str, bytes]] = []
    for i, c in enumerate(commands):
        if not _FILE.match(c.name):
            raise InventoryError(f"a command's name must be a plain word: {c.name!r}")
        made.append((f"cmd.{i}/name", f"{c.name}\n".encode()))
        made.append((f"cmd.{i}/argv", _lines(f"command {c.name}", c.argv)))
        made.append((f"cmd.{i}/env", _env_lines(f"command {c.name}", c.env)))
        if c.after:
            made.append((f"cmd.{i}/after", _lines(f"command {c.name}", c.after)))
        if c.waits:
            made.append((f"cmd.{i}/wait", _lines(c.name, [f"{w.address} {w.port}" for w in c.waits])))
    return tuple(made)


def _engine_files(ctx: ShardContext, engine: Engine, api_key: str) -> tuple[tuple[str, bytes], ...]:
    files = engine.files(ctx) | (engine.api_key_files(api_key) if api_key else {})
    for name in files:
        if _OURS.fullmatch(name) or not _FILE.match(name):
            raise InventoryError(f"engine {engine.name}: a file of a shard cannot be named {name!r}")
    return tuple((name, text.encode()) for name, text in files.items())


def _env_lines(where: str, variables: Sequence[tuple[str, str]]) -> bytes:
    for name, _ in variables:
        if not _NAME.match(name):
            raise InventoryError(f"{where}: not the name of a variable: {name!r}")
    return _lines(where, [f"{name}={value}" for name, value in variables])


def _lines(where: str, words: Sequence[str]) -> bytes:
    """One word a line: so none may hold a line break, nor the NUL that ends every word for the kernel."""
    for word in words:
        if "\n" in word or "\0" in word:
            raise InventoryError(
                f"{where}: a line break or NUL in a value cannot be handed to a program: {word[:40]!r}"
            )
    return "".join(f"{word}\n" for word in words).encode("utf-8", "surrogateescape")
