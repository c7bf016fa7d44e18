"""~/.ssh/config, parsed once per run: how a host is reached, and `ssh -G` for conditions that we cannot judge."""

from __future__ import annotations

import getpass
import glob
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from llmgwctl.model.errors import InventoryError

ACCUMULATE = frozenset({"identityfile", "certificatefile"})
WANTED = ACCUMULATE | {
    "hostname",
    "user",
    "port",
    "identitiesonly",
    "identityagent",
    "proxyjump",
    "proxycommand",
    "hostkeyalias",
    "userknownhostsfile",
    "globalknownhostsfile",
}
_RAW = frozenset({"proxycommand"})  # the rest of the line belongs to a shell
_MAX_DEPTH = 16
_WORD = re.compile(r'"((?:[^"\\]|\\.)*)"|([^\s"]\S*)')
_LINE = re.compile(r"\s*([A-Za-z0-9]+)(?:\s*=\s*|\s+)(.*?)\s*$")

Options = dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class _Match:
    """One criterion of a Host or Match line. `kind`: host or originalhost (our names), hostname, user, localuser."""

    kind: str
    patterns: tuple[str, ...]
    negated: bool = False

    def holds(self, names: Sequence[str], options: Options) -> bool:
        return any(_listed(value, self.patterns) for value in self._values(names, options)) != self.negated

    def _values(self, names: Sequence[str], options: Options) -> Sequence[str]:
        if self.kind == "hostname":
            return options.get("hostname", list(names[-1:]))
        if self.kind == "user":
            return options.get("user", [local_user()])
        return [local_user()] if self.kind == "localuser" else names


@dataclass(slots=True)
class _Block:
    """Lines with what must hold for them; those of an included file also need what held around its Include."""

    criteria: tuple[_Match, ...]
    lines: list[tuple[str, list[str]]] = field(default_factory=list)

    @property
    def literals(self) -> tuple[str, ...] | None:
        """The names that a plain `Host a b` line is for, so that it can be found by name."""
        if len(self.criteria) != 1 or self.criteria[0].kind != "host":
            return None
        patterns = self.criteria[0].patterns
        return None if any(c in p for p in patterns for c in "*?!") else patterns


class SshConfig:
    """A parsed file. `names` of a host: as the inventory calls it, and its address when the inventory gives one.

    `own`: it is the operator's own file, which may run commands here (ProxyCommand, Match exec). One that an inventory
    names may not, since whoever wrote the inventory wrote it: neither does ssh ever get to judge it.
    """

    def __init__(self, path: Path | None, *, own: bool = True) -> None:
        self.path = path
        self._own = own
        self.needs_referee = ""  # a condition that only ssh itself can judge
        self._blocks: list[_Block] = []
        self._by_name: dict[str, list[int]] = {}
        self._others: list[int] = []
        if path is not None:
            self._parse(path, (), 0)
        for i, block in enumerate(self._blocks):
            for name in block.literals or ():
                self._by_name.setdefault(name, []).append(i)
            if block.literals is None:
                self._others.append(i)

    def options(self, names: Sequence[str]) -> Options:
        """What the file says of a host, by option in lower case; the first word on each option counts."""
        if self.needs_referee and self.path is not None:
            return _ask_ssh(self.path, names)
        found: Options = {}
        for i in sorted({*self._others, *(i for n in names for i in self._by_name.get(n, ()))}):
            block = self._blocks[i]
            if all(c.holds(names, found) for c in block.criteria):
                _take(found, block.lines)
        return found

    def _parse(self, path: Path, outer: tuple[_Match, ...], depth: int) -> None:
        block = self._open(outer)
        for keyword, rest in _lines(path):
            if keyword in ("host", "match"):
                block = self._open(outer + self._criteria(keyword, _words(rest)))
            elif keyword == "include" and depth < _MAX_DEPTH:
                for file in _included(_words(rest)):
                    self._parse(file, block.criteria, depth + 1)
                block = self._open(block.criteria)
            elif keyword == "canonicalizehostname" and rest.lower() != "no":
                self._needs("CanonicalizeHostname")
            elif keyword in WANTED:
                if keyword == "proxycommand" and rest.lower() != "none":
                    self._may_run("ProxyCommand")
                block.lines.append((keyword, [rest] if keyword in _RAW else _words(rest)))

    def _needs(self, what: str) -> None:
        self._may_run(what)
        self.needs_referee = what

    def _may_run(self, what: str) -> None:
        if not self._own:
            raise InventoryError(
                f"{self.path}: {what} can run commands on this machine, and this file is named by the inventory: "
                "that is taken from your own ~/.ssh/config alone"
            )

    def _open(self, criteria: tuple[_Match, ...]) -> _Block:
        self._blocks.append(_Block(criteria))
        return self._blocks[-1]

    def _criteria(self, keyword: str, words: list[str]) -> tuple[_Match, ...]:
        if keyword == "host":
            return (_Match("host", tuple(words)),)
        found = []
        while words:
            word = words.pop(0).lower()
            kind = word.lstrip("!")
            if kind == "all":
                continue
            if kind not in ("host", "originalhost", "user", "localuser") or not words:
                self._needs(f"Match {kind}")
                break
            patterns = tuple(words.pop(0).split(","))
            found.append(_Match("hostname" if kind == "host" else kind, patterns, word.startswith("!")))
        return tuple(found)


def _take(found: Options, lines: list[tuple[str, list[str]]]) -> None:
    for keyword, words in lines:
        if keyword in ACCUMULATE:
            found.setdefault(keyword, []).extend(words)
        elif keyword in ("proxyjump", "proxycommand"):  # whichever comes first wins over the other
            if not found.keys() & {"proxyjump", "proxycommand"}:
                found[keyword] = words
        else:
            found.setdefault(keyword, words)


def _listed(value: str, patterns: Sequence[str]) -> bool:
    """OpenSSH's pattern list: a negated match beats all others."""
    if any(_glob(p[1:]).fullmatch(value) for p in patterns if p.startswith("!")):
        return False
    return any(_glob(p).fullmatch(value) for p in patterns if not p.startswith("!"))


@cache
def _glob(pattern: str) -> re.Pattern[str]:
    return re.compile("".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in pattern))


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as e:
        raise InventoryError(f"{path}: the SSH configuration cannot be read: {e.strerror}") from None
    for line in text.splitlines():
        if not line.lstrip().startswith("#") and (found := _LINE.match(line)):
            yield found[1].lower(), found[2]


def _words(rest: str) -> list[str]:
    """The words of a line, quotes taken off, up to a comment."""
    words = []
    for found in _WORD.finditer(rest):
        if found[1] is None and found[2].startswith("#"):
            break
        words.append(found[2] if found[1] is None else found[1])
    return words


def _included(patterns: list[str]) -> Iterator[Path]:
    for pattern in patterns:
        whole = Path("~/.ssh").expanduser() / Path(pattern).expanduser()
        yield from (Path(p) for p in sorted(glob.glob(str(whole))) if Path(p).is_file())


def _ask_ssh(path: Path, names: Sequence[str]) -> Options:
    """What OpenSSH itself makes of a file whose conditions we do not judge."""
    argv = ["ssh", "-G", "-F", str(path), "--", names[0]]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=True, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError) as e:
        raise InventoryError(f"{path}: `ssh -G` is needed to judge it and does not answer: {e}") from None
    found: Options = {}
    for line in done.stdout.splitlines():
        keyword, _, rest = line.partition(" ")
        if keyword in WANTED and rest:
            _take(found, [(keyword, [rest] if keyword in _RAW else _words(rest))])
    if found.get("hostname") == [names[0]]:
        del found["hostname"]  # ssh -G always prints one
    return found


@cache
def local_user() -> str:
    return getpass.getuser()
