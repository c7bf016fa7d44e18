"""A saved bundle on disk: one folder a host, one plain file a section, and meta.json for what files cannot say."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from llmgwctl.model.errors import LlmgwError, Unreachable
from llmgwctl.model.host import Host
from llmgwctl.probe.base import Output

SCHEMA = "llmgwctl.bundle/v1"
META = "meta.json"
MAX_META_BYTES = 1024 * 1024
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class SectionMeta(BaseModel):
    """What a section's files do not say."""

    exit_code: int | None
    ms: int = 0
    state: Literal["ran", "skipped", "unneeded", "not-saved"] = "ran"
    note: str = ""
    truncated: bool = False


class HostMeta(BaseModel):
    """meta.json. `unreachable`: the named end state and its sentence, of a host that did not answer."""

    model_config = ConfigDict(populate_by_name=True)

    schema_: str = Field(SCHEMA, alias="schema")
    host: str
    address: str = ""
    taken_at: AwareDatetime
    seconds: float = Field(0.0, allow_inf_nan=False)  # JSON has no such numbers
    unreachable: tuple[str, str] | None = None
    sections: dict[str, SectionMeta] = {}

    @property
    def epoch_s(self) -> float:
        return self.taken_at.timestamp()


def folder_name(host: str) -> str:
    """The host's name; with a hash in it where it is no plain file name, so that two hosts never share a folder."""
    if _SAFE.fullmatch(host):
        return host
    return f"host-{re.sub(r'[^A-Za-z0-9._-]', '_', host)[:60]}-{sha256(host.encode()).hexdigest()[:8]}"


def save(
    directory: Path,
    host: Host,
    answer: dict[str, Output] | Unreachable,
    taken_at: float | None = None,
    seconds: float = 0.0,
) -> Path:
    """Write what a host answered, or that it did not; whole or not at all, in the place of an older answer."""
    unreachable = (answer.kind, str(answer)) if isinstance(answer, Unreachable) else None
    outputs = {} if isinstance(answer, Unreachable) else answer
    meta = HostMeta(
        schema=SCHEMA,
        host=host.name,
        address=host.address or host.name,
        taken_at=datetime.fromtimestamp(time.time() if taken_at is None else taken_at, UTC),
        seconds=round(seconds, 3),
        unreachable=unreachable,
        sections={name: _meta_of(o) for name, o in outputs.items()},
    )
    target = directory / folder_name(host.name)
    try:
        return _write(target, meta, outputs)
    except OSError as e:
        raise LlmgwError(f"{target}: cannot be saved: {e.strerror or e}") from None


def _meta_of(o: Output) -> SectionMeta:
    return SectionMeta(exit_code=o.exit_code, ms=o.ms, state=o.state, note=o.note, truncated=o.truncated)


def _write(target: Path, meta: HostMeta, outputs: dict[str, Output]) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists() and not (target / META).is_file():
        raise LlmgwError(f"{target} is there and is no saved answer of a host: nothing was overwritten")
    fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        for name, o in outputs.items():
            if o.state == "ran":
                _text(fresh / f"{name}.txt", o.stdout)
            if o.stderr:
                _text(fresh / f"{name}.stderr.txt", o.stderr)
        _text(fresh / META, meta.model_dump_json(indent=2, by_alias=True) + "\n")
        fresh.chmod(0o755)
        _replace(fresh, target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return target


def _replace(fresh: Path, target: Path) -> None:
    if target.exists():
        old = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        os.replace(target, old)
        os.replace(fresh, target)
        shutil.rmtree(old, ignore_errors=True)
    else:
        os.replace(fresh, target)


def _text(file: Path, text: str) -> None:
    file.write_bytes(text.encode("utf-8", "replace"))


def read_meta(folder: Path) -> HostMeta | None:
    """The meta.json of a folder; None when there is none. One that cannot be understood costs its host."""
    file = folder / META
    if not file.is_file():
        return None
    try:
        with file.open("rb") as f:
            return HostMeta.model_validate_json(f.read(MAX_META_BYTES))
    except (OSError, ValidationError) as e:
        first = str(e).splitlines()[0]
        raise Unreachable(f"{file} cannot be understood: {first}", "bundle-broken") from None
