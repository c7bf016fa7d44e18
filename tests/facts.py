"""Hosts as facts, without any text: the ground of the tests of the map and of placement. All ids are invented."""

from __future__ import annotations

from dataclasses import replace

from llmgwctl.model.gpu import Fabric, FabricHealth, Gpu, GpuReport, Platform
from llmgwctl.model.host import Expect, Host, HostFacts, Snapshot, System
from llmgwctl.model.imex import Imex, ImexChannel, ImexNode, ImexTable
from llmgwctl.model.life import HostLife
from llmgwctl.model.network import Gid, Hca, Interface, Network, Port, Route
from llmgwctl.model.reading import Reading, absent, broken, ok

UUID = "5e1fab1e-0000-4000-8000-00000000000a"
OTHER_UUID = "5e1fab1e-0000-4000-8000-00000000000b"
ZERO = "00000000-0000-0000-0000-000000000000"
HEALTHY = FabricHealth("Healthy", "Full", False, False, False, "None", None)
MAJOR = 506


def joined(uuid: str = UUID, clique: int = 32766, health: FabricHealth = HEALTHY) -> Fabric:
    return Fabric("Completed", "Success", uuid, clique, health)


IN_PROGRESS = Fabric("In Progress")


def gpu(index: int, name: str = "NVIDIA GB200", fabric: Fabric | None = None, host: str = "h", **more) -> Gpu:
    return Gpu(
        index=index,
        uuid=f"GPU-{host}-{index}",
        bus_id=f"{8 + index:08X}:06:00.0",
        name=name,
        fabric=joined() if fabric is None else fabric,
        memory_total_mib=189471,
        memory_used_mib=4,
        mig_enabled=False,
        compute_cap="10.0",
        **more,
    )


def imex(members: dict[str, str], cells: dict[tuple[int, int], str] | None = None, **more) -> Imex:
    """IMEX that is READY with the nodes of `members` (name -> address), all connected unless `cells` says else."""
    nodes = tuple(ImexNode(i, a, "READY", "580.173.02") for i, a in enumerate(members.values()))
    table = {(i, j): "C" for i in range(len(nodes)) for j in range(len(nodes))} | (cells or {})
    known = {
        "state": "READY",
        "table": ImexTable(nodes, table, "UP"),
        "node_list": tuple(members.values()),
        "unit_active": "active",
        "channels": (ImexChannel(0, MAJOR, True),),
        "channel_major": MAJOR,
    }
    return Imex(**(known | more))


def ib_port(active: bool = True, sm_lid: int = 1, prefix: str = "fe80:0000:0000:0000", rate: int = 400) -> Port:
    gid = Gid(0, f"{prefix}:a088:c203:0000:0001", "IB/RoCE v1")
    state, phys = ("ACTIVE", "LinkUp") if active else ("DOWN", "Polling")
    return Port(1, state, phys, rate, "InfiniBand", 26, sm_lid, (gid,), ("0xffff",))


def ib_hcas(count: int, **port) -> tuple[Hca, ...]:
    return tuple(Hca(f"mlx5_{i}", (ib_port(**port),), system_guid=f"guid{i}") for i in range(count))


def roce_hca(rail: int, host: int, index: int = 3) -> Hca:
    v4 = f"0000:0000:0000:0000:0000:ffff:0a{rail:02x}:00{host:02x}"
    gids = (Gid(0, "fe80:0000:0000:0000:0000:00ff:fe00:0001", "RoCE v1"), Gid(index, v4, "RoCE v2", f"rail{rail}"))
    return Hca(f"mlx5_{rail}", (Port(1, "ACTIVE", "LinkUp", 400, "Ethernet", 0, 0, gids),), netdevs=(f"rail{rail}",))


def network(address: str, rails: dict[str, str] | None = None) -> Network:
    """eth0 with `address`/16, through which SSH came in; `rails`: interface -> CIDR."""
    extra = tuple(Interface(n, True, False, (cidr,)) for n, cidr in (rails or {}).items())
    lo = Interface("lo", True, True, ("127.0.0.1/8",))
    subnet = ".".join(address.split(".")[:2]) + ".0.0/16"
    return Network((lo, Interface("eth0", True, False, (f"{address}/16",)), *extra), (Route(subnet, "eth0"),), address)


def facts(
    name: str,
    address: str,
    gpus: tuple[Gpu, ...] | Reading,
    imex: Reading,
    hcas: Reading | tuple[Hca, ...] = (),
    rails: dict[str, str] | None = None,
    driver: str = "580.173.02",
    **host,
) -> HostFacts:
    report = gpus if isinstance(gpus, Reading) else ok(GpuReport(driver, "13.0", len(gpus), gpus))
    return HostFacts(
        host=Host(name, address, **{"pool": "prod"} | host),
        reachable=ok(0.2),
        system=ok(System(name, f"boot-{name}", 90000.0, "6.8.0", "ops")),
        gpus=report,
        imex=imex,
        hcas=hcas if isinstance(hcas, Reading) else ok(tuple(hcas)),
        network=ok(network(address, rails)),
        life=ok(HostLife()),
    )


def rack(count: int = 4, name: str = "r1", uuid: str = UUID, clique: int = 32766, net: int = 1, hcas: int = 4):
    """`count` healthy GB200 trays r1-t01 ... of one rack, by name."""
    members = {f"{name}-t{i + 1:02d}": f"10.{net}.0.{i + 1}" for i in range(count)}
    made = {}
    for i, (host, address) in enumerate(members.items()):
        platform = Platform(f"chassis-{name}", i + 1, i, 1, "Switch Connected")
        cards = tuple(gpu(g, fabric=joined(uuid, clique), host=host, platform=platform) for g in range(4))
        made[host] = facts(
            host, address, cards, ok(imex(members)), ib_hcas(hcas), rack=name, order=i, expect=Expect(4, "GB200", True)
        )
    return made


def hgx(count: int = 2, name: str = "h100", net: int = 9, product: str = "NVIDIA H100 80GB HBM3", **port):
    """HGX hosts with eight GPUs and eight InfiniBand adapters each."""
    made = {}
    for i in range(count):
        host = f"{name}-{i + 1:03d}"
        cards = tuple(gpu(g, product, Fabric("Completed", "Success", ZERO, 0), host) for g in range(8))
        made[host] = facts(host, f"10.{net}.0.{i + 1}", cards, absent(), ib_hcas(8, **port), order=100 + i)
    return made


def snapshot(*groups: dict[str, HostFacts]) -> Snapshot:
    return Snapshot(1_780_000_000.0, tuple(f for g in groups for f in g.values()))


def with_gpu(one: HostFacts, index: int, **change) -> HostFacts:
    """The same host with one GPU changed."""
    report = one.gpus.value
    cards = tuple(replace(g, **change) if g.index == index else g for g in report.gpus)
    return replace(one, gpus=ok(replace(report, gpus=cards)))


def with_imex(one: HostFacts, **change) -> HostFacts:
    return replace(one, imex=ok(replace(one.imex.value, **change)))


def with_cells(one: HostFacts, cells: dict[tuple[int, int], str]) -> HostFacts:
    table = one.imex.value.table
    return with_imex(one, table=replace(table, cells=table.cells | cells))


def unreachable(one: HostFacts, why: str = "connection refused") -> HostFacts:
    dead = broken(why)
    return HostFacts(one.host, dead, dead, dead, dead, dead, dead, dead)
