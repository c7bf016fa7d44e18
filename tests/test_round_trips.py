"""How often `place` waits for the slowest host before it goes on: what a far rack feels, and no profile shows."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import pytest

from llmgwctl.cli import common
from llmgwctl.cli.common import Asked
from llmgwctl.cli.job import Wanted
from llmgwctl.cli.life import _stop
from llmgwctl.cli.placing import bring_up
from llmgwctl.rack import nvl72, serve

READ = ["read"]
CLAIM, START = ["claims.sh claim"], ["shard.sh start"]


class Counting:
    """A transport that keeps waves: what begins while something is still under way waits for nothing more."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.waves, self.busy = inner, [], 0
        self.logins: list[str] = []

    async def _counted(self, what: str, call: Awaitable[Any]) -> Any:
        if not self.busy:
            self.waves.append([])
        self.waves[-1].append(what)
        self.busy += 1
        try:
            return await call
        finally:
            self.busy -= 1

    async def read(self, host, sections):
        return await self._counted("read", self.inner.read(host, sections))

    async def run(self, host, script, limit_s):
        return await self._counted(f"{script.name} {script.args[2]}", self.inner.run(host, script, limit_s))

    async def connect(self, host, address, port):
        return await self._counted("connect", self.inner.connect(host, address, port))

    async def close(self):
        self.logins = [target.where for target in self.inner._links]
        await self.inner.close()

    def until_started(self) -> list[list[str]]:
        """Each wave by what was done in it, up to the last start."""
        last = max(i for i, wave in enumerate(self.waves) if START[0] in wave)
        return [sorted(set(wave)) for wave in self.waves[: last + 1]]


@pytest.mark.parametrize(
    ("replicas", "waves"),
    [(1, [READ, READ, CLAIM, CLAIM, READ, START]), (2, [READ, READ, *[CLAIM] * 4, READ, START])],
)
async def test_what_place_waits_for_until_all_is_started(tmp_path, monkeypatch, replicas, waves):
    """Read all, ask the chosen ones for engine and model, claim the first host and then the others, look again, start
    everywhere: six, on one connection a host.

    A further replica claims after the one before it, so that two operators never hold half of each other's.
    """
    counting: list[Counting] = []
    inner = common.open_transport

    def counted(*args: Any) -> Any:
        counting.append(Counting(inner(*args)))
        return counting[-1]

    monkeypatch.setattr(common, "open_transport", counted)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    async with serve(nvl72(4, hgx=0), tmp_path / "rack") as rack:
        asked = Asked(inventory=rack.inventory, quiet=True)
        try:
            await bring_up(asked, Wanted("sim-nvl", replicas=replicas))
        finally:
            await _stop(asked, [], everything=True)
        assert counting[0].until_started() == waves
        assert len(counting[0].logins) == len(set(counting[0].logins)) == 4
