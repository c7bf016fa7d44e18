"""Where bootstrap goes: each host's own address on the management network, never loopback."""

from __future__ import annotations

from llmgwctl.model.fact import fact
from llmgwctl.model.host import HostFacts
from llmgwctl.model.network import Network


@fact
class Control:
    """An interface and the host's own address on it."""

    interface: str
    address: str


def control(facts: HostFacts) -> Control | None:
    """By the inventory's word, else where SSH reached it, else by its default route; None: it has none."""
    network = facts.network.value
    if network is None:
        return None
    told = declared(facts, network)
    if told or facts.host.mgmt_address or facts.host.mgmt_interface:
        return told
    return _holding(network, network.reached_at) or _by_default_route(network)


def no_control(facts: HostFacts) -> str:
    """Why `control` found none, with what to correct."""
    host = facts.host
    if facts.network.value is None:
        return f"its addresses could not be read: {facts.network.why}"
    if host.mgmt_address:
        return f"no interface has its mgmt_address {host.mgmt_address}: correct that in the inventory"
    if host.mgmt_interface:
        return f"its mgmt_interface {host.mgmt_interface} has no address: correct that in the inventory"
    return "no management address: set mgmt_interface or mgmt_address in the inventory"


def declared(facts: HostFacts, network: Network) -> Control | None:
    """mgmt_address (with the interface that holds it), else the address on mgmt_interface."""
    if facts.host.mgmt_address:
        return _holding(network, facts.host.mgmt_address)
    if facts.host.mgmt_interface:
        address = network.address_on(facts.host.mgmt_interface)
        return Control(facts.host.mgmt_interface, address) if address else None
    return None


def towards(facts: HostFacts, peer: str) -> Control | None:
    """The interface and own address by which a host reaches a peer; the inventory's word comes first."""
    network = facts.network.value
    if network is None:
        return None
    told = declared(facts, network)
    if told:
        return told
    route = network.route_to(peer)
    held = _holding(network, route[1]) if route else None
    return held or control(facts)


def _holding(network: Network, address: str) -> Control | None:
    interface = network.interface_with(address) if address else None
    return Control(interface.name, address) if interface and not interface.loopback else None


def _by_default_route(network: Network) -> Control | None:
    for route in sorted(network.routes, key=lambda r: (":" in r.to, r.metric)):
        if route.to in ("0.0.0.0/0", "::/0"):
            address = route.source or network.address_on(route.interface)
            if address and (held := _holding(network, address)):
                return held
    return None
