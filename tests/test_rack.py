"""The simulated rack: what its hosts print, that faults show, and that its SSH behaves as a real one."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import asyncssh
import pytest

from llmgwctl.cli.racks import up
from llmgwctl.model.errors import UsageError
from llmgwctl.rack import FAULTS, Rack, RackSpec, control, faults, hgx, host, mixed, nvl72, serve
from llmgwctl.rack.loop import main_loop
from llmgwctl.rack.machine import Machine
from llmgwctl.rack.tree import File, Link, Tree

NOW = datetime(2026, 12, 1, 4, 19, 17, 99000, tzinfo=UTC)


def rendered(tmp: Path, spec: RackSpec, name: str, *texts: str) -> Path:
    """The tree of one host with these faults, beside its peers without any."""
    machines = {m.name: m for m in spec.machines}
    machines[name] = faults.apply(machines[name], texts)
    fleet = {m.address: m for m in machines.values()}
    Tree(tmp).write(host.entries(machines[name], fleet, NOW))
    return tmp


def ask(tree: Path, program: str, *args: str) -> subprocess.CompletedProcess[str]:
    path = tree / "usr/bin" / program
    return subprocess.run([path, *args], capture_output=True, text=True, check=False)


def rows(text: str, key: str) -> list[str]:
    """The values of all lines `key : value`."""
    return re.findall(rf"(?m)^ *{re.escape(key)} *: (.*)$", text)


@pytest.mark.parametrize(
    ("driver", "column", "keys"),
    [
        ("535.274.02", 42, ()),
        ("550.144.03", 42, ("Bandwidth",)),
        ("580.95.05", 42, ("Summary", "Bandwidth", "Incorrect Configuration")),
        ("580.178.04", 55, ("Summary", "Bandwidth", "Incorrect Configuration", "Partition Assigned")),
        ("590.48.01", 55, ("Summary", "Bandwidth", "Incorrect Configuration")),
        ("615.71.09", 55, ("Summary", "Partition Assigned", "Global Fabric Manager State")),
    ],
)
def test_q_has_the_layout_of_its_driver(tmp_path, driver, column, keys):
    """The colon's column and the health rows are those that each branch of the driver prints."""
    q = ask(rendered(tmp_path, nvl72(2, driver=driver), "r1-t01"), "nvidia-smi", "-q").stdout
    assert q.count("\nGPU 000000") == 4
    assert rows(q, "Attached GPUs") == ["4"]
    colons = {line.index(": ") for line in q.splitlines() if line.startswith("    ") and ": " in line}
    assert colons == {column}
    health = q.partition("Fabric\n")[2].partition("Processes")[0]
    assert [k for k in keys if k not in health] == []
    assert ("Partition Assigned" in health) == ("Partition Assigned" in keys)


def test_a_tray_has_its_place_and_its_domain(tmp_path):
    """All GPUs of a rack share one ClusterUUID, and Platform Info counts trays around the switches."""
    spec = nvl72(18)
    first = ask(rendered(tmp_path / "a", spec, "r1-t01"), "nvidia-smi", "-q").stdout
    ninth = ask(rendered(tmp_path / "b", spec, "r1-t09"), "nvidia-smi", "-q").stdout
    assert rows(first, "ClusterUUID") == rows(ninth, "ClusterUUID")
    assert len(set(rows(first, "ClusterUUID"))) == 1
    assert rows(first, "CliqueId") == ["32766"] * 4
    assert (rows(ninth, "Slot Number")[0], rows(ninth, "Tray Index")[0]) == ("18", "8")
    assert set(rows(first, "GPU UUID")).isdisjoint(rows(ninth, "GPU UUID"))


def test_an_hgx_host_is_no_domain(tmp_path):
    """One machine's NVSwitch: joined, with a ClusterUUID of zeros, health that is not reported, and no IMEX."""
    tree = rendered(tmp_path, hgx(1), "h100-01")
    q = ask(tree, "nvidia-smi", "-q").stdout
    assert set(rows(q, "ClusterUUID")) == {"00000000-0000-0000-0000-000000000000"}
    assert set(rows(q, "Summary")) == {"N/A"}
    assert not (tree / "usr/bin/nvidia-imex-ctl").exists()
    assert not (tree / host.CHANNELS).exists()


@pytest.mark.parametrize(
    ("fault", "key", "value"),
    [
        ("gpu-not-joined:2", "State", ["Completed", "Completed", "In Progress", "Completed"]),
        ("all-dropped", "State", ["In Progress"] * 4),
        ("degraded:1", "Bandwidth", ["Full", "Degraded", "Full", "Full"]),
        ("degraded:1", "Summary", ["Healthy", "Limited Capacity", "Healthy", "Healthy"]),
        ("unhealthy", "Route Unhealthy", ["True", "False", "False", "False"]),
        ("clique:7", "CliqueId", ["7"] * 4),
        ("clique", "CliqueId", ["2"] * 4),
        ("mig:3", "Compute Instance ID", ["0"]),
        ("recovery:1", "GPU Recovery Action", ["None", "Reset", "None", "None"]),
        ("busy:2", "Used GPU Memory", ["30720 MiB"]),
    ],
)
def test_faults_of_gpus_show_in_q(tmp_path, fault, key, value):
    """What is broken is what nvidia-smi says, on the GPU that was named and on no other."""
    q = ask(rendered(tmp_path, nvl72(2), "r1-t01", fault), "nvidia-smi", "-q").stdout
    assert rows(q, key) == value


def test_a_card_that_waits_reports_nothing_else(tmp_path):
    """In Progress: status, clique, UUID and health are N/A, as the real program prints them."""
    q = ask(rendered(tmp_path, nvl72(2), "r1-t01", "all-dropped"), "nvidia-smi", "-q").stdout
    for key in ("Status", "CliqueId", "ClusterUUID", "Summary", "Bandwidth"):
        assert rows(q, key) == ["N/A"] * 4


@pytest.mark.parametrize(
    ("driver", "code", "where"),
    [("550.144.03", 15, "alone"), ("570.195.03", 0, "first on stdout"), ("580.178.04", 0, "stderr")],
)
def test_a_lost_gpu_is_counted_and_not_described(tmp_path, driver, code, where):
    """The message goes where each driver sends it, and fewer blocks follow than GPUs are attached."""
    answer = ask(rendered(tmp_path, nvl72(2, driver=driver), "r1-t01", "gpu-lost:1"), "nvidia-smi", "-q")
    message = "Unable to determine the device handle for GPU1: 0009:06:00.0: GPU is lost."
    assert answer.returncode == code
    assert message in (answer.stderr if where == "stderr" else answer.stdout)
    assert answer.stdout.startswith(message) == (where != "stderr")
    assert answer.stdout.count("\nGPU 000000") == (0 if where == "alone" else 3)


def test_lists_and_matrix_leave_a_lost_gpu_out(tmp_path):
    """Indices are then not contiguous: GPU0 GPU2 GPU3."""
    tree = rendered(tmp_path, nvl72(2), "r1-t01", "gpu-lost:1")
    topo = ask(tree, "nvidia-smi", "topo", "-m").stdout
    assert topo.startswith("\t\x1b[4mGPU0\tGPU2\tGPU3\tNIC0")
    csv = ask(tree, "nvidia-smi", "--query-gpu=index,uuid,compute_cap", "--format=csv,noheader")
    assert [line.split(", ")[0] for line in csv.stdout.splitlines()] == ["0", "2", "3"]
    assert "GPU is lost" in csv.stderr
    assert ask(tree, "nvidia-smi", "-L").returncode == 15


def test_query_answers_columns_and_refuses_unknown_ones(tmp_path):
    """Titles, units and the refusal of one unknown field are those of --query-gpu."""
    tree = rendered(tmp_path, nvl72(2), "r1-t01")
    asked = ask(tree, "nvidia-smi", "--query-gpu=index, memory.total", "--format=csv").stdout.splitlines()
    assert asked[:2] == ["index, memory.total [MiB]", "0, 189471 MiB"]
    bare = ask(tree, "nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits").stdout
    assert bare.splitlines() == ["189471"] * 4
    refused = ask(tree, "nvidia-smi", "--query-gpu=index,nonsense", "--format=csv")
    assert (refused.returncode, refused.stdout) == (2, 'Field "nonsense" is not a valid field to query.\n\n')


def test_imex_text_is_laid_out_as_the_real_program_does(tmp_path):
    """The local node is marked, the columns stand where the program puts them, and all are connected."""
    tree = rendered(tmp_path, nvl72(3), "r1-t02")
    text = ask(tree, "nvidia-imex-ctl", "-N").stdout.splitlines()
    assert text[13] == "Nodes:"
    assert text[12] == "12/1/2026 04:19:17.099"
    assert text[14] == "Node #0   - 127.77.1.1         - READY                - Version: 580.178.04      "
    assert text[15].startswith("Node #1   * 127.77.1.2 *       - READY")
    assert text[18:20] == [" Nodes From\\To  0   1   2  ", "       0        C   C   C  "]
    assert text[-1] == "Domain State: UP"
    assert ask(tree, "nvidia-imex-ctl", "-q").stdout == "READY\n"


def test_imex_down_is_seen_by_itself_and_by_its_peers(tmp_path):
    """The daemon's own host gets an error with exit code 0, the others see it unavailable."""
    spec = nvl72(3)
    tree = rendered(tmp_path / "own", spec, "r1-t02", "imex-down")
    q = ask(tree, "nvidia-imex-ctl", "-q")
    assert (q.returncode, q.stdout) == (0, "")
    assert "Query Status failed." in q.stderr
    assert ask(tree, "nvidia-imex-ctl", "-N").stdout.endswith("Domain State: DOWN\n")
    assert "ActiveState=failed" in ask(tree, "systemctl", "show", "nvidia-imex", "-p", "ActiveState").stdout
    machines = {m.name: m for m in spec.machines}
    machines["r1-t02"] = faults.apply(machines["r1-t02"], ["imex-down"])
    Tree(tmp_path / "peer").write(host.entries(machines["r1-t01"], {m.address: m for m in machines.values()}, NOW))
    table = json.loads(ask(tmp_path / "peer", "nvidia-imex-ctl", "-N", "-j").stdout)
    assert table["status"] == "DEGRADED"
    assert table["nodes"]["1"]["status"] == "UNAVAILABLE"
    assert table["nodes"]["1"]["connections"]["0"]["status"] == "INVALID"
    assert table["nodes"]["0"]["connections"]["1"]["status"] == "RECOVERING"
    assert table["nodes"]["0"]["connections"]["2"]["status"] == "CONNECTED"


def test_imex_can_be_cut_one_way(tmp_path):
    """Of the two cells of a pair only one is bad."""
    tree = rendered(tmp_path, nvl72(3), "r1-t01", "imex-oneway:r1-t03")
    nodes = json.loads(ask(tree, "nvidia-imex-ctl", "-j").stdout)["nodes"]
    assert nodes["0"]["connections"]["2"]["status"] == "NEVER_CONNECTED"
    assert nodes["2"]["connections"]["0"]["status"] == "CONNECTED"


def test_channels_are_files_that_say_their_numbers(tmp_path):
    """Without root there are no device nodes: a plain file says which major and minor it stands for."""
    tree = rendered(tmp_path, nvl72(2), "r1-t01")
    assert (tree / host.CHANNELS / "channel0").read_text() == "506 0\n"
    assert "506 nvidia-caps-imex-channels\n" in (tree / "proc/devices").read_text()
    assert not (rendered(tmp_path / "x", nvl72(2), "r1-t01", "channel-missing") / host.CHANNELS).exists()


def test_adapters_lie_in_sysfs_as_the_kernel_has_them(tmp_path):
    """A class entry is a link into the PCI device, and a link down shows in state and LIDs."""
    tree = rendered(tmp_path, hgx(2), "h100-02", "hca-down:3")
    device = tree / "sys/class/infiniband/mlx5_3"
    assert os.path.realpath(device / "device").endswith("/0000:4b:00.0")
    assert (device / "ports/1/state").read_text() == "1: DOWN\n"
    assert (tree / "sys/class/infiniband/mlx5_0/ports/1/state").read_text() == "4: ACTIVE\n"
    assert (tree / "sys/class/infiniband/mlx5_bond_0/ports/1/link_layer").read_text() == "Ethernet\n"


def test_rails_of_roce_hosts_share_subnets(tmp_path):
    """Rail by rail: the routable GID is the address of the rail's interface."""
    tree = rendered(tmp_path, hgx(2, roce=True, product="H200"), "h200-02")
    port = tree / "sys/class/infiniband/mlx5_5/ports/1"
    assert (port / "gids/3").read_text() == "0000:0000:0000:0000:0000:ffff:0a25:0002\n"
    assert (port / "gid_attrs/types/3").read_text() == "RoCE v2\n"
    assert "inet 10.37.0.2/16 brd 10.37.255.255 scope global rail5" in ask(tree, "ip", "-o", "addr").stdout
    assert os.path.realpath(tree / "sys/class/net/rail5/device") == os.path.realpath(
        tree / "sys/class/infiniband/mlx5_5/device"
    )


def test_switch_bridges_of_a_b200_board_can_be_told(tmp_path):
    """The functions that manage the NVSwitches say so in their VPD; those that carry data do not."""
    tree = rendered(tmp_path, hgx(1, product="B200"), "b200-01")
    vpd = {p.name: b"SW_MNG" in (p / "device/vpd").read_bytes() for p in (tree / "sys/class/infiniband").iterdir()}
    assert {name for name, manages in vpd.items() if manages} == {"mlx5_8", "mlx5_9", "mlx5_10", "mlx5_11"}


def test_every_fault_has_help_and_can_be_applied():
    """Each name in the list means something for a tray, and says in one line what."""
    tray = nvl72(2).machines[0]
    for fault in FAULTS:
        argument = {":PEER": ":r1-t02", ":SECONDS": ":0.2", ":VERSION": ":0.32.0"}.get(fault.argument, "")
        assert faults.apply(tray, [fault.name + argument]) != tray
        assert fault.help
        assert "\n" not in fault.help
    assert len({f.name for f in FAULTS}) == len(FAULTS)


@pytest.mark.parametrize(
    ("name", "fault", "says"),
    [
        ("r1-t01", "imex-dwon", "did you mean 'imex-down'"),
        ("r1-t1", "imex-down", "did you mean 'r1-t"),
        ("r1-t01", "gpu-lost:9", "has 4"),
        ("r1-t01", "gpu-lost:x", "is a number"),
        ("r1-t01", "slow", "needs its SECONDS"),
        ("r1-t01", "hang:3", "takes no argument"),
        ("r1-t01", "imex-oneway:r9-t01", "no simulated host 'r9-t01'"),
        ("h100-01", "imex-down", "has no IMEX"),
    ],
)
def test_a_fault_that_cannot_be_is_refused(name, fault, says):
    """A wrong name or argument is an error of use that names the remedy."""
    machines = {m.name: m for m in nvl72(2, hgx=1).machines}
    with pytest.raises(UsageError, match=re.escape(says)):
        faults.check(fault, machines, name)


def test_a_tree_follows_its_description(tmp_path):
    """What is no longer described goes, with the directories that it left empty; other files stay."""
    tree = Tree(tmp_path)
    tree.write({"a/b/one": File("1"), "a/two": File("2", 0o600), "l": Link("a/two")})
    (tmp_path / "a/kept").write_text("not ours")
    inode = (tmp_path / "a/two").stat().st_ino
    tree.write({"a/two": File("2", 0o600)})
    assert not (tmp_path / "a/b").exists()
    assert not (tmp_path / "l").is_symlink()
    assert (tmp_path / "a/kept").read_text() == "not ours"
    assert (tmp_path / "a/two").stat().st_ino == inode  # unchanged, so not written again


def test_a_fleet_can_be_moved_and_joined():
    """Every address follows the network, and hosts of different products never share one."""
    spec = mixed(4, ib=2, roce=2).at("127.90")
    addresses = [m.address for m in spec.machines]
    assert len(set(addresses)) == 8
    assert all(a.startswith("127.90.") for a in addresses)
    tray: Machine = spec.machines[0]
    assert tray.imex is not None
    assert tray.imex.nodes == tuple(addresses[:4])
    assert tray.interfaces[0].address == f"{tray.address}/16"


async def login(rack: Rack, name: str, **options: object) -> asyncssh.SSHClientConnection:
    return await asyncssh.connect(
        rack.address(name), rack.port, username="ops", client_keys=[str(rack.identity_file)],
        known_hosts=str(rack.known_hosts), config=None, **options,
    )  # fmt: skip


async def test_exec_is_really_run(tmp_path):
    """Binary input and output, the exit code, the host's own HOME, PATH and address."""
    async with serve(nvl72(2), tmp_path / "rack") as rack, await login(rack, "r1-t02") as c:
        blob = bytes(range(256)) * 4000
        echoed = await c.run("cat; echo problem >&2; exit 7", input=blob, encoding=None)
        assert (echoed.exit_status, echoed.stdout, echoed.stderr) == (7, blob, b"problem\n")
        where = await c.run('echo "$HOME"; pwd; echo "$SSH_CONNECTION"; command -v nvidia-smi')
        home, cwd, connection, program = str(where.stdout).split("\n")[:4]
        assert home == cwd == str(rack.home("r1-t02"))
        assert connection.split()[2:] == [rack.address("r1-t02"), str(rack.port)]
        assert program == str(rack.tree("r1-t02") / "usr/bin/nvidia-smi")
        assert (await c.run("true", input=blob * 4, encoding=None)).exit_status == 0  # nobody reads it
        assert (await c.run("kill -9 $$")).exit_signal[0] == "KILL"


async def test_signals_reach_the_command(tmp_path):
    """As the client asks, after its input has ended too."""
    async with serve(nvl72(1, hgx=0), tmp_path / "rack") as rack, await login(rack, "r1-t01") as c:
        process = await c.create_process("trap 'echo caught; exit 3' TERM; echo ready; while :; do sleep 0.02; done")
        process.stdin.write_eof()
        assert await process.stdout.readline() == "ready\n"
        process.send_signal("TERM")
        done = await process.wait()
        assert (done.stdout, done.exit_status) == ("caught\n", 3)


async def test_forwarding_reaches_loopback_and_nothing_else(tmp_path):
    """What listens on a host's address is reached through it; other networks are refused, as is all when told so."""

    async def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    async with serve(nvl72(2), tmp_path / "rack") as rack, await login(rack, "r1-t01") as c:
        server = await asyncio.start_server(hello, rack.address("r1-t02"), 0)
        port = server.sockets[0].getsockname()[1]
        reader, _ = await c.open_connection(rack.address("r1-t02"), port, encoding=None)
        assert await reader.read() == b"hello"
        with pytest.raises(asyncssh.ChannelOpenError) as e:
            await c.open_connection("10.0.0.1", 80)
        assert e.value.code == asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED
        server.close()
        with pytest.raises(asyncssh.ChannelOpenError) as e:
            await c.open_connection(rack.address("r1-t02"), port)
        assert e.value.code == asyncssh.OPEN_CONNECT_FAILED
        rack.set("r1-t02", "no-forwarding")
        async with await login(rack, "r1-t02") as other:
            with pytest.raises(asyncssh.ChannelOpenError) as e:
                await other.open_connection(rack.address("r1-t02"), rack.port)
            assert e.value.code == asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED


async def test_processes_outlive_the_connection_and_not_the_host(tmp_path):
    """setsid survives its session; power loss ends everything of that host and nothing of another."""
    async with serve(nvl72(2), tmp_path / "rack") as rack:
        for name in ("r1-t01", "r1-t02"):
            async with await login(rack, name) as c:
                await c.run("setsid env -i sh -c 'cd; exec sleep 300' </dev/null >/dev/null 2>&1 & touch $HOME/kept")
                (rack.tree(name) / "run/lock/llmgwctl").mkdir()
                await c.create_process("sleep 301")
        assert all(rack.running(n) for n in rack.hosts[:2])
        before = (rack.tree("r1-t01") / "proc/sys/kernel/random/boot_id").read_text()
        rack.kill("r1-t01")
        assert rack.running("r1-t01") == []
        assert rack.running("r1-t02") != []
        with pytest.raises((TimeoutError, asyncssh.Error, OSError)):
            await login(rack, "r1-t01", connect_timeout=0.3)
        rack.boot("r1-t01")
        async with await login(rack, "r1-t01") as c:
            assert (await c.run("ls")).stdout == "kept\n"
        assert (rack.tree("r1-t01") / "proc/sys/kernel/random/boot_id").read_text() != before
        assert list((rack.tree("r1-t01") / "run/lock").iterdir()) == []
        assert (rack.tree("r1-t02") / "run/lock/llmgwctl").is_dir()
    assert rack.running("r1-t02") == []  # the rack ends, and everything on it


async def outcome(rack: Rack, name: str, patience_s: float = 20) -> str:
    """How a login goes, in one word."""
    try:
        async with await login(rack, name, connect_timeout=patience_s, login_timeout=patience_s) as c:
            answer = await c.run("echo fine", encoding=None)
    except (asyncssh.Error, OSError) as e:
        return type(e).__name__
    return "fine" if answer.stdout == b"fine\n" else "garbage"


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("refused", {"ConnectionRefusedError"}),
        ("dead", {"TimeoutError"}),
        ("silent", {"ConnectionLost", "TimeoutError"}),
        ("banner", {"ConnectionLost", "ProtocolError"}),
        ("garbage", {"garbage"}),
        ("denied", {"PermissionDenied"}),
        ("other-key", {"HostKeyNotVerifiable"}),
    ],
)
async def test_ssh_can_be_sick_in_every_way(tmp_path, fault, expected):
    """Each fault is met as such, its neighbour is not touched, and it is gone when it is cleared."""
    async with serve(nvl72(2), tmp_path / "rack") as rack:
        rack.set("r1-t01", fault)
        assert await outcome(rack, "r1-t01", 0.5 if fault in ("dead", "silent") else 20) in expected
        assert await outcome(rack, "r1-t02") == "fine"
        rack.clear("r1-t01")
        assert await outcome(rack, "r1-t01") == "fine"


async def test_faults_come_and_go_while_it_runs(tmp_path):
    """A fault of one host shows on the others where they speak of it, and clearing one leaves the rest."""
    spec = nvl72(3, faults={"r1-t01": ["imex-down", "busy:1"]})
    async with serve(spec, tmp_path / "rack") as rack:
        peer = rack.tree("r1-t03")
        assert ask(peer, "nvidia-imex-ctl", "-N").stdout.endswith("Domain State: DEGRADED\n")
        rack.clear("r1-t01", "imex-down")
        assert ask(peer, "nvidia-imex-ctl", "-N").stdout.endswith("Domain State: UP\n")
        assert rack.faults["r1-t01"] == ("busy:1",)
        rack.set("r1-t02", "smi-missing")
        assert not (rack.tree("r1-t02") / "usr/bin/nvidia-smi").exists()
        with pytest.raises(UsageError):
            rack.set("r1-t02", "nonsense")
        rack.clear("r1-t02")
        assert ask(rack.tree("r1-t02"), "nvidia-smi", "-L").returncode == 0


async def test_racks_run_side_by_side(tmp_path):
    """Each takes a loopback network of its own, and the inventory says which."""
    async with serve(nvl72(1), tmp_path / "a") as a, serve(nvl72(1), tmp_path / "b") as b:
        assert a.net != b.net
        assert await outcome(a, "r1-t01") == await outcome(b, "r1-t01") == "fine"
        document = tomllib.loads(b.inventory.read_text())
        assert document["hosts"][0]["address"] == f"{b.net}.1.1"
        assert document["hosts"][0]["root_prefix"] == f"{tmp_path / 'b'}/hosts/{{name}}"


def test_hosts_that_cannot_be_reached_are_not_called_up(tmp_path):
    """The rest of what is wrong with a host does not count: it answers."""
    sick = {"r1-t02": ["dead"], "r1-t01": ["imex-down"], "r1-t03": ["denied"]}
    assert up(Rack(nvl72(3, hgx=0, faults=sick), tmp_path, 2222, "127.9")) == "2 of 3 hosts up (r1-t02 is dead)"
    assert up(Rack(nvl72(1, hgx=0), tmp_path, 2222, "127.9")) == "1 host up"


async def test_an_order_that_is_too_long_is_refused(tmp_path):
    """And the next one is heard."""
    async with serve(nvl72(1, hgx=0), tmp_path) as rack_of, await control.listen(rack_of, lambda _: None):
        with pytest.raises(UsageError, match="4096 bytes at most"):
            await asyncio.to_thread(control.send, tmp_path, "set", "x" * 5000, "dead")
        await asyncio.to_thread(control.send, tmp_path, "set", "r1-t01", "imex-down")


def test_main_loop_tells_what_happens(tmp_path):
    """It yields the rack when it answers, each order from outside, and ends with a signal."""
    directory = tmp_path / "rack"
    seen = []
    for event in main_loop(nvl72(2), directory):
        seen.append((event.kind, *event.words))
        if event.kind == "up":
            child = os.fork()
            if child == 0:  # somebody in another terminal
                try:
                    control.send(directory, "set", "r1-t01", "imex-down")
                finally:
                    os._exit(0)
        elif event.kind == "order":
            os.waitpid(child, 0)
            os.kill(os.getpid(), 15)
    assert seen == [("up",), ("order", "set", "r1-t01", "imex-down"), ("down",)]
    with pytest.raises(UsageError, match="no simulated rack runs"):
        control.send(directory, "kill", "r1-t01")
