"""What can go wrong, as types: cli/ turns them into a sentence and an exit code, and nothing else does."""

from __future__ import annotations


class LlmgwError(Exception):
    """Base of every error that llmgwctl raises on purpose; str() is a sentence with place and remedy."""

    exit_code = 1


class InventoryError(LlmgwError):
    """The inventory or a profile is wrong. Message: FILE:LINE: KEY: what is wrong (nearest known key)."""

    exit_code = 2


class UsageError(LlmgwError):
    """The command line asks for something that does not exist."""

    exit_code = 2


class Unreachable(LlmgwError):
    """No answer from a host. `kind` is its one named end state.

    The sentence is one line: words of a server that nobody has verified may stand in it.
    """

    exit_code = 3

    def __init__(self, why: str, kind: str = "unreachable") -> None:
        super().__init__(" ".join(why.splitlines()))
        self.kind = kind


class NotLive(LlmgwError):
    """Something was asked of a saved bundle that only a live host can do."""

    exit_code = 2


class NoPlacement(LlmgwError):
    """No placement fits; the reasons are in the plan that the caller printed."""

    exit_code = 4


class ShardFailed(LlmgwError):
    """A shard died or never served before its replica was ready, and the replica was rolled back."""


class ContactLost(LlmgwError):
    """The link to a host went away while its shard may live on: it is not known how the shard is."""

    exit_code = 3
