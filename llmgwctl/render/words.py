"""The few words that all pages use for the same thing."""

from __future__ import annotations

import re
from collections.abc import Iterable

from llmgwctl.model.fabric import HostVerdict
from llmgwctl.model.gpu import Gpu
from llmgwctl.model.host import Host
from llmgwctl.model.numbers import ranges
from llmgwctl.render.fold import alike

_OF_GPU = re.compile(r"GPU (\d+)(:? .*)")


def condensed(reasons: Iterable[str]) -> tuple[str, ...]:
    """The same thing said of several GPUs is said once: "GPU 0-3: ..."."""
    said: dict[str, list[int] | None] = {}
    for text in reasons:
        found = _OF_GPU.fullmatch(text)
        if found:
            numbers = said.setdefault(found.group(2), [])
            if numbers is not None:
                numbers.append(int(found.group(1)))
        else:
            said[text] = None
    return tuple(text if n is None else _of_gpus(n, text) for text, n in said.items())


def _of_gpus(numbers: list[int], text: str) -> str:
    if len(numbers) == 1:
        return f"GPU {numbers[0]}{text}"
    return f"GPUs {ranges(numbers)}{re.sub('^ has ', ' have ', re.sub('^ was ', ' were ', text))}"


def out_of_domain(verdict: HostVerdict | None) -> tuple[str, ...]:
    """What keeps a host out of its domain. That a machine has no multi-host NVLink is its nature, not a fault."""
    if verdict is None:
        return ()
    return condensed(r.text for r in verdict.reasons if r.code != "one-machine")


def alike_for(text: str, host: Host | None) -> str:
    """A reason without the host's own name and address, so that hosts of the same fate stand on one line."""
    if host is None:
        return text
    own = {host.address: "ADDRESS", host.name: "HOST"}
    pattern = "|".join(re.escape(n) for n in sorted(filter(None, own), key=len, reverse=True))
    return re.sub(rf"(?<![A-Za-z0-9.-])(?:{pattern})(?![A-Za-z0-9-]|\.[A-Za-z0-9])", lambda m: own[m.group()], text)


def together(said: Iterable[tuple[str, str, Host | None]]) -> list[tuple[list[str], str]]:
    """(host's name, reason, host): hosts of the same fate on one line, without their own names and addresses in it;
    one that is alone keeps its own."""
    rows = list(said)
    own = {name: text for name, text, _ in rows}
    groups = alike((name, alike_for(text, host)) for name, text, host in rows)
    return [(names, own[names[0]] if len(names) == 1 else text) for names, text in groups]


def counted(number: int, thing: str) -> str:
    """1 host, 2 hosts."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def bandwidth(gpu: Gpu) -> str:
    """full, degraded or unknown."""
    said = gpu.fabric.health.bandwidth
    return {"Full": "full", "Degraded": "degraded"}.get(said or "", "unknown")


def short_domain(domain_id: str) -> str:
    """A domain's id for people: the first group of its ClusterUUID and its clique."""
    found = re.fullmatch(r"nvl:([0-9a-f]{8})-[0-9a-f-]+\.(\d+)", domain_id)
    return f"nvl:{found.group(1)}….{found.group(2)}" if found else domain_id
