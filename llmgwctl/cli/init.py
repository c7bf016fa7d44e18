"""`init`: probe hosts that nobody has written down yet, and write the inventory that says what they are."""

from __future__ import annotations

import os
import re
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llmgwctl.cli.common import Asked, QuietOption, Session, finish, note, open_transport, out, run
from llmgwctl.model.errors import UsageError

if TYPE_CHECKING:
    from llmgwctl.inventory import Inventory
    from llmgwctl.model.fabric import FabricMap
    from llmgwctl.model.host import HostFacts, Snapshot

COULD_NOT_TELL = 3
COMMAND_LINE = Path("the command line")
OPTIONS = {
    "name": "NODESET",
    "address": "--address",
    "pool": "--pool",
    "rack": "--rack",
    "port": "--port",
    "user": "--user",
    "identity_file": "--identity-file",
}


def register(app: typer.Typer) -> None:
    app.command()(init)


def init(
    ctx: typer.Context,
    *,
    nodeset: Annotated[str, typer.Argument(metavar="NODESET", help="The hosts: r1-t[01-18],h100-[001-032].")],
    file: Annotated[
        Path | None, typer.Option("--inventory", "-i", metavar="FILE", help="What to write. Default: inventory.toml.")
    ] = None,
    address: Annotated[
        str | None, typer.Option("--address", metavar="RANGE", help="Their addresses, where the names do not resolve.")
    ] = None,
    pool: Annotated[str | None, typer.Option("--pool", metavar="POOL", help="The pool that they form.")] = None,
    rack: Annotated[str | None, typer.Option("--rack", metavar="RACK", help="The rack that they stand in.")] = None,
    user: Annotated[str | None, typer.Option("--user", metavar="USER", help="Whom to log in as.")] = None,
    port: Annotated[int | None, typer.Option("--port", metavar="PORT", help="The SSH port.")] = None,
    identity_file: Annotated[
        str | None, typer.Option("--identity-file", metavar="FILE", help="The private key to log in with.")
    ] = None,
    accept_new: Annotated[
        bool, typer.Option("--accept-new", help="Write down host keys that are seen for the first time.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite FILE if it is there.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Probe hosts and write a new inventory of them. One that exists is never changed.

    Example: llmgwctl init 'r1-t[01-18]' --pool prod --rack r1

    Exit code 3 when some of the hosts could not be reached: they stand in the file all the same.
    """
    before: Asked = ctx.obj or Asked()
    file = file or before.inventory or Path("inventory.toml")
    if not file.parent.is_dir():
        raise UsageError(f"{file}: cannot be written: there is no folder {file.parent}")
    if file.exists() and not force:
        raise UsageError(f"{file} is there already, and llmgwctl never changes an inventory: --force overwrites it")
    block = {"name": nodeset, "address": address, "pool": pool, "rack": rack, "port": port}
    policy = "accept-new" if accept_new else None
    ssh = _given({"user": user, "identity_file": identity_file, "host_key_policy": policy})
    document = {**({"ssh": ssh} if ssh else {}), "hosts": [_given(block)]}
    run(_init(document, file, force=force, quiet=quiet or before.quiet))


def _given(table: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in table.items() if v is not None}


async def _init(document: dict[str, Any], file: Path, *, force: bool, quiet: bool) -> None:
    from llmgwctl.fabric import fabric_map
    from llmgwctl.inventory import dumps, loads
    from llmgwctl.render.letters import clean
    from llmgwctl.render.words import counted

    first = _given_hosts(document)
    snapshot = await _read(first, quiet=quiet)
    text = dumps({**document, "hosts": _blocks(document["hosts"][0], first, snapshot, fabric_map(snapshot))})
    loads(text, file)
    write(file, text, force=force)
    dead = [f for f in snapshot.hosts if not f.reachable.ok]
    for facts in dead:
        note(clean(f"not reachable: {facts.host.name}: {facts.reachable.why}"))
    out(f"{file}: {counted(len(snapshot.hosts), 'host')}, {len(snapshot.hosts) - len(dead)} of them read")
    if dead:
        note(
            f"what they should be is not in the file: `llmgwctl hosts --check -i {file}` tells when they answer, "
            "and then the same `llmgwctl init` with --force writes it anew"
        )
    finish(COULD_NOT_TELL if dead else 0)


def _given_hosts(document: dict[str, Any]) -> Inventory:
    """What the command line says, as an inventory; what is wrong with it is said of its options."""
    from llmgwctl.inventory import dumps, loads
    from llmgwctl.model.errors import InventoryError

    try:
        return loads(dumps(document), COMMAND_LINE)
    except InventoryError as e:
        text = re.sub(rf"^{COMMAND_LINE}:\d+(?::\d+)?: ", "", str(e), flags=re.MULTILINE)
        text = re.sub(r"^(?:hosts\[0\]|ssh)\.(\w+):", lambda m: f"{OPTIONS.get(m[1], m[1])}:", text, flags=re.MULTILINE)
        raise UsageError(re.sub(r" \(line \d+\)", "", text)) from None


async def _read(inventory: Inventory, *, quiet: bool) -> Snapshot:
    asked = Asked(quiet=quiet)
    transport = open_transport(asked, inventory, inventory.hosts)
    try:
        return await Session(asked, inventory, inventory.hosts, transport).collect()
    finally:
        await transport.close()


def _blocks(given: dict[str, Any], inventory: Inventory, snapshot: Snapshot, fmap: FabricMap) -> list[dict[str, Any]]:
    """One block for each run of hosts that turned out alike: their order is that of the slots, and stays."""
    facts = {f.host.name: f for f in snapshot.hosts}
    blocks = []
    for expect, group in groupby(inventory.hosts, lambda h: _expect(facts[h.name], fmap)):
        found = list(group)
        block = {**given, "name": _written([h.name for h in found])}
        if "address" in given:
            block["address"] = _written([h.address for h in found])
        blocks.append({**block, "expect": expect} if expect else block)
    return blocks


def _written(names: list[str]) -> str:
    """A range that expands to exactly these names in this order: names and addresses must go on pairing."""
    from llmgwctl.inventory import expand
    from llmgwctl.render.fold import fold

    folded = fold(names)
    return folded if expand(folded) == names else ",".join(names)


def _expect(facts: HostFacts, fmap: FabricMap) -> dict[str, Any]:
    """What a host was found to be, for doctor to hold it to."""
    from llmgwctl.model.product import token_of

    report = facts.gpus.value
    if report is None:
        return {}
    verdict = fmap.verdicts[facts.host.name]
    tokens = {token_of(g.name) for g in report.gpus}
    domain = next((d for d in fmap.domains if d.id == verdict.domain), None)
    return {
        "gpus": report.attached,
        **({"gpu": tokens.pop()} if len(tokens) == 1 else {}),
        "domain": bool(domain and domain.multi_host),
    }


def write(file: Path, text: str, *, force: bool) -> None:
    """Whole or not at all, and never over somebody's file unless told."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        draft.write_text(text)
        if force:
            draft.replace(file)
        else:
            os.link(draft, file)  # fails where the file has come into being meanwhile
    except OSError as e:
        raise UsageError(f"{file}: cannot be written: {e.strerror}") from None
    finally:
        draft.unlink(missing_ok=True)
