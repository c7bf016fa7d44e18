"""TOML text -> Inventory: read, check against the schema, expand, check the parts against each other."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from llmgwctl.inventory import doctor, engines, hosts, profiles
from llmgwctl.inventory.context import At, Context
from llmgwctl.inventory.faults import Faults, shown
from llmgwctl.inventory.locate import line_of
from llmgwctl.inventory.ranges import BadRange, chosen
from llmgwctl.inventory.schema import Document, Fabric, Ssh
from llmgwctl.inventory.suggest import nearest
from llmgwctl.inventory.toml_words import explained
from llmgwctl.model.errors import InventoryError, UsageError
from llmgwctl.model.fabric import DeclaredFabric
from llmgwctl.model.fact import fact
from llmgwctl.model.finding import Suppression
from llmgwctl.model.host import Host
from llmgwctl.model.profile import Profile
from llmgwctl.transport.settings import SshSettings

if TYPE_CHECKING:
    from llmgwctl.engines.base import Build

MAX_BYTES = 16 * 2**20


@fact
class Inventory:
    """All that the operator says of the fleet. `path` None: made from a bundle or from names, not read from a file."""

    path: Path | None
    hosts: tuple[Host, ...]
    ssh: SshSettings
    fabrics: tuple[DeclaredFabric, ...] = ()
    engines: Mapping[str, engines.Builds] = field(default_factory=dict)
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    suppressions: tuple[Suppression, ...] = ()
    lines: Mapping[At, int] = field(default_factory=dict)  # where each key stands in the file

    @property
    def pools(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(h.pool for h in self.hosts))

    def build_for(self, engine: str, host: Host) -> Build:
        """The build of an engine on a host; without any table: what the host's PATH finds."""
        return self.engines.get(engine, engines.Builds()).of(host)

    def profile(self, name: str) -> Profile:
        if name not in self.profiles:
            known = nearest(name, self.profiles, "known profile")
            raise UsageError(f"there is no profile {name!r} in {self.path or 'the inventory'}; {known}")
        return self.profiles[name]

    def of_profile(self, name: str, what: str) -> str:
        """What somebody says against a profile, with file, line and key as every other fault has them."""
        text = re.sub(rf"^profile {re.escape(name)}:? ", "", what)
        at = ("profiles", name, *self._key_in(name, text))
        where = f"{self.path}:{line_of(dict(self.lines), at)}: " if self.path is not None and self.lines else ""
        return f"{where}{shown(at)}: {text}"

    def _key_in(self, name: str, text: str) -> At:
        """The key of a profile that a text speaks of; of `args` the argument."""
        found = self.profiles.get(name)
        for number, arg in enumerate(found.args if found else ()):
            if re.search(rf"(?<![\w-]){re.escape(arg.partition('=')[0])}(?![\w-])", text):
                return ("args", number)
        keys = {str(path[2]) for path in self.lines if path[:2] == ("profiles", name) and len(path) > 2}
        spoken = [k for k in keys if re.search(rf"(?<![\w-]){re.escape(k)}(?![\w-])", text)]
        return (min(spoken, key=lambda k: (text.index(k), -len(k))),) if spoken else ()

    def select(self, nodeset: str | None = None, pool: str | None = None, option: str = "-w ") -> tuple[Host, ...]:
        """The hosts of a NODESET and a pool, in the order of the inventory. Naming what is not there is an error.
        `option`: what the NODESET was given with; "" where it is an argument of the command."""
        if pool is not None and pool not in self.pools:
            raise UsageError(f"no host is in pool {pool!r}; {nearest(pool, self.pools, 'known pool')}")
        wanted = self._named(nodeset, option) if nodeset is not None else None
        found = tuple(
            h for h in self.hosts if (pool is None or h.pool == pool) and (wanted is None or h.name in wanted)
        )
        if not found:
            raise UsageError(f"no host of {nodeset} is in pool {pool!r}")
        return found

    def _named(self, nodeset: str, option: str) -> set[str]:
        try:
            wanted = chosen(nodeset)
        except BadRange as e:
            raise UsageError(f"{option}{nodeset[:80]!r}: {e}") from None
        known = {h.name for h in self.hosts}
        strangers = sorted(wanted - known)
        if strangers or not wanted:
            more = f" and {len(strangers) - 1} more" if len(strangers) > 1 else ""
            near = nearest(strangers[0], known, "known host") if strangers else "it names no host"
            what = f"{strangers[0]!r}{more} not in {self.path or 'the inventory'}; " if strangers else ""
            given = "" if not option and strangers == [nodeset] else f"{option}{nodeset[:80]!r}: "
            raise UsageError(f"{given}{what}{near}")
        return wanted


def load(path: Path) -> Inventory:
    """Read a file. Every failure is an InventoryError."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InventoryError(f"{path}: is larger than {MAX_BYTES // 2**20} MiB: this is no inventory")
        raw = path.read_bytes()
    except OSError as e:
        remedy = "; `llmgwctl init` writes one" if isinstance(e, FileNotFoundError) else ""
        raise InventoryError(f"{path}: cannot be read: {e.strerror or e}{remedy}") from None
    try:
        text = raw.decode()
    except UnicodeDecodeError as e:
        line = raw.count(b"\n", 0, e.start) + 1
        raise InventoryError(f"{path}:{line}: byte {raw[e.start]:#04x} is not UTF-8, which TOML is") from None
    return loads(text, path)


def loads(text: str, path: Path) -> Inventory:
    """The inventory that a text says. `path` names it in messages, and its folder is where relative paths begin."""
    text = text.removeprefix("\ufeff")  # some editors put it before everything
    table = _parsed(text, path)
    faults = Faults(str(path), text)
    try:
        document = Document.model_validate(table)
    except ValidationError as e:
        faults.schema(e)
        faults.raise_if_any()
        raise
    inventory = _build(document, faults, path)
    faults.raise_if_any()
    return inventory


def of_hosts(found: Sequence[Host]) -> Inventory:
    """An inventory without a file."""
    return Inventory(None, tuple(found), SshSettings())


def _parsed(text: str, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise InventoryError(f"{path}:1: is nested too deeply for an inventory") from None
    except ValueError as e:
        at, what = explained(str(e), text)
        raise InventoryError(f"{path}:{at}: {what}") from None


def _build(document: Document, faults: Faults, path: Path) -> Inventory:
    context = Context(faults, path.absolute().parent)
    found = hosts.build(document, context)
    faults.raise_if_any()  # a host that is wrong would be missed by everything below
    context = replace(
        context,
        hosts={h.name: None for h in found},
        pools={h.pool: None for h in found},
        engines=engines.known_engines() if document.engines or document.profiles else (),
    )
    made = [profiles.build(name, table, context) for name, table in document.profiles.items()]
    return Inventory(
        path=path,
        hosts=found,
        ssh=_ssh(document.ssh, context),
        fabrics=tuple(_fabric(name, table, context) for name, table in document.fabrics.items()),
        engines={name: engines.build(name, table, context) for name, table in document.engines.items()},
        profiles={p.name: p for p in made if p is not None},
        suppressions=doctor.build(document.doctor, context) if document.doctor.suppress else (),
        lines=faults.lines,
    )


def _fabric(name: str, table: Fabric, context: Context) -> DeclaredFabric:
    names = context.known_hosts(table.hosts, ("fabrics", name, "hosts"))
    return DeclaredFabric(name, tuple(names), tuple(table.hcas))


def _ssh(table: Ssh, context: Context) -> SshSettings:
    """Settings of the connection; what the inventory does not say keeps its default there."""
    given = {key: getattr(table, key) for key in table.model_fields_set}
    if "known_hosts" in given:
        files = [given["known_hosts"]] if isinstance(given["known_hosts"], str) else given["known_hosts"]
        given["known_hosts"] = tuple(context.local_path(f) for f in files)
    for key in ("identity_file", "config_file"):
        if given.get(key):
            given[key] = context.local_path(given[key])
    return SshSettings(**given)
