"""What accounts and hosts may write into the facts: none of it keeps a fleet from being mapped, planned or ensured."""

from __future__ import annotations

from dataclasses import replace

import pytest
from facts import ZERO, gpu, rack, roce_hca, snapshot
from facts import facts as make
from test_life_cli import Cli, cli  # noqa: F401 (a fixture)

from llmgwctl.fabric import fabric_map
from llmgwctl.fabric.cordons import applied, whole_hosts
from llmgwctl.launch.ensure import BackOff, back_off_of
from llmgwctl.model.gpu import Fabric
from llmgwctl.model.life import Claim, Cordon, HostLife, Note, ShardRecord
from llmgwctl.model.network import Gid, Hca, Port
from llmgwctl.model.profile import Profile
from llmgwctl.model.reading import absent, ok
from llmgwctl.placement import plan

BIG = Profile("big", "vllm", "/models/x", pool="prod", tp=8, nodes=2, gpus_per_node=4)
NO_FABRIC = Fabric("Completed", "Success", ZERO, 0)


def planned(hosts, profile=BIG):
    snap = snapshot(hosts)
    return plan(fabric_map(snap), snap, profile, ("master",))


def with_life(hosts, name, life):
    return hosts | {name: replace(hosts[name], life=ok(life))}


@pytest.mark.parametrize("until", [1e300, 3e11, 1e17])
def test_a_cordon_until_a_day_that_no_calendar_has_is_for_ever(until):
    snap = snapshot(rack(2))
    told = applied(snap, {"r1-t01": (Cordon("fan", until, account="bob"),)})
    assert whole_hosts(told, {}) == {"r1-t01": "fan (by account bob)"}


@pytest.mark.parametrize("name", ["big-" + "9" * 5000, "big-²", "big-1234567890"])
def test_a_replica_of_any_name_takes_no_number(name):
    """A claim of another account may name anything; the next replica is big-0 all the same."""
    life = HostLife(claims=(Claim("gpu-none", name, 0, "L"),), shards=(ShardRecord("d", {"replica": name, "rank": 0}),))
    assert [r.id for r in planned(with_life(rack(4), "r1-t04", life)).replicas] == ["big-0"]


@pytest.mark.parametrize(
    "text", ['{"failures": 1e999}', '{"failures": [1]}', '{"failures": "²"}', "[1]", "[" * 100_000]
)
def test_a_count_of_failed_starts_that_is_none_is_none(text):
    snap = snapshot(with_life(rack(1), "r1-t01", HostLife(notes=(Note("backoff.p", text, 5.0),))))
    assert back_off_of(snap, "p") in (BackOff(), BackOff(0, 5.0))


def roce_host(name, number, hcas, cidr):
    cards = tuple(gpu(i, "NVIDIA H100 80GB HBM3", NO_FABRIC, name) for i in range(8))
    return make(name, f"10.99.0.{number}", cards, absent(), hcas, {"rail1": cidr})


def test_an_address_with_a_prefix_that_no_address_has_is_no_rail():
    gid = Gid(3, "fd00:0000:0000:0000:0000:0000:0000:0001", "RoCE v2", "rail1")
    odd = Hca("mlx5_1", (Port(1, "ACTIVE", "LinkUp", 400, "Ethernet", 0, 0, (gid,)),), netdevs=("rail1",))
    found = fabric_map(snapshot({"a": roce_host("a", 1, (odd,), "fd00::1/255")}))
    assert found.scale_out == ()
    assert found.dropped_hcas["a"] == (("mlx5_1", "no routable RoCE v2 address"),)


def test_an_adapter_that_is_told_of_twice_is_the_one_that_is_active():
    hosts = {}
    for number, name in enumerate(("a", "b"), 1):
        real = roce_hca(1, number)
        again = replace(real, ports=(replace(real.ports[0], number=2, state="DOWN", gids=()),))
        hosts[name] = roce_host(name, number, (real, again), f"10.1.0.{number}/24")
    made = planned(hosts, replace(BIG, tp=16, gpus_per_node=8, fabric="require-rdma"))
    assert [(s.hcas, s.roce.gid_index) for s in made.replicas[0].shards] == [(("mlx5_1:1",), 3)] * 2


async def test_what_a_claim_names_reaches_no_terminal_raw(cli: Cli) -> None:  # noqa: F811
    """A replica by a name of escapes: told as running, and as what there is in place of what was asked for."""
    place = cli.rack.tree("r1-t01") / "run/lock/llmgwctl"
    place.mkdir(mode=0o1777)
    place.chmod(0o1777)
    boot = (cli.rack.tree("r1-t01") / "proc/sys/kernel/random/boot_id").read_text().strip()
    claim = f"replica=\x1b[2Jx-0\nrank=0\nlaunch=L\nboot_id={boot}\nuptime_s=1\nproc=1:1\n"
    (place / "gpu-GPU-none").write_text(claim)
    for words in (("ps",), ("ps", "nothing"), ("logs", "nothing"), ("stop", "--all")):
        _, out, err = await cli(*words)
        assert "\\x1b[2Jx-0" in out + err, words
    (place / "gpu-GPU-none").unlink(missing_ok=True)


async def test_what_a_login_prints_in_place_of_an_answer_reaches_no_terminal_raw(cli: Cli) -> None:  # noqa: F811
    """Also where the host is in no inventory yet."""
    cli.rack.set("r1-t01", "garbage")
    known = cli.home / ".ssh/known_hosts"
    known.parent.mkdir(parents=True)
    known.write_text(cli.rack.known_hosts.read_text())
    words = ["--address", cli.rack.address("r1-t01"), "--port", str(cli.rack.port), "--user", "ops"]
    words += ["--identity-file", str(cli.rack.identity_file), "-i", str(cli.home / "new.toml")]
    code, _, err = await cli("init", "r1-t01", *words)
    assert code == 3, err
    assert "its login shell does not run our script (exit code 0): \\x1b[2J" in err
