"""[[hosts]] blocks -> Host by Host: ranges expanded and paired, nobody named or addressed twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from llmgwctl.inventory import schema
from llmgwctl.inventory.context import At, Context
from llmgwctl.inventory.faults import Faults
from llmgwctl.inventory.ranges import MAX_HOSTS, expand
from llmgwctl.model.host import Expect, Host


def build(document: schema.Document, context: Context) -> tuple[Host, ...]:
    """All hosts in the order of the inventory, which is the order of slots in a rack."""
    hosts: list[Host] = []
    seen = _Seen(context.faults)
    for number, block in enumerate(document.hosts):
        at: At = ("hosts", number)
        for host in _block(block, at, document, context):
            if len(hosts) >= MAX_HOSTS:
                context.faults.add(at, f"the inventory holds more than {MAX_HOSTS:,} hosts")
                return tuple(hosts)
            if seen.new(host, at):
                hosts.append(replace(host, order=len(hosts)))
    if not document.hosts:
        context.faults.add((), "the inventory is empty: it has no [[hosts]] block")
    return tuple(hosts)


def _block(block: schema.Hosts, at: At, document: schema.Document, context: Context) -> Iterator[Host]:
    names = _range(block.name, schema.name, (*at, "name"), context.faults)
    if names is None:
        return
    addresses = _range(block.address, schema.address, (*at, "address"), context.faults, len(names))
    managed = _range(block.mgmt_address, schema.ip, (*at, "mgmt_address"), context.faults, len(names))
    if addresses is None or managed is None:
        return
    if set("{}") & set(block.root_prefix.replace("{name}", "")):
        context.faults.add((*at, "root_prefix"), "only {name} is replaced in it, by the name of the host")
    context.product(block.expect.gpu, (*at, "expect", "gpu"))
    alike = Host(
        name="",
        pool=block.pool,
        rack=block.rack,
        user=block.user,
        port=block.port,
        identity_file=context.local_path(block.identity_file),
        proxy_jump=block.proxy_jump,
        state_dir=block.state_dir or document.state_dir,
        expect=Expect(block.expect.gpus, block.expect.gpu, block.expect.domain),
        mgmt_interface=block.mgmt_interface,
        shared_with_scheduler=block.shared_with_scheduler,
        sudo=document.ssh.sudo if block.sudo is None else block.sudo,
    )
    for name, address, mgmt in zip(names, addresses, managed, strict=True):
        root = block.root_prefix.replace("{name}", name)
        yield replace(alike, name=name, address=address, mgmt_address=mgmt or None, root_prefix=root)


def _range(text: str | None, check: Callable[[str], str], at: At, faults: Faults, pairs: int = 0) -> list[str] | None:
    """The checked names of a range, as many as there are to pair with; None when it is wrong, which is then noted."""
    if text is None:
        return [""] * pairs
    try:
        values = [check(name) for name in expand(text)]
    except ValueError as e:  # a BadRange, or what a check says of a name
        faults.add(at, str(e))
        return None
    if pairs and len(values) != pairs:
        faults.add(at, f"{len(values)} addresses do not pair with the {pairs} names of this block")
        return None
    return values


class _Seen:
    """Names and addresses so far, each with the block that gave it."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.at: dict[tuple[str, ...], tuple[str, At]] = {}

    def new(self, host: Host, at: At) -> bool:
        """Whether nothing of this host is taken; each clash is noted."""
        if not self._free(("name", host.name), host.name, (*at, "name"), f"host {host.name} is already named"):
            return False
        own = host.address or host.name
        key = ("address", own.lower(), str(host.port or 22), host.proxy_jump or "")
        place = (*at, "address" if host.address else "name")
        free = self._free(key, host.name, place, f"{host.name}: address {own} is already that of {{}}")
        if host.mgmt_address:
            text = f"{host.name}: mgmt_address {host.mgmt_address} is already that of {{}}"
            free &= self._free(("mgmt", host.mgmt_address), host.name, (*at, "mgmt_address"), text)
        return free

    def _free(self, key: tuple[str, ...], name: str, at: At, text: str) -> bool:
        if key in self.at:
            other, before = self.at[key]
            self.faults.add(at, f"{text.replace('{}', other)} (line {self.faults.line(before)})")
            return False
        self.at[key] = (name, at)
        return True
