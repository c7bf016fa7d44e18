"""The probes of the full set that a script answers, run by real shells against small invented trees."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from pathlib import Path

import pytest
import smi
from hypothesis import given
from hypothesis import strategies as st

from llmgwctl.model.host import Host
from llmgwctl.model.machine import Clock, Installed, NcclFile
from llmgwctl.model.topology import NumaNode
from llmgwctl.probe import (
    assemble,
    clock,
    engines,
    fabric_manager,
    kernel_log,
    nccl,
    numa,
    processes,
    resources,
    versions,
)
from llmgwctl.probe.base import Output, Section

SHELLS = [s for s in (("dash",), ("bash", "--posix"), ("busybox", "sh")) if shutil.which(s[0])]


@pytest.fixture(params=SHELLS, ids=lambda s: s[0])
def shell(request) -> tuple[str, ...]:
    return request.param


def run(shell, section: Section, root, *more: str, state: str = "~/state", **env) -> Output:
    """As the framer does: the script as text, its name, the root prefix, the state directory, the rights."""
    argv = [*shell, "-c", section.body(), section.name, str(root), state, *more]
    kept = {"PATH": f"{root}/usr/bin:{os.environ['PATH']}", "HOME": str(root or "/nowhere")} | env
    done = subprocess.run(argv, capture_output=True, text=True, env=kept, timeout=60, check=False)
    assert done.stderr == ""
    assert done.returncode == 0
    return Output(done.stdout)


def plant(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def program(root: Path, name: str, body: str) -> None:
    plant(root, {f"usr/bin/{name}": f"#!/bin/sh\n{body}\n"})
    (root / f"usr/bin/{name}").chmod(0o755)


# --- NUMA -------------------------------------------------------------------------------------------------------


def test_numa(shell, tmp_path):
    """Nodes with their CPUs and memory, a Grace GPU's memory as a node without CPUs; NVIDIA's display cards alone."""
    node, pci = "sys/devices/system/node", "sys/bus/pci/devices"
    plant(
        tmp_path,
        {
            f"{node}/node0/cpulist": "0-71\n",
            f"{node}/node0/meminfo": "Node 0 MemTotal:       502964224 kB\nNode 0 MemFree: 1 kB\n",
            f"{node}/node10/cpulist": "\n",
            f"{node}/node10/meminfo": "Node 10 MemTotal:       194018304 kB\n",
            f"{node}/possible": "0-10\n",
            f"{pci}/0008:06:00.0/vendor": "0x10de\n",
            f"{pci}/0008:06:00.0/class": "0x030200\n",
            f"{pci}/0008:06:00.0/numa_node": "0\n",
            f"{pci}/0009:06:00.0/vendor": "0x10de\n",
            f"{pci}/0009:06:00.0/class": "0x030200\n",
            f"{pci}/0009:06:00.0/numa_node": "-1\n",
            f"{pci}/0009:07:00.0/vendor": "0x10de\n",
            f"{pci}/0009:07:00.0/class": "0x068000\n",
            f"{pci}/0009:07:00.0/numa_node": "1\n",
        },
    )
    found = numa.PROBE.read({"numa": run(shell, numa.SECTIONS[0], tmp_path)}).value
    assert found.nodes == (NumaNode(0, "0-71", 491176), NumaNode(10, "", 189471))
    assert found.of_pci == {"00000008:06:00.0": 0}


def test_no_numa(shell, tmp_path):
    assert numa.PROBE.read({"numa": run(shell, numa.SECTIONS[0], tmp_path)}).state == "absent"


def test_this_machine_has_cpus(shell):
    """The real sysfs, whose files do not all give single bytes."""
    found = numa.PROBE.read({"numa": run(shell, numa.SECTIONS[0], "")})
    assert not found.ok or any(n.cpus for n in found.value.nodes)


# --- processes --------------------------------------------------------------------------------------------------


def test_processes(shell, tmp_path):
    """Who holds a GPU and what hangs; names may hold blanks and brackets; kernel threads are left out."""
    plant(
        tmp_path,
        {
            "proc/1/stat": "1 (systemd) S 0 1 1 0\n",
            "proc/2/stat": "2 (kthreadd) S 0 0 0 0\n",
            "proc/40/stat": "40 (kworker/0:0H) I 2 0 0 0\n",
            "proc/77/stat": "77 (VLLM::Worker (0) D) R 1 77 77 0\n",
            "proc/311/stat": "311 (nvidia-smi) D 1 311 311 0\n",
            "etc/passwd": f"root:x:0:0::/root:/bin/sh\nme:x:{os.getuid()}:1::/:/bin/sh\n",
        },
    )
    report = Output("        Process ID                        : 77\n        Process ID                        : 4\n")
    said = run(shell, processes.SECTIONS[0], tmp_path)
    found = processes.PROBE.read({"processes": said, "nvidia-smi-q": report}).value
    owner = "root" if os.getuid() == 0 else "me"
    assert [(p.pid, p.state, p.command) for p in found] == [
        (77, "R", "VLLM::Worker (0) D"),
        (311, "D", "nvidia-smi"),
    ]
    assert {p.user for p in found} == {owner}
    assert "process 1 S systemd" in said.stdout
    assert "kworker" not in said.stdout


def test_processes_of_this_machine(shell):
    """The real process table: this very test is in it, with its owner."""
    said = run(shell, processes.SECTIONS[0], "")
    report = Output(f"<process_info><pid>{os.getpid()}</pid></process_info>")
    found = {p.pid: p for p in processes.PROBE.read({"processes": said, "nvidia-smi-q": report}).value}
    assert found[os.getpid()].user in (str(os.getuid()), pwd.getpwuid(os.getuid()).pw_name)
    assert found[os.getpid()].command


def test_gpu_processes_get_their_owner():
    """What nvidia-smi names by pid, /proc knows by user; a pid of another namespace stays without one."""
    cards = [smi.Card(processes=((77, "C", "/opt/vllm", "9 MiB"), (78, "C", "[Not Found]", "N/A")))]
    said = "process 77 R python3\nowner 77 1001\nuser 1001 anna\nprocess 9 S sh\nprocess 90 D cat\nowner 90 4242\n"
    outputs = {
        "nvidia-smi-q": Output(smi.text("580.126", cards)),
        "processes": Output(said),
        "numa": Output("node 0 - 0-3\npci 0008:01:00.0 0\n"),
    }
    facts = assemble(Host("t"), outputs, 0.0, 0.0)
    gpu = facts.gpus.value.gpus[0]
    assert [(p.pid, p.user) for p in gpu.processes] == [(77, "anna"), (78, None)]
    assert gpu.numa_node == 0
    assert [(p.pid, p.user) for p in facts.processes.value] == [(77, "anna"), (90, "4242")]


# --- kernel log -------------------------------------------------------------------------------------------------

LOG = """[    0.000000] r1-t01 kernel: Linux version 6.8.0
[   12.500000] r1-t01 kernel: mlx5_core 0000:03:00.0: firmware version: 28.43.2026
[  300.100000] r1-t01 kernel: NVRM: Xid (PCI:0009:01:00): 79, pid='<unknown>', GPU has fallen off the bus.
[  300.200000] r1-t01 kernel: nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32
[  310.000000] r1-t01 kernel: usb 1-1: new device
[  320.000000] r1-t01 kernel: Out of memory: Killed process 77 (python3)
[  330.000000] r1-t01 kernel: INFO: task nvidia-smi:311 blocked for more than 120 seconds.
[  340.000000] r1-t01 kernel: nfs: server models not responding, still trying
[  350.000000] r1-t01 kernel: watchdog: BUG: soft lockup - CPU#3 stuck for 22s!
[  360.000000] r1-t01 kernel: blk_update_request: I/O error, dev nvme0n1, sector 5
"""


def read_log(shell, root, *rights: str) -> kernel_log.KernelLog:
    return kernel_log.PROBE.read({kernel_log.NAME: run(shell, kernel_log.SECTIONS[0], root, *rights)})


def test_kernel_log(shell, tmp_path):
    """Lines that matter, each of its kind, with the seconds since boot; Xids with number and device."""
    plant(tmp_path, {"log": LOG})
    program(tmp_path, "journalctl", f'[ "$*" = "-k -b -o short-monotonic --no-pager" ] && cat {tmp_path}/log')
    found = read_log(shell, tmp_path).value
    assert (found.source, found.cut) == ("journalctl", False)
    assert [x.kind for x in found.lines] == ["mlx5", "xid", "sxid", "oom", "hung", "nfs", "lockup", "disk"]
    xid = found.lines[1]
    assert (xid.at_s, xid.code, xid.device) == (300.1, 79, "0009:01:00")
    assert xid.text.startswith("NVRM: Xid")
    assert (found.lines[2].code, found.lines[2].device) == (12028, "0000:c1:00.0")


def test_a_flood_does_not_push_out_the_driver(shell, tmp_path):
    """The newest are kept, and lines of the driver have a share of their own."""
    flood = "".join(f"[ {1000 + n}.000000] h kernel: mlx5_cmd_out_err: ACCESS_REG {n}\n" for n in range(5000))
    plant(tmp_path, {"log": LOG + flood})
    program(tmp_path, "journalctl", f"cat {tmp_path}/log")
    found = read_log(shell, tmp_path).value
    assert found.cut
    assert len(found.lines) < 1300
    assert [x.code for x in found.lines if x.kind in ("xid", "sxid")] == [79, 12028]
    assert found.lines[-1].text.endswith("ACCESS_REG 4999")


@pytest.mark.parametrize(
    ("journal", "ring"),
    [
        ("echo 'No journal files were opened due to insufficient permissions.' >&2; exit 1", None),
        ("echo 'Hint: You are currently not seeing messages from other users and the system.' >&2", None),
        (None, "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1"),
        ("echo '-- No entries --'", "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1"),
    ],
)
def test_a_right_that_is_missing_is_named(shell, tmp_path, journal, ring):
    """Seeing nothing because one may not look is no clean log."""
    for name, body in (("journalctl", journal), ("dmesg", ring)):
        if body is not None:
            program(tmp_path, name, body)
    found = read_log(shell, tmp_path)
    assert "systemd-journal" in found.why
    assert "dmesg_restrict" in found.why


def test_dmesg_where_the_journal_is_closed(shell, tmp_path):
    """One of the two is enough."""
    program(tmp_path, "journalctl", "echo 'insufficient permissions' >&2; exit 1")
    program(tmp_path, "dmesg", "printf '[   1.5] x\\n[   2.5] NVRM: Xid (PCI:0000:01:00): 31, pid=7, name=python3\\n'")
    found = read_log(shell, tmp_path).value
    assert (found.source, found.lines[0].code, found.lines[0].at_s) == ("dmesg", 31, 2.5)


def test_a_complaint_that_comes_last_costs_no_count(shell, tmp_path):
    """A log without anything that matters was read, whatever its program says to the side, and when."""
    program(tmp_path, "dmesg", "printf '[ 1.5] usb\n[ 1.6] x\n'; sleep 0.2; echo 'dmesg: odd' >&2")
    said = run(shell, kernel_log.SECTIONS[0], tmp_path).stdout.split("\n")
    assert said == ["source dmesg", "read 2", ""]


def test_a_line_of_the_log_is_no_complaint_of_its_program(shell, tmp_path):
    """However it begins: what is written into a log is not what its program says of a right."""
    program(tmp_path, "dmesg", "printf '! Permission denied\n! NVRM: Xid (PCI:0000:01:00): 31, x\n'")
    found = read_log(shell, tmp_path).value
    assert [x.code for x in found.lines] == [31]
    program(tmp_path, "dmesg", "printf '! Permission denied\n[ 1.5] x\n'")
    assert read_log(shell, tmp_path).ok


def test_an_empty_log_is_an_answer(shell, tmp_path):
    """Nothing that matters is in it; no program at all is none."""
    program(tmp_path, "dmesg", "echo '[ 1.5] usb 1-1: new device'; echo '[ 1.6] x'")
    assert read_log(shell, tmp_path).value.lines == ()
    (tmp_path / "usr/bin/dmesg").unlink()
    assert "neither" in read_log(shell, tmp_path).why


def test_sudo_only_where_the_inventory_says_so(shell, tmp_path):
    """`sudo -n` is asked with the right and not without; when it refuses, the log is asked plainly."""
    plant(tmp_path, {"log": LOG})
    program(tmp_path, "id", "case $1 in -u) echo 1001 ;; *) echo me ;; esac")
    program(
        tmp_path, "journalctl", f'[ -n "$MAY" ] && exec cat {tmp_path}/log; echo "insufficient permissions" >&2; exit 1'
    )
    program(tmp_path, "sudo", f'echo "$*" >>{tmp_path}/asked; [ "$1" = -n ] && shift && MAY=1 exec "$@"')
    assert read_log(shell, tmp_path).broken
    assert not (tmp_path / "asked").exists()
    assert read_log(shell, tmp_path, "sudo").value.lines
    assert (tmp_path / "asked").read_text() == "-n journalctl -k -b -o short-monotonic --no-pager\n"
    program(tmp_path, "sudo", 'echo "sudo: a password is required" >&2; exit 1')
    assert "sudo = true" in read_log(shell, tmp_path, "sudo").why


@pytest.mark.parametrize(
    ("text", "at_s"),
    [
        ("[  300.100000] r1 kernel: NVRM: Xid (PCI:0009:01:00): 79, x", 300.1),
        ("[300.100000] NVRM: Xid (PCI:0009:01:00): 79, x", 300.1),
        ("[Tue Dec  1 04:33:41 2026] NVRM: Xid (PCI:0009:01:00): 79, x", None),
        ("Dec 01 04:33:41 r1 kernel: NVRM: Xid (PCI:0009:01:00): 79, x", None),
        ("NVRM: Xid (PCI:0009:01:00): 79, x", None),
    ],
)
def test_stamps_of_all_forms(text, at_s):
    found = kernel_log.line_of(text)
    assert (found.kind, found.code, found.text) == ("xid", 79, "NVRM: Xid (PCI:0009:01:00): 79, x")
    assert found.at_s == at_s


# --- room, limits, clock ----------------------------------------------------------------------------------------


def test_limits_and_settings(shell, tmp_path):
    """The limits are this login's; memory and settings those of the tree; a blank in a setting stays."""
    plant(
        tmp_path,
        {
            "proc/meminfo": "MemTotal:       1048576 kB\nMemFree: 3 kB\nMemAvailable:    524288 kB\n",
            "proc/sys/kernel/numa_balancing": "1\n",
            "proc/sys/net/ipv4/ip_local_port_range": "32768\t60999\n",
        },
    )
    tight = ("sh", "-c", 'ulimit -n 300; ulimit -l 64; exec "$@"', "x", *shell)
    limits = run(tight, resources.SECTIONS[0], tmp_path)
    found = resources.PROBE.read({"resources": limits}).value
    assert (found.memory_total_mib, found.memory_available_mib) == (1024, 512)
    assert found.limit("open files").hard == 300
    assert found.limit("locked memory").soft == 65536
    assert found.limit("file size") is None
    assert dict(found.settings) == {"numa_balancing": "1", "ip_local_port_range": "32768\t60999"}


@pytest.mark.parametrize(
    ("getent", "expected"),
    [
        ("echo '10.7.0.5      STREAM tray'; echo '10.7.0.5      DGRAM'; echo 'fe80::1%eth0 STREAM'",
         ("10.7.0.5", "fe80::1")),
        ("echo '127.0.1.1     STREAM tray'", ("127.0.1.1",)),
        ("exit 2", ()),
        ("exit 124", "its resolver did not answer"),
        ("sleep 30", "its resolver did not answer"),
    ],
    ids=["found", "loopback", "unknown", "refused", "hangs"],
)  # fmt: skip
def test_the_hosts_own_name(shell, tmp_path, getent, expected):
    """As its own resolver says it, in that order; no such name and no answer are two things."""
    plant(tmp_path, {"proc/sys/kernel/hostname": "tray-05\n"})
    program(tmp_path, "getent", f'[ "$*" = "ahosts tray-05" ] || exit 9\n{getent}')
    found = resources.PROBE.read({"resources": run(shell, resources.SECTIONS[0], tmp_path)}).value.own_name
    assert found.name == "tray-05"
    assert (found.why if found.why else found.addresses) == expected


def test_the_own_name_without_a_resolver(shell, tmp_path):
    """The hosts file then; without one nothing is said, and nothing is taken for an answer."""
    plant(tmp_path, {"proc/sys/kernel/hostname": "tray-05\n"})
    read = lambda: resources.PROBE.read({"resources": run(shell, resources.SECTIONS[0], tmp_path)}).value.own_name  # noqa: E731
    assert read() is None
    plant(tmp_path, {"etc/hosts": "127.0.0.1 localhost\n10.7.0.5 tray-05.example tray-05 # here\n"})
    assert read().addresses == ("10.7.0.5",)
    plant(tmp_path, {"proc/sys/kernel/hostname": "tray-99\n"})
    assert (read().addresses, read().why) == ((), "")
    plant(tmp_path, {"proc/sys/kernel/hostname": "a b;reboot\n"})
    assert read() is None


def test_an_address_of_the_own_name_is_an_address_and_nothing_else():
    """Behind the zone of a link-local address anything could stand, at any length."""
    said = f"name tray-05\nnamed fe80::1%\x1b[2J<b>{'x' * 100_000}\nnamed fe80::1%eth0\nnamed 10.7.0.5%\n"
    found = resources.PROBE.read({"resources": Output(said)}).value.own_name
    assert found.addresses == ("fe80::1", "10.7.0.5")


def test_a_reboot_that_waits(shell, tmp_path):
    """Where the distribution leaves word of it; no word is no answer."""
    plant(tmp_path, {"proc/sys/kernel/osrelease": "6.8.0\n"})
    read = lambda: versions.PROBE.read({"versions": run(shell, versions.SECTIONS[0], tmp_path)}).value.reboot_for  # noqa: E731
    assert read() is None
    plant(tmp_path, {"run/reboot-required": "*** System restart required ***\n"})
    assert read() == ()
    plant(tmp_path, {"run/reboot-required.pkgs": "linux-base\nlibc6\nlibc6\n"})
    assert read() == ("libc6", "linux-base")


def test_rooms(shell, tmp_path):
    """Each path has its row; a directory that will only be made is judged by the one above it."""
    for name in ("dev/shm", "tmp", "var"):
        (tmp_path / name).mkdir(parents=True)
    said = run(shell, resources.SECTIONS[1], tmp_path, state=f"{tmp_path}/not/yet/there")
    rooms = {r.path: r for r in resources.PROBE.read({"rooms": said}).value.rooms}
    assert set(rooms) == {"/dev/shm", "/tmp", "/", "/var", f"{tmp_path}/not/yet/there", str(tmp_path)}
    disk = shutil.disk_usage(tmp_path)
    for room in rooms.values():
        assert room.why == ""
        assert abs(room.size_mib - disk.total // 2**20) <= 1
        assert 0 <= room.free_mib <= room.size_mib


def test_a_file_server_that_is_dead_costs_its_own_row(shell, tmp_path):
    """`stat` that hangs for ever is left behind; the others have answered."""
    for name in ("dev/shm", "tmp", "var"):
        (tmp_path / name).mkdir(parents=True)
    real = shutil.which("stat")
    program(tmp_path, "stat", f'case "$*" in */dead) exec sleep 30 ;; esac; exec {real} "$@"')
    (tmp_path / "dead").mkdir()
    text = resources.SECTIONS[1].body().replace("limit_s=5", "limit_s=1")
    argv = [*shell, "-c", text, "rooms", str(tmp_path), f"{tmp_path}/dead"]
    env = {"PATH": f"{tmp_path}/usr/bin:{os.environ['PATH']}", "HOME": str(tmp_path)}
    with (tmp_path / "out").open("w") as out:  # a file, as in the framer: who is left behind holds no pipe open
        subprocess.run(argv, stdout=out, env=env, timeout=20, check=True)
    rooms = resources.PROBE.read({"rooms": Output((tmp_path / "out").read_text())}).value.rooms
    assert [r.path for r in rooms if r.why] == [f"{tmp_path}/dead"]
    assert "does not answer" in next(r.why for r in rooms if r.why)


def test_rooms_from_lines():
    """Type and read-only come from the longest mount point; a refusal has its words; btrfs counts no inodes."""
    said = """mount / ext4 rw
mount /models nfs4 ro
ask /models/deepseek
ask /
ask /root
ask /gone
room /models/deepseek|1048576|1000|250|0|0|nfs
room /|4096|512|256|100|7|ext2/ext3
none /root|stat: cannot read file system information for '/root': Permission denied
"""
    models, slash, root, gone = resources.PROBE.read({"rooms": Output(said)}).value.rooms
    assert (models.kind, models.read_only, models.size_mib, models.free_mib) == ("nfs4", True, 1000, 250)
    assert (models.inodes_free, slash.inodes_free) == (None, 7)
    assert (slash.kind, slash.read_only, slash.free_mib) == ("ext4", False, 1)
    assert "Permission denied" in root.why
    assert "does not answer" in gone.why


def test_the_clock_is_between_the_two_answers():
    """50 ms there, 50 ms back, and a section that hung for an hour: the offset is known to 50 ms."""
    said = "begin 1010.05\nend 4610.15\nsent 1000.0\nreceived 4600.2\n"
    assert clock.PROBE.read({"clock": Output(said)}).value == Clock(10.0, 0.05)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("begin 5.0\n", "not measured"),
        ("begin %s.%N\nend 5\nsent 1\nreceived 2\n", "does not tell"),
        ("begin 5.0\nend 900.0\nsent 5.0\nreceived 6.0\n", "was set"),
        ("", "does not tell"),
    ],
)
def test_a_clock_that_cannot_be_told(said, words):
    assert words in clock.PROBE.read({"clock": Output(said)}).why


def test_a_clock_without_fractions_is_told_with_more_doubt(shell):
    """A date that knows no %N: a whole second may be missing. The real one says what it is."""
    found = clock.PROBE.read({"clock": Output("begin 1010.N\nend 1010.N\nsent 1000.5\nreceived 1000.6\n")}).value
    assert found.offset_s - found.bound_s <= 9.5 <= found.offset_s + found.bound_s
    assert found.bound_s >= 0.5
    begin = run(shell, clock.SECTIONS[0], "").stdout
    assert begin.startswith("begin 1")


# --- fabric manager, versions, settings, engines -----------------------------------------------------------------


def manager(shell, root, hcas: str = "hca mlx5_0\nvpd other\nend\n"):
    said = run(shell, fabric_manager.SECTIONS[0], root)
    return fabric_manager.PROBE.read({fabric_manager.NAME: said, "hcas": Output(hcas)})


def test_a_fabric_manager(shell, tmp_path):
    """Unit, since when, configuration, version, switches on PCI and behind adapters, what B200 needs."""
    plant(
        tmp_path,
        {
            "proc/uptime": "1000.5 1.0\n",
            "usr/share/nvidia/nvswitch/fabricmanager.cfg": "# FABRIC_MODE=9\nFABRIC_MODE=1 # shared\r\n"
            "FM_STAY_RESIDENT_ON_FAILURES=1\nLOG_LEVEL=4\n",
            "opt/nvidia/nvlsm/sbin/nvlsm": "",
            "sys/module/ib_umad/version": "",
            "sys/bus/pci/devices/0000:07:00.0/vendor": "0x10de\n",
            "sys/bus/pci/devices/0000:07:00.0/class": "0x068000\n",
            "sys/bus/pci/devices/0000:08:00.0/vendor": "0x10de\n",
            "sys/bus/pci/devices/0000:08:00.0/class": "0x030200\n",
        },
    )
    program(
        tmp_path,
        "systemctl",
        "printf 'LoadState=loaded\\nActiveState=activating\\nSubState=start\\nUnitFileState=enabled\\n"
        "Result=success\\nStateChangeTimestampMonotonic=940000000\\n'",
    )
    program(tmp_path, "nv-fabricmanager", "echo 'Fabric Manager version is : 580.95.05'")
    found = manager(shell, tmp_path, "hca a\nvpd switch-management\nhca b\nvpd switch-management\nend\n").value
    assert (found.unit_load, found.unit_active, found.unit_sub, found.unit_file) == (
        "loaded",
        "activating",
        "start",
        "enabled",
    )
    assert (found.active_for_s, found.version, found.config) == (60.0, "580.95.05", "present")
    assert (found.fabric_mode, found.stay_resident, found.switches, found.bridges) == (1, True, 1, 2)
    assert (found.nvlsm, found.ib_umad) == (True, True)


def test_no_fabric_manager_is_absent(shell, tmp_path):
    """A tray, a workstation: nothing of it is here. With a switch on PCI it is missed instead."""
    (tmp_path / "sys/bus/pci/devices").mkdir(parents=True)
    assert manager(shell, tmp_path).state == "absent"
    plant(
        tmp_path,
        {
            "sys/bus/pci/devices/0000:07:00.0/vendor": "0x10de\n",
            "sys/bus/pci/devices/0000:07:00.0/class": "0x068000\n",
        },
    )
    found = manager(shell, tmp_path, "vpd unreadable\n").value
    assert (found.switches, found.bridges, found.unit_load, found.version) == (1, None, None, "")
    assert fabric_manager.PROBE.read({}).why == "not saved"


def test_versions(shell, tmp_path):
    """What is loaded and what is on the disk may differ, and both are told; a program that hangs costs its own line."""
    plant(
        tmp_path,
        {
            "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05  R\n",
            "proc/sys/kernel/osrelease": "6.8.0-invented-64k\n",
            "etc/os-release": 'NAME="X"\nPRETTY_NAME="Invented Linux 24.04"\n',
            "usr/lib/aarch64-linux-gnu/libnvidia-ml.so.580.126.09": "",
            "usr/lib/aarch64-linux-gnu/libnvidia-ml.so.1": "",
            "usr/local/cuda-13.0/version.json": '{\n "cuda" : {\n  "name" : "SDK",\n  "version" : "13.0.2"\n }\n}\n',
            "sys/module/mlx5_core/version": "25.04-0.6.0\n",
        },
    )
    (tmp_path / "sys/module/nvidia_peermem").mkdir()
    (tmp_path / "usr/local/cuda").symlink_to("cuda-13.0")
    program(tmp_path, "modinfo", 'echo "580.126.09"')
    program(tmp_path, "nvidia-imex", "echo 'IMEX version is: 580.95.05'")
    program(tmp_path, "docker", "echo 'Docker version 28.2.2, build e6534b4'")
    program(tmp_path, "enroot", "echo 3.5.0")
    program(tmp_path, "podman", "exit 125")
    found = versions.PROBE.read({"versions": run(shell, versions.SECTIONS[0], tmp_path)}).value
    assert (found.driver_loaded, found.driver_on_disk, found.driver_library) == (
        "580.95.05",
        "580.126.09",
        "580.126.09",
    )
    assert (found.open_kernel_module, found.kernel, found.os) == (True, "6.8.0-invented-64k", "Invented Linux 24.04")
    assert (found.imex, found.cuda) == ("580.95.05", (("cuda-13.0", "13.0.2"),))
    assert found.runtimes == (("docker", "28.2.2"), ("podman", ""), ("enroot", "3.5.0"))
    assert found.modules == (("nvidia_peermem", ""), ("mlx5_core", "25.04-0.6.0"))


def test_hidden_settings(shell, tmp_path):
    """Each file with what it sets; a secret by name alone; a file without right says so."""
    plant(
        tmp_path,
        {
            "etc/nccl.conf": "# NCCL_DEBUG=WARN\nNCCL_IB_HCA = mlx5_1\r\n NCCL_SOCKET_IFNAME=eth0\nNCCL_TOKEN=hush\n",
            ".nccl.conf": "NCCL_DEBUG=INFO\n",
        },
    )
    said = run(shell, nccl.SECTIONS[0], tmp_path, NCCL_CONF_FILE=str(tmp_path / "etc"))
    assert "hush" not in said.stdout
    assert nccl.PROBE.read({"nccl": said}).value == (
        NcclFile(
            "/etc/nccl.conf",
            (("NCCL_IB_HCA", "mlx5_1"), ("NCCL_SOCKET_IFNAME", "eth0"), ("NCCL_TOKEN", "(hidden)")),
        ),
        NcclFile("~/.nccl.conf", (("NCCL_DEBUG", "INFO"),)),
        NcclFile(str(tmp_path / "etc"), why=f"no right to read {tmp_path}/etc"),
    )
    shutil.rmtree(tmp_path / "etc")
    (tmp_path / ".nccl.conf").unlink()
    assert nccl.PROBE.read({"nccl": run(shell, nccl.SECTIONS[0], tmp_path)}).state == "absent"
    assert nccl.PROBE.read({"nccl": Output("file /etc/nccl.conf pre")}).broken


def test_versions_of_engines():
    """Names and versions of those that are there; a missing program is not listed, one that fails says how."""
    outputs = {
        "engine-version-vllm": Output("Welcome!\nvllm 0.11.1\ntorch 2.9.0+cu130\n"),
        "engine-version-sglang": Output("", "no program sglang", 127),
        "engine-version-llamacpp": Output("", "libcuda.so.1: cannot open\n", 1),
    }
    found = engines.PROBE.read(outputs).value
    assert found == (
        Installed("llamacpp", (), "libcuda.so.1: cannot open"),
        Installed("vllm", (("vllm", "0.11.1"), ("torch", "2.9.0+cu130"))),
    )
    assert found[1].version("torch") == "2.9.0+cu130"
    missing = {"engine-version-vllm": Output("", "no program vllm", 127)}
    assert engines.PROBE.read(missing).state == "absent"
    assert engines.PROBE.read({}).broken


PARSERS = (numa, processes, kernel_log, resources, clock, fabric_manager, versions, nccl)
WORDS = st.sampled_from(
    ["node", "pci", "process", "owner", "user", "|", "source", "cut", "limit", "memory", "room", "ask", "mount",
     "begin", "end", "sent", "received", "unit", "config", "set", "version", "switches", "loaded", "kernel", "file",
     "module"]
)  # fmt: skip


@pytest.mark.parametrize("module", PARSERS, ids=lambda m: m.PROBE.field)
@given(data=st.data())
def test_any_text_gives_a_reading(module, data):
    """Lines of our own kinds with anything behind them: a reading, never an exception."""
    tails = st.text(alphabet=st.characters(codec="utf-8"), max_size=30) | st.from_regex(r"[0-9a-f:.|=/ -]{0,30}")
    lines = data.draw(st.lists(st.tuples(WORDS, tails), max_size=12))
    text = "".join(f"{kind} {rest}\n" for kind, rest in lines)
    reading = module.PROBE.read({s.name: Output(text) for s in module.SECTIONS})
    assert "understood" not in reading.why, reading.why
