"""One fact of a snapshot: ok, absent (not here, and that is normal) or broken (could not be read, and why)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Literal, TypeVar

from llmgwctl.model.fact import fact

T = TypeVar("T")
U = TypeVar("U")


@fact
class Reading(Generic[T]):
    """A value with its state. `value` is set only when ok, `why` only when it is not."""

    state: Literal["ok", "absent", "broken"]
    value: T | None = None
    why: str = ""

    @property
    def ok(self) -> bool:
        return self.state == "ok"

    @property
    def broken(self) -> bool:
        return self.state == "broken"

    def map(self, f: Callable[[T], U]) -> Reading[U]:
        """The same reading with f applied to its value, when it has one."""
        if self.value is None:
            return Reading(self.state, None, self.why)
        return Reading(self.state, f(self.value), self.why)


def ok(value: T) -> Reading[T]:
    return Reading("ok", value)


def absent(why: str = "") -> Reading[T]:
    return Reading("absent", None, why)


def broken(why: str) -> Reading[T]:
    return Reading("broken", None, why)
