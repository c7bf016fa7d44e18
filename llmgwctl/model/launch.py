"""What is handed to a host to start one shard: commands, environment with reasons, files, how it is stopped."""

from __future__ import annotations

from llmgwctl.model.fact import fact


@fact
class EnvVar:
    """One variable of a shard with the reason why it is set. `overrides`: what the profile replaced, if it did.

    `secret`: the value travels only in the 0600 environment file and is shown as *** everywhere.
    """

    name: str
    value: str
    why: str
    overrides: str | None = None
    secret: bool = False

    @property
    def shown(self) -> str:
        return "***" if self.secret else self.value


@fact
class Operator:
    """Who asks: written into claims and specs, so that others know whom to call."""

    name: str
    workstation: str
