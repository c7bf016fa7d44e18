"""LG7: what RDMA needs of a host: memory that may be locked, a way to GPU memory, an adapter that does not complain."""

from __future__ import annotations

from collections.abc import Iterator

from llmgwctl.doctor.base import Answer, Check, View, each, found
from llmgwctl.model.host import HostFacts

RDMA_MEMLOCK_BYTES = 1 << 30  # below it RDMA cannot register what an engine uses


def _uses_rdma(facts: HostFacts, view: View) -> bool:
    return any(facts.host.name in s.ports for s in view.fmap.scale_out)


def _memlock(facts: HostFacts, view: View) -> Iterator[Answer]:
    system = facts.system.value
    if system is None or system.account == "root" or system.memlock_hard_bytes is None:
        return
    if system.memlock_hard_bytes < RDMA_MEMLOCK_BYTES and _uses_rdma(facts, view):
        kib = system.memlock_hard_bytes // 1024
        yield found(facts, f"hard limit of locked memory is {kib} KiB for {system.account}")


def _gpudirect(facts: HostFacts, view: View) -> Iterator[Answer]:
    """The open kernel module has dmabuf; the closed one needs nvidia_peermem."""
    versions = facts.versions.value
    if versions is None or versions.open_kernel_module is not False or not _uses_rdma(facts, view):
        return
    if not any(name == "nvidia_peermem" for name, _ in versions.modules):
        yield found(facts, "the driver is the closed one, and nvidia_peermem is not loaded")


def _logged(facts: HostFacts, view: View) -> Iterator[Answer]:
    log = facts.kernel_log.value
    lines = log.lines if log is not None else ()
    words = ("insufficient power on the PCIe slot", "High Temperature")
    hit = [x.text for x in lines if x.kind == "mlx5" and any(w in x.text for w in words)]
    if hit:
        yield found(facts, f"{hit[-1][:160]}" + (f" ({len(hit)} such lines)" if len(hit) > 1 else ""))


def _peermem(facts: HostFacts, view: View) -> Iterator[Answer]:
    log = facts.kernel_log.value
    hit = [x for x in (log.lines if log is not None else ()) if "invalid context, skipping" in x.text]
    if hit:
        yield found(facts, f"nvidia_peermem: detected invalid context, {len(hit)} times")


CHECKS = (
    Check(
        "LG711",
        "The account may lock too little memory for RDMA",
        "degrade",
        each(_memlock),
        seen="ulimit -H -l, over SSH as the account that launches",
        action="memlock unlimited in /etc/security/limits.d, and LimitMEMLOCK=infinity for the SSH service",
        who="host admin",
        needs=("system", "hcas"),
    ),
    Check(
        "LG712",
        "Adapters cannot read GPU memory directly",
        "degrade",
        each(_gpudirect),
        seen="cat /proc/driver/nvidia/version; lsmod | grep peermem",
        action="use the open kernel module, or load nvidia_peermem",
        who="host admin",
        needs=("versions", "hcas"),
    ),
    Check(
        "LG713",
        "An adapter complains of power or heat",
        "degrade",
        each(_logged),
        seen="journalctl -k -b | grep mlx5",
        action="look at slot, power and cooling of the adapter",
        who="host admin",
        disturbs="everything on the host",
        needs=("kernel_log",),
    ),
    Check(
        "LG714",
        "nvidia_peermem meets contexts that are gone",
        "warn",
        each(_peermem),
        seen="journalctl -k -b | grep -i peermem",
        action="reload nvidia_peermem when the host is drained, or use dmabuf (open kernel module)",
        who="host admin",
        disturbs="RDMA of the host",
        needs=("kernel_log",),
    ),
)
