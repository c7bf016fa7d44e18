"""probe --allow-list: the checksums of what reading commands send, for a key that may do nothing but read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from llmgwctl.cli.common import Asked, out, session

if TYPE_CHECKING:
    from llmgwctl.inventory import Inventory
    from llmgwctl.model.host import Host
    from llmgwctl.probe.base import Section


async def allow_list(asked: Asked) -> None:
    """One line a request, see line_of. Hosts with the same builds send the same."""
    async with session(asked) as s:
        found: dict[str, str] = {}
        for host in s.hosts:
            for what, sections in requests(s.inventory, host):
                found.setdefault(line_of(sections), what)
    out("\n".join(f"{line}  {what}" for line, what in found.items()))


def requests(inventory: Inventory, host: Host) -> Iterator[tuple[str, tuple[Section, ...]]]:
    from llmgwctl.cli.reading import engine_sections
    from llmgwctl.probe import FABRIC_SET, NEIGHBOURS, PROBES, engines, gpus, system

    extra = tuple(engine_sections(inventory)(host))
    life = [p for p in PROBES if p.field in ("system", "life")]
    for what, probes, more in (
        ("fabric set: nvlink, plan, metrics, ensure", FABRIC_SET, ()),
        ("fabric set with topology: plan and ensure of parts of hosts", (*FABRIC_SET, *NEIGHBOURS), ()),
        ("full set: pages, doctor", PROBES, ()),
        ("full set with engines: probe, doctor", PROBES, extra),
        ("life: ps, logs, hosts --check", life, ()),
        ("GPUs: ps of replicas over NVLink", (gpus.PROBE,), ()),
        ("system: init", (system.PROBE,), ()),
        ("engines: engines", (engines.PROBE,), extra),
    ):
        yield what, (*(s for p in probes for s in p.sections), *more)


def line_of(sections: Sequence[Section]) -> str:
    """SHA-256 of all that goes to the standard input of a host, the framer and what it is to run, and the bytes of the
    framer: cut elsewhere, what is data for it would be a script."""
    from llmgwctl.transport import frames
    from llmgwctl.transport.command import script_bytes

    framer = script_bytes("probe.sh")
    return f"{hashlib.sha256(framer + frames.payload(sections)).hexdigest()}  {len(framer)}"
