"""LG9: what a launch would meet: settings that nobody sees, engines, and for one replica its ports, model and names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from llmgwctl.doctor import model_files
from llmgwctl.doctor.base import Answer, Check, Found, Launch, Unknown, View, each, found
from llmgwctl.doctor.fleet import drifted, kind
from llmgwctl.doctor.names import few
from llmgwctl.model.finding import Severity
from llmgwctl.model.host import HostFacts
from llmgwctl.model.plan import ShardPlan
from llmgwctl.model.weights import ModelFiles

TURNING = (
    "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_IB_DISABLE", "NCCL_NET", "NCCL_NET_PLUGIN", "NCCL_MNNVL_",
    "NCCL_HOSTID", "NCCL_TOPO_FILE", "NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "NCCL_CUMEM_ENABLE", "NCCL_NVLS_ENABLE",
    "NCCL_IB_GID_INDEX",
)  # fmt: skip
MAY_DIFFER = ("python", "python3")


def _hidden(facts: HostFacts, view: View) -> Iterator[Answer]:
    """nccl.conf adds what the environment does not set, so only variables that llmgwctl leaves alone take effect."""
    files = facts.nccl.value or ()
    turning = [f"{n}={v} ({f.path})" for f in files for n, v in f.settings if n.startswith(TURNING)]
    if turning:
        yield found(facts, few(turning, 6))
    other = [f"{f.path}: {few((n for n, _ in f.settings), 6)}" for f in files if f.settings]
    if other and not turning:
        yield found(facts, *other, severity="info")


def _unreadable(facts: HostFacts, view: View) -> Iterator[Answer]:
    hidden = [f.path for f in facts.nccl.value or () if f.why]
    if hidden:
        yield found(facts, f"{few(hidden)} is there and cannot be read", severity="info")


def _inherited(facts: HostFacts, view: View) -> Iterator[Answer]:
    system = facts.system.value
    names = [n for n, _ in system.environment if n.startswith(TURNING)] if system is not None else []
    if names:
        yield found(facts, f"the login sets {few(names, 6)}")


def _asked(facts: HostFacts) -> bool:
    """Nobody asked for an engine: there is nothing to be told."""
    return not (facts.engines.broken and facts.engines.why.startswith("not asked"))


def _engines(view: View) -> Iterator[Answer]:
    """By kind of host and engine: what should be equal on all hosts of a replica."""
    groups: dict[tuple[str, str, str], dict[str, str]] = defaultdict(dict)
    for facts in view.hosts:
        for one in facts.engines.value or ():
            for name, version in one.versions:
                if name not in MAY_DIFFER:
                    groups[kind(facts) or facts.host.pool, one.engine, name][facts.host.name] = f"{name} {version}"
    for (group, engine, _), said in groups.items():
        for one_found in drifted(said, f"{group} with {engine}"):
            yield Found(one_found.hosts, one_found.values, "block" if view.launches else None)


def _broken_engine(facts: HostFacts, view: View) -> Iterator[Answer]:
    bad = [f"{e.engine}: {e.why}" for e in facts.engines.value or () if e.why and not e.versions]
    if bad:
        yield found(facts, *bad)


# --- replicas that are about to start -------------------------------------------------------------------------------


def _shards(view: View) -> Iterator[tuple[Launch, ShardPlan, HostFacts]]:
    facts = {f.host.name: f for f in view.hosts}
    for launch in view.launches:
        for shard in launch.replica.shards:
            if shard.host in facts:
                yield launch, shard, facts[shard.host]


def _ports(view: View) -> Iterator[Answer]:
    """HTTP is on the leader alone. The engine's own ports must be free on every host: which of them holds one differs
    from engine to engine (SGLang's worker-http and llama.cpp's rpc are on the others)."""
    for launch, shard, facts in _shards(view):
        listening = facts.network.value.listening if facts.network.value is not None else None
        needed = [(name, port) for name, port in launch.replica.ports if name != "http" or not shard.rank]
        if listening is None and needed:
            yield Unknown((shard.host,), "the host does not show which ports are taken (/proc/net/tcp)", right=True)
        taken = [f"{name} {port}" for name, port in needed if port in (listening or ())]
        if taken:
            yield found(facts, f"something listens already on: {', '.join(taken)}")


def _interfaces(view: View) -> Iterator[Answer]:
    for launch, shard, facts in _shards(view):
        cards = facts.network.value.interfaces if facts.network.value is not None else ()
        card = next((c for c in cards if c.name == shard.interface), None)
        if card is None or not card.up or (card.loopback and len(launch.replica.shards) > 1):
            how = "is not there" if card is None else "is down" if not card.up else "is loopback"
            yield found(facts, f"the bootstrap interface {shard.interface} ({shard.address}) {how}")


def _models(view: View) -> Iterator[Answer]:
    """The model on every host of a replica that reads it, and alike on all of them."""
    for launch in view.launches:
        seen: dict[str, ModelFiles] = {}
        for name in (s.host for s in launch.replica.shards):
            said = launch.models.get(name)
            if isinstance(said, ModelFiles):
                seen[name] = said
            elif said is not None:
                yield Unknown((name,), said)
        yield from (Found((name,), (why,)) for name, why in model_files.wrong(launch.profile, seen))


RULES: tuple[tuple[str, str, Severity], ...] = (
    ("NCCL_HOSTID", "makes NCCL take several hosts for one when it is equal on them", "block"),
    ("NCCL_MNNVL_UUID", "lies to NCCL about the wiring", "block"),
    ("NCCL_MNNVL_CROSS_CLIQUE", "lets NCCL cross partitions that share no memory", "block"),
    ("NCCL_OOB_NET_ENABLE", "takes the bootstrap away from the management network", "warn"),
)


def _profile_env(view: View) -> Iterator[Answer]:
    """Variables of the profile that undo what makes this placement work."""
    for launch in view.launches:
        replica, env = launch.replica, dict(launch.profile.env)
        hosts = tuple(s.host for s in replica.shards)
        for values, severity in _env_problems(env, replica.tier, len(hosts) > 1):
            yield Found(hosts, (values,), severity)


def _env_problems(env: dict[str, str], tier: str, several: bool) -> Iterator[tuple[str, Severity | None]]:
    for name, words, severity in RULES:
        if name in env and several:
            yield f"{name} {words}", severity
    gloo = env.get("GLOO_SOCKET_IFNAME", "")
    if gloo.startswith(("=", "^")):
        yield f"GLOO_SOCKET_IFNAME={gloo}: Gloo wants a bare interface name", "block"
    for name in ("NCCL_IB_HCA", "NCCL_SOCKET_IFNAME"):
        if env.get(name) and not env[name].startswith(("=", "^")):
            yield f"{name}={env[name]}: without a leading '=' every name that begins so is taken too", None
    for name in ("NCCL_CUMEM_ENABLE", "NCCL_MNNVL_ENABLE") if tier == "nvlink" else ():
        if env.get(name) == "0":
            yield f"{name}=0 keeps NCCL off NVLink across hosts, silently", None
    if "NVSHMEM_HCA_LIST" in env and env.get("NVSHMEM_ENABLE_NIC_PE_MAPPING") != "1":
        yield "NVSHMEM_HCA_LIST has no effect without NVSHMEM_ENABLE_NIC_PE_MAPPING=1", None


CHECKS = (
    Check(
        "LG901",
        "A file changes NCCL behind the environment",
        "warn",
        each(_hidden),
        seen="cat /etc/nccl.conf ~/.nccl.conf; echo $NCCL_CONF_FILE",
        action="move what is meant into the profile's env, and empty the file",
        who="host admin",
        needs=("nccl",),
    ),
    Check(
        "LG902",
        "A file with NCCL settings cannot be read",
        "info",
        each(_unreadable),
        seen="ls -l /etc/nccl.conf ~/.nccl.conf",
        action="let the account that launches read it: NCCL will",
        who="host admin",
        needs=("nccl",),
    ),
    Check(
        "LG903",
        "The login environment steers NCCL",
        "info",
        each(_inherited),
        seen="ssh HOST env | grep -E '^(NCCL|GLOO|UCX)_'",
        action="nothing for llmgwctl, which removes them; others who start programs there are steered by them",
        who="host admin",
        needs=("system",),
    ),
    Check(
        "LG904",
        "Versions of an engine differ between hosts of one pool",
        "warn",
        _engines,
        seen="llmgwctl probe --json | jq '.hosts[].readings.engines'",
        action="install the same build on all hosts of the pool: NCCL refuses mixed versions",
        who="host admin",
        scope="fleet",
        needs=("engines",),
        applies=_asked,
    ),
    Check(
        "LG905",
        "An engine is installed and does not tell its version",
        "warn",
        each(_broken_engine),
        seen="llmgwctl probe HOST --json | jq '.hosts[].readings.engines'",
        action="start its program by hand on that host and read what it says",
        who="host admin",
        needs=("engines",),
        applies=_asked,
    ),
    Check(
        "LG911",
        "A port that the replica needs is taken",
        "block",
        _ports,
        seen="ss -ltnp",
        action="stop what listens there, or give the profile another port",
        who="job owner",
        scope="replica",
        needs=("network",),
    ),
    Check(
        "LG912",
        "The bootstrap interface of a shard cannot be used",
        "block",
        _interfaces,
        seen="ip -br a",
        action="set mgmt_interface (or mgmt_address) of the host in the inventory",
        who="job owner",
        scope="replica",
        needs=("network",),
    ),
    Check(
        "LG913",
        "The model is not whole on a host of the replica",
        "block",
        _models,
        seen="ls -l MODEL_PATH; test -r MODEL_PATH/config.json",
        action="bring the model's files to every host (LFS pointers are not weights), or mount what holds them",
        who="job owner",
        scope="replica",
    ),
    Check(
        "LG914",
        "The profile's env undoes what the placement needs",
        "degrade",
        _profile_env,
        seen="llmgwctl env PROFILE",
        action="take the variable out of the profile's env",
        who="job owner",
        scope="replica",
    ),
)
