"""The engines, by name. The registry is a dict that you can read."""

from __future__ import annotations

from llmgwctl.engines import llamacpp, sglang, sim, vllm
from llmgwctl.engines.base import Engine
from llmgwctl.model.errors import UsageError

ENGINES: dict[str, Engine] = {e.name: e for e in (vllm.ENGINE, sglang.ENGINE, llamacpp.ENGINE, sim.ENGINE)}


def engine_of(name: str) -> Engine:
    """The engine of that name; an unknown one is refused with the list of those known."""
    if name not in ENGINES:
        raise UsageError(f"no engine {name!r}: known are {', '.join(ENGINES)}")
    return ENGINES[name]
