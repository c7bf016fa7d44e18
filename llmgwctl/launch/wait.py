"""From started to serving: waits between ranks are released, every shard is watched, and the leader must generate."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from llmgwctl.engines.base import Command, Wait
from llmgwctl.launch.ask import Asker, NotProved, Url
from llmgwctl.launch.prepare import Prepared
from llmgwctl.launch.remote import RemoteFailed, call
from llmgwctl.launch.watch import Death, all_deaths, until_death
from llmgwctl.model.errors import LlmgwError, Unreachable
from llmgwctl.model.fact import fact
from llmgwctl.model.host import Host
from llmgwctl.model.numbers import document
from llmgwctl.transport.base import Transport

CONTACT_S = 60.0
TOKEN_S = 300.0  # a first request may compile kernels
_PAUSES = (0.2, 0.3, 0.5, 1.0)  # then every two seconds

Say = Callable[[str], None]
T = TypeVar("T")


class Failed(LlmgwError):
    """The replica will not serve: a shard died, or the time is up. Whoever started it rolls it back."""

    def __init__(self, why: str, death: Death | None = None) -> None:
        super().__init__(why)
        self.death = death


@fact
class Served:
    """It serves. `proved` False: nobody could ask (no forwarding, no curl); `why` says so."""

    endpoint: str
    proved: bool = True
    why: str = ""


@dataclass
class Progress:
    """The last thing that was seen of the leader, for the message when the time is up."""

    say: Say
    seen: str = "nothing yet"

    def now(self, words: str) -> None:
        if words != self.seen:
            self.seen = words
            self.say(words)


async def wait_ready(
    prepared: Sequence[Prepared],
    transport: Transport,
    timeout_s: float,
    *,
    api_key: str = "",
    say: Say = lambda _: None,
    contact_s: float = CONTACT_S,
) -> Served:
    """Served, or Failed (death, time), or ContactLost (nobody knows). Whatever is raised, nothing is stopped here."""
    progress = Progress(say)
    serve = _serve(prepared, Asker(transport), progress, api_key)
    return await _while_alive(prepared, transport, serve, progress, timeout_s=timeout_s, contact_s=contact_s)


async def wait_started(
    prepared: Sequence[Prepared], transport: Transport, timeout_s: float, contact_s: float = CONTACT_S
) -> None:
    """Until every command has been started: those that wait for another rank need us to tell them when."""
    if any(c.waits for p in prepared for c in p.commands):
        progress = Progress(lambda _: None, "commands wait for other ranks")
        release = _release_all(prepared, Asker(transport))
        await _while_alive(prepared, transport, release, progress, timeout_s=timeout_s, contact_s=contact_s)


async def _while_alive(
    prepared: Sequence[Prepared],
    transport: Transport,
    what: Coroutine[Any, Any, T],
    progress: Progress,
    *,
    timeout_s: float,
    contact_s: float,
) -> T:
    """The result of `what`, unless a shard dies, contact is lost, or the time is up before."""
    watches = [asyncio.ensure_future(until_death(p, transport, contact_s)) for p in prepared]
    ready = asyncio.ensure_future(what)
    try:
        async with asyncio.timeout(timeout_s):
            await asyncio.wait([ready, *watches], return_when=asyncio.FIRST_COMPLETED)
        # A death that is seen in the same moment as the answer counts: the answer is already untrue.
        for watch in watches:
            if watch.done():
                deaths = await all_deaths(prepared, transport, watch.result())
                raise Failed("; then ".join(map(str, deaths)), deaths[0])
        return ready.result()
    except TimeoutError:
        raise Failed(f"not ready within {timeout_s:.0f} s: {progress.seen}") from None
    finally:
        for task in (ready, *watches):
            task.cancel()
        await asyncio.gather(ready, *watches, return_exceptions=True)


async def _serve(prepared: Sequence[Prepared], asker: Asker, progress: Progress, api_key: str) -> Served:
    await _release_all(prepared, asker)
    leader = prepared[0]
    try:
        await _answers(leader, asker, progress, api_key)
    except NotProved as e:
        return Served(str(leader.spec["endpoint"]), proved=False, why=str(e))
    return Served(str(leader.spec["endpoint"]))


async def _release_all(prepared: Sequence[Prepared], asker: Asker) -> None:
    waits = [(p, i, c) for p in prepared for i, c in enumerate(p.commands) if c.waits]
    tasks = [asyncio.ensure_future(_release(p, i, c, prepared, asker)) for p, i, c in waits]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


# --- waits between commands -----------------------------------------------------------------------------------------


async def _release(p: Prepared, index: int, command: Command, prepared: Sequence[Prepared], asker: Asker) -> None:
    where = f"{p.replica} rank {p.rank} on {p.host.name}: {command.name}"
    for wait in command.waits:
        try:
            async with asyncio.timeout(wait.timeout_s):
                await _until_accepts(p, wait, prepared, asker)
        except TimeoutError:
            raise Failed(f"{where} waited {wait.timeout_s} s for {wait.address}:{wait.port}") from None
        except NotProved as e:
            raise Failed(f"{where} cannot be told when {wait.address}:{wait.port} accepts: {e}") from None
    words = (p.replica, str(p.rank), p.launch.id, str(index))
    await call(asker.transport, p.host, "shard.sh", "go", *words)


async def _until_accepts(p: Prepared, wait: Wait, prepared: Sequence[Prepared], asker: Asker) -> None:
    owner = next((q.host for q in prepared if q.shard.address == wait.address), None)
    for pause in _pauses():
        try:
            if await asker.accepts(p.host, wait.address, wait.port, owner):
                return
        except (Unreachable, RemoteFailed):
            pass  # the watch of that host decides when contact is lost
        await asyncio.sleep(pause)


def _pauses() -> Sequence[float]:
    return (*_PAUSES, *[2.0] * 1_000_000)


# --- the leader -----------------------------------------------------------------------------------------------------


async def _answers(leader: Prepared, asker: Asker, progress: Progress, api_key: str) -> None:
    """Port and health, the model's name, one token: a green /health alone says nothing about generating."""
    for pause in _pauses():
        try:
            state = await missing(leader.host, leader.spec, asker, api_key)
        except Unreachable as e:
            state = f"{leader.host.name} does not answer: {e}"
        if not state:
            return
        progress.now(state)
        await asyncio.sleep(pause)


async def missing(host: Host, spec: Mapping[str, object], asker: Asker, api_key: str) -> str:
    """What a leader by its spec still lacks, in words; empty: it has generated a token."""
    ports, address = spec.get("ports"), str(spec["address"])
    port = ports["http"] if isinstance(ports, dict) else 0
    health = await asker.http(host, Url(address, port, str(spec["health_path"]), api_key))
    if health is None:
        return f"{spec['endpoint']} does not answer yet"
    if health.status != 200:
        return f"{spec['health_path']} says {health.status}"
    models = await asker.http(host, Url(address, port, str(spec["models_path"]), api_key))
    if models is None or models.status != 200:
        return f"{spec['models_path']} says {models.status if models else 'nothing'}"
    if spec["model"] not in model_names(models.text):
        return f"{spec['models_path']} does not name the model {spec['model']!r}"
    return await _one_token(host, spec, Url(address, port, "", api_key), asker)


def model_names(text: str) -> tuple[str, ...]:
    told = document(text)
    data = told.get("data") if isinstance(told, dict) else None
    names = [m.get("id") for m in data if isinstance(m, dict)] if isinstance(data, list) else []
    return tuple(n for n in names if isinstance(n, str))


async def _one_token(host: Host, spec: Mapping[str, object], server: Url, asker: Asker) -> str:
    """Some servers have only one of the two: what answers 404 or 405 to the first is asked the second."""
    asked = {"model": spec["model"], "max_tokens": 1}
    bodies: dict[str, dict[str, object]] = {
        "/v1/completions": {**asked, "prompt": "Hello"},
        "/v1/chat/completions": {**asked, "messages": [{"role": "user", "content": "Hello"}]},
    }
    said = ""
    for path, body in sorted(bodies.items(), key=lambda x: x[0] != spec["generate_path"]):
        reply = await asker.http(host, replace(server, path=path), body, limit_s=TOKEN_S)
        if reply is not None and reply.status == 200 and generated(reply.text):
            return ""
        said = f"{path} gives no token: {reply.status if reply else 'no answer'}"
        if reply is None or reply.status not in (400, 404, 405):
            break
    return said


def generated(text: str) -> bool:
    """Whether a completion was made: a choice, and a token counted where tokens are counted."""
    answer = document(text)
    if not isinstance(answer, dict) or not answer.get("choices"):
        return False
    usage = answer.get("usage") or {}
    counted = usage.get("completion_tokens", 1) if isinstance(usage, dict) else None
    return isinstance(counted, int) and counted >= 1
