"""LG8: what was left undone on a host: its own name, and a reboot that waits."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from llmgwctl.doctor.base import Answer, Check, Unknown, View, each, found
from llmgwctl.doctor.names import few
from llmgwctl.model.host import HostFacts

MEND = "give the name its own address in DNS or /etc/hosts (not 127.0.1.1); what llmgwctl starts is told its address"


def _own_name(facts: HostFacts, view: View) -> Iterator[Answer]:
    """Programs take the first address. Loopback is what Debian writes, and llmgwctl's environment does not ask it."""
    resources = facts.resources.value
    name = resources.own_name if resources is not None else None
    if name is None or name.why:
        why = f"{name.name}: {name.why}" if name is not None else "it was not asked what its own name resolves to"
        yield Unknown((facts.host.name,), why, "resources")
    elif not name.addresses:
        yield found(facts, f"{name.name} does not resolve on the host itself")
    elif ipaddress.ip_address(name.addresses[0]).is_loopback:
        yield found(facts, f"{name.name} is {name.addresses[0]} to the host itself", severity="info")
    elif elsewhere := _elsewhere(facts, name.addresses):
        yield found(facts, f"{name.name} is {elsewhere}, which is no address of the host")


def _elsewhere(facts: HostFacts, addresses: tuple[str, ...]) -> str:
    """The addresses, when the host has none of them; link-local ones lead nowhere and say nothing."""
    network = facts.network.value
    told = [a for a in addresses if not ipaddress.ip_address(a).is_link_local]
    own = network.own_addresses() if network is not None else frozenset(told)
    return "" if any(a in own or ipaddress.ip_address(a).is_loopback for a in told) else few(told)


def _reboot(facts: HostFacts, view: View) -> Iterator[Answer]:
    versions = facts.versions.value
    if versions is not None and versions.reboot_for is not None:
        packages = f", for {few(versions.reboot_for)}" if versions.reboot_for else ""
        yield found(facts, f"/run/reboot-required is there{packages}")


CHECKS = (
    Check(
        "LG817",
        "A host's own name leads elsewhere, or nowhere",
        "warn",
        each(_own_name),
        seen="getent ahosts $(uname -n)",
        action=MEND,
        who="host admin",
        needs=("resources",),
    ),
    Check(
        "LG818",
        "An update waits for a reboot",
        "warn",
        each(_reboot),
        seen="cat /run/reboot-required /run/reboot-required.pkgs",
        action="reboot when the host is drained, before the next driver or kernel update",
        who="host admin",
        disturbs="everything on the host",
        needs=("versions",),
    ),
)
