"""The other answers of nvidia-smi: tables, lists, the topology matrix, link speeds, and what it says of a lost GPU."""

from __future__ import annotations

from llmgwctl.model.fact import fact
from llmgwctl.rack.machine import Adapter, Gpu, Machine
from llmgwctl.rack.smi_q import cuda_version, fabric_rows, report


@fact
class Answer:
    """What a program prints and how it exits."""

    out: str = ""
    err: str = ""
    code: int = 0


def answers(m: Machine, taken: str) -> dict[str, Answer]:
    """By the name under which the fake program finds it."""
    lost = "".join(_lost_line(g) for g in m.gpus if g.lost)
    return {
        "q": _with_lost(m, lost, report(m, taken)),
        "nvlink-s": _with_lost(m, lost, nvlink_status(m)),
        "topo-m": _topology(m, lost),
        "L": Answer(listing(m), code=15 if lost else 0),
        "version": Answer(version(m)),
        "table": _with_lost(m, lost, table(m, taken)),
        "csv": _with_lost(m, lost, ""),  # the rows come from the query tables
    }


def _lost_line(gpu: Gpu) -> str:
    where = f"GPU{gpu.index}: {gpu.bus_id[4:]}"
    return f"Unable to determine the device handle for {where}: GPU is lost.  Reboot the system to recover this GPU\n\n"


def _with_lost(m: Machine, lost: str, rest: str) -> Answer:
    """From 580 on the line is on stderr, at 570 it is first on stdout, and older ones print nothing else."""
    if lost and m.release < (570,):
        return Answer(lost, code=15)
    if m.release < (580,):
        return Answer(lost + rest)
    return Answer(rest, lost)


def readable(m: Machine) -> list[Gpu]:
    return [g for g in m.gpus if not g.lost]


def listing(m: Machine) -> str:
    return "".join(
        _lost_line(g).replace(f"GPU{g.index}", f"gpu {g.index}") if g.lost else f"{_title(m, g)}\n" for g in m.gpus
    )


def _title(m: Machine, gpu: Gpu) -> str:
    return f"GPU {gpu.index}: {m.card.name} (UUID: {gpu.uuid})"


def nvlink_status(m: Machine) -> str:
    lines = []
    for gpu in readable(m):
        lines.append(_title(m, gpu))
        if gpu.mig:
            lines.append("Nvlink queries are not supported for Devices in MIG mode")
        else:
            lines += [f"\t Link {link}: {m.card.link_speed} GB/s" for link in range(18)]
    return "\n".join(lines) + "\n"


def version(m: Machine) -> str:
    driver = 'Deprecated, see "KMD version" instead' if m.release >= (610,) else m.driver
    rows = {"NVIDIA-SMI version": m.driver, "NVML version": m.driver.rsplit(".", 1)[0], "DRIVER version": driver}
    if m.release >= (610,):
        rows["KMD version"] = m.driver
    rows["CUDA Version"] = cuda_version(m)
    return "".join(f"{k:<20}: {v}\n" for k, v in rows.items())


_LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""


def _topology(m: Machine, lost: str) -> Answer:
    if lost and m.release < (570,):
        return Answer("Failed to run topology matrix\n", code=255)
    return Answer(topology(m))


def topology(m: Machine) -> str:
    """The matrix with its ANSI underline, its tabs and its empty cells; a lost GPU has no row and no column."""
    gpus, nics = readable(m), sorted(m.adapters, key=lambda a: a.name)
    columns = [f"GPU{g.index}" for g in gpus] + [f"NIC{k}" for k in range(len(nics))]
    lines = ["\t\x1b[4m" + "\t".join([*columns, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]) + "\x1b[0m"]
    lines += [_gpu_row(m, g, gpus, nics) for g in gpus]
    lines += [_nic_row(m, k, gpus, nics) for k in range(len(nics))]
    names = "".join(f"  NIC{k}: {a.name}\n" for k, a in enumerate(nics))
    return "\n".join(lines) + "\n" + _LEGEND + (f"\nNIC Legend:\n\n{names}\n" if nics else "")


def _gpu_row(m: Machine, gpu: Gpu, gpus: list[Gpu], nics: list[Adapter]) -> str:
    cells = [" X " if g is gpu else "NV18" for g in gpus] + [_distance(m, gpu, a) for a in nics]
    cores = 72 if m.card.grace else 56
    affinity = f"{gpu.numa * cores}-{gpu.numa * cores + cores - 1}"
    gpu_node = str(2 + 8 * gpu.index) if m.card.grace else "N/A"
    return "\t".join([f"GPU{gpu.index}", *cells, affinity, str(gpu.numa), "", gpu_node])


def _nic_row(m: Machine, k: int, gpus: list[Gpu], nics: list[Adapter]) -> str:
    between = [" X " if j == k else ("NODE" if a.numa == nics[k].numa else "SYS") for j, a in enumerate(nics)]
    return "\t".join([f"NIC{k}", *(_distance(m, g, nics[k]) for g in gpus), *between, "", "", "", ""])


def _distance(m: Machine, gpu: Gpu, nic: Adapter) -> str:
    """On a Grace tray adapters hang off the CPU; on an HGX board each GPU has one behind the same PCIe switch."""
    if not m.card.grace and nic.name == f"mlx5_{gpu.index}":
        return "PIX"
    return "NODE" if gpu.numa == nic.numa else "SYS"


def query_table(m: Machine) -> str:
    """Every field that --query-gpu knows here, one line a GPU, tab-separated; the fake program picks columns."""
    rows = [_fields(m, g) for g in readable(m)]
    header = "\t".join(rows[0]) if rows else ""
    return "".join(f"{line}\n" for line in [header, *("\t".join(r.values()) for r in rows)])


def _fields(m: Machine, g: Gpu) -> dict[str, str]:
    free = m.card.memory_mib - m.card.reserved_mib - g.used_mib
    mig = "Enabled" if g.mig else "Disabled"
    plain = {
        "index": str(g.index), "uuid": g.uuid, "gpu_uuid": g.uuid, "name": m.card.name, "gpu_name": m.card.name,
        "count": str(len(m.gpus)), "driver_version": m.driver, "serial": g.serial, "gpu_serial": g.serial,
        "pci.bus_id": g.bus_id, "gpu_bus_id": g.bus_id, "compute_cap": m.card.compute_cap, "compute_mode": "Default",
        "memory.total [MiB]": f"{m.card.memory_mib} MiB", "memory.used [MiB]": f"{g.used_mib} MiB",
        "memory.free [MiB]": f"{free} MiB", "mig.mode.current": mig, "mig.mode.pending": mig,
        "persistence_mode": "Enabled", "utilization.gpu [%]": "0 %", "temperature.gpu": "36",
        "power.draw [W]": "145.00 W", "ecc.errors.uncorrected.volatile.total": "0",
    }  # fmt: skip
    return plain | _fabric_fields(m, g)


def _fabric_fields(m: Machine, g: Gpu) -> dict[str, str]:
    rows, health = fabric_rows(m, g)
    if m.release < (580,):  # those versions print the name of the field before its value
        return {"fabric.state": f"state  {rows['State']}", "fabric.status": f"status {rows['Status']}"}
    fields = {
        "fabric.state": rows["State"],
        "fabric.status": rows["Status"],
        "fabric.cliqueId": rows["CliqueId"].split(" ")[0],
        "fabric.clusterUuid": rows["ClusterUUID"],
    }
    return fields | {f"fabric.health.{_FABRIC_NAMES.get(k, k.lower().replace(' ', '_'))}": v for k, v in health.items()}


_FABRIC_NAMES = {"Global Fabric Manager State": "gfm_state"}


def process_table(m: Machine) -> str:
    """For --query-compute-apps."""
    header = "\t".join(
        ("gpu_uuid", "gpu_bus_id", "pid", "process_name", "name", "used_memory [MiB]", "used_gpu_memory [MiB]")
    )
    rows = [
        "\t".join((g.uuid, g.bus_id, str(p.pid), p.name, p.name, f"{p.used_mib} MiB", f"{p.used_mib} MiB"))
        for g in readable(m)
        for p in g.processes
    ]
    return "".join(f"{line}\n" for line in [header, *rows])


_RULE = "+-----------------------------------------+------------------------+----------------------+"


def table(m: Machine, taken: str) -> str:
    """The picture that nvidia-smi prints without arguments."""
    top = f"| NVIDIA-SMI {m.driver:<22} Driver Version: {m.driver:<14} CUDA Version: {cuda_version(m):<8} |"
    head = (
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |",
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |",
        "|                                         |                        |               MIG M. |",
        "|=========================================+========================+======================|",
    )
    rows = [line for g in readable(m) for line in (*_table_rows(m, g), _RULE)]
    return "\n".join([f"{taken}       ", f"+{'-' * 89}+", top, _RULE, *head, *rows, "", *_process_rows(m)]) + "\n"


def _table_rows(m: Machine, g: Gpu) -> tuple[str, ...]:
    memory = f"{g.used_mib:>7}MiB / {m.card.memory_mib:>6}MiB"
    mig = "Enabled" if g.mig else "Disabled"
    return (
        f"|{g.index:>4}  {m.card.name:<31}On  |   {g.bus_id} Off |                    0 |",
        f"| N/A   36C    P0            145W / {m.card.power_w:>4}W | {memory:>22} |      0%      Default |",
        f"|                                         |                        | {mig:>20} |",
    )


def _process_rows(m: Machine) -> list[str]:
    bar = f"+{'-' * 89}+"
    rows = [
        f"| {g.index:>4}   N/A  N/A {p.pid:>15}      C   {p.name:<38} {p.used_mib:>6}MiB |"
        for g in readable(m)
        for p in g.processes
    ] or [f"|{'  No running processes found':<89}|"]
    return [
        bar,
        f"| {'Processes:':<88}|",
        "|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |",
        "|        ID   ID                                                               Usage      |",
        f"|{'=' * 89}|",
        *rows,
        bar,
    ]
