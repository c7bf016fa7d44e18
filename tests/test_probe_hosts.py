"""The scripts of the system, network, hcas and imex probes, run by real shells against small invented trees."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgwctl.model.imex import ImexChannel
from llmgwctl.model.network import Gid, Interface, Route
from llmgwctl.probe import hcas, imex, network, system
from llmgwctl.probe.base import NOT_SAVED, Output
from llmgwctl.probe.network_proc import from_proc

SHELLS = [s for s in (("dash",), ("bash", "--posix"), ("busybox", "sh")) if shutil.which(s[0])]
ZERO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"


@pytest.fixture(params=SHELLS, ids=lambda s: s[0])
def shell(request) -> tuple[str, ...]:
    return request.param


def run(shell, section, root, **env) -> Output:
    """As the framer does: the script as text, its name, the root prefix and the state directory."""
    argv = [*shell, "-c", section.body(), section.name, str(root), "~/state"]
    kept = {"PATH": f"{root}/usr/bin:{os.environ['PATH']}", "HOME": "/nowhere"} | env
    done = subprocess.run(argv, capture_output=True, text=True, env=kept, timeout=60, check=False)
    assert done.stderr == ""
    return Output(done.stdout, done.stderr, done.returncode)


def plant(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def program(root: Path, name: str, body: str) -> None:
    plant(root, {f"usr/bin/{name}": f"#!/bin/sh\n{body}\n"})
    (root / f"usr/bin/{name}").chmod(0o755)


@pytest.mark.parametrize("script", sorted(Path(hcas.__file__).parent.glob("*.sh")), ids=lambda p: p.name)
@pytest.mark.skipif(not shutil.which("shellcheck"), reason="shellcheck is not here")
def test_scripts_are_plain_posix(script):
    """No bashisms and no unquoted words: shellcheck is silent."""
    done = subprocess.run(["shellcheck", "-s", "sh", str(script)], capture_output=True, text=True, check=False)
    assert done.stdout == ""


# --- system -----------------------------------------------------------------------------------------------------


def host_tree(root: Path) -> Path:
    return plant(
        root,
        {
            "proc/sys/kernel/hostname": "r1-t01\n",
            "proc/sys/kernel/random/boot_id": "0b00b00b-1111-4222-8333-444444444444\n",
            "proc/sys/kernel/osrelease": "6.8.0-invented-64k\n",
            "proc/uptime": "90061.25 123.00\n",
            "proc/1/comm": "systemd\n",
            "proc/1/stat": "1 (systemd) S 0 1\n",
            "proc/77/comm": "slurmd\n",
            "proc/311/comm": "nvidia-smi\n",
            "proc/311/stat": "311 (nvidia-smi) D 1 311\n",
            "proc/312/comm": "nvidia-smi\n",
            "proc/312/stat": "312 (nvidia-smi) S 1 312\n",
            "proc/310/comm": "nvidia-smi\n",
            "proc/310/stat": "310 (nvidia-smi) D 1 310 310 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 9005500 0 0\n",
            "proc/313/comm": "D) D evil\n",
            "proc/driver/nvidia/version": "NVRM\n",
            "sys/bus/pci/devices/0008:01:00.0/vendor": "0x10de\n",
            "sys/bus/pci/devices/0008:01:00.0/class": "0x030200\n",
            "sys/bus/pci/devices/0008:02:00.0/vendor": "0x10de\n",
            "sys/bus/pci/devices/0008:02:00.0/class": "0x068000\n",
            "sys/bus/pci/devices/0009:01:00.0/vendor": "0x15b3\n",
            "sys/bus/pci/devices/0009:01:00.0/class": "0x020700\n",
        },
    )


def test_system(shell, tmp_path):
    """Names from under the prefix, the scheduler, a hung nvidia-smi (not one that began a moment ago), and the rest."""
    said = run(shell, system.SECTIONS[0], host_tree(tmp_path))
    found = system.PROBE.read({"system": said}).value
    assert (found.node_name, found.boot_id) == ("r1-t01", "0b00b00b-1111-4222-8333-444444444444")
    assert (found.uptime_s, found.kernel) == (90061.25, "6.8.0-invented-64k")
    assert (found.scheduler, found.stuck_gpu_tool) == ("slurmd", "nvidia-smi (pid 311) in D state")
    assert found.account
    assert found.arch == os.uname().machine
    assert "driver present\npci_gpus 1\n" in said.stdout


def test_system_of_this_machine(shell):
    """Without a prefix the real /proc answers, and the node is what `uname -n` says."""
    found = system.PROBE.read({"system": run(shell, system.SECTIONS[0], "")}).value
    assert found.node_name == os.uname().nodename
    assert found.uptime_s > 0
    assert found.stack_soft_bytes is None or found.stack_soft_bytes > 0


def test_limits_of_the_login(shell, tmp_path):
    """A shard gets the limits that the login has; unlimited is None."""
    tight = ("sh", "-c", 'ulimit -n 300; ulimit -s unlimited; ulimit -l 64; exec "$@"', "x", *shell)
    found = system.PROBE.read({"system": run(tight, system.SECTIONS[0], host_tree(tmp_path))}).value
    assert (found.nofile_hard, found.stack_soft_bytes, found.memlock_hard_bytes) == (300, None, 65536)


def test_inherited_variables(shell, tmp_path):
    """Those of the families are told, line feeds and all; secrets are told by name alone; others not at all."""
    environment = {"NCCL_DEBUG": "INFO", "NCCL_ODD": "a\nNCCL_FORGED=1", "VLLM_API_KEY": "s3cret", "UCX_TLS": "rc"}
    environment["MINE"] = "1"
    said = run(shell, system.SECTIONS[0], host_tree(tmp_path), **environment, CUDA_VISIBLE_DEVICES="0,1", RANK="0")
    assert system.PROBE.read({"system": said}).value.environment == (
        ("CUDA_VISIBLE_DEVICES", "0,1"),
        ("NCCL_DEBUG", "INFO"),
        ("NCCL_ODD", "a NCCL_FORGED=1"),
        ("RANK", "0"),
        ("UCX_TLS", "rc"),
        ("VLLM_API_KEY", "(hidden)"),
    )
    assert "s3cret" not in said.stdout


def test_a_host_without_identity_is_broken():
    assert system.PROBE.read({"system": Output("node x\n")}).broken
    assert system.PROBE.read({}).why == "not saved"


# --- network ----------------------------------------------------------------------------------------------------

ADDR = """1: lo    inet 127.0.0.1/8 scope host lo\\       valid_lft forever preferred_lft forever
2: eno1    inet 10.1.1.7/24 brd 10.1.1.255 scope global dynamic eno1\\       valid_lft 3000sec
2: eno1    inet 10.1.1.9/24 scope global secondary eno1\\       valid_lft forever
2: eno1    inet6 fd01::7/64 scope global \\       valid_lft forever
2: eno1    inet6 fe80::1/64 scope link \\       valid_lft forever
3: tun0    inet 10.9.0.2 peer 10.9.0.1/32 scope global tun0\\       valid_lft forever
4: ib0    inet6 fd02::1/64 scope global tentative \\       valid_lft forever
"""
ROUTE4 = """default via 10.1.1.1 dev eno1 proto dhcp src 10.1.1.7 metric 100
default via 10.1.1.2 dev eno1 metric 900
10.1.1.0/24 dev eno1 proto kernel scope link src 10.1.1.7 metric 100
10.9.0.1 dev tun0 proto kernel scope link src 10.9.0.2
10.20.0.0/16 proto static metric 20 \\\tnexthop via 10.1.1.3 dev eno1 weight 1 \\\tnexthop dev tun0 weight 1
unreachable 10.30.0.0/16 metric 1024
"""
ROUTE6 = "fd01::/64 dev eno1 proto kernel metric 256 pref medium\nfe80::/64 dev eno1 metric 256\n"
LINKS = {
    f"sys/class/net/{name}/{key}": f"{value}\n"
    for name, values in {
        "lo": ("unknown", "0x9", 65536),
        "eno1": ("up", "0x1003", 9000),
        "ib0": ("down", "0x1002", 4092),
        "tun0": ("unknown", "0x10d1", 1400),
    }.items()
    for key, value in zip(("operstate", "flags", "mtu"), values, strict=True)
}


def test_network_by_ip(shell, tmp_path):
    """What `ip` of that host says: addresses without the link-local ones, both families, every next hop."""
    plant(tmp_path, LINKS | {"addr": ADDR, "route4": ROUTE4, "route6": ROUTE6})
    program(tmp_path, "ip", f'cd "{tmp_path}"; case "$*" in *addr*) cat addr;; *-4*) cat route4;; *) cat route6;; esac')
    said = run(shell, network.SECTIONS[0], tmp_path, SSH_CONNECTION="10.1.1.200 40000 10.1.1.7 22")
    found = network.PROBE.read({"network": said}).value
    assert found.reached_at == "10.1.1.7"
    assert found.interfaces == (
        Interface("eno1", True, False, ("10.1.1.7/24", "10.1.1.9/24", "fd01::7/64"), 9000),
        Interface("ib0", False, False, (), 4092),
        Interface("lo", True, True, ("127.0.0.1/8",), 65536),
        Interface("tun0", True, False, ("10.9.0.2/32",), 1400),
    )
    assert found.routes == (
        Route("0.0.0.0/0", "eno1", "10.1.1.7", 100),
        Route("0.0.0.0/0", "eno1", "", 900),
        Route("10.1.1.0/24", "eno1", "10.1.1.7", 100),
        Route("10.9.0.1/32", "tun0", "10.9.0.2", 0),
        Route("10.20.0.0/16", "eno1", "", 20),
        Route("10.20.0.0/16", "tun0", "", 20),
        Route("fd01::/64", "eno1", "", 256),
    )
    assert found.route_to("10.1.1.8") == ("eno1", "10.1.1.7")


PROC = {
    "proc/net/route": "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
    "eno1\t00000000\t0101010A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
    "eno1\t0001010A\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n"
    "tun0\t0000090A\t00000000\t0201\t0\t0\t0\t0000FFFF\t0\t0\t0\n",
    "proc/net/fib_trie": "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n"
    "        +-- 10.1.1.0/24 2 0 2\n           |-- 10.1.1.7\n              /32 host LOCAL\n"
    "           |-- 10.1.1.255\n              /32 link BROADCAST\nLocal:\n           |-- 10.1.1.7\n"
    "              /32 host LOCAL\n           |-- 127.0.0.1\n              /32 host LOCAL\n",
    "proc/net/if_inet6": "fd010000000000000000000000000007 02 40 00 80     eno1\n"
    "fe800000000000000000000000000001 02 40 20 80     eno1\n",
    "proc/net/ipv6_route": "fd010000000000000000000000000000 40 00000000000000000000000000000000 00 "
    "00000000000000000000000000000000 00000100 00000001 00000000 00000001     eno1\n"
    "00000000000000000000000000000000 00 00000000000000000000000000000000 00 "
    "00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo\n",
}


@pytest.mark.parametrize(("length", "found"), [("80", [("eno1", "fd01::7/128")]), ("81", []), ("ff", [])])
def test_a_prefix_is_no_longer_than_its_address(length, found):
    row = f"fd010000000000000000000000000007 02 {length} 00 80     eno1"
    assert from_proc({"if_inet6": [row]})[0] == found


def test_network_without_ip(shell, tmp_path):
    """The kernel's own tables say the same; this machine's `ip` is never asked about a host under a prefix."""
    said = run(shell, network.SECTIONS[0], plant(tmp_path, LINKS | PROC))
    found = network.PROBE.read({"network": said}).value
    assert found.reached_at == ""
    assert found.interface_with("10.1.1.7") == Interface("eno1", True, False, ("10.1.1.7/24", "fd01::7/64"), 9000)
    assert found.interface_with("127.0.0.1").loopback
    assert found.routes == (
        Route("0.0.0.0/0", "eno1", "", 100),
        Route("10.1.1.0/24", "eno1", "", 100),
        Route("fd01::/64", "eno1", "", 256),
    )


def test_network_of_this_machine(shell):
    """Without a prefix the real interfaces answer, lo among them, and the ports that something listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = network.PROBE.read({"network": run(shell, network.SECTIONS[0], "")}).value
        assert next(i for i in found.interfaces if i.name == "lo").loopback
        assert server.getsockname()[1] in found.listening


TCP = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0701010A:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1 0 100 0 0 10 0
   1: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 2 1 0 100 0 0 10 0
   2: 0801010A:1F41 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 3 1 0 100 0 0 10 0
   3: 0701010A:0016 C801010A:9C40 01 00000000:00000000 02:000A7214 00000000     0        0 4 2 0 20 4 1 10 -1
   4: 0100007F:1F42 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 3 1 0 100 0 0 10 0
"""
TCP6 = """  sl  local_address                         remote_address                        st tx_queue rx_queue
   0: 000001FD000000000000000007000000:2000 00000000000000000000000000000000:0000 0A 00000000:00000000
   1: 0000000000000000FFFF00000701010A:2001 00000000000000000000000000000000:0000 0A 00000000:00000000
   2: 00000000000000000000000000000000:2002 00000000000000000000000000000000:0000 0A 00000000:00000000
"""


def test_ports_that_are_taken(shell, tmp_path):
    """Listeners on an own address or on all: not those of another host's address, nor connections, nor 127.0.0.1
    (which a simulated host shares with this machine)."""
    tables = {"proc/net/tcp": TCP, "proc/net/tcp6": TCP6}
    said = run(shell, network.SECTIONS[0], plant(tmp_path, LINKS | PROC | tables))
    assert network.PROBE.read({"network": said}).value.listening == (22, 8000, 0x2000, 0x2001, 0x2002)


def test_ports_that_are_not_shown_are_not_known():
    """A saved answer without the tables says nothing of ports; an empty list says that none is taken."""
    assert network.PROBE.read({"network": Output("link lo unknown 0x9 65536\n")}).value.listening is None
    assert network.PROBE.read({"network": Output("link lo unknown 0x9 65536\nlisteners\n")}).value.listening == ()


def test_network_of_nothing_is_broken(shell, tmp_path):
    assert network.PROBE.read({"network": run(shell, network.SECTIONS[0], tmp_path)}).broken
    assert network.PROBE.read({"network": NOT_SAVED}).why == "not saved"


# --- hcas -------------------------------------------------------------------------------------------------------


def adapter(root: Path, name: str, pci: str, layer: str, netdev: str, guid: str = "7cfe:9003:00ab:cd01") -> Path:
    """One adapter as the kernel lays it out: the class entry is a link into the device tree."""
    device = root / "sys/devices/pci0000:00" / pci
    home = device / "infiniband" / name
    rate = "400 Gb/sec (4X NDR)" if layer == "InfiniBand" else "200 Gb/sec (4X HDR)"
    port = {
        "state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": rate, "link_layer": layer,
        "lid": "0x1a", "sm_lid": "0x1", "pkeys/0": "0x7fff", "pkeys/1": "0x8001", "pkeys/2": "0x0000",
        "gids/0": "fe80:0000:0000:0000:7cfe:9003:00ab:cd01", "gid_attrs/types/0": "IB/RoCE v1",
        "gids/3": "0000:0000:0000:0000:0000:ffff:0a14:0001", "gid_attrs/types/3": "RoCE v2",
        "gid_attrs/ndevs/0": netdev, "gid_attrs/ndevs/3": netdev,
    }  # fmt: skip
    port |= {f"gids/{i}": ZERO_GID for i in range(256) if i not in (0, 3)}
    plant(home / "ports/1", {k: v + "\n" for k, v in port.items()})
    facts = {"node_guid": guid, "sys_image_guid": guid, "hca_type": "MT4129", "fw_ver": "28.1.2", "board_id": "MT_1"}
    plant(home, {k: v + "\n" for k, v in facts.items()})
    plant(device, {"numa_node": "1\n", f"net/{netdev}/mtu": "4092\n", "vpd": "\x82 ConnectX V0 plain"})
    (home / "device").symlink_to("../..")
    (root / "sys/class/infiniband").mkdir(parents=True, exist_ok=True)
    (root / "sys/class/infiniband" / name).symlink_to(f"../../devices/pci0000:00/{pci}/infiniband/{name}")
    return device


def read_hcas(shell, root):
    return hcas.PROBE.read({"hcas": run(shell, hcas.SECTIONS[0], root)})


def test_hcas(shell, tmp_path):
    """Ports, rates, partition keys and the GIDs that are there, of 256 places."""
    adapter(tmp_path, "mlx5_0", "0000:1a:00.0", "InfiniBand", "ibs0")
    (found,) = read_hcas(shell, tmp_path).value
    assert (found.name, found.pci_address, found.numa_node, found.netdevs) == ("mlx5_0", "0000:1a:00.0", 1, ("ibs0",))
    assert (found.hca_type, found.firmware, found.board) == ("MT4129", "28.1.2", "MT_1")
    assert (found.node_guid, found.system_guid) == ("7cfe:9003:00ab:cd01",) * 2
    (port,) = found.ports
    assert (port.number, port.state, port.phys_state, port.active) == (1, "ACTIVE", "LinkUp", True)
    assert (port.rate_gbps, port.link_layer, port.lid, port.sm_lid) == (400, "InfiniBand", 26, 1)
    assert port.pkeys == ("0x7fff", "0x8001")
    assert port.gids == (
        Gid(0, "fe80:0000:0000:0000:7cfe:9003:00ab:cd01", "IB/RoCE v1", "ibs0"),
        Gid(3, "0000:0000:0000:0000:0000:ffff:0a14:0001", "RoCE v2", "ibs0"),
    )
    assert str(port.gids[1].address) == "10.20.0.1"


def test_adapters_that_are_not_for_compute(shell, tmp_path):
    """NVSwitch management, virtual functions, bonds and bridges are told apart."""
    for number, netdev in enumerate(("ib0", "ib1", "bonded0", "bridged0", "ovs0")):
        adapter(tmp_path, f"mlx5_{number}", f"0000:1{number}:00.0", "Ethernet", netdev)
    pci = tmp_path / "sys/devices/pci0000:00"
    (pci / "0000:10:00.0/vpd").write_text("\x82 ConnectX SW_MNG")
    (pci / "0000:11:00.0/physfn").symlink_to("../0000:10:00.0")
    masters = {"bond0/bonding/mode": "x", "br0/bridge/bridge_id": "x", "ovs-system/mtu": "x"}
    net = plant(tmp_path / "sys/class/net", masters)
    for member, master in (("bonded0", "bond0"), ("bridged0", "br0"), ("ovs0", "ovs-system")):
        (net / member).mkdir()
        (net / member / "master").symlink_to(f"../{master}")
    found = read_hcas(shell, tmp_path).value
    assert [h.switch_management for h in found] == [True, False, False, False, False]
    assert [h.virtual_function for h in found] == [False, True, False, False, False]
    assert [h.bonded for h in found] == [False, False, True, False, False]
    assert [h.bridged for h in found] == [False, False, False, True, True]


def test_a_device_that_may_not_be_asked(shell, tmp_path):
    """A VPD that this account cannot read says nothing: neither a management function nor none."""
    device = adapter(tmp_path, "mlx5_bond_0", "0000:1a:00.0", "Ethernet", "eth9")
    (device / "vpd").unlink()
    (found,) = read_hcas(shell, tmp_path).value
    assert (found.switch_management, found.bonded) == (None, True)


def test_no_infiniband_is_absent(shell, tmp_path):
    assert read_hcas(shell, tmp_path).state == "absent"
    (tmp_path / "sys/class/infiniband").mkdir(parents=True)
    assert read_hcas(shell, tmp_path).value == ()


def test_a_list_that_was_cut_is_broken():
    assert "ends early" in hcas.PROBE.read({"hcas": Output("hca mlx5_0\nport 1\n")}).why


# --- imex -------------------------------------------------------------------------------------------------------


def imex_tree(root: Path) -> Path:
    config = "# a comment\nIMEX_CMD_ENABLED=1\nIMEX_NODE_CONFIG_FILE = /etc/imex nodes.cfg # x\n"
    program(root, "systemctl", 'echo "LoadState=loaded\nActiveState=activating\nUnitFileState=enabled"')
    plant(
        root,
        {
            "etc/nvidia-imex/config.cfg": config,
            "etc/imex nodes.cfg": "10.7.0.1\r\n\n# spare\n  r1-t02  \nfd07::3\nr1-t04\n",
            "etc/hosts": "127.0.0.1 localhost\n10.7.0.2 r1-t02.example r1-t02 # tray\n",
            "proc/devices": "Character devices:\n  1 mem\n506 nvidia-caps-imex-channels\n\nBlock devices:\n",
            "dev/nvidia-caps-imex-channels/channel0": "506 0\n",
            "dev/nvidia-caps-imex-channels/channel12": "505 12\n",
        },
    )
    return root


def read_files(shell, root) -> imex.Files:
    return imex.read_files(run(shell, imex.SECTIONS[0], root).stdout)


def test_imex_files(shell, tmp_path):
    """Unit, settings, node list with what its names are here, channels with their own major."""
    found = read_files(shell, imex_tree(tmp_path / "with space"))
    assert found.unit == {"LoadState": "loaded", "ActiveState": "activating", "UnitFileState": "enabled"}
    assert (found.config, found.cmd_enabled) == ("present", True)
    assert found.nodes == ["10.7.0.1", "r1-t02", "fd07::3", "r1-t04"]
    assert sorted(found.resolved) == [("r1-t02", ("10.7.0.2",)), ("r1-t04", ())]
    assert found.major == 506
    assert found.channels == [ImexChannel(0, 506, True), ImexChannel(12, 505, True)]


def test_imex_is_not_here(shell, tmp_path):
    """An empty host has nothing to say, and asks nothing of this machine's systemd."""
    found = read_files(shell, plant(tmp_path, {"proc/devices": "Character devices:\n  1 mem\n"}))
    assert found == imex.Files(config="absent")
    assert found.nothing


def test_a_config_that_names_no_file(shell, tmp_path):
    """The shipped place counts where the key is empty or absent; IMEX_CMD_ENABLED that is absent means 0."""
    etc = tmp_path / "etc/nvidia-imex"
    plant(etc, {"config.cfg": "IMEX_NODE_CONFIG_FILE=\n", "nodes_config.cfg": "10.7.0.9\n"})
    found = read_files(shell, tmp_path)
    assert (found.nodes, found.cmd_enabled) == (["10.7.0.9"], False)


def test_names_are_resolved_by_the_host_itself(shell):
    """On a real host its own resolver is asked: localhost is there on every one of them."""
    section = imex.SECTIONS[0]
    body = section.body().replace("\nunit\nconfig\nnodes\nchannels 2>/dev/null\n", "\nresolve 'localhost\n10.7.0.1'\n")
    done = subprocess.run([*shell, "-c", body, section.name, "", ""], capture_output=True, text=True, check=True)
    kind, name, *addresses = done.stdout.split()
    assert (kind, name) == ("resolved", "localhost")
    assert set(addresses) & {"127.0.0.1", "::1"}
    assert all(socket.getaddrinfo(a, None) for a in addresses)


# --- total ------------------------------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [
        *ADDR.split("\n"), *("proc route " + r for r in PROC["proc/net/route"].split("\n")), "link a b 0x c",
        *("route4 " + r for r in ROUTE4.split("\n")), "addr 1: x inet 999.1.1.1/99", "route4 default dev", "gid 1",
        "limit stack", "port", "hca", "is", "netdev", "proc ipv6_route " + "f" * 32, "uptime inf", "end", "node n",
        "link eth0 up 0xzz 9", "gid ² x", "boot_id b", "limit nofile ² ³ x", "uptime nan", "reached 1.2.3.4.5",
        "stuck", "env A",
        "addr 1: x inet6 fe80::1%e/64", "proc fib_trie |-- 999.9.9.9", "proc fib_trie /32 host LOCAL",
        "route6 ::/999 dev x", "has rate ² Gb/sec", "pkey 0x",
    ]
)  # fmt: skip


@given(st.one_of(st.text(), st.lists(PIECES).map("\n".join)))
@settings(max_examples=200, deadline=None)
def test_any_text_gives_a_reading(text):
    """The parsers are total, and what they hand on is whole: every address and route can be asked."""
    system.parse({"system": Output(text)})
    hcas.parse({"hcas": Output(text + "\nend")})
    found = network.parse({"network": Output(text)}).value
    if found is not None:
        found.route_to("10.1.1.1")
        assert all("/" in a for i in found.interfaces for a in i.addresses)
