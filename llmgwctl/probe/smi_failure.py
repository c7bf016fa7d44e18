"""When nvidia-smi gives no answer at all: not here (and that is normal), or the words in which it failed."""

from __future__ import annotations

from llmgwctl.model.reading import Reading, absent, broken
from llmgwctl.probe.base import Output
from llmgwctl.probe.smi_tree import number

MISSING, NO_DRIVER_ANSWERS = 127, 9


def no_answer(said: Output, system: Output) -> Reading[object]:
    """nvidia-smi is not there, or says (on stdout) why it cannot. Without driver and cards that is no fault."""
    driver, cards = _driver(system)
    if said.exit_code == MISSING:
        if driver is False:
            return absent(f"no NVIDIA driver ({cards} NVIDIA cards on the PCI bus)" if cards else "no NVIDIA driver")
        return broken("nvidia-smi is not installed" + (", but the driver is loaded" if driver else ""))
    if said.exit_code == NO_DRIVER_ANSWERS and driver is False and cards == 0:
        return absent("no NVIDIA driver, and no NVIDIA card on the PCI bus")
    if "| NVIDIA-SMI " in said.stdout:
        return broken("this is the table that nvidia-smi draws; what is read is the report of `nvidia-smi -q`")
    lines = [line.strip() for line in (said.stdout + "\n" + said.stderr).splitlines() if line.strip(" .\t\r")]
    first = lines[0][:200] if lines else "it printed nothing"
    return broken(f"nvidia-smi: {first} (exit code {said.exit_code})")


def _driver(system: Output) -> tuple[bool | None, int | None]:
    """Whether /proc/driver/nvidia is there, and how many NVIDIA display cards PCI lists; None: not known."""
    facts = dict(line.split(" ", 1) for line in system.stdout.splitlines() if line.startswith(("driver ", "pci_gpus ")))
    present = {"present": True, "absent": False}.get(facts.get("driver", "").strip())
    return present, number(facts.get("pci_gpus", "").strip())
