"""A fact is what `@dataclass(frozen=True, slots=True)` makes, for whoever uses it."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import KW_ONLY, FrozenInstanceError, asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any, Generic, TypeVar

import pytest

from llmgwctl.model.fact import fact

T = TypeVar("T")


def pair(decorate: Callable[[type], type]) -> tuple[Any, Any]:
    """The same two classes, made by one decorator or the other."""

    class Inner(Generic[T]):
        value: T
        note: str = field(default="", compare=False)

    class Outer:
        """Some."""

        name: str
        inner: Inner[int]
        _: KW_ONLY
        seen: dict[str, int] = field(default_factory=dict)
        hidden: str = field(default="h", repr=False)
        count: int = 1

        @property
        def twice(self) -> int:
            return 2 * self.count

    return decorate(Inner), decorate(Outer)


@fact
class Whole:
    """One that pickle can find."""

    name: str
    parts: tuple[int, ...] = ()


OURS = pair(fact)
STANDARD = pair(dataclass(frozen=True, slots=True))


def in_both(what: Callable[[Any, Any], object]) -> tuple[object, object]:
    return what(*OURS), what(*STANDARD)


@pytest.mark.parametrize(
    "what",
    [
        lambda i, o: repr(o("a", i(1), count=3)),
        lambda i, o: asdict(o("a", i(1, "x"), seen={"b": 2})),
        lambda i, o: asdict(replace(o("a", i(1)), name="c", hidden="z")),
        lambda i, o: [(f.name, f.default, f.kw_only, f.compare, f.repr) for f in fields(o)],
        lambda i, o: (is_dataclass(o), o.__match_args__, o.__name__, o.__doc__, o.__slots__),
        lambda i, o: i(1) == i(1) and i(1) != i(2) and i(1) != 1 and i(1) != (1, ""),
        lambda i, o: (i(1, "x") == i(1, "y"), len({i(1, "x"), i(1, "y"), i(2)})),
        lambda i, o: o("a", i(1)) == o("a", i(1)) and o("a", i(1)) != o("a", i(1), count=2),
        lambda i, o: o("a", i(1)).seen is not o("a", i(1)).seen,
        lambda i, o: (o("a", i(1), count=4).twice, o(name="a", inner=None).inner),
        lambda i, o: copy.deepcopy(o("a", i(1), seen={"b": 2})) == o("a", i(1), seen={"b": 2}),
        lambda i, o: hasattr(i(1), "__dict__"),
        lambda i, o: (i(value := float("nan")) == i(value), i(float("nan")) == i(float("nan"))),
        lambda i, o: [copy.copy(x := o("a", i(1))).seen is x.seen, copy.deepcopy(x).seen is x.seen],
        lambda i, o: (i[int](1) if i is OURS[0] else i(1)) == i(1),
    ],
)  # fmt: skip
def test_it_behaves_as_the_standard_one(what):
    ours, standard = in_both(what)
    assert ours == standard


@pytest.mark.parametrize(
    "what",
    [
        lambda i, o: o("a"),
        lambda i, o: o("a", i(1), {}),
        lambda i, o: i(1, wrong=2),
        lambda i, o: hash(o("a", i(1))),  # a dict is in it
        lambda i, o: setattr(i(1), "value", 2),
        lambda i, o: delattr(i(1), "value"),
    ],
)
def test_it_refuses_what_the_standard_one_refuses(what):
    said = []
    for classes in (OURS, STANDARD):
        with pytest.raises((TypeError, FrozenInstanceError)) as caught:
            what(*classes)
        said.append((caught.type, str(caught.value)))
    assert said[0] == said[1]


def test_it_takes_no_other_attribute_either():
    with pytest.raises(FrozenInstanceError):
        Whole("a").other = 2  # type: ignore[attr-defined]


def test_it_can_be_pickled_and_stays_frozen():
    back = pickle.loads(pickle.dumps(Whole("a", (1, 2))))  # noqa: S301 (our own)
    assert back == Whole("a", (1, 2))
    with pytest.raises(FrozenInstanceError):
        back.name = "b"


def test_a_method_of_its_own_stays():
    @fact
    class Loud:
        """Has a way to show itself."""

        name: str

        def __repr__(self) -> str:
            return self.name.upper()

    assert repr(Loud("a")) == "A"


def test_facts_of_two_classes_are_never_equal():
    @fact
    class Other:
        """The same fields as Whole."""

        name: str
        parts: tuple[int, ...] = ()

    assert Whole("a") != Other("a")
    assert len({Whole("a"), Other("a")}) == 2


@pytest.mark.parametrize(
    "how", [{"__post_init__": lambda self: None}, {"a": field(init=False, default=1)}, {"a": field(hash=False)}]
)
def test_what_it_would_not_heed_is_refused(how):
    with pytest.raises(TypeError, match="a fact is what it is given"):
        fact(type("Odd", (), {"__annotations__": {"a": "int"}, "__module__": __name__, **how}))
