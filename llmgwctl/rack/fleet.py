"""Fleets to simulate: racks of NVL72 trays, HGX hosts on InfiniBand or RoCE, and both together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from llmgwctl.model.fact import fact
from llmgwctl.rack.machine import (
    CARDS,
    ZERO_UUID,
    Adapter,
    Card,
    Gid,
    Gpu,
    Imex,
    Interface,
    Machine,
    Place,
    invented_hex,
    invented_uuid,
)

DRIVER = "580.178.04"
NET = "127.77"  # the first half of every address, until the rack is put elsewhere
DEFAULT_PARTITION = 32766
Faults = Mapping[str, str | Sequence[str]]


@fact
class Kind:
    """What the hosts of one batch have in common."""

    card: Card
    driver: str
    pool: str


@fact
class RackSpec:
    """Machines as they are when nothing is wrong, and the faults (by host) to begin with."""

    machines: tuple[Machine, ...]
    faults: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def at(self, net: str) -> RackSpec:
        """The same fleet with other addresses: `net` is their first half ("127.80")."""
        return replace(self, machines=tuple(_moved(m, net) for m in self.machines))

    def __add__(self, other: RackSpec) -> RackSpec:
        return RackSpec(self.machines + other.machines, {**self.faults, **other.faults})


def nvl72(
    trays: int = 18,
    racks: int = 1,
    hgx: int = 2,
    *,
    product: str = "GB200",
    driver: str = DRIVER,
    pool: str = "prod",
    faults: Faults | None = None,
) -> RackSpec:
    """Racks of `trays` trays (r1-t01 ...), each one NVLink domain, and `hgx` H100 hosts on InfiniBand beside them."""
    kind, beside = Kind(CARDS[product], driver, pool), Kind(CARDS["H100"], driver, pool)
    machines = [m for r in range(1, racks + 1) for m in _rack(kind, r, trays)]
    machines += [_hgx_host(beside, i, False) for i in range(hgx)]
    return RackSpec(tuple(machines), _listed(faults))


def hgx(
    n: int,
    roce: bool = False,
    *,
    product: str = "H100",
    driver: str = DRIVER,
    pool: str = "prod",
    faults: Faults | None = None,
) -> RackSpec:
    """`n` hosts of eight GPUs (h100-01 ...), on InfiniBand or on RoCE with a rail a GPU."""
    kind = Kind(CARDS[product], driver, pool)
    return RackSpec(tuple(_hgx_host(kind, i, roce) for i in range(n)), _listed(faults))


def mixed(trays: int = 18, ib: int = 2, roce: int = 2, *, pool: str = "prod", faults: Faults | None = None) -> RackSpec:
    """One rack of GB200 trays, H100 hosts on InfiniBand, and H200 hosts on RoCE."""
    fleet = nvl72(trays, hgx=ib, pool=pool) + hgx(roce, True, product="H200", pool=pool)
    return replace(fleet, faults=_listed(faults))


def _listed(faults: Faults | None) -> dict[str, tuple[str, ...]]:
    return {h: (f,) if isinstance(f, str) else tuple(f) for h, f in (faults or {}).items()}


def _moved(m: Machine, net: str) -> Machine:
    def there(address: str) -> str:
        return f"{net}.{address.split('.', 2)[2]}"

    interfaces = tuple(replace(i, address=there(i.address)) if i.name == "eth0" else i for i in m.interfaces)
    imex = replace(m.imex, nodes=tuple(map(there, m.imex.nodes))) if m.imex else None
    return replace(m, address=there(m.address), interfaces=interfaces, imex=imex)


def _rack(kind: Kind, number: int, trays: int) -> list[Machine]:
    nodes = tuple(f"{NET}.{number}.{t + 1}" for t in range(trays))
    return [_tray(kind, number, t, nodes) for t in range(trays)]


def _tray(kind: Kind, rack: int, tray: int, nodes: tuple[str, ...]) -> Machine:
    name = f"r{rack}-t{tray + 1:02d}"
    # Eight trays below the nine switch trays, the rest above them.
    place = Place(f"18209{rack:08d}", tray + 1 if tray < 8 else tray + 10, tray)
    return Machine(
        name=name,
        address=nodes[tray],
        card=kind.card,
        driver=kind.driver,
        gpus=_gpus(kind.card, name, invented_uuid("rack", rack), DEFAULT_PARTITION),
        adapters=tuple(_ib(name, i, f"000{i // 2 * 2}:0{i % 2 + 1}:00.0", i // 2) for i in range(4)),
        interfaces=(_eth0(name, nodes[tray]),),
        pool=kind.pool,
        rack=f"r{rack}",
        imex=Imex(nodes),
        place=place,
        units=("nvidia-imex", "nvidia-persistenced", "sshd"),
    )


def _hgx_host(kind: Kind, i: int, roce: bool) -> Machine:
    card = kind.card
    name = f"{card.token.lower()}-{i + 1:02d}"
    # Each product has a stretch of addresses of its own, so that fleets can be put together.
    address = f"{NET}.{190 + sorted(CARDS).index(card.token) * 10 + i // 250}.{i % 250 + 1}"
    rails = tuple(_roce(name, i, k) if roce else _ib(name, k, _pci(k), k // 4) for k in range(8))
    bridges = tuple(_bridge(name, k) for k in range(8, 12)) if card is CARDS["B200"] else ()
    bond = _bond(name, i)
    interfaces = [
        _eth0(name, address),
        Interface("bond0", f"10.250.{i // 250}.{i % 250 + 1}/16", _mac(name, "bond0"), bond=True),
    ]
    if roce:
        interfaces += [Interface(f"rail{k}", _rail_address(i, k), _mac(name, k), mtu=9000) for k in range(8)]
    return Machine(
        name=name,
        address=address,
        card=card,
        driver=kind.driver,
        gpus=_gpus(card, name, ZERO_UUID, 0),
        adapters=(*rails, *bridges, bond),
        interfaces=tuple(interfaces),
        pool=kind.pool,
        units=("nvidia-fabricmanager", "nvidia-persistenced", "sshd"),
    )


def _gpus(card: Card, host: str, cluster: str, clique: int) -> tuple[Gpu, ...]:
    half = len(card.buses) // 2
    return tuple(
        Gpu(
            index=i,
            uuid=f"GPU-{invented_uuid(host, i)}",
            bus_id=bus,
            serial=f"16509{int(invented_hex(6, host, i), 16):08d}",
            module=(i ^ 1) + 1,  # the boards count the other way than PCI does
            numa=i // half,
            cluster=cluster,
            clique=clique,
            health=card.health,
        )
        for i, bus in enumerate(card.buses)
    )


def _eth0(host: str, address: str) -> Interface:
    return Interface("eth0", f"{address}/16", _mac(host, "eth0"))


def _mac(*of: object) -> str:
    h = invented_hex(10, "mac", *of)
    return ":".join(["02", *(h[i : i + 2] for i in range(0, 10, 2))])


def _guid(*of: object) -> str:
    h = invented_hex(10, "guid", *of)
    return f"a088:c2{h[:2]}:{h[2:6]}:{h[6:10]}"


def _pci(k: int) -> str:
    return f"0000:{0x18 + 0x11 * k:02x}:00.0"


def _ib(host: str, k: int, pci: str, numa: int) -> Adapter:
    guid = _guid(host, k)
    lid = hex(16 + int(invented_hex(3, "lid", host, k), 16))
    gid = Gid(0, f"fe80:0000:0000:0000:{guid}", "IB/RoCE v1")
    return Adapter(f"mlx5_{k}", pci, numa, guid, lid=lid, gids=(gid,))


def _rail_address(host: int, rail: int) -> str:
    """Every rail is a subnet of its own."""
    return f"10.{32 + rail}.{host // 250}.{host % 250 + 1}/16"


def _roce_gids(guid: str, cidr: str, netdev: str) -> tuple[Gid, ...]:
    a, b, c, d = (int(x) for x in cidr.partition("/")[0].split("."))
    local, mapped = f"fe80:0000:0000:0000:{guid}", f"0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}"
    rows = ((local, "IB/RoCE v1"), (local, "RoCE v2"), (mapped, "IB/RoCE v1"), (mapped, "RoCE v2"))
    return tuple(Gid(i, gid, kind, netdev) for i, (gid, kind) in enumerate(rows))


def _roce(host: str, number: int, k: int) -> Adapter:
    guid, netdev = _guid(host, k), f"rail{k}"
    gids = _roce_gids(guid, _rail_address(number, k), netdev)
    return Adapter(f"mlx5_{k}", _pci(k), k // 4, guid, "Ethernet", lid="0x0", sm_lid="0x0", gids=gids, netdev=netdev)


def _bond(host: str, number: int) -> Adapter:
    """The storage and management pair that sits beside the compute rails and must never carry NCCL."""
    guid = _guid(host, "bond")
    gids = _roce_gids(guid, f"10.250.{number // 250}.{number % 250 + 1}/16", "bond0")
    return Adapter(
        "mlx5_bond_0", "0000:a9:00.0", 1, guid, "Ethernet", "200 Gb/sec (4X HDR)",
        lid="0x0", sm_lid="0x0", gids=gids, netdev="bond0", hca_type="MT41692",
    )  # fmt: skip


def _bridge(host: str, k: int) -> Adapter:
    """A ConnectX function that manages the NVSwitches of an HGX B200 board: ACTIVE InfiniBand that carries no data."""
    guid = _guid(host, k)
    gid = Gid(0, f"fe80:0000:0000:0000:{guid}", "IB/RoCE v1")
    pci = f"0000:05:00.{k - 8}"
    return Adapter(f"mlx5_{k}", pci, 0, guid, lid=hex(k), sm_lid="0x2", gids=(gid,), switch_management=True)
