"""Prometheus' text format. Written here: its own library brings a web server along, 20 ms of each run.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/ (text-based format).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from llmgwctl.render.letters import clean

Labels = tuple[str, ...]
Sample = tuple[str, Labels, float]
Families = Mapping[str, tuple[str, Labels]]
"""Name of a gauge -> what it says, and the names of its labels."""


def exposition(families: Families, samples: Iterable[Sample]) -> str:
    """All families in their order, also those without a sample; a label's value may be any text of a host."""
    told: dict[str, dict[Labels, float]] = {name: {} for name in families}
    for name, values, number in samples:
        # One line twice would make a reader refuse the whole file; the first one stands.
        told[name].setdefault(tuple(map(clean, values)), number)
    return "".join(
        line for name, (text, labels) in families.items() for line in _family(name, text, labels, told[name])
    )


def _family(name: str, text: str, labels: Sequence[str], told: Mapping[Labels, float]) -> Iterator[str]:
    yield f"# HELP {name} {text}\n# TYPE {name} gauge\n"
    order = sorted(range(len(labels)), key=labels.__getitem__)
    for values in sorted(told):
        pairs = ",".join(f'{labels[i]}="{_quoted(values[i])}"' for i in order)
        yield f"{name}{{{pairs}}} {_number(told[values])}\n" if pairs else f"{name} {_number(told[values])}\n"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"') if not text.isalnum() else text


def _number(value: float) -> str:
    """As Prometheus' own tools write it: from a million on with an exponent, 1.78e+09."""
    text = repr(float(value))
    whole, point, rest = text.partition(".")
    if value < 0 or not point or len(whole) <= 6:
        return text
    digits = f"{whole[0]}.{whole[1:]}{rest}".rstrip("0.")
    return f"{digits}e+{len(whole) - 1:02d}"
