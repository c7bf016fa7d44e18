"""What is to be placed, by whom and from which profile: the same over all attempts of a run."""

from __future__ import annotations

import getpass
import os
import platform
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from pathlib import Path

from llmgwctl.cli.common import Session
from llmgwctl.cli.planning import refuse_problems
from llmgwctl.engines import engine_of
from llmgwctl.engines.base import Engine
from llmgwctl.inventory import Inventory
from llmgwctl.model.errors import InventoryError
from llmgwctl.model.fact import fact
from llmgwctl.model.host import Snapshot
from llmgwctl.model.launch import Operator
from llmgwctl.model.plan import Plan
from llmgwctl.model.profile import Profile
from llmgwctl.placement import plan as make_plan

MAX_KEY_BYTES = 4096


@fact
class Wanted:
    profile: str
    replicas: int | None = None
    timeout_s: int | None = None
    wait: bool = True
    ids: tuple[str, ...] = ()  # names of replicas that are wanted back
    require_transport: bool = False


@fact
class Job:
    """What stays the same over all attempts."""

    session: Session
    wanted: Wanted
    profile: Profile
    engine: Engine
    api_key: str
    operator: Operator
    around: Mapping[str, str] = field(default_factory=dict)  # hosts that refused an earlier plan of this run, with why
    guard: Callable[[set[str]], Awaitable[None]] | None = None  # asked, with our launches, before a claim is used

    @property
    def count(self) -> int:
        return self.wanted.replicas or self.profile.replicas or 1


def job_of(s: Session, wanted: Wanted) -> Job:
    """A profile that its engine does not refuse, with its key."""
    profile = s.inventory.profile(wanted.profile)
    engine = engine_of(profile.engine)
    refuse_problems(profile, engine, s.inventory)
    return Job(s, wanted, profile, engine, read_api_key(s.inventory, profile), operator())


def plan_for(job: Job, snapshot: Snapshot) -> Plan:
    fmap, ports = job.session.map(snapshot), job.engine.ports(job.profile)
    return make_plan(fmap, snapshot, job.profile, ports, job.count, names=job.wanted.ids, around=job.around)


def operator() -> Operator:
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = str(os.getuid())
    return Operator(name, platform.node())


def read_api_key(inventory: Inventory, profile: Profile) -> str:
    """From a file or a variable of the operator's; it never stands on a command line."""
    what = f"api_key_file {profile.api_key_file}"
    if profile.api_key_env:
        what = f"api_key_env {profile.api_key_env}"
        key = os.environ.get(profile.api_key_env, "").strip()
    elif profile.api_key_file:
        try:
            key = Path(profile.api_key_file).expanduser().read_bytes()[:MAX_KEY_BYTES].decode().strip()
        except (OSError, UnicodeDecodeError) as e:
            raise InventoryError(inventory.of_profile(profile.name, f"{what} cannot be read: {e}")) from e
    else:
        return ""
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        must = f"{what} must hold one word of plain letters, digits and signs"
        raise InventoryError(inventory.of_profile(profile.name, must))
    return key
