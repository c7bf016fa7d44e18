"""`@fact`: a frozen, slotted dataclass that costs a tenth of the standard one to make.

The standard decorator compiles the text of six methods for each class, half a millisecond: with the hundred classes of
a command that is as long as loading the SSH library. Here __init__ alone is compiled, when the class is first called
(most are not, in one run), and the other methods are the same few functions for all. What facts are used for is as the
standard ones have it: fields, replace, asdict, comparing, hashing, copying, pickling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")
_SLOTS = dataclass(init=False, repr=False, eq=False, slots=True)


@dataclass_transform(frozen_default=True, field_specifiers=(field, Field))
def fact(cls: type[T]) -> type[T]:
    """The class with the methods of `@dataclass(frozen=True, slots=True)`; one that it has itself stays."""
    cls.__doc__ = cls.__doc__ or cls.__name__  # else its signature is made into one, which is 3 ms in itself
    made: Any = _SLOTS(cls)
    plain = all(f.init and f.hash is None for f in fields(made))
    if hasattr(made, "__post_init__") or not plain:
        what = "no __post_init__, no field without init or with a hash of its own"
        raise TypeError(f"{cls.__qualname__}: a fact is what it is given: {what}")
    values = attrgetter("__class__", *(f.name for f in fields(made) if f.compare))

    def __init__(self: Any, *given: Any, **named: Any) -> None:
        made.__init__ = _initializer(made)
        made.__init__(self, *given, **named)

    def __eq__(self: object, other: object) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: object) -> int:
        return hash(values(self))

    for method in (__init__, __eq__, __hash__, *_OF_ALL):
        if method.__name__ not in vars(cls):
            setattr(made, method.__name__, method)
    return made  # type: ignore[no-any-return]


@recursive_repr()
def __repr__(self: Any) -> str:
    shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
    return f"{self.__class__.__qualname__}({shown})"


def __setattr__(self: object, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def __delattr__(self: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def __setstate__(self: object, state: tuple[None, dict[str, Any]]) -> None:
    """Of a copy or a pickle: what object.__getstate__ gives for slots."""
    for name, value in state[1].items():
        object.__setattr__(self, name, value)


_OF_ALL: Sequence[Callable[..., Any]] = (__repr__, __setattr__, __delattr__, __setstate__)


def _initializer(cls: Any) -> Callable[..., None]:
    """__init__ of these fields. Each is put into its slot directly, past the __setattr__ that refuses."""
    space: dict[str, Any] = {"_NOT_GIVEN": MISSING}
    parameters, body = ["self"], ["pass"]
    for f in sorted(fields(cls), key=attrgetter("kw_only")):
        space |= {f"_put_{f.name}": getattr(cls, f.name).__set__, f"_of_{f.name}": f.default}
        parameter, value = f.name, f.name
        if f.default_factory is not MISSING:
            space[f"_of_{f.name}"] = f.default_factory
            parameter, value = f"{f.name}=_NOT_GIVEN", f"_of_{f.name}() if {f.name} is _NOT_GIVEN else {f.name}"
        elif f.default is not MISSING:
            parameter = f"{f.name}=_of_{f.name}"
        if f.kw_only and "*" not in parameters:
            parameters.append("*")
        parameters.append(parameter)
        body.append(f"_put_{f.name}(self, {value})")
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(body), space)  # noqa: S102 (names of our own fields)
    made: Callable[..., None] = space["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made
