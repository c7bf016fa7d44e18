"""The test bed itself: that its hosts are what the other tests take them for."""

from __future__ import annotations

import pytest
from netns import Bed, Done

from llmgwctl.rack import nvl72

RACK = nvl72(3, hgx=1)


def ssh(bed: Bed, name: str, *words: str, user: str = "ops", patience_s: int = 20) -> Done:
    """The real client, as the controller."""
    options = {"UserKnownHostsFile": bed.known_hosts, "StrictHostKeyChecking": "yes", "ConnectTimeout": patience_s}
    flags = [f"-o{k}={v}" for k, v in options.items()]
    return bed.run(
        "ssh", "-F", "/dev/null", "-i", str(bed.identity_file), *flags, f"{user}@{bed.address(name)}", *words
    )


def test_a_host_is_itself_in_the_real_places(bed: Bed):
    """Name, programs, devices and files are where production has them, with no prefix."""
    said = ssh(bed, "r1-t02", "uname -n; command -v nvidia-smi; cat /proc/sys/kernel/random/boot_id")
    assert said.out.split() == ["r1-t02", "/usr/bin/nvidia-smi", bed.healthy["r1-t02"].boot_id]
    assert "Attached GPUs                                          : 4" in ssh(bed, "r1-t02", "nvidia-smi -q").out
    assert ssh(bed, "r1-t02", "nvidia-imex-ctl -q; cat /etc/nvidia-imex/nodes_config.cfg").out.split() == [
        "READY", "10.78.1.1", "10.78.1.2", "10.78.1.3",
    ]  # fmt: skip
    assert (
        ssh(bed, "r1-t02", "stat -c %F:%t /dev/nvidia-caps-imex-channels/channel0").out
        == "character special file:1fa\n"
    )
    assert "506 nvidia-caps-imex-channels" in ssh(bed, "r1-t02", "cat /proc/devices").out
    assert ssh(bed, "h100-01", "ls /sys/class/infiniband").out.split()[:2] == ["mlx5_0", "mlx5_1"]
    assert "inet 10.78.220.1/16" in ssh(bed, "h100-01", "ip -o addr show eth0").out


def test_both_accounts_log_in(bed: Bed):
    """ops has no rights, root has them, and each has a home of its own."""
    assert ssh(bed, "r1-t01", "id -u; pwd; ls -A").out.split() == ["2000", "/home/ops", ".ssh"]
    assert ssh(bed, "r1-t01", "id -u; pwd", user="root").out.split() == ["0", "/root"]
    assert ssh(bed, "r1-t01", "cat /etc/shadow").code != 0


def test_faults_show_at_once_and_on_the_peers(bed: Bed):
    """Programs vanish, devices vanish, and IMEX of one host is seen from another."""
    bed.set("r1-t01", "smi-missing")
    bed.set("r1-t01", "channel-missing")
    bed.set("r1-t01", "imex-down")
    assert ssh(bed, "r1-t01", "nvidia-smi").code == 127
    assert ssh(bed, "r1-t01", "ls /dev/nvidia-caps-imex-channels").out == ""
    assert ssh(bed, "r1-t02", "nvidia-imex-ctl -N").out.endswith("Domain State: DEGRADED\n")
    bed.clear("r1-t01")
    assert ssh(bed, "r1-t01", "nvidia-smi -L").code == 0
    assert ssh(bed, "r1-t01", "ls /dev/nvidia-caps-imex-channels").out == "channel0\n"
    with pytest.raises(ValueError, match="use cut"):
        bed.set("r1-t01", "refused")


def test_a_cut_host_runs_on(bed: Bed):
    """Without its cable nobody reaches it, and what runs there goes on."""
    ssh(bed, "r1-t01", "setsid sleep 300 </dev/null >/dev/null 2>&1 &")
    bed.cut("r1-t01")
    assert ssh(bed, "r1-t01", "true", patience_s=1).code == 255
    assert ssh(bed, "r1-t02", "true").code == 0
    bed.heal("r1-t01")
    assert ssh(bed, "r1-t01", "pgrep -x sleep").code == 0


def test_power_loss_ends_everything_and_a_boot_is_another(bed: Bed):
    """Processes and /run are gone, homes are not, and the boot id is another."""
    before = ssh(bed, "r1-t03", "cat /proc/sys/kernel/random/boot_id").out
    ssh(bed, "r1-t03", "touch kept; mkdir /run/lock/claim; setsid sleep 300 </dev/null >/dev/null 2>&1 &")
    bed.kill("r1-t03")
    assert ssh(bed, "r1-t03", "true", patience_s=1).code == 255
    bed.boot("r1-t03")
    assert ssh(bed, "r1-t03", "ls; ls /run/lock; pgrep -x sleep").out == "kept\n"
    assert ssh(bed, "r1-t03", "cat /proc/sys/kernel/random/boot_id").out != before


def test_commands_run_on_a_host_without_ssh(bed: Bed):
    """For tests that must look while the network is cut."""
    bed.cut("h100-01")
    assert bed.inside("h100-01", "uname", "-n").out == "h100-01\n"
