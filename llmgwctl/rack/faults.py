"""Faults by name: what can be wrong with a simulated host, each a pure change of the machine."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from llmgwctl.model.errors import UsageError
from llmgwctl.model.fact import fact
from llmgwctl.rack.machine import GpuProcess, Health, Machine, Process

FOREIGN_PID = 4_194_000  # above what this machine hands out, so that it is nobody else's process


@fact
class Fault:
    """`argument` as shown in help: "" (none), "[:INDEX]" (a default), ":PEER" (required)."""

    name: str
    argument: str
    help: str
    change: Callable[[Machine, str], Machine]
    default: str = ""

    @property
    def usage(self) -> str:
        return self.name + self.argument


def _gpu(**change: object) -> Callable[[Machine, str], Machine]:
    return lambda m, index: m.with_gpus(change, int(index))


def _all_dropped(m: Machine, _: str) -> Machine:
    return m.with_gpus({"state": "In Progress"})


def _degraded(m: Machine, index: str) -> Machine:
    return _health(m, index, summary="Limited Capacity", bandwidth="Degraded")


def _unhealthy(m: Machine, index: str) -> Machine:
    return _health(m, index, summary="Unhealthy", route_unhealthy="True")


def _health(m: Machine, index: str, **rows: str) -> Machine:
    health: Health = replace(m.card.health, **rows)
    return m.with_gpus({"health": health}, int(index))


def _clique(m: Machine, number: str) -> Machine:
    return m.with_gpus({"clique": int(number)})


def _lost(m: Machine, index: str) -> Machine:
    gpu = m.gpus[int(index)]
    line = f"NVRM: Xid (PCI:{gpu.bus_id[4:].lower()[:-2]}): 79, GPU has fallen off the bus."
    return replace(m.with_gpus({"lost": True}, gpu.index), kernel_log=(*m.kernel_log, line))


def _busy(m: Machine, index: str) -> Machine:
    process = GpuProcess(FOREIGN_PID + int(index), "/usr/bin/python3", 30720)
    return m.with_gpus({"processes": (process,)}, int(index))


def _imex_down(m: Machine, _: str) -> Machine:
    return replace(m, imex=replace(m.imex, up=False)) if m.imex else m


def _imex_oneway(m: Machine, peer: str) -> Machine:
    return replace(m, imex=replace(m.imex, cut_to=(*m.imex.cut_to, peer))) if m.imex else m


def _channel_missing(m: Machine, _: str) -> Machine:
    return replace(m, imex=replace(m.imex, channels=())) if m.imex else m


def _hca_down(m: Machine, index: str) -> Machine:
    down = replace(m.adapters[int(index)], state="1: DOWN", phys_state="2: Polling", lid="0xffff", sm_lid="0x0")
    return replace(m, adapters=tuple(down if a.name == down.name else a for a in m.adapters))


def _process(name: str, state: str) -> Callable[[Machine, str], Machine]:
    return lambda m, _: replace(m, processes=(*m.processes, Process(FOREIGN_PID - len(m.processes), name, state)))


def _smi(how: str) -> Callable[[Machine, str], Machine]:
    return lambda m, arg: replace(m, smi=f"{how} {arg}".strip())


def _ssh(how: str) -> Callable[[Machine, str], Machine]:
    return lambda m, _: replace(m, ssh=how)


_INDEX = "[:INDEX]"
FAULTS = (
    Fault("imex-down", "", "the IMEX daemon does not run", _imex_down),
    Fault("imex-oneway", ":PEER", "IMEX of this host cannot reach PEER, though PEER reaches it", _imex_oneway),
    Fault("channel-missing", "", "there is no IMEX channel device", _channel_missing),
    Fault(
        "gpu-not-joined", _INDEX, "one GPU waits for the fabric manager (In Progress)", _gpu(state="In Progress"), "0"
    ),
    Fault("all-dropped", "", "every GPU of the host waits for the fabric manager", _all_dropped),
    Fault("degraded", _INDEX, "one GPU has degraded NVLink bandwidth", _degraded, "0"),
    Fault("unhealthy", _INDEX, "one GPU has an unhealthy NVLink route", _unhealthy, "0"),
    Fault("clique", "[:N]", "the host is in another partition of its rack", _clique, "2"),
    Fault("gpu-lost", _INDEX, "one GPU has fallen off the bus", _lost, "0"),
    Fault("mig", _INDEX, "one GPU is cut into MIG devices", _gpu(mig=True), "0"),
    Fault("recovery", _INDEX, "one GPU waits for a reset", _gpu(recovery="Reset"), "0"),
    Fault("busy", _INDEX, "a foreign process computes on one GPU", _busy, "0"),
    Fault("hca-down", _INDEX, "one adapter has lost its link", _hca_down, "0"),
    Fault("hang", "", "nvidia-smi never answers", _smi("hang")),
    Fault("slow", ":SECONDS", "nvidia-smi answers after SECONDS", _smi("slow")),
    Fault("stuck", "", "an nvidia-smi sits in D state, from which nobody can wake it", _process("nvidia-smi", "D")),
    Fault("slurm", "", "slurmd runs: the host is another scheduler's", _process("slurmd", "S")),
    Fault("smi-missing", "", "there is no nvidia-smi", _smi("missing")),
    Fault("vllm-version", ":VERSION", "vLLM of another version is installed", lambda m, v: replace(m, vllm=v)),
    Fault("vllm-missing", "", "there is no vLLM", lambda m, _: replace(m, vllm="")),
    Fault("model-missing", "", "the models are not on this host", lambda m, _: replace(m, models=False)),
    Fault("refused", "", "the SSH port refuses connections", _ssh("refused")),
    Fault("dead", "", "nothing answers at the host's address", _ssh("dead")),
    Fault("silent", "", "the SSH port accepts and says nothing", _ssh("silent")),
    Fault("banner", "", "the SSH port answers with something that is not SSH", _ssh("banner")),
    Fault("garbage", "", "the login shell prints garbage instead of running anything", _ssh("garbage")),
    Fault("denied", "", "SSH refuses our key", _ssh("denied")),
    Fault("other-key", "", "SSH shows another host key than the known one", _ssh("other-key")),
    Fault("no-forwarding", "", "SSH refuses to forward TCP", _ssh("no-forwarding")),
)
_BY_NAME = {f.name: f for f in FAULTS}
_NUMERIC = ("INDEX", "SECONDS", "N")


def parse(text: str) -> tuple[Fault, str]:
    """The fault that NAME or NAME:ARGUMENT means."""
    name, _, argument = text.partition(":")
    fault = _BY_NAME.get(name)
    if fault is None:
        near = difflib.get_close_matches(name, _BY_NAME, 1)
        meant = f" (did you mean {near[0]!r}?)" if near else ""
        raise UsageError(f"there is no fault {name!r}{meant}; `llmgwctl rack --faults` lists them")
    if argument and not fault.argument:
        raise UsageError(f"the fault {name} takes no argument")
    argument = argument or fault.default
    what = fault.argument.strip("[:]")
    if fault.argument and not argument:
        raise UsageError(f"the fault {name} needs its {what}: {fault.usage}")
    if what in _NUMERIC and not argument.replace(".", "", what == "SECONDS").isdigit():
        raise UsageError(f"{what} of the fault {name} is a number, not {argument!r}")
    return fault, argument


def apply(machine: Machine, faults: Iterable[str]) -> Machine:
    """The machine with all these faults, in their order."""
    for text in faults:
        fault, argument = parse(text)
        machine = fault.change(machine, argument)
    return machine


def known(host: str, machines: Mapping[str, Machine]) -> Machine:
    if host not in machines:
        near = difflib.get_close_matches(host, machines, 1)
        raise UsageError(f"there is no simulated host {host!r}" + (f" (did you mean {near[0]!r}?)" if near else ""))
    return machines[host]


def check(text: str, machines: Mapping[str, Machine], host: str) -> Fault:
    """The fault that this text names, when it can happen to this host."""
    machine = known(host, machines)
    fault, argument = parse(text)
    if fault.argument.endswith("INDEX]"):
        count = len(machine.adapters) if fault.name == "hca-down" else len(machine.gpus)
        if int(argument) >= count:
            raise UsageError(f"{host} has {count} of these, there is no {argument}: {text}")
    if fault.name == "imex-oneway":
        known(argument, machines)
    if machine.imex is None and fault.change in (_imex_down, _imex_oneway, _channel_missing):
        raise UsageError(f"{host} has no IMEX: {text} means nothing there")
    return fault
