"""`nvidia-smi -q` in the layout of each driver, text and XML from one description. All ids are invented."""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.sax.saxutils import escape

CLUSTER = "5e1fab1e-0000-4000-8000-0000000c1a55"
ZERO = "00000000-0000-0000-0000-000000000000"
DRIVERS = ("510.47", "535.161", "550.144", "570.195", "580.82", "580.126", "590.48", "595.91", "610.57", "615.71")
DEPRECATED = " [Deprecated; will be removed in CUDA 14.0. Use KMD Version instead]"
HEALTHY = {
    "Summary": "Healthy",
    "Bandwidth": "Full",
    "Route Recovery in progress": "False",
    "Route Unhealthy": "False",
    "Access Timeout Recovery": "False",
    "Incorrect Configuration": "None",
    "Partition Assigned": "True",
    "Global Fabric Manager State": "Connected",
}
TAGS = {
    "Summary": "summary",
    "Bandwidth": "bandwidth",
    "Route Recovery in progress": "route_recovery_in_progress",
    "Route Unhealthy": "route_unhealthy",
    "Access Timeout Recovery": "access_timeout_recovery",
    "Incorrect Configuration": "incorrect_configuration",
    "Partition Assigned": "partition_assigned",
    "Global Fabric Manager State": "gfm_state",
}


REASONS = {
    "Idle": "gpu_idle",
    "Applications Clocks Setting": "applications_clocks_setting",
    "SW Power Cap": "sw_power_cap",
    "HW Slowdown": "hw_slowdown",
    "HW Thermal Slowdown": "hw_thermal_slowdown",
    "HW Power Brake Slowdown": "hw_power_brake_slowdown",
    "Sync Boost": "sync_boost",
    "SW Thermal Slowdown": "sw_thermal_slowdown",
    "Display Clock Setting": "display_clocks_setting",
}


def release(driver: str) -> tuple[int, int]:
    major, minor = driver.split(".")[:2]
    return int(major), int(minor)


def health_rows(driver: str) -> tuple[str, ...]:
    """The rows that this driver prints; the set does not grow with the number (590.48 lacks one of 580.126)."""
    version = release(driver)
    rows = []
    if version >= (580, 0):
        rows.append("Summary")
    if version >= (550, 0):
        rows.append("Bandwidth")
    if version >= (570, 0):
        rows += ["Route Recovery in progress", "Route Unhealthy", "Access Timeout Recovery"]
    if version >= (580, 0):
        rows.append("Incorrect Configuration")
    if (580, 126) <= version < (590, 0) or version >= (595, 0):
        rows.append("Partition Assigned")
    if version >= (615, 0):
        rows.append("Global Fabric Manager State")
    return tuple(rows)


@dataclass
class Card:
    """One GPU. `health` overrides rows; `cliques`: None (615 prints the one of `clique`), or the text after the key."""

    place: int = 0
    name: str = "NVIDIA GB200"
    state: str = "Completed"
    status: str = "Success"
    clique: str = "32766"
    cluster: str = CLUSTER
    health: dict[str, str] = field(default_factory=dict)
    used: str = "12 MiB"
    total: str = "189471 MiB"
    mig: str = "Disabled"
    recovery: str = "None"
    processes: tuple[tuple[int, str, str, str], ...] = ()
    uncorrectable: str = "0"
    chassis: str = "1820000000042"
    cliques: str | None = None
    addressing: str = "ATS"
    active: tuple[str, ...] = ("Idle",)  # clocks event reasons
    link: tuple[str, str, str, str] = ("5", "5", "16x", "16x")  # PCIe: generation, most, width, most
    power: tuple[str, str, str, str] = ("1100.00 W", "1150.00 W", "1200.00 W", "1250.00 W")  # now, asked, default, max
    repair: tuple[str, str] = ("No", "Yes")  # channel, TPC
    threshold: str = "No"

    @property
    def bus(self) -> str:
        return ("00000008:01:00.0", "00000009:01:00.0", "00000018:01:00.0", "00000019:01:00.0")[self.place]

    @property
    def uuid(self) -> str:
        return f"GPU-11111111-2222-3333-4444-00000000000{self.place}"

    def rows(self, driver: str) -> list[tuple[str, str]]:
        values = HEALTHY | {"Partition Assigned": "N/A", "Global Fabric Manager State": "N/A"} | self.health
        if self.state != "Completed":
            values = dict.fromkeys(HEALTHY, "N/A")
        return [(key, values[key]) for key in health_rows(driver)]


def trays(count: int = 4) -> list[Card]:
    return [Card(place) for place in range(count)]


def text(driver: str, cards: list[Card], attached: int | None = None) -> str:
    """As the program prints it: colons at column 43, from 580.126 on (and not in 590 and older) at 56."""
    wide = release(driver) >= (580, 126)
    lines = ["", "==============NVSMI LOG==============", ""]

    def row(depth: int, key: str, value: str, pad: int = 55 if wide else 42) -> None:
        lines.append(f"{'    ' * depth + key:<{pad}}: {value}")

    def head(depth: int, name: str) -> None:
        lines.append("    " * depth + name)

    row(0, "Timestamp", "Fri Jan  2 03:04:05 2026")
    row(0, "Driver Version", driver + (DEPRECATED if release(driver) >= (610, 0) else ""))
    row(0, "CUDA Version", "13.0" + (DEPRECATED if release(driver) >= (610, 0) else ""))
    if release(driver) >= (610, 0):
        row(0, "KMD Version", driver)
        row(0, "CUDA UMD Version", "13.0")
    lines.append("")
    row(0, "Attached GPUs", str(len(cards) if attached is None else attached))
    for card in cards:
        head(0, f"GPU {card.bus}")
        _body(driver, card, row, head)
        lines.append("")
    return "\n".join(lines) + "\n"


def _body(driver, card, row, head) -> None:
    version = release(driver)
    row(1, "Product Name", card.name)
    row(1, "Persistence Mode", "Enabled")
    if version >= (535, 0):
        row(1, "Addressing Mode", card.addressing)
    head(1, "MIG Mode")
    row(2, "Current", card.mig)
    row(2, "Pending", card.mig)
    if card.mig == "Enabled":
        for number in range(2):
            _mig_device(number, row, head)
    row(1, "GPU UUID", card.uuid)
    row(1, "Minor Number", str(card.place))
    if version >= (570, 0):
        head(1, "Platform Info")
        row(2, "Chassis Serial Number", card.chassis)
        for key, value in (("Slot Number", "14"), ("Tray Index", "4"), ("Host ID", "1")):
            row(2, key, value)
        row(2, "Peer Type", "Switch Connected")
        row(2, "Module Id", str(card.place + 1))
        row(2, "GPU Fabric GUID", "0xabcdef0123456789")
    if version >= (545, 0):
        row(1, "GPU C2C Mode", "Enabled")
    if version >= (570, 0):
        row(1, "GPU Recovery Action", card.recovery)
    elif version >= (535, 0):
        head(1, "GPU Reset Status")
        row(2, "Reset Required", "Yes" if card.recovery != "None" else "No")
        row(2, "Drain and Reset Recommended", "N/A")
    _link_and_clocks(driver, card, row, head)
    head(1, "FB Memory Usage")
    row(2, "Total", card.total)
    row(2, "Reserved", "700 MiB")
    row(2, "Used", card.used)
    head(1, "BAR1 Memory Usage")
    row(2, "Total", "262144 MiB")
    row(2, "Used", "3 MiB")
    row(1, "Compute Mode", "Default")
    head(1, "ECC Errors")
    head(2, "Volatile")
    row(3, "SRAM Correctable", "9")
    row(3, "SRAM Uncorrectable Parity", "0")
    row(3, "SRAM Uncorrectable SEC-DED", "0")
    row(3, "DRAM Uncorrectable", card.uncorrectable)
    head(2, "Aggregate")
    row(3, "DRAM Uncorrectable", "77")
    if version >= (535, 0):
        row(3, "SRAM Threshold Exceeded", card.threshold)
    if version >= (580, 0):
        row(2, "Channel Repair Pending", card.repair[0])
        row(2, "TPC Repair Pending", card.repair[1])
    head(1, "Remapped Rows")
    row(2, "Pending", "No")
    row(2, "Remapping Failure Occurred", "Yes" if card.place == 3 else "No")
    if version >= (615, 0):
        row(1, "Remapped Banks", "Function Not Found")
    _power(driver, card, row, head)
    if version >= (525, 0):
        _fabric(driver, card, row, head)
    _processes(card, row, head)


def _link_and_clocks(driver, card, row, head) -> None:
    head(1, "PCI")
    row(2, "Bus Id", card.bus)
    head(2, "GPU Link Info")
    head(3, "PCIe Generation")
    row(4, "Max", card.link[1])
    row(4, "Current", card.link[0])
    if release(driver) >= (535, 0):
        row(4, "Device Current", "1")
        row(4, "Device Max", "6")
    head(3, "Link Width")
    row(4, "Max", card.link[3])
    row(4, "Current", card.link[2])
    row(1, "Performance State", "P0")
    head(1, "Clocks Event Reasons" if release(driver) >= (535, 0) else "Clocks Throttle Reasons")
    for name in REASONS:
        depth = 3 if name in ("HW Thermal Slowdown", "HW Power Brake Slowdown") else 2
        row(depth, name, "Active" if name in card.active else "Not Active")


def _power(driver, card, row, head) -> None:
    """R510 names them otherwise; R615 has three of them one level deeper."""
    version, (now, asked, default, most) = release(driver), card.power
    if version < (535, 0):
        head(1, "Power Readings")
        rows = ("Power Limit", asked), ("Default Power Limit", default), ("Enforced Power Limit", now)
    else:
        head(1, "GPU Power Readings")
        rows = ("Current Power Limit", now), ("Requested Power Limit", asked), ("Default Power Limit", default)
    deeper = version >= (615, 0)
    if deeper:
        head(2, "GPU Ceiling Power Limit")
    for name, value in rows:
        row(3 if deeper else 2, name, value)
    row(2, "Max Power Limit", most)
    if version >= (550, 0):
        head(1, "GPU Memory Power Readings ")
        row(2, "Average Power Draw", "N/A")
    if version >= (535, 0):
        head(1, "Module Power Readings")
        for name in ("Current Power Limit", "Requested Power Limit", "Default Power Limit", "Max Power Limit"):
            row(2, name, "N/A")


def _mig_device(number: int, row, head) -> None:
    head(1, "MIG Device")
    row(2, "Index", str(number))
    head(2, "Shared FB Memory Usage")
    row(3, "Total", "40448 MiB")
    row(3, "Used", "11091 MiB")


def _fabric(driver, card, row, head) -> None:
    version = release(driver)
    head(1, "Fabric")
    row(2, "State", card.state)
    done = card.state == "Completed"
    row(2, "Status", card.status if done else "N/A")
    if version < (550, 0):
        return
    suffix = " [Deprecated; see field Cliques]" if version >= (615, 0) and done and card.clique != "N/A" else ""
    row(2, "CliqueId", card.clique + suffix if done else "N/A")
    row(2, "ClusterUUID", card.cluster if done else "N/A")
    head(2, "Health")
    for key, value in card.rows(driver):
        row(3, key, value)
    if version >= (615, 0):
        if card.cliques is not None or not done:
            row(2, "Cliques", card.cliques or "")
        else:
            head(2, "Cliques")
            row(3, "Multicast Pointer", "4242")
            row(3, "Unicast Pointer", "32766")


def _processes(card, row, head) -> None:
    if not card.processes:
        row(1, "Processes", "None")
        return
    head(1, "Processes")
    for pid, kind, name, used in card.processes:
        row(2, "GPU instance ID", "N/A", 42)
        row(2, "Process ID", str(pid), 42)
        row(3, "Type", kind, 42)
        row(3, "Name", name, 42)
        row(3, "Used GPU Memory", used, 42)


def xml(driver: str, cards: list[Card], attached: int | None = None) -> str:
    """The same facts as `-q -x` prints them."""
    dtd = "v11" if release(driver) < (535, 0) else "v12" if release(driver) < (580, 0) else "v13"
    lines = ['<?xml version="1.0" ?>', f'<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_{dtd}.dtd">', "<nvidia_smi_log>"]

    def tag(name: str, value: str) -> None:
        lines.append(f"\t<{name}>{escape(value)}</{name}>")

    tag("driver_version", driver)
    if release(driver) >= (610, 0):
        lines.append("\t<!-- driver_version is deprecated and will be removed; use kmd_version instead -->")
    tag("cuda_version", "13.0")
    tag("attached_gpus", str(len(cards) if attached is None else attached))
    for card in cards:
        lines.append(f'\t<gpu id="{card.bus}">')
        _xml_body(driver, card, tag, lines)
        lines.append("\t</gpu>\n")
    return "\n".join([*lines, "</nvidia_smi_log>", ""])


def _xml_body(driver, card, tag, lines) -> None:
    version = release(driver)

    def block(name: str, *pairs: tuple[str, str]) -> None:
        lines.append(f"<{name}>")
        for key, value in pairs:
            tag(key, value)
        lines.append(f"</{name}>")

    tag("product_name", card.name)
    tag("persistence_mode", "Enabled")
    if version >= (535, 0):
        tag("addressing_mode", card.addressing)
    block("mig_mode", ("current_mig", card.mig), ("pending_mig", card.mig))
    lines.append("<mig_devices>\n\t\tNone\n</mig_devices>")
    tag("uuid", card.uuid)
    tag("minor_number", str(card.place))
    if version >= (570, 0):
        place = (("slot_number", "14"), ("tray_index", "4"), ("host_id", "1"), ("peer_type", "Switch Connected"))
        block("platformInfo", ("chassis_serial_number", card.chassis), *place, ("module_id", str(card.place + 1)))
    if version >= (545, 0):
        tag("c2c_mode", "Enabled")
    if version >= (570, 0):
        tag("gpu_recovery_action", card.recovery)
    elif version >= (535, 0):
        block("gpu_reset_status", ("reset_required", "Yes" if card.recovery != "None" else "No"))
    _xml_link_and_clocks(driver, card, tag, lines, block)
    block("fb_memory_usage", ("total", card.total), ("reserved", "700 MiB"), ("used", card.used))
    block("bar1_memory_usage", ("total", "262144 MiB"), ("used", "3 MiB"))
    tag("compute_mode", "Default")
    lines.append("<ecc_errors>")
    block("volatile", ("sram_uncorrectable_parity", "0"), ("dram_uncorrectable", card.uncorrectable))
    threshold = [("sram_threshold_exceeded", card.threshold)] if version >= (535, 0) else []
    block("aggregate", ("dram_uncorrectable", "77"), *threshold)
    if version >= (580, 0):
        tag("channel_repair_pending", card.repair[0])
        tag("tpc_repair_pending", card.repair[1])
    lines.append("</ecc_errors>")
    failed = "Yes" if card.place == 3 else "No"
    block("remapped_rows", ("remapped_row_pending", "No"), ("remapped_row_failure", failed))
    if version >= (525, 0):
        _xml_fabric(driver, card, tag, lines, block)
    lines.append("<processes>")
    for pid, kind, name, used in card.processes:
        names = ("pid", str(pid)), ("type", kind), ("process_name", name), ("used_memory", used)
        block("process_info", ("gpu_instance_id", "N/A"), *names)
    lines.append("</processes>")


def _xml_link_and_clocks(driver, card, tag, lines, block) -> None:
    version, (now, asked, default, most) = release(driver), card.power
    lines.append("<pci><pci_bus_id>x</pci_bus_id><pci_gpu_link_info>")
    block(
        "pcie_gen", ("max_link_gen", card.link[1]), ("current_link_gen", card.link[0]), ("device_current_link_gen", "1")
    )
    block("link_widths", ("max_link_width", card.link[3]), ("current_link_width", card.link[2]))
    lines.append("</pci_gpu_link_info></pci>")
    tag("performance_state", "P0")
    word = "event" if version >= (535, 0) else "throttle"
    said = ((f"clocks_{word}_reason_{e}", "Active" if n in card.active else "Not Active") for n, e in REASONS.items())
    block(f"clocks_{word}_reasons", *said)
    if version < (535, 0):
        limits = ("power_limit", asked), ("default_power_limit", default), ("enforced_power_limit", now)
        block("power_readings", ("power_state", "P0"), *limits, ("max_power_limit", most))
        return
    limits = ("current_power_limit", now), ("requested_power_limit", asked), ("default_power_limit", default)
    block("gpu_power_readings", *limits, ("max_power_limit", most))
    block("module_power_readings", ("current_power_limit", "N/A"), ("default_power_limit", "N/A"))


def _xml_fabric(driver, card, tag, lines, block) -> None:
    version, done = release(driver), card.state == "Completed"
    lines.append("<fabric>")
    tag("state", card.state)
    tag("status", card.status if done else "N/A")
    if version >= (550, 0):
        tag("cliqueId", card.clique if done else "N/A")
        tag("clusterUuid", card.cluster if done else "N/A")
        block("health", *((TAGS[key], value) for key, value in card.rows(driver)))
        if version >= (615, 0) and done and card.cliques is None:
            lines.append("<cliques>")
            block("clique_entry", ("clique_type", "Multicast Pointer"), ("clique_id", "4242"))
            block("clique_entry", ("clique_type", "Unicast Pointer"), ("clique_id", "32766"))
            lines.append("</cliques>")
    lines.append("</fabric>")


def query(cards: list[Card], cap: str = "10.0") -> str:
    """`--query-gpu=index,uuid,compute_cap --format=csv,noheader`."""
    return "".join(f"{card.place}, {card.uuid}, {cap}\n" for card in cards)
