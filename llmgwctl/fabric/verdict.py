"""What keeps a host out: the one function that the rack page, the plan and the doctor share."""

from __future__ import annotations

from collections.abc import Iterable

from llmgwctl.fabric.imex import usable_channels
from llmgwctl.model.fabric import HostVerdict, ImexState, Reason
from llmgwctl.model.gpu import Gpu, GpuReport
from llmgwctl.model.host import HostFacts
from llmgwctl.model.imex import Imex
from llmgwctl.model.product import Product, product_of, token_of

NOT_ANSWERED = ("In Progress", "Not Started")


def verdict(facts: HostFacts, cordon: str = "") -> HostVerdict:
    """Reasons of one host by its own readings; what depends on its neighbours is added by the map."""
    name = facts.host.name
    reasons = [Reason("cordoned", f"cordoned: {cordon}")] if cordon else []
    if not facts.reachable.ok:
        unreachable = Reason("unreachable", f"not reachable: {facts.reachable.why}", unknown=True)
        return HostVerdict(name, (*reasons, unreachable), imex="unknown")
    reasons += _scheduler(facts)
    report = facts.gpus.value
    if report is None:
        return HostVerdict(name, (*reasons, *_no_gpus(facts)), imex=_imex_state(facts, facts.gpus.broken))
    reasons += _readable(report)
    product = _product(report)
    spans = _spans_hosts(report, product)
    for gpu in report.gpus:
        reasons += _gpu(gpu)
    reasons += _nvlink(facts, report, product) if spans else [_one_machine(report)]
    notes = tuple(_notes(report)) if spans else ()
    return HostVerdict(name, _ordered(reasons), notes, _imex_state(facts, spans), _token(report))


def _ordered(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """Each text once; what keeps the host out of everything comes first."""
    unique = list({r.text: r for r in reasons}.values())
    return tuple(sorted(unique, key=lambda r: r.scope != "any"))


def _scheduler(facts: HostFacts) -> list[Reason]:
    if facts.system.broken:
        return [Reason("system-unread", f"the system could not be read: {facts.system.why}", unknown=True)]
    system = facts.system.value
    if system and system.scheduler and not facts.host.shared_with_scheduler:
        text = f"{system.scheduler} runs here and shared_with_scheduler is not set"
        return [Reason("scheduler", text)]
    return []


def _no_gpus(facts: HostFacts) -> list[Reason]:
    if facts.gpus.broken:
        return [Reason("gpus-unread", f"GPUs could not be read: {facts.gpus.why}", unknown=True)]
    return [Reason("no-gpus", facts.gpus.why or "no NVIDIA GPU here")]


def _readable(report: GpuReport) -> list[Reason]:
    if report.all_readable:
        return []
    detail = f": {report.lost[0]}" if report.lost else ""
    readable = len(report.gpus)
    return [Reason("gpu-lost", f"{readable} of {report.attached} GPUs readable{detail}")]


def _gpu(gpu: Gpu) -> list[Reason]:
    """What keeps a whole host out because of one of its GPUs."""
    found = []
    if gpu.recovery_action:
        found.append(Reason("recovery", f"GPU {gpu.index}: recovery action pending: {gpu.recovery_action}"))
    if gpu.mig_enabled:
        found.append(Reason("mig", f"GPU {gpu.index}: MIG is on"))
    product, fabric = product_of(gpu.name), gpu.fabric
    if product is not None and not product.has_fabric:
        return found
    if fabric.state in NOT_ANSWERED:
        found.append(Reason("not-joined", f"GPU {gpu.index} has not joined the NVLink fabric: State {fabric.state}"))
    elif fabric.state == "Completed" and fabric.status not in (None, "Success"):
        text = f"GPU {gpu.index} was refused by the NVLink fabric: Status {fabric.status}"
        found.append(Reason("refused", text))
    return found


def _product(report: GpuReport) -> Product | None:
    return product_of(report.gpus[0].name) if report.gpus else None


def _token(report: GpuReport) -> str | None:
    tokens = {token_of(g.name) for g in report.gpus}
    return tokens.pop() if len(tokens) == 1 else None


def _spans_hosts(report: GpuReport, product: Product | None) -> bool:
    """Whether a multi-host domain is possible: by the product table; a product not in it, by its own word."""
    if product is not None:
        return product.multi_host_domain
    return any(g.fabric.pair for g in report.gpus)


def _one_machine(report: GpuReport) -> Reason:
    what = report.gpus[0].name if report.gpus else "this host"
    return Reason("one-machine", f"{what}: its NVLink does not leave the machine", scope="nvlink")


def _nvlink(facts: HostFacts, report: GpuReport, product: Product | None) -> list[Reason]:
    return [*_joining(report, product), *_health(report), *_imex(facts), *_channel(facts)]


def _joining(report: GpuReport, product: Product | None) -> list[Reason]:
    found = []
    for gpu in report.gpus:
        fabric = gpu.fabric
        if fabric.joined is None:
            text = f"GPU {gpu.index}: driver {report.driver or '?'} does not print whether it has joined"
            found.append(Reason("joining-unknown", text, "nvlink", unknown=True))
        elif not fabric.joined and fabric.state == "Completed" and fabric.status == "Success":
            text = f"GPU {gpu.index} has not joined a domain: ClusterUUID is zero"
            found.append(Reason("zero-uuid", text, "nvlink"))
        elif not fabric.joined and fabric.state not in (*NOT_ANSWERED, "Completed"):
            text = f"GPU {gpu.index} has not joined the NVLink fabric: State {fabric.state}"
            found.append(Reason("no-fabric", text, "nvlink"))
    pairs = sorted({g.fabric.pair for g in report.gpus if g.fabric.pair})
    if len(pairs) > 1:
        shown = ", ".join(f"{uuid[:8]}….{clique}" for uuid, clique in pairs)
        found.append(Reason("two-cliques", f"GPUs are in {len(pairs)} cliques: {shown}", "nvlink"))
    return found


def _health(report: GpuReport) -> list[Reason]:
    found = []
    for gpu in report.gpus:
        problems = gpu.fabric.health.problems()
        if problems:
            code = "degraded" if gpu.fabric.health.degraded_only else "unhealthy"
            found.append(Reason(code, f"GPU {gpu.index}: {', '.join(problems)}", "nvlink"))
        if gpu.fabric.health.unread:
            text = f"GPU {gpu.index}: fabric health not known: {', '.join(gpu.fabric.health.unread)}"
            found.append(Reason("health-unknown", text, "nvlink", unknown=True))
    return found


def _imex(facts: HostFacts) -> list[Reason]:
    if facts.imex.broken:
        return [Reason("imex-unread", f"IMEX could not be read: {facts.imex.why}", "nvlink", unknown=True)]
    imex = facts.imex.value
    if imex is None:
        return [Reason("imex-absent", "IMEX is not installed", "nvlink")]
    if imex.ready:
        why = _connections_untold(facts, imex)
        return [Reason("imex-table", why, "nvlink", unknown=True)] if why else []
    if not imex.state:
        return [Reason("imex-unknown", f"IMEX could not be asked: {imex.why}", "nvlink", unknown=True)]
    if imex.state == "DOWN":
        return [Reason("imex-down", f"IMEX is down{_unit(imex)}", "nvlink")]
    return [Reason("imex-not-ready", f"IMEX is not ready: {imex.state}", "nvlink")]


def _connections_untold(facts: HostFacts, imex: Imex) -> str:
    """Why it cannot be told to whom a daemon that is READY is connected; ready by itself is not enough for a pair."""
    if imex.table is None:
        return f"IMEX is READY, and its connections could not be read: {imex.table_why or 'no connection table'}"
    if facts.network.value is None:
        return f"its own row of IMEX's connections could not be told: its addresses: {facts.network.why}"
    return ""


def _unit(imex: Imex) -> str:
    if imex.unit_file == "masked":
        return " (unit nvidia-imex is masked: started per job here?)"
    return f" (unit nvidia-imex is {imex.unit_active})" if imex.unit_active else ""


def _channel(facts: HostFacts) -> list[Reason]:
    imex = facts.imex.value
    if imex is None or usable_channels(imex):
        return []
    if imex.files_why:
        return [Reason("channel-unknown", f"IMEX channels could not be read: {imex.files_why}", "nvlink", unknown=True)]
    if not imex.channels:
        return [Reason("channel-missing", "no IMEX channel in /dev/nvidia-caps-imex-channels", "nvlink")]
    if imex.channel_major is None:
        text = "the IMEX channel's device major could not be read from /proc/devices"
        return [Reason("channel-unknown", text, "nvlink", unknown=True)]
    first = imex.channels[0]
    if first.major != imex.channel_major:
        text = f"IMEX channel{first.number} is stale: major {first.major}, the kernel says {imex.channel_major}"
        return [Reason("channel-stale", text, "nvlink")]
    account = facts.system.value.account if facts.system.value else "this account"
    return [Reason("channel-denied", f"IMEX channel{first.number} is not writable for {account}", "nvlink")]


def _notes(report: GpuReport) -> list[str]:
    silent = [g.index for g in report.gpus if g.fabric.joined and not g.fabric.health.told]
    return [f"driver {report.driver or '?'} prints no fabric health for its GPUs"] if silent else []


def _imex_state(facts: HostFacts, spans: bool) -> ImexState:
    if not spans:
        return "not-applicable"
    imex = facts.imex.value
    if facts.imex.broken or (imex is not None and not imex.state):
        return "unknown"
    if imex is None or not imex.ready:
        return "down"
    return "unknown" if _connections_untold(facts, imex) else "up"
