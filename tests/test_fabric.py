"""The map: which GPUs are one domain, and what keeps a host out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from facts import (
    HEALTHY,
    IN_PROGRESS,
    MAJOR,
    OTHER_UUID,
    UUID,
    ZERO,
    gpu,
    hgx,
    ib_hcas,
    ib_port,
    joined,
    rack,
    roce_hca,
    snapshot,
    unreachable,
    with_cells,
    with_gpu,
    with_imex,
)
from facts import facts as make

from llmgwctl.fabric import fabric_map
from llmgwctl.fabric.scaleout import compute_ports
from llmgwctl.model.fabric import DeclaredFabric
from llmgwctl.model.gpu import Fabric, FabricHealth, GpuReport
from llmgwctl.model.imex import ImexChannel
from llmgwctl.model.network import Hca
from llmgwctl.model.reading import absent, broken, ok


def verdict_of(one, others=None):
    """The verdict of r1-t01 when it is `one` and the rest of a four-tray rack is healthy."""
    hosts = rack(4) | {one.host.name: one} | (others or {})
    return fabric_map(snapshot(hosts)).verdicts[one.host.name]


def codes(verdict):
    return {r.code for r in verdict.reasons}


# State, Status, UUID and health as in the verdict table of the fabric rules: -> (codes that keep the host out)
TABLE = [
    ("healthy member", joined(), set()),
    ("no fabric printed: N/A", Fabric("N/A", "N/A"), {"no-fabric"}),
    ("in progress", Fabric("In Progress"), {"not-joined"}),
    ("not started", Fabric("Not Started"), {"not-joined"}),
    ("refused", Fabric("Completed", "Insufficient Resources", ZERO, 0), {"refused"}),
    ("zero uuid on a rack's tray", Fabric("Completed", "Success", ZERO, 0), {"zero-uuid"}),
    (
        "limited capacity",
        joined(health=replace(HEALTHY, summary="Limited Capacity", bandwidth="Degraded")),
        {"degraded"},
    ),
    ("unhealthy route", joined(health=replace(HEALTHY, summary="Unhealthy", route_unhealthy=True)), {"unhealthy"}),
    ("rows win over a healthy summary", joined(health=replace(HEALTHY, route_unhealthy=True)), {"unhealthy"}),
    ("a summary that is not known yet", joined(health=replace(HEALTHY, summary="Marginal")), {"unhealthy"}),
    ("wrong slot", joined(health=replace(HEALTHY, incorrect_configuration="Invalid Location")), {"unhealthy"}),
    ("no partition", joined(health=replace(HEALTHY, partition_assigned=False)), {"unhealthy"}),
    ("rows that are N/A never make it worse", joined(health=FabricHealth(summary="Healthy")), set()),
    (
        "a row that cannot be read",
        joined(health=replace(HEALTHY, bandwidth=None, unread=("Bandwidth: New",))),
        {"health-unknown"},
    ),
    ("old driver: no clique, no uuid", Fabric("Completed", "Success"), {"joining-unknown"}),
    ("driver without a fabric block", Fabric(), {"joining-unknown"}),
]


@pytest.mark.parametrize(("fabric", "expected"), [t[1:] for t in TABLE], ids=[t[0] for t in TABLE])
def test_verdict_table(fabric, expected):
    """Each row of the verdict table keeps a tray out by exactly its own reason, or not at all."""
    one = rack(4)["r1-t01"]
    cards = tuple(replace(g, fabric=fabric) for g in one.gpus.value.gpus)
    verdict = verdict_of(replace(one, gpus=ok(replace(one.gpus.value, gpus=cards))))
    assert codes(verdict) == expected


def test_unknown_is_said_and_is_not_no():
    """A driver that does not print joining is unknown: it keeps the tray out and counts as could-not-tell."""
    verdict = verdict_of(with_gpu(rack(4)["r1-t01"], 2, fabric=Fabric("Completed", "Success")))
    assert verdict.could_not_tell
    assert Fabric("Completed", "Success").joined is None


def test_a_health_row_that_cannot_be_read_is_told_with_its_word():
    """It keeps the tray out of its domain as a thing that could not be told, and is no note of an old driver."""
    strange = joined(health=FabricHealth(unread=("Bandwidth: Something new",)))
    verdict = verdict_of(with_gpu(rack(4)["r1-t01"], 0, fabric=strange))
    assert verdict.could_not_tell == ("GPU 0: fabric health not known: Bandwidth: Something new",)
    assert (verdict.keeps_out("nvlink", allow_degraded=True), verdict.notes) == (verdict.could_not_tell, ())
    assert verdict.keeps_out("single-host") == ()


def test_no_health_row_is_eligible_with_a_note():
    """R550 prints N/A for all of health on a whole tray: eligible, and the plan says so."""
    verdict = verdict_of(with_gpu(rack(4)["r1-t01"], 0, fabric=joined(health=FabricHealth())))
    assert verdict.eligible
    assert "no fabric health" in verdict.notes[0]


def test_one_gpu_not_joined_keeps_its_host_out_of_everything():
    """CUDA init fails on the whole host, so not even a single-host shard may run there."""
    verdict = verdict_of(with_gpu(rack(4)["r1-t01"], 3, fabric=IN_PROGRESS))
    assert verdict.keeps_out("single-host") == ("GPU 3 has not joined the NVLink fabric: State In Progress",)


def test_same_clique_in_two_racks_is_two_domains():
    """Clique 32766 is the default partition of every rack: only the pair is a domain."""
    fmap = fabric_map(snapshot(rack(3), rack(3, "r2", OTHER_UUID, net=2)))
    assert {d.id: d.names for d in fmap.domains} == {
        f"nvl:{UUID}.32766": ("r1-t01", "r1-t02", "r1-t03"),
        f"nvl:{OTHER_UUID}.32766": ("r2-t01", "r2-t02", "r2-t03"),
    }


def test_two_cliques_in_one_chassis_are_partitions_of_it():
    """A tray of another partition is its own domain, and says of which domain it was split."""
    hosts = rack(4)
    moved = hosts["r1-t04"]
    cards = tuple(replace(g, fabric=joined(clique=7)) for g in moved.gpus.value.gpus)
    hosts["r1-t04"] = replace(moved, gpus=ok(replace(moved.gpus.value, gpus=cards)))
    fmap = fabric_map(snapshot(hosts))
    small = fmap.domain(f"nvl:{UUID}.7")
    assert (small.names, small.partition_of) == (("r1-t04",), f"nvl:{UUID}.32766")
    assert codes(fmap.verdicts["r1-t04"]) == {"alone"}


def test_two_cliques_on_one_host_keep_it_out():
    """Half a re-partitioning: no shard of several hosts there."""
    assert codes(verdict_of(with_gpu(rack(4)["r1-t01"], 0, fabric=joined(clique=7)))) == {"two-cliques"}


def test_zero_uuid_and_one_machine_products_are_no_domain():
    """HGX hosts are never grouped: neither by the zero UUID nor by the non-zero one that newer drivers print."""
    printed = hgx(2)
    for name, one in printed.items():
        cards = tuple(replace(g, fabric=joined(OTHER_UUID, 1)) for g in one.gpus.value.gpus)
        printed[name] = replace(one, gpus=ok(replace(one.gpus.value, gpus=cards)))
    for hosts in (hgx(2), printed):
        fmap = fabric_map(snapshot(hosts))
        assert fmap.domains == ()
        assert [o.name for o in fmap.outside] == ["h100-001", "h100-002"]
        assert all(v.keeps_out("single-host") == () for v in fmap.verdicts.values())
        assert all(v.imex == "not-applicable" for v in fmap.verdicts.values())


@pytest.mark.parametrize(
    ("change", "code", "state"),
    [
        ({"state": "DOWN", "unit_active": "inactive"}, "imex-down", "down"),
        ({"state": "WAITING_FOR_PEERS"}, "imex-not-ready", "down"),
        ({"state": "", "why": "command service disabled"}, "imex-unknown", "unknown"),
        ({"table": None, "table_why": "no answer within its limit (60 s)"}, "imex-table", "unknown"),
        ({"channels": ()}, "channel-missing", "up"),
        ({"channels": (ImexChannel(0, MAJOR - 1, True),)}, "channel-stale", "up"),
        ({"channels": (ImexChannel(0, MAJOR, False),)}, "channel-denied", "up"),
        ({"channel_major": None}, "channel-unknown", "up"),
        ({"channels": (), "files_why": "no answer"}, "channel-unknown", "up"),
    ],
)
def test_imex_and_channel(change, code, state):
    """What is wrong with IMEX keeps a tray out of the NVLink tier only: it may serve alone and over InfiniBand."""
    verdict = verdict_of(with_imex(rack(4)["r1-t01"], **change))
    assert (codes(verdict), verdict.imex) == ({code}, state)
    assert verdict.keeps_out("scale-out") == ()
    assert verdict.keeps_out("single-host") == ()


@pytest.mark.parametrize(("reading", "code"), [(broken("no answer"), "imex-unread"), (absent(), "imex-absent")])
def test_imex_broken_is_not_absent(reading, code):
    """Not installed and not readable are different answers on a rack's tray."""
    verdict = verdict_of(replace(rack(4)["r1-t01"], imex=reading))
    assert codes(verdict) == {code}
    assert bool(verdict.could_not_tell) == reading.broken


def test_one_way_imex_is_seen_from_the_row_of_the_host_itself():
    """r1-t02 says N to r1-t01; the table of r1-t01 still says C for both: only a host's own row counts."""
    hosts = rack(4)
    hosts["r1-t02"] = with_cells(hosts["r1-t02"], {(1, 0): "N"})
    fmap = fabric_map(snapshot(hosts))
    assert fmap.verdicts["r1-t01"].imex == fmap.verdicts["r1-t02"].imex == "degraded"
    assert fmap.verdicts["r1-t03"].imex == "up"
    assert "r1-t02 reports never connected (N) to r1-t01" in fmap.verdicts["r1-t01"].notes[0]
    assert fmap.verdicts["r1-t01"].eligible


def test_a_dead_neighbour_does_not_degrade_the_others():
    """One tray down makes the domain's own word DEGRADED for ever; the pairs of the others are whole."""
    hosts = rack(4)
    down = {(i, 3): "N" for i in range(4)} | {(3, j): "I" for j in range(4)}
    for name in ("r1-t01", "r1-t02", "r1-t03"):
        hosts[name] = with_cells(hosts[name], down)
    hosts["r1-t04"] = with_imex(hosts["r1-t04"], state="DOWN", table=None)
    fmap = fabric_map(snapshot(hosts))
    assert [fmap.verdicts[n].imex for n in sorted(hosts)] == ["up", "up", "up", "down"]


@pytest.mark.parametrize("change", [{"imex": None}, {"network": broken("ip: not found")}], ids=["table", "addresses"])
def test_a_neighbour_whose_connections_are_not_known_is_unknown_and_no_trouble_of_the_others(change):
    """READY says nothing about pairs: that tray is unknown, and the others are judged by what can be told."""
    hosts = rack(4)
    one = hosts["r1-t04"]
    hosts["r1-t04"] = with_imex(one, table=None) if "imex" in change else replace(one, **change)
    fmap = fabric_map(snapshot(hosts))
    assert [fmap.verdicts[n].imex for n in sorted(hosts)] == ["up", "up", "up", "unknown"]
    assert codes(fmap.verdicts["r1-t04"]) == {"imex-table"}
    assert list(fmap.could_not_tell) == ["r1-t04"]


def test_a_tray_that_is_not_in_its_own_node_list_is_no_trouble_of_the_others():
    """It is the one that is degraded, with the reason; its neighbours are connected to all that their lists name."""
    hosts = rack(4)
    table = hosts["r1-t04"].imex.value.table
    nodes = tuple(replace(n, host="10.9.9.9") if n.index == 3 else n for n in table.nodes)
    hosts["r1-t04"] = with_imex(hosts["r1-t04"], table=replace(table, nodes=nodes))
    fmap = fabric_map(snapshot(hosts))
    assert [fmap.verdicts[n].imex for n in sorted(hosts)] == ["up", "up", "up", "degraded"]
    assert fmap.verdicts["r1-t04"].notes == ("IMEX of r1-t04: this host is not in its own IMEX node list",)
    assert [fmap.verdicts[n].notes for n in ("r1-t01", "r1-t02", "r1-t03")] == [()] * 3


def test_many_imex_troubles_are_counted_where_not_all_are_shown():
    """A tray that reaches nobody says with whom for the first three, and of how many more."""
    hosts = rack(8)
    hosts["r1-t02"] = with_cells(hosts["r1-t02"], {(1, j): "N" for j in range(8) if j != 1})
    notes = fabric_map(snapshot(hosts)).verdicts["r1-t02"].notes
    assert len(notes) == 4
    assert notes[-1] == "IMEX: troubles with 4 more hosts"


def test_imex_is_not_asked_for_where_there_is_no_gpu():
    """A host without a GPU has no IMEX to be down; one whose GPUs could not be read may have."""
    one = rack(4)["r1-t01"]
    for gpus, imex, state in (
        (absent("no NVIDIA driver"), absent("none"), "not-applicable"),
        (broken("hangs"), one.imex, "up"),
    ):
        assert verdict_of(replace(one, gpus=gpus, imex=imex)).imex == state


def test_node_list_with_names_is_matched_by_what_they_resolve_to_there():
    """A list of host names joins with the peers' addresses through each host's own resolution."""
    hosts = rack(2)
    names = {"10.1.0.1": "tray-a", "10.1.0.2": "tray-b"}
    for n, one in hosts.items():
        table = one.imex.value.table
        nodes = tuple(replace(x, host=names[x.host]) for x in table.nodes)
        resolved = tuple((line, (address,)) for address, line in names.items())
        hosts[n] = with_imex(one, table=replace(table, nodes=nodes), node_addresses=resolved)
    assert [v.imex for v in fabric_map(snapshot(hosts)).verdicts.values()] == ["up", "up"]


def test_rack_whose_cards_all_dropped_is_still_there():
    """A fabric manager restart drops every card at once: the rack stays, with no UUID and nothing eligible."""
    hosts = rack(4)
    for name, one in hosts.items():
        cards = tuple(replace(g, fabric=IN_PROGRESS) for g in one.gpus.value.gpus)
        hosts[name] = replace(one, gpus=ok(replace(one.gpus.value, gpus=cards)))
    fmap = fabric_map(snapshot(hosts))
    (domain,) = fmap.domains
    assert (domain.id, domain.cluster_uuid, domain.joined_hosts) == ("chassis:chassis-r1", None, 0)
    assert not any(v.eligible for v in fmap.verdicts.values())


def test_dropped_tray_stands_in_the_domain_of_its_chassis_or_rack():
    """A tray of which no GPU is joined is drawn where it sits, by Platform Info or by the inventory."""
    for platform_known in (True, False):
        hosts = rack(3)
        one = hosts["r1-t02"]
        cards = one.gpus.value.gpus
        if not platform_known:
            cards = tuple(replace(g, platform=type(g.platform)()) for g in cards)
        cards = tuple(replace(g, fabric=IN_PROGRESS) for g in cards)
        hosts["r1-t02"] = replace(one, gpus=ok(replace(one.gpus.value, gpus=cards)))
        (domain,) = fabric_map(snapshot(hosts)).domains
        assert "r1-t02" in domain.names
        assert (domain.joined_hosts, domain.expected_hosts) == (2, 3)


def test_dropped_tray_of_nowhere_stands_outside():
    """Neither chassis nor rack known: the host is listed outside with its reason, never left out."""
    lonely = make("x", "10.5.0.1", tuple(gpu(i, fabric=IN_PROGRESS, host="x") for i in range(4)), absent())
    fmap = fabric_map(snapshot({"x": lonely}))
    assert fmap.domains == ()
    assert fmap.outside[0].why == "GPU 0 has not joined the NVLink fabric: State In Progress"


def test_trays_stand_in_physical_order_and_missing_ones_are_named():
    """Tray index orders a rack, whatever the names say; an unreachable tray of the rack is named as missing."""
    hosts = rack(4)
    names = list(hosts)
    for name, tray in zip(names, (2, 0, 1, 3), strict=True):
        cards = tuple(replace(g, platform=replace(g.platform, tray=tray)) for g in hosts[name].gpus.value.gpus)
        hosts[name] = replace(hosts[name], gpus=ok(replace(hosts[name].gpus.value, gpus=cards)))
    hosts["r1-t04"] = unreachable(hosts["r1-t04"])
    fmap = fabric_map(snapshot(hosts))
    assert fmap.domains[0].names == ("r1-t02", "r1-t03", "r1-t01")
    assert fmap.domains[0].missing == ("r1-t04",)
    assert (fmap.unreachable[0].name, fmap.unreachable[0].why) == ("r1-t04", "connection refused")
    assert "r1-t04" in fmap.could_not_tell


def test_domain_over_two_chassis_is_one():
    """NVL36x2: one pair over two racks is one domain."""
    fmap = fabric_map(snapshot(rack(2), rack(2, "r2", UUID, net=2)))
    assert len(fmap.domains) == 1
    assert fmap.domains[0].chassis == ("chassis-r1", "chassis-r2")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"mig_enabled": True}, "mig"),
        ({"recovery_action": "GPU Reset Required"}, "recovery"),
    ],
)
def test_gpu_states_that_keep_a_host_out(change, code):
    assert codes(verdict_of(with_gpu(rack(4)["r1-t01"], 1, **change))) == {code}


def test_lost_gpu_keeps_the_whole_host_out():
    """CUDA renumbers what nvidia-smi does not, so a host with a lost GPU carries nothing."""
    one = rack(4)["r1-t01"]
    report = GpuReport("580.173.02", "13.0", 4, one.gpus.value.gpus[:3], ("GPU3: GPU is lost",))
    verdict = verdict_of(replace(one, gpus=ok(report)))
    assert codes(verdict) == {"gpu-lost"}
    assert "3 of 4 GPUs readable" in verdict.keeps_out("single-host")[0]


def test_cordon_and_scheduler_keep_out_and_cordoned_hosts_never_count_as_unknown():
    hosts = rack(4)
    hosts["r1-t02"] = unreachable(hosts["r1-t02"])
    slurm = hosts["r1-t03"]
    hosts["r1-t03"] = replace(slurm, system=ok(replace(slurm.system.value, scheduler="slurmd")))
    fmap = fabric_map(snapshot(hosts), cordons={"r1-t02": "bad cable", "r1-t01": "maintenance"})
    assert codes(fmap.verdicts["r1-t01"]) == {"cordoned"}
    assert codes(fmap.verdicts["r1-t03"]) == {"scheduler"}
    assert fmap.could_not_tell == {}


def test_infiniband_islands_are_kept_apart_by_subnet_manager_and_pool():
    """Another SM, another prefix or another pool is another fabric; nothing undeclared is more than probable."""
    a, b, c = hgx(2, "a", 9), hgx(1, "b", 10, sm_lid=7), hgx(1, "c", 11)
    c = {n: replace(f, host=replace(f.host, pool="dev")) for n, f in c.items()}
    fabrics = fabric_map(snapshot(a, b, c)).scale_out
    assert sorted(f.hosts for f in fabrics) == [("a-001", "a-002"), ("b-001",), ("c-001",)]
    assert {f.strength for f in fabrics} == {"probable"}


def test_declared_fabric_takes_the_named_adapters_only():
    """The operator's list decides, over pools, and its hosts are in no probable fabric."""
    declared = DeclaredFabric("east", ("h100-001", "h100-002"), ("mlx5_0", "mlx5_3"))
    (fabric,) = fabric_map(snapshot(hgx(2)), [declared]).scale_out
    assert (fabric.id, fabric.strength) == ("declared:east", "declared")
    assert [p.name for p in fabric.ports["h100-001"]] == ["mlx5_0:1", "mlx5_3:1"]


def test_a_declared_fabric_of_two_link_layers_is_two_fabrics_each_with_its_own_name():
    """What is said of one is never said of the other."""
    cards = tuple(gpu(i, "NVIDIA H100", host="r") for i in range(4))
    roce = make("r", "10.9.0.1", cards, absent(), (roce_hca(1, 1),), {"rail1": "10.1.0.1/24"})
    both = fabric_map(snapshot(hgx(1), {"r": roce}), [DeclaredFabric("east", ("h100-001", "r"), ())]).scale_out
    assert [(f.id, f.hosts) for f in both] == [
        ("declared:east:InfiniBand", ("h100-001",)),
        ("declared:east:Ethernet", ("r",)),
    ]


def test_roce_hosts_that_share_a_rail_are_one_fabric():
    """Rails are compared by subnet: A and B share rail 1; C has none of theirs."""

    def host(name, number, rails):
        cidr = {f"rail{r}": f"10.{r}.0.{number}/24" for r in rails}
        hcas = tuple(roce_hca(r, number) for r in rails)
        return make(
            name, f"10.99.0.{number}", tuple(gpu(i, "NVIDIA H100", host=name) for i in range(8)), absent(), hcas, cidr
        )

    hosts = {n: host(n, i, r) for i, (n, r) in enumerate({"a": (1, 2), "b": (1, 3), "c": (5,)}.items(), 1)}
    fabrics = fabric_map(snapshot(hosts)).scale_out
    assert sorted(f.hosts for f in fabrics) == [("a", "b"), ("c",)]
    assert {p.rail for p in fabrics[0].ports["a"]} == {"10.1.0.0/24", "10.2.0.0/24"}


def hca(name: str, **more) -> Hca:
    return Hca(name, (ib_port(),), **more)


@pytest.mark.parametrize(
    ("odd", "word"),
    [
        (hca("mlx5_9", switch_management=True), "NVSwitch management"),
        (hca("mlx5_9", bonded=True), "bonded"),
        (hca("mlx5_9", virtual_function=True), "virtual function"),
        (hca("mlx5_9", bridged=True), "bridge"),
        (hca("mlx5_9", netdevs=("eth0",)), "SSH address"),
        (Hca("mlx5_9", (ib_port(active=False),)), "not active: port 1 DOWN"),
        (Hca("mlx5_9", (ib_port(rate=100),)), "100 Gb/s, the others run at 400"),
    ],
)
def test_adapters_that_are_not_for_compute_are_left_out_and_named(odd, word):
    """What carries no compute traffic never stands in NCCL_IB_HCA, and the map says why."""
    one = hgx(1)["h100-001"]
    ports = compute_ports(replace(one, hcas=ok((*ib_hcas(4), odd))))
    assert [h.name for h, _ in ports.kept] == ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"]
    assert ports.dropped[0][0] == "mlx5_9"
    assert word in ports.dropped[0][1]


def test_unreadable_vpd_on_hgx_b200_leaves_the_suspects_out():
    """Four functions of one card may be the NVSwitch bridge; two functions are an ordinary dual-port card."""
    one = hgx(1, product="NVIDIA B200")["h100-001"]
    bridge = tuple(hca(f"mlx5_{i}", system_guid="bridge") for i in range(4))
    cards = tuple(hca(f"mlx5_{i}", system_guid=f"card{i // 2}") for i in range(4, 8))
    ports = compute_ports(replace(one, hcas=ok((*bridge, *cards))))
    assert [h.name for h, _ in ports.kept] == ["mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7"]
    assert "needs root" in ports.dropped[0][1]


class Counted(tuple):
    """Counts how often it is walked through, from the beginning, by however many."""

    walks = 0

    def __iter__(self):
        type(self).walks += 1
        return super().__iter__()


@pytest.mark.parametrize("product", ["NVIDIA H100", "NVIDIA B200"])
@pytest.mark.parametrize("virtual", [False, True])
def test_a_host_that_tells_of_very_many_adapters_costs_no_more_than_they_are(product, virtual):
    """Each is looked at by itself: never all of them, and never all interfaces, for each."""
    one = hgx(1, product=product)["h100-001"]
    many = (replace(roce_hca(r, 1), virtual_function=virtual, system_guid=f"card{r // 8}") for r in range(200))
    interfaces = (replace(one.network.value.interfaces[0], name=f"other{r}") for r in range(200))
    told = replace(one, hcas=ok(Counted(many)), network=ok(replace(one.network.value, interfaces=Counted(interfaces))))
    Counted.walks = 0
    fabric_map(snapshot({"h100-001": told}))
    assert Counted.walks < 20
