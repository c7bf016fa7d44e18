"""The XML form of `nvidia-smi -q`: a bounded parse without entities, into the tree of the text form."""

from __future__ import annotations

from xml.parsers import expat

from llmgwctl.probe.smi_tree import Node

LIMIT_CHARS = 64 * 2**20
LIMIT_DEPTH = 32
LIMIT_VALUE = 64 * 2**10
OPEN, CLOSE = "<nvidia_smi_log", "</nvidia_smi_log>"

NAMES = {
    "driver_version": "Driver Version",
    "cuda_version": "CUDA Version",
    "kmd_version": "KMD Version",
    "cuda_umd_version": "CUDA UMD Version",
    "attached_gpus": "Attached GPUs",
    "gpu": "GPU",
    "product_name": "Product Name",
    "persistence_mode": "Persistence Mode",
    "addressing_mode": "Addressing Mode",
    "mig_mode": "MIG Mode",
    "current_mig": "Current",
    "uuid": "GPU UUID",
    "minor_number": "Minor Number",
    "platformInfo": "Platform Info",
    "chassis_serial_number": "Chassis Serial Number",
    "slot_number": "Slot Number",
    "tray_index": "Tray Index",
    "host_id": "Host ID",
    "peer_type": "Peer Type",
    "module_id": "Module Id",
    "c2c_mode": "GPU C2C Mode",
    "gpu_recovery_action": "GPU Recovery Action",
    "gpu_reset_status": "GPU Reset Status",
    "reset_required": "Reset Required",
    "drain_and_reset_recommended": "Drain and Reset Recommended",
    "pci": "PCI",
    "pci_gpu_link_info": "GPU Link Info",
    "pcie_gen": "PCIe Generation",
    "max_link_gen": "Max",
    "current_link_gen": "Current",
    "link_widths": "Link Width",
    "max_link_width": "Max",
    "current_link_width": "Current",
    "performance_state": "Performance State",
    "clocks_event_reasons": "Clocks Event Reasons",
    "clocks_throttle_reasons": "Clocks Throttle Reasons",
    **{
        f"clocks_{word}_reason_{element}": name
        for word in ("event", "throttle")
        for element, name in (
            ("gpu_idle", "Idle"),
            ("applications_clocks_setting", "Applications Clocks Setting"),
            ("sw_power_cap", "SW Power Cap"),
            ("hw_slowdown", "HW Slowdown"),
            ("hw_thermal_slowdown", "HW Thermal Slowdown"),
            ("hw_power_brake_slowdown", "HW Power Brake Slowdown"),
            ("sync_boost", "Sync Boost"),
            ("sw_thermal_slowdown", "SW Thermal Slowdown"),
            ("display_clocks_setting", "Display Clock Setting"),
        )
    },
    "gpu_power_readings": "GPU Power Readings",
    "module_power_readings": "Module Power Readings",
    "power_readings": "Power Readings",
    "gpu_ceiling_power_limit": "GPU Ceiling Power Limit",
    "current_power_limit": "Current Power Limit",
    "enforced_power_limit": "Enforced Power Limit",
    "requested_power_limit": "Requested Power Limit",
    "power_limit": "Power Limit",
    "default_power_limit": "Default Power Limit",
    "max_power_limit": "Max Power Limit",
    "fb_memory_usage": "FB Memory Usage",
    "total": "Total",
    "used": "Used",
    "compute_mode": "Compute Mode",
    "ecc_errors": "ECC Errors",
    "volatile": "Volatile",
    "double_bit": "Double Bit",
    "sram_uncorrectable": "SRAM Uncorrectable",
    "sram_uncorrectable_parity": "SRAM Uncorrectable Parity",
    "sram_uncorrectable_secded": "SRAM Uncorrectable SEC-DED",
    "dram_uncorrectable": "DRAM Uncorrectable",
    "aggregate": "Aggregate",
    "sram_threshold_exceeded": "SRAM Threshold Exceeded",
    "channel_repair_pending": "Channel Repair Pending",
    "tpc_repair_pending": "TPC Repair Pending",
    "remapped_rows": "Remapped Rows",
    "remapped_row_pending": "Pending",
    "remapped_row_failure": "Remapping Failure Occurred",
    "fabric": "Fabric",
    "state": "State",
    "status": "Status",
    "cliqueId": "CliqueId",
    "clusterUuid": "ClusterUUID",
    "health": "Health",
    "summary": "Summary",
    "bandwidth": "Bandwidth",
    "route_recovery_in_progress": "Route Recovery in progress",
    "route_unhealthy": "Route Unhealthy",
    "access_timeout_recovery": "Access Timeout Recovery",
    "incorrect_configuration": "Incorrect Configuration",
    "partition_assigned": "Partition Assigned",
    "gfm_state": "Global Fabric Manager State",
    "cliques": "Cliques",
    "processes": "Processes",
    "process_info": "Process ID",
    "type": "Type",
    "process_name": "Name",
    "used_memory": "Used GPU Memory",
}
"""XML element -> name in the text form. An element that is not here keeps its own name."""


class NotXml(ValueError):
    """Not the report that it should be; str() says where."""


def is_xml(text: str) -> bool:
    """Whether this is the XML form; a line of text may stand before it (R570 and a lost GPU)."""
    start = text.find(OPEN)
    return start >= 0 and "=NVSMI LOG=" not in text[:start]


def read_xml(text: str) -> Node:
    """The report as a tree, as read_text gives it. Raises NotXml for anything but one whole document."""
    end = text.rfind(CLOSE)
    if end < 0:
        raise NotXml("the XML report ends early")
    if len(text) > LIMIT_CHARS:
        raise NotXml("the XML report is too large")
    body = text[text.find(OPEN) : end + len(CLOSE)]
    reader = _Reader()
    try:
        reader.parser.Parse(body.encode("utf-8", "replace"), True)
    except expat.ExpatError as e:
        raise NotXml(f"the XML report is not well-formed: {e}") from e
    return reader.root.children[0]


class _Reader:
    """Expat's handlers. The text before the document element, its DOCTYPE included, is never given to the parser."""

    def __init__(self) -> None:
        self.root = Node("")
        self.stack = [self.root]
        self.parser = expat.ParserCreate(encoding="utf-8")
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._data

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self.stack) > LIMIT_DEPTH:
            raise NotXml("the XML report is nested too deeply")
        node = Node(NAMES.get(name, name), attributes.get("id") if name == "gpu" else None)
        self.stack[-1].children.append(node)
        self.stack.append(node)

    def _end(self, name: str) -> None:
        node = self.stack.pop()
        if node.name != "GPU":
            node.value = (node.value or "").strip()
        if node.children and not node.value:
            node.value = node.raw("pid") if node.name == "Process ID" else None

    def _data(self, data: str) -> None:
        node = self.stack[-1]
        if node.name != "GPU" and len(node.value or "") < LIMIT_VALUE:
            node.value = (node.value or "") + data
