"""Mutations of a captured text, by a seed alone: what lines, links, wrappers and strangers do to an output."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

LIMIT = 256 * 1024
TOKENS = (
    b"", b" ", b"\t", b"\n", b"\r\n", b"\0", b":", b"::", b" : ", b"=", b"|", b",", b"-", b"-1", b"0", b"1", b"/",
    b"N/A", b"[N/A]", b"GPU is lost", b"Unknown Error", b"99999999999999999999", b"4294967296", b"1e309", b"0x",
    b"GPU 00000000:01:00.0", b"GPU0", b"NIC0", b" X ", b"\x1b[4m", b"\x1b[", b"<", b"</gpu>", b"<gpu id='", b"&amp;",
    b"&x;", b"<!DOCTYPE", b"{", b"}", b"[", b'"', b"\\", b"\xff\xfe", b"\xc3\x28", "\u2028".encode(), "\ufeff".encode(),
    "\u0663".encode(), b"True", b"null", b"NaN", b"Infinity", b"inf", b"1.2.3.4", b"fe80::", b"::ffff:1.2.3.4/129",
    b"Node #0", b"Domain State:", b"@ name - 0 0 0 ran 0", b"LLMGWCTL-END",
)  # fmt: skip


def mutated(seed: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
    """One to eight mutations, one on top of the other; never longer than LIMIT."""
    data = seed
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5, 8))):
        data = rng.choice(MUTATIONS)(data, others, rng)[:LIMIT]
    return data


def _place(data: bytes, rng: random.Random) -> tuple[int, int]:
    a, b = rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)
    a, b = min(a, b), max(a, b)
    return a, min(b, a + rng.choice((1, 2, 8, 64, 1024)))


def _flip(data: bytes, _: Sequence[bytes], rng: random.Random) -> bytes:
    if not data:
        return b"\0"
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]


def _token(data: bytes, _: Sequence[bytes], rng: random.Random) -> bytes:
    a, b = _place(data, rng)
    return data[:a] + rng.choice(TOKENS) + data[rng.choice((a, b)) :]


def _drop(data: bytes, _: Sequence[bytes], rng: random.Random) -> bytes:
    a, b = _place(data, rng)
    return data[:a] + data[b:]


def _repeat(data: bytes, _: Sequence[bytes], rng: random.Random) -> bytes:
    a, b = _place(data, rng)
    return data[:a] + data[a:b] * rng.choice((2, 3, 50)) + data[b:]


def _cut(data: bytes, _: Sequence[bytes], rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] if rng.random() < 0.7 else data[at:]


def _splice(data: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
    other = rng.choice(others)
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


def _lines(data: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
    """Lines change places, are lost, come twice, or come from another output."""
    lines = data.split(b"\n")
    at, to = rng.randrange(len(lines)), rng.randrange(len(lines))
    kind = rng.randrange(4)
    if kind == 0:
        lines[at], lines[to] = lines[to], lines[at]
    elif kind == 1:
        del lines[at]
    elif kind == 2:
        lines.insert(to, lines[at])
    else:
        lines.insert(to, rng.choice(rng.choice(others).split(b"\n")))
    return b"\n".join(lines)


def _indent(data: bytes, _: Sequence[bytes], rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    lines[at] = rng.choice((b"    " + lines[at], lines[at].lstrip(), b"\t" + lines[at], b"host-1: " + lines[at]))
    return b"\n".join(lines)


def _dress(data: bytes, _: Sequence[bytes], rng: random.Random) -> bytes:
    """The whole text in another dress: carriage returns, blanks for tabs, a wrapper's prefix, other bytes."""
    return rng.choice(
        (
            lambda: data.replace(b"\n", b"\r\n"),
            lambda: data.replace(b"\t", b"    "),
            lambda: data.replace(b" ", b"\t"),
            lambda: b"".join(b"r1-t01: " + line + b"\n" for line in data.split(b"\n")[:2000]),
            lambda: data.replace(b"0", b"9"),
            lambda: data.replace(b":", b""),
            lambda: data + data,
        )
    )()


MUTATIONS: tuple[Callable[[bytes, Sequence[bytes], random.Random], bytes], ...] = (
    _flip, _flip, _token, _token, _token, _drop, _repeat, _cut, _splice, _lines, _lines, _indent, _dress,
)  # fmt: skip
