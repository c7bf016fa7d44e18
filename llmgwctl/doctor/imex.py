"""LG3: the IMEX service of a tray. Which hosts are connected with which is in imex_pairs.py."""

from __future__ import annotations

from collections.abc import Iterator

from llmgwctl.doctor.base import Answer, Check, Found, View, each, found
from llmgwctl.doctor.imex_pairs import lists_differ, pairs, versions_differ, wrong_port
from llmgwctl.doctor.names import few
from llmgwctl.doctor.verdicts import foreign, reasons
from llmgwctl.fabric.domains import may_span
from llmgwctl.fabric.imex import view as imex_view
from llmgwctl.model.finding import Severity
from llmgwctl.model.host import HostFacts
from llmgwctl.model.numbers import whole

QUERY = "nvidia-imex-ctl -q; systemctl show nvidia-imex -p ActiveState,UnitFileState"
TABLE = "nvidia-imex-ctl -N (on both hosts)"
PORTS = (50000, 50005)
STARTING_S = 240  # a daemon that starts needs its peers, and they back off up to 125 s
PER_JOB = "no action while IMEX is started per job; for llmgwctl to use NVLink across hosts it must run all the time"


def _down(facts: HostFacts, view: View, texts: tuple[str, ...]) -> Found:
    """Where Slurm, DRA or a masked unit says that IMEX is started per job, none while idle is as it should be."""
    why = foreign(facts)
    if why:
        return found(facts, f"{texts[0]}; {why}: started per job", severity="info", action=PER_JOB, who="job owner")
    return _waiting(facts, texts) or found(facts, *texts)


def _waiting(facts: HostFacts, texts: tuple[str, ...]) -> Found | None:
    system = facts.system.value
    if system is None or not 0 < system.uptime_s < STARTING_S:
        return None
    action = f"wait and read again: the host is up for {system.uptime_s:.0f} s, and a start may take 4 min"
    return found(facts, *texts, severity="warn", action=action)


def _not_ready(facts: HostFacts, view: View, texts: tuple[str, ...]) -> Found:
    imex = facts.imex.value
    waiting = _waiting(facts, texts)
    if waiting is not None:
        return waiting
    if imex is not None and imex.state == "WAITING_FOR_RECOVERY":
        action = (
            "processes on other hosts may still hold its memory: end the shard on all hosts, then restart nvidia-imex"
        )
        return found(facts, *texts, action=action)
    return found(facts, *texts)


def _absent(facts: HostFacts, view: View, texts: tuple[str, ...]) -> Found:
    why = foreign(facts)
    if why or facts.host.expect.domain is False:
        return found(facts, f"{texts[0]}; {why or 'expect.domain is false'}", severity="info", action=PER_JOB)
    return found(facts, *texts)


def _silent(facts: HostFacts, view: View) -> Iterator[Answer]:
    imex = facts.imex.value
    if imex is not None and (imex.cmd_enabled is False or "command service is disabled" in imex.why):
        unit = f"; unit nvidia-imex is {imex.unit_active}" if imex.unit_active else ""
        yield found(facts, f"IMEX_CMD_ENABLED is 0 or missing in config.cfg{unit}")


def _own_list(facts: HostFacts, view: View) -> Iterator[Answer]:
    """The daemon finds itself by an address of this host in the list: exactly one."""
    imex, network = facts.imex.value, facts.network.value
    if imex is None or network is None or imex.files_why:
        return
    if not imex.node_list:
        if imex.state != "READY":
            yield found(facts, "the node list is empty or not there")
        return
    known = dict(imex.node_addresses)
    mine = network.own_addresses()
    own = [line for line in imex.node_list if line in mine or mine & set(known.get(line, ()))]
    later: Severity | None = "warn" if imex.ready else None  # it runs with what it read at its start
    if not own and all(known.values()):
        yield found(facts, f"none of its addresses is among the {len(imex.node_list)} entries", severity=later)
    elif len(set(own)) > 1 and not imex.ready:
        yield found(facts, f"{len(set(own))} of its own addresses are in the list: {few(sorted(set(own)))}")


def _unresolved(facts: HostFacts, view: View) -> Iterator[Answer]:
    imex = facts.imex.value
    lost = [line for line, addresses in imex.node_addresses if not addresses] if imex is not None else []
    if lost:
        hurt = _not_connected(facts, view)
        yield found(facts, f"names that do not resolve here: {few(lost)}", severity=None if hurt else "warn")


def _not_connected(facts: HostFacts, view: View) -> bool:
    """Whether a host of its domain is beyond reach; an unused entry hurts nobody."""
    domain, own = view.domain(facts), imex_view(facts)
    mates = set(domain.names) - {facts.host.name} if domain is not None else set()
    ready = [f for f in view.hosts if f.host.name in mates and f.imex.value is not None and f.imex.value.ready]
    return any(not imex_view(f).addresses & own.connected for f in ready)


def _abrupt(facts: HostFacts, view: View, texts: tuple[str, ...]) -> Found | None:
    mine = tuple(t for t in texts if "IMEX" in t)
    return found(facts, *mine) if mine else None


def _unreserved(facts: HostFacts, view: View) -> Iterator[Answer]:
    """Outgoing connections may sit on IMEX's ports when it starts: they lie within the usual ephemeral range."""
    resources = facts.resources.value
    settings = dict(resources.settings) if resources is not None else {}
    span = [n for w in settings.get("ip_local_port_range", "").split() if (n := whole(w)) is not None]
    if len(span) != 2:
        return
    kept = [_span(part) for part in settings.get("ip_local_reserved_ports", "").split(",") if part.strip()]
    loose = [p for p in PORTS if span[0] <= p <= span[1] and not any(low <= p <= high for low, high in kept)]
    if loose:
        yield found(facts, f"ephemeral ports {span[0]}-{span[1]} cover {' and '.join(map(str, loose))}, not reserved")


def _span(part: str) -> tuple[int, int]:
    low, _, high = part.strip().partition("-")
    first, last = whole(low), whole(high or low)
    return (first, last) if first is not None and last is not None else (0, 0)


def tray(facts: HostFacts) -> bool:
    return may_span(facts) and not foreign(facts)


CHECKS = (
    Check(
        "LG301",
        "The IMEX daemon does not run",
        "block",
        reasons("imex-down", "imex-unread", "imex-unknown", shape=_down),
        seen=QUERY,
        action="read journalctl -u nvidia-imex and /var/log/nvidia-imex.log, then systemctl start nvidia-imex",
        who="host admin",
        matters=True,
        hides=("LG309", "LG310"),
    ),
    Check(
        "LG302",
        "The IMEX daemon runs and is not ready",
        "block",
        reasons("imex-not-ready", shape=_not_ready),
        seen=QUERY,
        action="bring up the peer that it waits for (nvidia-imex-ctl -N on another tray names it)",
        who="host admin",
        matters=True,
    ),
    Check(
        "LG303",
        "IMEX is not installed on a tray",
        "block",
        reasons("imex-absent", shape=_absent),
        seen="nvidia-imex-ctl -q; ls /etc/nvidia-imex",
        action="install nvidia-imex in the driver's branch, with the same node list on all trays of the rack",
        who="host admin",
        matters=True,
        hides=("LG4",),
    ),
    Check(
        "LG304",
        "IMEX cannot be asked: its command service is off",
        "warn",
        each(_silent),
        seen="nvidia-imex-ctl -q (exit code 255); grep IMEX_CMD_ENABLED /etc/nvidia-imex/config.cfg",
        action="set IMEX_CMD_ENABLED=1 in /etc/nvidia-imex/config.cfg; it counts from the daemon's next start",
        who="host admin",
        disturbs="shards that span hosts, when the daemon is restarted",
        needs=("imex",),
        applies=may_span,
    ),
    Check(
        "LG305",
        "IMEX of two hosts is not connected",
        "block",
        pairs,
        seen=TABLE,
        action="open TCP 50000 to the host that cannot be reached, between all trays; then read again after 30 s",
        who="host admin",
        scope="domain",
        needs=("imex", "network"),
        applies=may_span,
        matters=True,
    ),
    Check(
        "LG306",
        "Hosts of one domain have different IMEX node lists",
        "block",
        lists_differ,
        seen="sort -u /etc/nvidia-imex/nodes_config.cfg on all hosts; nvidia-imex-ctl -N shows !M!",
        action="put the same set of nodes on all hosts, then restart nvidia-imex on the hosts whose list was wrong",
        who="host admin",
        disturbs="shards that span hosts",
        scope="domain",
        needs=("imex",),
        applies=may_span,
        matters=True,
        hides=("LG305",),
    ),
    Check(
        "LG307",
        "Hosts of one domain run different versions of IMEX",
        "block",
        versions_differ,
        seen="nvidia-imex-ctl -N (column Version, cells !V!)",
        action="install the same driver and nvidia-imex on all hosts of the domain",
        who="host admin",
        disturbs="everything on the host",
        scope="domain",
        needs=("imex", "network"),
        applies=may_span,
        matters=True,
        hides=("LG305",),
    ),
    Check(
        "LG308",
        "A host is not itself in its IMEX node list, or is there twice",
        "block",
        each(_own_list),
        seen="ip -br a; cat /etc/nvidia-imex/nodes_config.cfg; grep BIND_INTERFACE_IP /etc/nvidia-imex/config.cfg",
        action="put exactly one address of this host into the list on all hosts, or set BIND_INTERFACE_IP",
        who="host admin",
        needs=("imex", "network"),
        applies=tray,
        hides=("LG301", "LG305"),
    ),
    Check(
        "LG309",
        "The IMEX node list has names that do not resolve",
        "block",
        each(_unresolved),
        seen="getent hosts NAME, for each name of /etc/nvidia-imex/nodes_config.cfg",
        action="make the name resolve on this host (hosts file or DNS), then send SIGUSR1 to nvidia-imex",
        who="host admin",
        needs=("imex",),
        applies=tray,
        hides=("LG305",),
    ),
    Check(
        "LG310",
        "IMEX's status port is blocked between hosts",
        "info",
        wrong_port,
        seen=f"{TABLE}: a row of I, and a column of C",
        action="nothing for the host itself, which may be used; TCP 50005 between the trays would show its status",
        who="host admin",
        scope="domain",
        needs=("imex", "network"),
        applies=may_span,
    ),
    Check(
        "LG311",
        "The IMEX daemon died while memory was shared",
        "block",
        reasons("recovery", shape=_abrupt),
        seen="nvidia-smi -q | grep 'Recovery Action'; journalctl -k | grep 'Abrupt nvidia-imex'",
        action="stop the shards that used it on all hosts, then start nvidia-imex again: that clears the block",
        who="job owner",
        disturbs="shards that span hosts",
        matters=True,
    ),
    Check(
        "LG312",
        "Nothing keeps IMEX's ports free for it",
        "info",
        each(_unreserved),
        seen="sysctl net.ipv4.ip_local_port_range net.ipv4.ip_local_reserved_ports",
        action="sysctl -w net.ipv4.ip_local_reserved_ports=50000,50005 (beside what is there), and in sysctl.d",
        who="host admin",
        needs=("resources", "imex"),
        applies=tray,
    ),
)
