"""`nvidia-smi -q` of a simulated host, in the layout of the driver that it has."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from llmgwctl.rack.machine import Gpu, GpuProcess, Health, Machine

NARROW, WIDE = 42, 55  # the colon's column: up to 580.105, and from 580.126 on
_PROCESS_COLUMN = 42  # whatever the driver
_DEPRECATED = " [Deprecated; will be removed in CUDA 14.0. Use {} instead]"


def report(m: Machine, taken: str) -> str:
    """The whole text on stdout; a lost GPU is counted and has no block."""
    lines = ["", "==============NVSMI LOG==============", "", *_header(m, taken)]
    for gpu in m.gpus:
        if not gpu.lost:
            lines += [f"GPU {gpu.bus_id}", *_block(m, gpu), ""]
    return "\n".join(lines) + "\n"


def _header(m: Machine, taken: str) -> list[str]:
    driver, cuda = m.driver, cuda_version(m)
    rows = [("Timestamp", taken), ("Driver Version", driver), ("CUDA Version", cuda)]
    if m.release >= (610,):
        rows[1:] = [
            ("Driver Version", driver + _DEPRECATED.format("KMD Version")),
            ("KMD Version", driver),
            ("CUDA Version", cuda + _DEPRECATED.format("CUDA UMD Version")),
            ("CUDA UMD Version", cuda),
        ]
    column = _column(m)
    return [*(_row(0, k, v, column) for k, v in rows), "", _row(0, "Attached GPUs", str(len(m.gpus)), column)]


def cuda_version(m: Machine) -> str:
    steps = ((610, "13.3"), (595, "13.2"), (590, "13.1"), (580, "13.0"), (570, "12.8"), (550, "12.4"), (0, "12.2"))
    return next(cuda for first, cuda in steps if m.release[0] >= first)


def _column(m: Machine) -> int:
    return WIDE if m.release >= (580, 126) else NARROW


def _row(indent: int, key: str, value: str, column: int) -> str:
    return f"{' ' * indent + key:<{column}}: {value}"


@cache
def _template() -> str:
    return files("llmgwctl.rack").joinpath("smi_q.txt").read_text(encoding="utf-8")


def _block(m: Machine, gpu: Gpu) -> list[str]:
    card = m.card
    text = _template().format(
        **{name: getattr(card, name) for name in ("name", "architecture", "pci_id")},
        driver=m.driver,
        addressing="ATS" if card.grace else "None",
        mig="Enabled" if gpu.mig else "Disabled",
        mig_devices=_mig_devices() if gpu.mig else _NOTHING,
        serial=gpu.serial,
        uuid=gpu.uuid,
        pdi=gpu.uuid[4:23].replace("-", ""),
        index=gpu.index,
        bus=gpu.bus_id[9:11],
        domain=gpu.bus_id[4:8],
        bus_id=gpu.bus_id,
        platform=_platform(m, gpu),
        c2c="Enabled" if card.grace else "Disabled",
        recovery=_recovery(m, gpu),
        memory=card.memory_mib,
        reserved=card.reserved_mib,
        used=gpu.used_mib,
        free=card.memory_mib - card.reserved_mib - gpu.used_mib,
        power=card.power_w,
        fabric=_fabric(m, gpu),
        processes=_processes(gpu),
    )
    return _laid_out(text, _column(m))


_NOTHING = ""  # an empty line of the template, which the layout drops


def _laid_out(text: str, column: int) -> list[str]:
    """The template's `Key: value` lines, one level deeper and with the colon in its column."""
    return [_line(line, column) for line in text.splitlines() if line.strip()]


def _line(line: str, column: int) -> str:
    if line.startswith("~"):  # a row of a process: always in the narrow layout
        line, column = line[1:], _PROCESS_COLUMN
    key, colon, value = line.partition(": ")
    return _row(4, key, value, column) if colon else f"    {line}"


def _platform(m: Machine, gpu: Gpu) -> str:
    if m.release < (570,):
        return _NOTHING
    p, known = m.place, m.card.architecture == "Blackwell"
    rows = {
        "Chassis Serial Number": p.serial if p else "N/A",
        "Slot Number": p.slot if p else "N/A",
        "Tray Index": p.tray if p else "N/A",
        "Host ID": 1 if known else "N/A",
        "Peer Type": "Switch Connected" if known else "N/A",
        "Module Id": gpu.module,
        "GPU Fabric GUID": f"0x{gpu.uuid[4:23].replace('-', '')}" if known else "N/A",
    }
    return "Platform Info\n" + "\n".join(f"    {k}: {v}" for k, v in rows.items())


def _recovery(m: Machine, gpu: Gpu) -> str:
    if m.release >= (580,):
        return f"GPU Recovery Action: {gpu.recovery}"
    yes = "No" if gpu.recovery == "None" else "Yes"
    return f"GPU Reset Status\n    Reset Required: {yes}\n    Drain and Reset Recommended: No"


def fabric_rows(m: Machine, gpu: Gpu) -> tuple[dict[str, str], dict[str, str]]:
    """Rows of the Fabric block and of its Health block that this driver prints."""
    joined = gpu.state == "Completed"
    rows = {"State": gpu.state, "Status": gpu.status if joined else "N/A"}
    if m.release < (550,):
        return rows, {}
    suffix = " [Deprecated; see field Cliques]" if m.release >= (615,) else ""
    rows["CliqueId"] = f"{gpu.clique}{suffix}" if joined else "N/A"
    rows["ClusterUUID"] = gpu.cluster if joined else "N/A"
    return rows, _health_rows(m.release, gpu.health if joined else Health())


def _health_rows(release: tuple[int, ...], h: Health) -> dict[str, str]:
    """The set of keys is not monotone: 590 lacks one that 580.126 has."""
    rows = {"Bandwidth": h.bandwidth}
    if release >= (570,):
        rows |= {
            "Route Recovery in progress": h.route_recovery,
            "Route Unhealthy": h.route_unhealthy,
            "Access Timeout Recovery": h.access_timeout,
        }
    if release >= (580,):
        rows = {"Summary": h.summary, **rows, "Incorrect Configuration": h.incorrect}
    if (580, 126) <= release < (581,) or release >= (595,):
        rows["Partition Assigned"] = h.partition
    if release >= (615,):
        rows["Global Fabric Manager State"] = h.manager
    return rows


def _fabric(m: Machine, gpu: Gpu) -> str:
    rows, health = fabric_rows(m, gpu)
    lines = ["Fabric", *(f"    {k}: {v}" for k, v in rows.items())]
    if health:
        lines += ["    Health", *(f"        {k}: {v}" for k, v in health.items())]
    if m.release >= (615,):
        lines += _cliques(gpu)
    return "\n".join(lines)


def _cliques(gpu: Gpu) -> list[str]:
    if gpu.state != "Completed" or not gpu.clique:
        return ["    Cliques: "]
    return ["    Cliques", f"        Unicast Pointer: {gpu.clique}", f"        Multicast Pointer: {gpu.clique}"]


def _mig_devices() -> str:
    rows = ("Index: 0", "GPU Instance ID: 2", "Compute Instance ID: 0", "Device Attributes", "    Shared",
            "        Multiprocessor count: 60", "        Copy Engine count: 3", "Shared FB Memory Usage",
            "    Total: 40448 MiB", "    Reserved: 0 MiB", "    Used: 26 MiB", "    Free: 40423 MiB")  # fmt: skip
    return "MIG Device\n" + "\n".join(f"    {r}" for r in rows)


def _processes(gpu: Gpu) -> str:
    if not gpu.processes:
        return "Processes: None"
    return "Processes\n" + "\n".join(row for p in gpu.processes for row in _process(p))


def _process(p: GpuProcess) -> tuple[str, ...]:
    ids = ("GPU instance ID: N/A", "Compute instance ID: N/A", f"Process ID: {p.pid}")
    of = ("Type: C", f"Name: {p.name}", f"Used GPU Memory: {p.used_mib} MiB")
    return (*(f"~    {row}" for row in ids), *(f"~        {row}" for row in of))
