"""A host's adapters and addresses: HCAs from sysfs, interfaces and routes from the kernel."""

from __future__ import annotations

import ipaddress

from llmgwctl.model.fact import fact


@fact
class Gid:
    """One entry of a port's GID table. `kind`: "IB/RoCE v1" | "RoCE v1" | "RoCE v2" | "" (not readable)."""

    index: int
    gid: str  # 8 groups of 4 hex digits
    kind: str
    netdev: str = ""

    @property
    def address(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
        a = ipaddress.IPv6Address(self.gid)
        return a.ipv4_mapped or a

    @property
    def routable(self) -> bool:
        return not (self.address.is_link_local or self.address.is_unspecified)


@fact
class Port:
    """/sys/class/infiniband/DEV/ports/N. `state` ACTIVE, DOWN, INIT, ARMED ...; `rate_gbps` per port."""

    number: int
    state: str
    phys_state: str
    rate_gbps: int | None
    link_layer: str  # InfiniBand | Ethernet
    lid: int | None = None
    sm_lid: int | None = None
    gids: tuple[Gid, ...] = ()
    pkeys: tuple[str, ...] = ()

    @property
    def active(self) -> bool:
        return self.state == "ACTIVE"

    @property
    def subnet_prefix(self) -> str | None:
        """Upper half of GID 0, as four groups; on InfiniBand the subnet's prefix."""
        return self.gids[0].gid[:19] if self.gids and self.gids[0].index == 0 else None


@fact
class Hca:
    """An RDMA adapter. `switch_management`: an NVSwitch bridge function (SW_MNG in its VPD); None: VPD not readable."""

    name: str
    ports: tuple[Port, ...]
    node_guid: str = ""
    system_guid: str = ""
    hca_type: str = ""
    firmware: str = ""
    board: str = ""
    numa_node: int | None = None
    pci_address: str = ""
    netdevs: tuple[str, ...] = ()
    virtual_function: bool = False
    bonded: bool = False
    bridged: bool = False  # its netdev belongs to a bridge or OVS (DPU mode)
    switch_management: bool | None = None


@fact
class Interface:
    """A network interface with its addresses as CIDR ("10.1.1.7/24"), link-local ones left out."""

    name: str
    up: bool
    loopback: bool
    addresses: tuple[str, ...] = ()
    mtu: int | None = None


@fact
class Route:
    """One line of the main table. `to` is CIDR, 0.0.0.0/0 for the default; `source` may be empty."""

    to: str
    interface: str
    source: str = ""
    metric: int = 0


@fact
class Network:
    """Interfaces and routes of one host, and the address at which this very SSH connection reached it.

    `listening`: TCP ports that something listens on; None where the host does not show them.
    """

    interfaces: tuple[Interface, ...]
    routes: tuple[Route, ...] = ()
    reached_at: str = ""  # server side of SSH_CONNECTION; "" where sshd does not say
    listening: tuple[int, ...] | None = None

    def own_addresses(self) -> frozenset[str]:
        return frozenset(a.split("/")[0] for i in self.interfaces for a in i.addresses)

    def interface_with(self, address: str) -> Interface | None:
        return next((i for i in self.interfaces if any(a.split("/")[0] == address for a in i.addresses)), None)

    def address_on(self, interface: str) -> str | None:
        """The first address of an interface, IPv4 before IPv6."""
        found = [a.split("/")[0] for i in self.interfaces if i.name == interface for a in i.addresses]
        return next((a for a in sorted(found, key=lambda a: ":" in a)), None)

    def route_to(self, peer: str) -> tuple[str, str] | None:
        """(interface, own address) by which the kernel would send to `peer`: longest prefix, then metric."""
        target = ipaddress.ip_address(peer)
        best: tuple[int, int, Route] | None = None
        for r in self.routes:
            net = ipaddress.ip_network(r.to, strict=False)
            if target.version == net.version and target in net:
                rank = (net.prefixlen, -r.metric, r)
                if best is None or rank[:2] > best[:2]:
                    best = rank
        if best is None:
            return None
        route = best[2]
        source = route.source or self.address_on(route.interface)
        return (route.interface, source) if source else None
