"""Checks over what already keeps a host out: the verdict's reasons are the only judge, here they get a way out."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from llmgwctl.doctor.base import Answer, Found, Problems, Unknown, View, each
from llmgwctl.model.fabric import Reason
from llmgwctl.model.host import HostFacts

Shape = Callable[[HostFacts, View, tuple[str, ...]], Found | None]
RIGHTS = ("ermission denied", "needs root", "command service is disabled", "not permitted")


def reasons(*codes: str, shape: Shape | None = None) -> Problems:
    """What the verdict says under these codes, one finding a host; what it could not tell is unknown.

    `shape` may make another finding of it, or none where that is how the machine is meant to be.
    """

    def of_host(facts: HostFacts, view: View) -> Iterator[Answer]:
        said = [r for r in view.verdict(facts).reasons if r.code in codes]
        yield from (unknown(facts, r) for r in said if r.unknown)
        texts = tuple(r.text for r in said if not r.unknown)
        if texts:
            made = shape(facts, view, texts) if shape else Found((facts.host.name,), texts)
            if made is not None:
                yield made

    return each(of_host)


def unknown(facts: HostFacts, reason: Reason) -> Unknown:
    return Unknown((facts.host.name,), reason.text, _NEEDS.get(reason.code, ""), right=only_a_right(reason.text))


def only_a_right(why: str) -> bool:
    return any(word in why for word in RIGHTS)


_NEEDS = {
    "gpus-unread": "gpus",
    "joining-unknown": "gpus",
    "health-unknown": "gpus",
    "imex-unread": "imex",
    "imex-unknown": "imex",
    "imex-table": "imex",
    "channel-unknown": "imex",
    "system-unread": "system",
}


def has(view: View, facts: HostFacts, *codes: str) -> bool:
    return any(r.code in codes for r in view.verdict(facts).reasons)


def expects_domain(facts: HostFacts) -> bool | None:
    return facts.host.expect.domain


def foreign(facts: HostFacts) -> str | None:
    """Who starts IMEX per job on this host: then nothing of it while the host idles is no fault."""
    imex = facts.imex.value
    if imex is not None and imex.unit_file in ("masked", "masked-runtime"):
        return "unit nvidia-imex is masked"
    system = facts.system.value
    return f"{system.scheduler} runs here" if system is not None and system.scheduler else None
