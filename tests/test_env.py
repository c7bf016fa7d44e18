"""The environment of a shard: every variable of the rules, with its reason, and none that does not belong."""

from __future__ import annotations

from dataclasses import replace

import pytest
from facts import hgx, rack, with_imex
from test_placement import ONE, TWO, planned, roce_hca, roce_host

from llmgwctl.engines import vllm
from llmgwctl.engines.base import ShardContext
from llmgwctl.engines.env import environment, removed
from llmgwctl.model.reading import ok

DOWN = {"state": "DOWN", "table": None}


def env_of(profile, *groups, rank=0):
    replica = planned(profile, *groups).replicas[0]
    ctx = ShardContext(replica, replica.shards[rank], profile)
    return {v.name: v for v in environment(ctx, vllm.ENGINE)}


def values(env):
    return {n: v.value for n, v in env.items()}


def test_two_hosts_in_a_domain():
    """MNNVL and cuMem on, bootstrap on the exact interface, the shared fabric's adapters as a fallback."""
    assert values(env_of(TWO, rack(2), rank=1)) == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "0,1,2,3",
        "GLOO_SOCKET_IFNAME": "eth0",
        "NCCL_CUMEM_ENABLE": "1",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,BOOTSTRAP,ENV,NET",
        "NCCL_IB_DISABLE": "0",
        "NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1",
        "NCCL_MNNVL_ENABLE": "1",
        "NCCL_SOCKET_IFNAME": "=eth0",
        "VLLM_HOST_IP": "10.1.0.2",
    }


def test_a_domain_without_adapters_says_no_infiniband():
    env = values(env_of(TWO, rack(2, hcas=0)))
    assert env["NCCL_IB_DISABLE"] == "1"
    assert "NCCL_IB_HCA" not in env


def test_infiniband_makes_a_fall_to_tcp_an_error_and_sets_no_mnnvl_without_domains():
    env = values(env_of(TWO, hgx(2)))
    assert (env["NCCL_NET"], env["NCCL_IB_DISABLE"]) == ("IB", "0")
    assert not {"NCCL_MNNVL_ENABLE", "NCCL_CUMEM_ENABLE"} & set(env)


def test_trays_over_infiniband_switch_mnnvl_off_on_every_rank():
    """NCCL aborts on a broken IMEX instead of falling back, so no rank may try."""
    hosts = {n: with_imex(h, **DOWN) for n, h in rack(2).items()}
    for rank in (0, 1):
        assert values(env_of(TWO, hosts, rank=rank))["NCCL_MNNVL_ENABLE"] == "0"


def test_tcp_disables_infiniband():
    hosts = {n: with_imex(h, **DOWN) for n, h in rack(2, hcas=0).items()}
    env = values(env_of(replace(TWO, fabric="allow-tcp"), hosts))
    assert (env["NCCL_IB_DISABLE"], env["NCCL_MNNVL_ENABLE"]) == ("1", "0")


def test_one_host_gets_bootstrap_and_its_gpus_and_nothing_about_fabrics():
    assert set(env_of(ONE, rack(1))) == {
        "CUDA_DEVICE_ORDER",
        "CUDA_VISIBLE_DEVICES",
        "GLOO_SOCKET_IFNAME",
        "NCCL_SOCKET_IFNAME",
        "VLLM_HOST_IP",
    }


def test_roce_gets_one_gid_index_or_a_range():
    hosts = {"a": roce_host("a", 1, (2, 3)), "b": roce_host("b", 2, (2, 3))}
    assert values(env_of(TWO, hosts))["NCCL_IB_GID_INDEX"] == "3"
    hosts["a"] = replace(hosts["a"], hcas=ok((roce_hca(2, 1, 3), roce_hca(3, 1, 5))))
    env = values(env_of(TWO, hosts))
    assert (env["NCCL_IB_ADDR_RANGE"], "NCCL_IB_GID_INDEX" in env) == ("10.2.0.0/15", False)


def test_profile_env_wins_and_shows_what_it_overrode():
    env = env_of(replace(TWO, env=(("NCCL_DEBUG", "WARN"), ("HF_HUB_OFFLINE", "1"))), rack(2))
    assert (env["NCCL_DEBUG"].value, env["NCCL_DEBUG"].overrides) == ("WARN", "INFO")
    assert env["HF_HUB_OFFLINE"].overrides is None


def test_a_network_plugin_keeps_its_own_net():
    env = values(env_of(replace(TWO, env=(("NCCL_NET_PLUGIN", "ofi"),)), hgx(2)))
    assert "NCCL_NET" not in env


def test_inherited_families_are_removed_unless_the_profile_names_them():
    replica = planned(TWO, rack(2)).replicas[0]
    profile = replace(TWO, env=(("CUDA_DEVICE_ORDER", "FASTEST_FIRST"),))
    families = removed(ShardContext(replica, replica.shards[0], profile))
    assert "NCCL_" in families
    assert "CUDA_DEVICE_ORDER" not in families


@pytest.mark.parametrize("group", [rack(2), hgx(2)])
def test_every_variable_has_a_reason_and_they_are_sorted(group):
    env = list(env_of(TWO, group).values())
    assert all(v.why for v in env)
    assert [v.name for v in env] == sorted(v.name for v in env)
