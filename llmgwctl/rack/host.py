"""A machine as a tree of files: /proc, /sys, /dev, /etc, and programs in usr/bin with the texts that they print."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from importlib.resources import files

from llmgwctl.rack import engine_files, imex_text, ip_text, smi_text, sysfs
from llmgwctl.rack.machine import CHANNEL_MAJOR, Machine, Process
from llmgwctl.rack.smi_text import Answer
from llmgwctl.rack.tree import Entry, File, Link

TEXTS = "usr/share/llmgw-rack"  # where the fake programs find what they print
CHANNELS = "dev/nvidia-caps-imex-channels"
KERNEL = "6.8.0-1040-nvidia"
PROGRAMS = ("nvidia-smi", "nvidia-imex-ctl", "systemctl", "journalctl", "ip")


def entries(m: Machine, fleet: Mapping[str, Machine], now: datetime) -> dict[str, Entry]:
    """Everything that the machine shows, by path. `fleet`: machines by address, since IMEX speaks of the peers."""
    return {
        **_proc(m),
        **sysfs.entries(m),
        **_dev(m),
        **_etc(m),
        **_programs(m),
        **_texts(m, fleet, now),
        **engine_files.entries(m),
    }


def _proc(m: Machine) -> dict[str, Entry]:
    machine = "aarch64" if m.card.grace else "x86_64"
    version = f"NVRM version: NVIDIA UNIX Open Kernel Module for {machine}  {m.driver}  Release Build\nGCC version:\n"
    channels = m.imex.channels if m.imex else ()
    params = f"ImexChannelCount: 2048\nCreateImexChannel0: {int(0 in channels)}\n"
    found: dict[str, Entry] = {
        "proc/sys/kernel/hostname": File(f"{m.name}\n"),
        "proc/sys/kernel/random/boot_id": File(f"{m.boot_id}\n"),
        "proc/sys/kernel/osrelease": File(KERNEL + "\n"),
        "proc/uptime": Link("/proc/uptime"),  # a clock cannot be written down
        "proc/self/limits": File(_LIMITS),
        "proc/devices": File(_DEVICES),
        "proc/driver/nvidia/version": File(version),
        "proc/driver/nvidia/params": File(params),
    }
    for g in m.gpus:
        bus = g.bus_id[4:].lower()
        rows = {
            "Model: \t\t": m.card.name,
            "GPU UUID: \t": g.uuid,
            "Bus Location: \t": bus,
            "Device Minor: \t": g.index,
        }
        found[f"proc/driver/nvidia/gpus/{bus}/information"] = File("".join(f"{k} {v}\n" for k, v in rows.items()))
    held = (Process(p.pid, p.name[:15]) for g in m.gpus for p in g.processes)
    for p in (Process(1, "systemd"), *held, *m.processes):
        found[f"proc/{p.pid}/comm"] = File(f"{p.name}\n")
        found[f"proc/{p.pid}/stat"] = File(f"{p.pid} ({p.name}) {p.state} 1 {p.pid} {p.pid} 0 -1 4194560\n")
    return found | {f"proc/net/{name}": File(text) for name, text in ip_text.proc_net(m).items()}


# As on a host that is set up for RDMA; what the account that plays it may lock is another matter.
_LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max stack size            8388608              unlimited            bytes
Max open files            1024                 1048576              files
Max locked memory         unlimited            unlimited            bytes
"""
_DEVICES = f"""Character devices:
  1 mem
  5 /dev/tty
195 nvidia
235 nvidia-caps
{CHANNEL_MAJOR} nvidia-caps-imex-channels

Block devices:
259 blkext
"""


def _dev(m: Machine) -> dict[str, Entry]:
    """Device nodes need root, so these are plain files; a channel's says `MAJOR MINOR`, as the IMEX probe reads it."""
    found: dict[str, Entry] = {f"dev/nvidia{g.index}": File("", 0o666) for g in m.gpus}
    channels = m.imex.channels if m.imex else ()
    return found | {f"{CHANNELS}/channel{n}": File(f"{CHANNEL_MAJOR} {n}\n", 0o666) for n in channels}


def _etc(m: Machine) -> dict[str, Entry]:
    hosts = f"127.0.0.1 localhost\n{m.address} {m.name}\n"
    found: dict[str, Entry] = {"etc/hostname": File(f"{m.name}\n"), "etc/hosts": File(hosts)}
    if m.imex:
        found["etc/nvidia-imex/config.cfg"] = File(_IMEX_CONFIG)
        found["etc/nvidia-imex/nodes_config.cfg"] = File("".join(f"{n}\n" for n in m.imex.nodes))
    return found


_IMEX_CONFIG = """# Configuration of the IMEX daemon
LOG_LEVEL=4
LOG_FILE_NAME=/var/log/nvidia-imex.log
SERVER_PORT=50000
IMEX_NODE_CONFIG_FILE=/etc/nvidia-imex/nodes_config.cfg
IMEX_WAIT_FOR_QUORUM=RECOVERY
IMEX_ENABLE_AUTH_ENCRYPTION=0
IMEX_CMD_ENABLED=1
IMEX_CMD_PORT=50005
"""


@cache
def _program(name: str) -> str:
    return files("llmgwctl.rack").joinpath("programs", name).read_text(encoding="utf-8")


def _programs(m: Machine) -> dict[str, Entry]:
    missing = {"nvidia-smi"} if m.smi == "missing" else set()
    if m.imex is None:
        missing.add("nvidia-imex-ctl")
    found: dict[str, Entry] = {f"usr/bin/{n}": File(_program(f"{n}.sh"), 0o755) for n in PROGRAMS if n not in missing}
    return found | {"usr/bin/dmesg": Link("journalctl"), f"{TEXTS}/query.awk": File(_program("query.awk"))}


def _texts(m: Machine, fleet: Mapping[str, Machine], now: datetime) -> dict[str, Entry]:
    smi = smi_text.answers(m, now.strftime("%a %b %e %H:%M:%S %Y"))
    stamp = f"{now.month}/{now.day}/{now.year} {now:%H:%M:%S}.{now.microsecond // 1000:03}"
    imex = imex_text.answers(m, fleet, stamp)
    return {
        f"{TEXTS}/nvidia-smi/behaviour": File(f"{m.smi}\n"),
        f"{TEXTS}/nvidia-smi/gpus.tsv": File(smi_text.query_table(m)),
        f"{TEXTS}/nvidia-smi/apps.tsv": File(smi_text.process_table(m)),
        f"{TEXTS}/kernel-log": File("".join(f"{line}\n" for line in m.kernel_log)),
        **_answers("nvidia-smi", smi),
        **_answers("nvidia-imex-ctl", imex),
        **{f"{TEXTS}/ip/{name}": File(text) for name, text in ip_text.answers(m).items()},
        **_units(m),
    }


def _answers(program: str, answers: dict[str, Answer]) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    for name, a in answers.items():
        for kind, text in (("out", a.out), ("err", a.err), ("rc", f"{a.code}\n")):
            found[f"{TEXTS}/{program}/{name}.{kind}"] = File(text)
    return found


def _units(m: Machine) -> dict[str, Entry]:
    dead = {"nvidia-imex"} if m.imex and not m.imex.up else set()
    found: dict[str, Entry] = {f"{TEXTS}/units/none": File(_unit("", "not-found", "inactive", "dead", ""))}
    for name in m.units:
        active, sub = ("failed", "failed") if name in dead else ("active", "running")
        found[f"{TEXTS}/units/{name}"] = File(_unit(f"{name}.service", "loaded", active, sub, "enabled"))
    return found


def _unit(name: str, load: str, active: str, sub: str, enabled: str) -> str:
    result = "exit-code" if active == "failed" else "success"
    rows = {
        "Result": result,
        "Id": name,
        "LoadState": load,
        "ActiveState": active,
        "SubState": sub,
        "UnitFileState": enabled,
    }
    return "".join(f"{k}={v}\n" for k, v in rows.items())
