"""LG65: the fabric manager of an NVSwitch machine. Judged by the fabric first, and by the unit only to say why."""

from __future__ import annotations

from collections.abc import Iterator

from llmgwctl.doctor.base import Answer, Check, View, each, found, product
from llmgwctl.doctor.verdicts import has
from llmgwctl.model.host import HostFacts
from llmgwctl.model.machine import FabricManager

UNIT = "systemctl status nvidia-fabricmanager; journalctl -u nvidia-fabricmanager -b"
STARTING_S = 720  # TimeoutStartSec of its unit


def belongs(facts: HostFacts) -> bool:
    """An NVL72 tray has none, and one that does not run there is no fault."""
    known = product(facts)
    return known is not None and known.host_fabric_manager


def _waits(facts: HostFacts, view: View) -> FabricManager | None:
    """The manager of a machine whose GPUs wait for it."""
    return facts.fabric_manager.value if has(view, facts, "not-joined", "refused") else None


def _not_running(facts: HostFacts, view: View) -> Iterator[Answer]:
    fm = _waits(facts, view)
    if fm is not None and fm.unit_active not in (None, "active", "activating"):
        how = (
            "is not installed" if fm.unit_load == "not-found" else f"is {fm.unit_active} ({fm.unit_file or 'no file'})"
        )
        yield found(facts, f"unit nvidia-fabricmanager {how}")


def _absent(facts: HostFacts, view: View) -> Iterator[Answer]:
    if facts.fabric_manager.state == "absent" and has(view, facts, "not-joined"):
        yield found(facts, "no nvidia-fabricmanager is installed")


def _starting(facts: HostFacts, view: View) -> Iterator[Answer]:
    fm = _waits(facts, view)
    if fm is not None and fm.unit_active == "activating":
        since = fm.active_for_s
        late = since is not None and since > STARTING_S
        text = f"unit nvidia-fabricmanager is activating, for {(since or 0) / 60:.0f} min"
        yield found(facts, text, severity="block" if late else None)


def _other_version(facts: HostFacts, view: View) -> Iterator[Answer]:
    fm, versions, report = facts.fabric_manager.value, facts.versions.value, facts.gpus.value
    driver = (versions.driver_loaded if versions else "") or (report.driver if report else "") or ""
    if fm is not None and fm.version and driver and fm.version != driver:
        fine = not has(view, facts, "not-joined", "refused")
        yield found(facts, f"fabric manager {fm.version}, driver {driver}", severity="warn" if fine else None)


def _resident(facts: HostFacts, view: View) -> Iterator[Answer]:
    fm = _waits(facts, view)
    if fm is not None and fm.unit_active == "active" and fm.stay_resident:
        yield found(facts, "the unit is active and FM_STAY_RESIDENT_ON_FAILURES=1: it outlived its own failure")


def _mode(facts: HostFacts, view: View) -> Iterator[Answer]:
    fm = _waits(facts, view)
    if fm is not None and fm.fabric_mode:
        yield found(facts, f"FABRIC_MODE={fm.fabric_mode}: GPUs wait until a partition is activated")


def _nvlsm(facts: HostFacts, view: View) -> Iterator[Answer]:
    fm = _waits(facts, view)
    if fm is not None and not fm.switches and fm.nvlsm is False:
        yield found(facts, "no NVSwitch on the PCI bus, and /opt/nvidia/nvlsm/sbin/nvlsm is missing")


def _umad(facts: HostFacts, view: View) -> Iterator[Answer]:
    fm = _waits(facts, view)
    if fm is not None and not fm.switches and fm.ib_umad is False:
        yield found(facts, "kernel module ib_umad is not loaded, and the fabric manager needs it here")


def _fewer_switches(view: View) -> Iterator[Answer]:
    """NVSwitches on PCI, against other machines of the same product."""
    from llmgwctl.doctor.fleet import kind
    from llmgwctl.doctor.names import odd_ones

    groups: dict[str, dict[str, int]] = {}
    facts_of = {f.host.name: f for f in view.hosts}
    for name, facts in facts_of.items():
        fm, group = facts.fabric_manager.value, kind(facts)
        if fm is not None and group is not None and fm.switches:
            groups.setdefault(group, {})[name] = fm.switches
    for said in groups.values():
        main, odd = odd_ones(said)
        for name, count in odd.items():
            if main is not None and count < main:
                yield found(facts_of[name], f"{count} NVSwitches on the PCI bus, machines of its kind have {main}")


CAUSES = ("LG104",)

CHECKS = (
    Check(
        "LG651",
        "The fabric manager does not run, and GPUs wait for it",
        "block",
        each(_not_running),
        seen=UNIT,
        action="systemctl enable --now nvidia-fabricmanager, wait 10 s, read again",
        who="host admin",
        needs=("fabric_manager",),
        applies=belongs,
        hides=CAUSES,
    ),
    Check(
        "LG652",
        "There is no fabric manager, and GPUs wait for one",
        "block",
        each(_absent),
        seen=UNIT,
        action="install nvidia-fabricmanager in exactly the driver's version, then enable and start it",
        who="host admin",
        applies=belongs,
        hides=CAUSES,
    ),
    Check(
        "LG653",
        "The fabric manager is still starting",
        "warn",
        each(_starting),
        seen=UNIT,
        action="wait up to 12 minutes; then its journal says at what it hangs (often a bridge link that stays down)",
        who="host admin",
        needs=("fabric_manager",),
        applies=belongs,
        hides=CAUSES,
    ),
    Check(
        "LG654",
        "Fabric manager and driver are of different versions",
        "block",
        each(_other_version),
        seen="nv-fabricmanager --version; cat /proc/driver/nvidia/version",
        action="install the fabric manager of exactly the driver's version, and hold both packages",
        who="host admin",
        disturbs="new CUDA programs, while it restarts",
        needs=("fabric_manager", "versions"),
        applies=belongs,
        hides=("LG104", "LG651", "LG655"),
    ),
    Check(
        "LG655",
        "The fabric manager stayed resident after a failure",
        "block",
        each(_resident),
        seen="grep STAY_RESIDENT /usr/share/nvidia/nvswitch/fabricmanager.cfg; tail /var/log/fabricmanager.log",
        action="read /var/log/fabricmanager.log, mend the cause, restart nvidia-fabricmanager",
        who="host admin",
        needs=("fabric_manager",),
        applies=belongs,
        hides=CAUSES,
    ),
    Check(
        "LG656",
        "The fabric is shared or virtual, and no partition is active",
        "block",
        each(_mode),
        seen="grep FABRIC_MODE /usr/share/nvidia/nvswitch/fabricmanager.cfg",
        action="activate the partition, or set FABRIC_MODE=0, restart the fabric manager and reset the GPUs",
        who="host admin",
        disturbs="everything on the host",
        needs=("fabric_manager",),
        applies=belongs,
        hides=("LG104", "LG655"),
    ),
    Check(
        "LG657",
        "The subnet manager of the NVSwitches (nvlsm) is missing",
        "block",
        each(_nvlsm),
        seen="ls /opt/nvidia/nvlsm/sbin/nvlsm; the fabric manager's log says NV_WARN_NOTHING_TO_DO",
        action="install nvlsm, then restart nvidia-fabricmanager",
        who="host admin",
        needs=("fabric_manager",),
        applies=belongs,
        hides=("LG104", "LG651", "LG655"),
    ),
    Check(
        "LG658",
        "The module ib_umad is missing, which the fabric manager needs",
        "block",
        each(_umad),
        seen="lsmod | grep ib_umad",
        action="echo ib_umad > /etc/modules-load.d/ib_umad.conf; modprobe ib_umad; restart nvidia-fabricmanager",
        who="host admin",
        needs=("fabric_manager",),
        applies=belongs,
        hides=("LG104", "LG651", "LG655"),
    ),
    Check(
        "LG659",
        "An NVSwitch is missing",
        "block",
        _fewer_switches,
        seen="lspci -n -d 10de: | grep -c 0680; grep -i nvswitch /var/log/fabricmanager.log",
        action="cold power cycle; if it stays away, the baseboard goes to the vendor",
        who="host admin",
        disturbs="everything on the host",
        scope="fleet",
        needs=("fabric_manager", "gpus"),
        applies=belongs,
        hides=("LG104", "LG651"),
    ),
)
