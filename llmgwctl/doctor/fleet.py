"""LG0: which hosts answer, whether they are what the inventory expects, and where equal hosts differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

from llmgwctl.doctor.base import Answer, Check, Found, Unknown, View, each, found
from llmgwctl.doctor.names import folded, odd_ones
from llmgwctl.doctor.verdicts import reasons
from llmgwctl.model.host import HostFacts
from llmgwctl.model.product import token_of

SSH_WAYS = {
    "other-host-key": "compare the host key with the console; a reinstalled host needs its new key in known_hosts",
    "unknown-host-key": 'put its host key into known_hosts, or set host_key_policy = "accept-new"',
    "denied": "put your public key into the account's authorized_keys, or correct user and identity_file",
    "refused": "start sshd on the host, or correct the port",
}
SSH_WAY = "look at the host's power and console, and at the network between"


def _unreachable(facts: HostFacts, view: View) -> Iterator[Answer]:
    kind, _, _ = facts.reachable.why.partition(":")
    action = next((way for word, way in SSH_WAYS.items() if word in kind), SSH_WAY)
    yield Unknown((facts.host.name,), facts.reachable.why, action=action, who="host admin")


def _count(facts: HostFacts, view: View) -> Iterator[Answer]:
    expected, report = facts.host.expect.gpus, facts.gpus.value
    if expected and report is not None and report.attached < expected:
        yield found(facts, f"{report.attached} GPUs attached, the inventory expects {expected}")
    if expected is not None and report is not None and report.attached > expected:
        text = f"{report.attached} GPUs attached, the inventory expects {expected}"
        action = "correct expect.gpus in the inventory"
        yield found(facts, text, severity="warn", action=action, who="job owner")


def _none(facts: HostFacts, view: View, texts: tuple[str, ...]) -> Found | None:
    """A host without GPUs is a fault only where the inventory expects some, or where the PCI bus shows some."""
    cards = "NVIDIA cards on the PCI bus" in texts[0] and "(0 NVIDIA" not in texts[0]
    if facts.host.expect.gpus:
        return found(facts, f"{texts[0]}, and the inventory expects {facts.host.expect.gpus} GPUs")
    return found(facts, *texts) if cards else None


def _product(facts: HostFacts, view: View) -> Iterator[Answer]:
    report, expected = facts.gpus.value, facts.host.expect.gpu
    tokens = sorted({token_of(g.name) for g in report.gpus}) if report is not None else []
    if len(tokens) > 1:
        yield found(facts, f"GPU models mixed in one host: {', '.join(tokens)}")
    elif expected and tokens and tokens[0] != expected:
        yield found(facts, f"it has {tokens[0]}, the inventory expects {expected}")


def _same_machine(view: View) -> Iterator[Answer]:
    """NCCL takes two hosts with one name and boot id for one; and an inventory may list one machine twice."""
    twins: dict[tuple[str, str], list[str]] = defaultdict(list)
    for facts in view.hosts:
        system = facts.system.value
        if system is not None and system.boot_id:
            twins[system.node_name, system.boot_id].append(facts.host.name)
    for (node, _), names in twins.items():
        if len(names) > 1:
            yield Found(tuple(names), (f"the same host name ({node}) and boot id",))


# --- equal hosts that differ ----------------------------------------------------------------------------------------


def kind(facts: HostFacts) -> str | None:
    """Hosts that should be alike: of one pool and one product."""
    report = facts.gpus.value
    return f"{facts.host.pool} {token_of(report.gpus[0].name)}" if report is not None and report.gpus else None


def differing(what: Callable[[HostFacts], str | None]) -> Callable[[View], Iterator[Answer]]:
    """Hosts that say something else than most hosts of their kind; where none leads, all of them at once."""

    def problems(view: View) -> Iterator[Answer]:
        groups: dict[str, dict[str, str]] = defaultdict(dict)
        for facts in view.hosts:
            group, said = kind(facts), what(facts)
            if group is not None and said:
                groups[group][facts.host.name] = said
        for group, said_by in groups.items():
            yield from drifted(said_by, group)

    return problems


def drifted(said_by: dict[str, str], group: str) -> Iterator[Found]:
    main, odd = odd_ones(said_by)
    if main is None and odd:
        words = "; ".join(f"{folded(n for n in odd if odd[n] == v)} {v}" for v in dict.fromkeys(odd.values()))
        yield Found(tuple(odd), (f"{group} hosts are divided: {words}",))
        return
    for value in dict.fromkeys(odd.values()):
        yield Found(tuple(n for n in odd if odd[n] == value), (f"{value}; most of {group} have {main}",))


def _driver(view: View) -> Iterator[Answer]:
    """In one NVLink domain IMEX refuses mixed drivers; elsewhere it is only untidy."""
    drivers = {f.host.name: v for f in view.hosts if (v := _driver_of(f))}
    inside: set[str] = set()
    for domain in view.fmap.domains:
        said = {n: drivers[n] for n in domain.names if n in drivers}
        inside |= set(said)
        for one in drifted(said, domain.rack or domain.id):
            yield Found(one.hosts, one.values, "block" if domain.multi_host else None)
    rest = tuple(f for f in view.hosts if f.host.name not in inside)
    yield from differing(_driver_of)(view.judging(rest))


def _driver_of(facts: HostFacts) -> str | None:
    report = facts.gpus.value
    return f"driver {report.driver}" if report is not None and report.driver else None


def _kernel_of(facts: HostFacts) -> str | None:
    system = facts.system.value
    return f"kernel {system.kernel}" if system is not None and system.kernel else None


CHECKS = (
    Check(
        "LG001",
        "A host did not answer",
        "block",
        each(_unreachable),
        seen="ssh -v HOST true",
        action=SSH_WAY,
        who="host admin",
        needs=("reachable",),
        matters=True,
    ),
    Check(
        "LG002",
        "The host itself could not be read",
        "block",
        reasons("system-unread"),
        seen="llmgwctl probe HOST --raw system",
        action="see what the section says: llmgwctl probe HOST --raw system",
        who="host admin",
        matters=True,
        explains=("system",),
    ),
    Check(
        "LG003",
        "A host has another number of GPUs than the inventory expects",
        "block",
        each(_count),
        seen="nvidia-smi -L; lspci -d 10de:",
        action="lspci -k -d 10de: shows whether one is excluded, bound to vfio or gone; look for RmInitAdapter in the "
        "kernel log",
        who="host admin",
        disturbs="everything on the host",
        needs=("gpus",),
    ),
    Check(
        "LG004",
        "There is no working GPU where one should be",
        "block",
        reasons("no-gpus", shape=_none),
        seen="lspci -d 10de:; ls /proc/driver/nvidia",
        action="install or load the driver (lsmod | grep nvidia; dmesg | grep NVRM); see whether secure boot or a new "
        "kernel keeps its module out",
        who="host admin",
        matters=True,
    ),
    Check(
        "LG005",
        "A host has other GPUs than the inventory expects",
        "warn",
        each(_product),
        seen="nvidia-smi -L",
        action="correct expect.gpu in the inventory, or find out who changed the host",
        who="job owner",
        needs=("gpus",),
    ),
    Check(
        "LG006",
        "A host is another scheduler's",
        "info",
        reasons("scheduler"),
        seen="ps -e | grep -E 'slurmd|kubelet'",
        action="set shared_with_scheduler = true for hosts that both may use",
        who="job owner",
    ),
    Check(
        "LG007",
        "A host is cordoned",
        "info",
        reasons("cordoned"),
        seen="cordons.toml beside the inventory, and the host's own cordon",
        action="uncordon it when it is mended",
        who="job owner",
    ),
    Check(
        "LG008",
        "Two hosts of the inventory say that they are the same machine",
        "block",
        _same_machine,
        seen="uname -n; cat /proc/sys/kernel/random/boot_id",
        action="take the second entry out of the inventory, or give a cloned machine its own host name",
        who="host admin",
        scope="fleet",
        needs=("system",),
    ),
    Check(
        "LG010",
        "Drivers differ between hosts that should be alike",
        "warn",
        _driver,
        seen="cat /proc/driver/nvidia/version, on all hosts",
        action="finish the roll-out: one driver in an NVLink domain, and in a pool as far as possible",
        who="host admin",
        disturbs="everything on the host",
        scope="domain",
        needs=("gpus",),
        hides=("LG307",),
    ),
    Check(
        "LG011",
        "Kernels differ between hosts that should be alike",
        "warn",
        differing(_kernel_of),
        seen="uname -r, on all hosts",
        action="plan the update of the others, or the reboot into the newer kernel",
        who="host admin",
        disturbs="everything on the host",
        scope="fleet",
        needs=("system", "gpus"),
    ),
)
