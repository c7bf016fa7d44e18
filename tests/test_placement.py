"""Placement: strict tiers, the fullest domain that fits, never a GPU twice, and a reason for every host left out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from facts import (
    IN_PROGRESS,
    OTHER_UUID,
    UUID,
    gpu,
    hgx,
    joined,
    network,
    rack,
    roce_hca,
    snapshot,
    unreachable,
    with_cells,
    with_gpu,
    with_imex,
)
from facts import facts as make
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgwctl.fabric import fabric_map
from llmgwctl.model.fabric import DeclaredFabric
from llmgwctl.model.gpu import FabricHealth, GpuProcess
from llmgwctl.model.host import System
from llmgwctl.model.imex import ImexChannel
from llmgwctl.model.life import Claim, HostLife, ShardRecord
from llmgwctl.model.profile import Profile
from llmgwctl.model.reading import absent, broken, ok
from llmgwctl.placement import plan

TWO = Profile("big", "vllm", "/models/x", pool="prod", tp=8, nodes=2, gpus_per_node=4)
ONE = Profile("small", "vllm", "/models/x", pool="prod", tp=4, nodes=1, gpus_per_node=4)


def planned(profile, *groups, count=1, declared=(), cordons=None):
    snap = snapshot(*groups)
    return plan(fabric_map(snap, declared, cordons), snap, profile, ("master",) if profile.nodes > 1 else (), count)


def hosts_of(result):
    return [s.host for r in result.replicas for s in r.shards]


def reasons(result, host):
    return next(x.reasons for x in result.left_out if x.host == host)


def test_a_replica_of_two_hosts_goes_into_one_domain_in_tray_order():
    result = planned(TWO, rack(4), hgx(2))
    assert (result.tier, result.fabric, hosts_of(result)) == ("nvlink", f"nvl:{UUID}.32766", ["r1-t01", "r1-t02"])
    shard = result.replicas[0].shards[1]
    assert (shard.gpus, shard.interface, shard.address) == ((0, 1, 2, 3), "eth0", "10.1.0.2")
    assert shard.hcas == ("mlx5_0:1", "mlx5_1:1", "mlx5_2:1", "mlx5_3:1")
    assert shard.imex_channel == 0
    assert reasons(result, "r1-t03") == ("fits, not needed",)


def test_the_fullest_domain_that_fits_is_taken_and_whole_racks_stay_free():
    """Three trays left in r2 hold the replica, so the whole rack r1 is kept."""
    small = rack(3, "r2", OTHER_UUID, net=2)
    assert hosts_of(planned(TWO, rack(4), small)) == ["r2-t01", "r2-t02"]


def test_a_domain_that_does_not_fit_is_never_split_over_two():
    """One free tray in each of two racks is no domain of two."""
    result = planned(replace(TWO, fabric="require-nvlink"), rack(1), rack(1, "r2", OTHER_UUID, net=2))
    assert (result.replicas, result.tier) == ((), None)
    assert "the only host of its NVLink domain that was read" in reasons(result, "r1-t01")[0]


@pytest.mark.parametrize(
    ("sick", "nvlink_only"),
    [
        (lambda h: with_imex(h, state="DOWN", table=None), True),
        (lambda h: with_imex(h, channels=()), True),
        (lambda h: with_gpu(h, 0, fabric=joined(health=FabricHealth("Limited Capacity", "Degraded"))), True),
        (lambda h: with_gpu(h, 0, fabric=IN_PROGRESS), False),
        (lambda h: with_gpu(h, 0, mig_enabled=True), False),
        (unreachable, False),
    ],
    ids=["imex-down", "no-channel", "degraded", "not-joined", "mig", "unreachable"],
)
def test_a_sick_tray_is_left_out_with_its_reason(sick, nvlink_only):
    """It carries no shard in the NVLink tier; whether it may serve over InfiniBand depends on what is wrong."""
    hosts = rack(3)
    hosts["r1-t01"] = sick(hosts["r1-t01"])
    result = planned(TWO, hosts)
    assert hosts_of(result) == ["r1-t02", "r1-t03"]
    assert reasons(result, "r1-t01") != ("fits, not needed",)
    rdma = planned(replace(TWO, fabric="require-rdma"), hosts)
    assert ("r1-t01" in hosts_of(rdma)) == nvlink_only


def test_degraded_bandwidth_is_allowed_only_by_the_profile():
    hosts = rack(2)
    hosts["r1-t01"] = with_gpu(hosts["r1-t01"], 0, fabric=joined(health=FabricHealth("Limited Capacity", "Degraded")))
    assert planned(TWO, hosts).tier == "scale-out"
    assert planned(replace(TWO, allow_degraded=True), hosts).tier == "nvlink"


def test_no_domain_left_falls_to_infiniband_with_the_reason_said_loudly():
    hosts = {n: with_imex(h, state="DOWN", table=None) for n, h in rack(4).items()}
    result = planned(replace(TWO, gpu_class="H100"), hosts, hgx(2))
    assert (result.tier, hosts_of(result)) == ("scale-out", ["h100-001", "h100-002"])
    assert "no NVLink placement" in result.warnings[0]
    assert any("only probable" in w for w in result.warnings)


def test_scale_out_prefers_hosts_outside_racks():
    """Where both serve, the rack is kept free."""
    hosts = {n: with_imex(h, state="DOWN", table=None) for n, h in rack(4).items()}
    assert hosts_of(planned(TWO, hosts, hgx(2))) == ["h100-001", "h100-002"]


@pytest.mark.parametrize("wish", ["require-nvlink", "require-rdma"])
def test_require_takes_one_tier_alone(wish):
    hosts = rack(2, hcas=0) if wish == "require-rdma" else hgx(2)
    result = planned(replace(TWO, fabric=wish), hosts)
    assert result.replicas == ()
    assert [x.host for x in result.left_out] == list(hosts)
    assert all(x.reasons[0] for x in result.left_out)


def test_tcp_only_where_the_profile_allows_it():
    hosts = {n: with_imex(h, state="DOWN", table=None) for n, h in rack(2, hcas=0).items()}
    assert planned(TWO, hosts).replicas == ()
    result = planned(replace(TWO, fabric="allow-tcp"), hosts)
    assert (result.tier, result.replicas[0].shards[0].hcas) == ("tcp", ())


def test_require_declared_fabric():
    profile = replace(TWO, fabric="require-rdma", require_declared_fabric=True)
    assert planned(profile, hgx(2)).replicas == ()
    declared = [DeclaredFabric("east", ("h100-001", "h100-002"), ("mlx5_1",))]
    result = planned(profile, hgx(2), declared=declared)
    assert (result.fabric, result.replicas[0].shards[0].hcas) == ("declared:east", ("mlx5_1:1",))


def test_pairs_that_are_not_connected_both_ways_are_never_chosen_together():
    """t02 does not reach t01: the first two trays that are connected both ways are taken."""
    hosts = rack(3)
    hosts["r1-t02"] = with_cells(hosts["r1-t02"], {(1, 0): "N"})
    assert hosts_of(planned(TWO, hosts)) == ["r1-t01", "r1-t03"]


def test_all_chosen_hosts_hold_the_same_channel_number():
    hosts = rack(3)
    for number, name in ((1, "r1-t01"), (0, "r1-t02"), (1, "r1-t03")):
        hosts[name] = with_imex(hosts[name], channels=(ImexChannel(number, 506, True),))
    result = planned(TWO, hosts)
    assert hosts_of(result) == ["r1-t01", "r1-t03"]
    assert result.replicas[0].shards[0].imex_channel == 1


def test_spare_trays_stay_free_in_a_domain():
    """A domain that would be filled to the last tray is passed over, with the numbers."""
    one_spare = replace(TWO, spare_trays=1, fabric="require-nvlink")
    assert hosts_of(planned(one_spare, rack(3))) == ["r1-t01", "r1-t02"]
    result = planned(one_spare, rack(2))
    assert result.replicas == ()
    assert "2 eligible hosts: 2 needed and spare_trays = 1 kept free" in result.why_not


def test_tensor_parallelism_over_infiniband_is_a_warning_with_the_way_out():
    wide = planned(replace(TWO, tp=16, gpus_per_node=8), hgx(2))
    assert any("tp = 8, pp = 2 keeps it inside each host" in w for w in wide.warnings)
    deep = planned(replace(TWO, tp=8, pp=2, gpus_per_node=8), hgx(2))
    assert not any("tensor parallelism" in w for w in deep.warnings)


def test_driver_is_equal_in_a_domain():
    hosts = rack(3)
    report = hosts["r1-t02"].gpus.value
    hosts["r1-t02"] = replace(hosts["r1-t02"], gpus=ok(replace(report, driver="580.95.05")))
    assert hosts_of(planned(TWO, hosts)) == ["r1-t01", "r1-t03"]


def test_models_are_never_mixed_and_the_class_is_exact():
    """Without a class any model, but one; GB200 does not match GB300."""
    mixed = hgx(1) | hgx(1, "b200", 8, "NVIDIA B200")
    assert planned(TWO, mixed).replicas == ()
    assert planned(replace(TWO, gpu_class="GB300"), rack(2)).replicas == ()


@pytest.mark.parametrize(
    "life",
    [
        HostLife(claims=(Claim("gpu-GPU-r1-t01-0", "other-0", 0, "abc", operator="ada"),)),
        None,
    ],
)
def test_a_claimed_or_busy_gpu_is_taken_and_the_holder_is_named(life):
    hosts = rack(3)
    one = hosts["r1-t01"]
    busy = with_gpu(one, 0, processes=(GpuProcess(4711, "C", "python3", 1000, "eve"),))
    hosts["r1-t01"] = replace(one, life=ok(life)) if life else busy
    result = planned(TWO, hosts)
    assert hosts_of(result) == ["r1-t02", "r1-t03"]
    assert ("other-0 (ada)" if life else "pid 4711 of eve") in reasons(result, "r1-t01")[0]


def test_used_memory_without_a_process_is_taken_and_a_stale_claim_is_not():
    hosts = rack(2)
    hosts["r1-t01"] = with_gpu(hosts["r1-t01"], 0, memory_used_mib=2000)
    assert "no process named" in reasons(planned(ONE, hosts), "r1-t01")[0]
    stale = HostLife(claims=(Claim("gpu-GPU-r1-t01-0", "other-0", 0, "abc", stale=True),))
    hosts = rack(2)
    hosts["r1-t01"] = replace(hosts["r1-t01"], life=ok(stale))
    assert hosts_of(planned(TWO, hosts)) == ["r1-t01", "r1-t02"]


def test_claims_that_cannot_be_read_keep_a_host_out():
    """Could not tell is never free."""
    hosts = rack(2)
    hosts["r1-t01"] = replace(hosts["r1-t01"], life=broken("no answer"))
    assert planned(TWO, hosts).replicas == ()


def test_a_single_host_replica_is_kept_away_from_racks():
    """Outside racks first, then trays that the NVLink tier cannot use, then the fullest domain."""
    assert hosts_of(planned(ONE, rack(4), hgx(1))) == ["h100-001"]
    hosts = rack(4)
    hosts["r1-t03"] = with_imex(hosts["r1-t03"], state="DOWN", table=None)
    assert hosts_of(planned(ONE, hosts)) == ["r1-t03"]
    assert hosts_of(planned(ONE, rack(4), rack(3, "r2", OTHER_UUID, net=2))) == ["r2-t01"]


def test_parts_of_a_host_are_packed():
    """A replica of two GPUs goes where the fewest are free, and two of them share a host."""
    pair = replace(ONE, tp=2, gpus_per_node=2)
    result = planned(replace(pair, port_max=8010), hgx(2), count=5)
    assert hosts_of(result) == ["h100-001"] * 4 + ["h100-002"]
    taken = [(s.host, g) for r in result.replicas for s in r.shards for g in s.gpus]
    assert len(set(taken)) == 10
    assert [r.port("http") for r in result.replicas] == [8000, 8001, 8002, 8003, 8000]


def test_a_taken_port_is_a_reason_with_the_way_out():
    pair = replace(ONE, tp=2, gpus_per_node=2)
    assert hosts_of(planned(pair, hgx(2), count=2)) == ["h100-001", "h100-002"]
    result = planned(pair, hgx(1), count=2)
    assert result.replicas == ()
    assert "port 8000 is taken on h100-001" in result.why_not


def test_several_replicas_are_all_or_nothing():
    assert len(planned(TWO, rack(4), count=2).replicas) == 2
    result = planned(replace(TWO, fabric="require-nvlink"), rack(4), count=3)
    assert result.replicas == ()
    assert result.why_not.startswith("2 of 3 replicas fit")


def test_names_of_replicas_skip_those_that_exist_anywhere():
    hosts = rack(4)
    shard = ShardRecord("d", {"replica": "big-0", "rank": 0, "ports": {"http": 8000, "master": 21000}})
    hosts["r1-t01"] = replace(hosts["r1-t01"], life=ok(HostLife(shards=(shard,))))
    replica = planned(replace(TWO, port_max=8010), hosts).replicas[0]
    assert (replica.id, replica.port("http"), replica.port("master")) == ("big-1", 8001, 21032)


def test_the_engines_own_ports_are_not_that_of_http():
    """Also where the profile's range lies in the stretch from which the engine's ports are taken."""
    replica = planned(replace(TWO, port_min=21005, port_max=21020), rack(2)).replicas[0]
    assert dict(replica.ports) == {"http": 21005, "master": 21032}


def test_cordoned_hosts_are_left_out_and_shown():
    result = planned(TWO, rack(3), cordons={"r1-t01": "fan"})
    assert hosts_of(result) == ["r1-t02", "r1-t03"]
    assert reasons(result, "r1-t01") == ("cordoned: fan",)


def test_a_low_memlock_limit_refuses_rdma_but_not_for_root():
    hosts = hgx(2)
    system = System("h", "b", 1.0, "6", "ops", memlock_hard_bytes=8 << 20)
    low = {n: replace(h, system=ok(system)) for n, h in hosts.items()}
    result = planned(TWO, low)
    assert result.replicas == ()
    assert "hard memlock limit of 8192 KiB" in " ".join(reasons(result, "h100-001"))
    root = {n: replace(h, system=ok(replace(system, account="root"))) for n, h in hosts.items()}
    assert len(planned(TWO, root).replicas) == 1


def test_the_leader_is_reached_at_the_address_by_which_it_reaches_rank_one():
    """mgmt_address wins, then mgmt_interface, then the route to rank 1; loopback never."""
    hosts = rack(2)
    net = network("10.1.0.1", {"mgmt0": "192.0.2.1/24"})
    for change, expected in (
        ({"mgmt_address": "192.0.2.1"}, ("mgmt0", "192.0.2.1")),
        ({"mgmt_interface": "mgmt0"}, ("mgmt0", "192.0.2.1")),
        ({}, ("eth0", "10.1.0.1")),
    ):
        one = replace(hosts["r1-t01"], network=ok(net))
        one = replace(one, host=replace(one.host, **change))
        leader = planned(TWO, hosts | {"r1-t01": one}).replicas[0].leader
        assert (leader.interface, leader.address) == expected
    loop = replace(hosts["r1-t01"], network=ok(replace(net, reached_at="127.0.0.1", routes=())))
    assert "no management address" in reasons(planned(TWO, hosts | {"r1-t01": loop}), "r1-t01")[0]


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"mgmt_address": "192.0.2.9"}, "no interface has its mgmt_address 192.0.2.9"),
        ({"mgmt_interface": "mgmt9"}, "its mgmt_interface mgmt9 has no address"),
        (None, "its addresses could not be read: no answer"),
    ],
    ids=["address", "interface", "unread"],
)
def test_a_host_without_an_address_is_told_what_is_wrong_with_it(told, said):
    """What is set already is not asked for again, and what could not be read is not called missing."""
    hosts = rack(2)
    one = hosts["r1-t01"]
    one = replace(one, network=broken("no answer")) if told is None else replace(one, host=replace(one.host, **told))
    single = replace(TWO, nodes=1, pp=1)
    assert said in reasons(planned(single, hosts | {"r1-t01": one}), "r1-t01")[0]


def roce_host(name: str, number: int, rails=(1, 2), index: int = 3):
    cidr = {f"rail{r}": f"10.{r}.0.{number}/24" for r in rails}
    hcas = tuple(roce_hca(r, number, index) for r in rails)
    cards = tuple(gpu(i, "NVIDIA H100", host=name) for i in range(4))
    return make(name, f"10.99.0.{number}", cards, absent(), hcas, cidr)


def test_roce_uses_the_rails_that_all_hosts_have_and_one_gid_index():
    hosts = {"a": roce_host("a", 1, (1, 2, 3)), "b": roce_host("b", 2, (2, 3, 4))}
    shards = planned(TWO, hosts).replicas[0].shards
    assert [s.hcas for s in shards] == [("mlx5_2:1", "mlx5_3:1")] * 2
    assert {s.roce.gid_index for s in shards} == {3}
    assert {s.link_layer for s in shards} == {"Ethernet"}


def test_roce_with_different_gid_indexes_gets_a_range_where_one_fits():
    one = roce_host("a", 1, (2, 3))
    mixed = (roce_hca(2, 1, 3), roce_hca(3, 1, 5))
    hosts = {"a": replace(one, hcas=ok(mixed)), "b": roce_host("b", 2, (2, 3))}
    shards = planned(TWO, hosts).replicas[0].shards
    assert (shards[0].roce.gid_index, shards[0].roce.address_range) == (None, "10.2.0.0/15")


def test_a_sim_replica_without_gpus_needs_no_gpu_and_no_rdma():
    drill = Profile("drill", "sim", pool="prod", nodes=2, gpus_per_node=0)
    hosts = {n: replace(h, gpus=absent("no GPU")) for n, h in hgx(2).items()}
    result = planned(drill, hosts)
    assert (result.tier, hosts_of(result)) == ("tcp", ["h100-001", "h100-002"])
    assert result.warnings == ()


# --- whatever the fleet looks like -----------------------------------------------------------------------------------

SICK = [
    lambda h: h,
    lambda h: h,
    lambda h: with_imex(h, state="DOWN", table=None),
    lambda h: with_gpu(h, 1, fabric=IN_PROGRESS),
    lambda h: with_gpu(h, 2, fabric=joined(health=FabricHealth("Limited Capacity", "Degraded"))),
    lambda h: with_gpu(h, 3, memory_used_mib=90000),
    lambda h: with_imex(h, channels=()),
    unreachable,
]


@st.composite
def fleets(draw):
    racks = [rack(draw(st.integers(1, 5)), "r1"), rack(draw(st.integers(1, 4)), "r2", OTHER_UUID, net=2)]
    groups = [*racks, hgx(draw(st.integers(0, 3)))]
    return [{n: draw(st.sampled_from(SICK if "t0" in n else SICK[:1]))(h) for n, h in g.items()} for g in groups]


profiles = st.builds(
    Profile,
    st.just("p"),
    st.just("vllm"),
    st.just("/m"),
    pool=st.just("prod"),
    nodes=st.integers(1, 4),
    gpus_per_node=st.sampled_from([1, 2, 4]),
    fabric=st.sampled_from(["prefer-nvlink", "require-nvlink", "require-rdma", "allow-tcp"]),
    allow_degraded=st.booleans(),
    port_max=st.just(8100),
)


@settings(max_examples=150, deadline=None)
@given(fleets(), profiles, st.integers(1, 3))
def test_every_plan_is_sound(groups, profile, count):
    """Never a GPU twice, never an ineligible host, never a mixed replica; a reason for every host; always the same."""
    snap = snapshot(*groups)
    fmap = fabric_map(snap)
    result = plan(fmap, snap, profile, (), count)
    assert result == plan(fmap, snap, profile, (), count)
    assert len(result.replicas) in (0, count)
    gpus = [(s.host, u) for r in result.replicas for s in r.shards for u in s.gpu_uuids]
    assert len(gpus) == len(set(gpus)) == count * profile.nodes * profile.gpus_per_node * bool(result.replicas)
    for replica in result.replicas:
        hosts = [s.host for s in replica.shards]
        assert len(set(hosts)) == profile.nodes
        assert len({fmap.verdicts[h].token for h in hosts}) == 1
        for h in hosts:
            assert fmap.verdicts[h].keeps_out(replica.tier, profile.allow_degraded) == ()
        if replica.tier == "nvlink":
            assert set(hosts) <= set(fmap.domain(replica.fabric).names)
    used = {s.host for r in result.replicas for s in r.shards}
    assert {x.host for x in result.left_out} == {f.host.name for f in snap.hosts} - used
    assert all(x.reasons and all(x.reasons) for x in result.left_out)
    if not result.replicas:
        assert result.why_not
