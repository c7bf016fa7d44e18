"""What a profile keeps secret, taken out of what engines print: some print their whole environment. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from llmgwctl.engines.env import secret
from llmgwctl.model.profile import Profile

SHORTEST = 6  # a shorter value is found in words that have nothing to do with it


def secrets_of(profile: Profile, api_key: str = "") -> tuple[str, ...]:
    """The values that nobody is shown, the longest first, since one may lie in another."""
    found = {value for name, value in profile.env if secret(name)} | {api_key}
    return tuple(sorted((v for v in found if len(v) >= SHORTEST), key=lambda v: (-len(v), v)))


def hide(text: str, secrets: Iterable[str]) -> str:
    for value in secrets:
        text = text.replace(value, "***")
    return text
