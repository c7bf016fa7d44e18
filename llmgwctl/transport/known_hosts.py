"""known_hosts files, read once per run into an index that answers in constant time, hashed entries included."""

from __future__ import annotations

import base64
import binascii
import errno
import hmac
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Verdict = Literal["known", "unknown", "changed", "revoked"]
MAX_FILE_BYTES = 64 * 1024 * 1024
_LOOKED_AT = 64 * 1024  # of a file before a line is added


@dataclass(frozen=True, slots=True)
class HostKey:
    """A public key as it travels: `blob` begins with its type."""

    kind: str  # ssh-ed25519
    blob: bytes

    @property
    def text(self) -> str:
        return f"{self.kind} {base64.b64encode(self.blob).decode()}"


@dataclass(frozen=True, slots=True)
class Names:
    """Under which names a host's key may stand: with the port where it is not 22, and then without it.

    As in OpenSSH, a line without a port can vouch for a key on another port, but never says that a key has changed.
    """

    exact: tuple[str, ...]
    bare: tuple[str, ...] = ()

    @classmethod
    def of(cls, hosts: Iterable[str], port: int) -> Names:
        names = tuple(dict.fromkeys(h.lower() for h in hosts))
        if port == 22:
            return cls(names)
        return cls(tuple(f"[{n}]:{port}" for n in names), names)


@dataclass(frozen=True, slots=True)
class _Hashed:
    """|1|SALT|HASH: a name that can be recognised and not read."""

    key: HostKey
    salt: bytes
    digest: bytes

    def matches(self, names: Iterable[str]) -> bool:
        return any(hmac.digest(self.salt, n.encode(), "sha1") == self.digest for n in names)


@dataclass(frozen=True, slots=True)
class _Pattern:
    """A list with wildcards or negations: one negated match and the line is not for that name."""

    key: HostKey
    wanted: tuple[re.Pattern[str], ...]
    unwanted: tuple[re.Pattern[str], ...]

    def matches(self, names: Iterable[str]) -> bool:
        return any(self._matches(n) for n in names)

    def _matches(self, name: str) -> bool:
        return any(p.fullmatch(name) for p in self.wanted) and not any(p.fullmatch(name) for p in self.unwanted)


class _Table:
    """The lines of one marker. A hashed line is looked up by the key that a server shows, not by the name."""

    def __init__(self) -> None:
        self.plain: dict[str, list[HostKey]] = {}
        self.patterns: list[_Pattern] = []
        self.hashed: dict[bytes, list[_Hashed]] = {}

    def add(self, hosts: str, key: HostKey) -> None:
        if hosts.startswith("|"):
            self._add_hashed(hosts, key)
        elif any(c in hosts for c in "*?!"):
            self.patterns.append(_pattern(hosts.lower(), key))
        else:
            for name in hosts.lower().split(","):
                self.plain.setdefault(name, []).append(key)

    def _add_hashed(self, hosts: str, key: HostKey) -> None:
        _, magic, salt, digest = hosts.split("|")
        if magic == "1":
            entry = _Hashed(key, _decoded(salt), _decoded(digest))
            self.hashed.setdefault(key.blob, []).append(entry)

    def readable(self, names: Sequence[str]) -> list[HostKey]:
        """Keys of the lines whose names can be read."""
        found = [k for n in names for k in self.plain.get(n, ())]
        return found + [p.key for p in self.patterns if p.matches(names)]

    def all(self, names: Sequence[str]) -> list[HostKey]:
        """Keys of every line that is for one of these names: goes through all hashed lines, so seldom asked."""
        hashed = [h.key for entries in self.hashed.values() for h in entries if h.matches(names)]
        return self.readable(names) + hashed

    def holds(self, names: Sequence[str], blob: bytes) -> bool:
        if any(k.blob == blob for k in self.readable(names)):
            return True
        return any(h.matches(names) for h in self.hashed.get(blob, ()))


class KnownHosts:
    """What the files say. A line that makes no sense is passed over, as OpenSSH does; a missing file says nothing."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._trusted, self._authorities, self._revoked = _Table(), _Table(), _Table()
        for text in texts:
            for line in text.splitlines():
                self._add_line(line)

    @classmethod
    def read(cls, paths: Iterable[str]) -> KnownHosts:
        return cls(_text(Path(p).expanduser()) for p in paths)

    def _add_line(self, line: str) -> None:
        words = line.split(None, 4)
        if not words or words[0].startswith("#"):
            return
        marker = words.pop(0) if words[0].startswith("@") else ""
        table = {"": self._trusted, "@cert-authority": self._authorities, "@revoked": self._revoked}.get(marker)
        key = parse_key(*words[1:3]) if len(words) >= 3 else None
        if table is None or key is None:
            return
        try:
            table.add(words[0], key)
        except ValueError:  # a hashed name that is none
            return

    def judge(self, names: Names, blob: bytes) -> Verdict:
        """What is known of a key that a host shows."""
        everywhere = names.exact + names.bare
        if self._revoked.holds(everywhere, blob):
            return "revoked"
        if self._trusted.holds(everywhere, blob):
            return "known"
        return "changed" if self._trusted.all(names.exact) else "unknown"

    def kinds(self, names: Names, *, thorough: bool = False) -> tuple[str, ...]:
        """Types of the keys that are known for a host, so that it is asked to show one of those."""
        everywhere = names.exact + names.bare
        keys = self._trusted.all(everywhere) if thorough else self._trusted.readable(everywhere)
        return tuple(dict.fromkeys(k.kind for k in keys))

    def authorities(self, names: Names) -> list[HostKey]:
        return self._authorities.all(names.exact + names.bare)

    def revoked(self, names: Names) -> list[HostKey]:
        return self._revoked.all(names.exact + names.bare)

    def learn(self, names: Names, key: HostKey) -> None:
        """Take a new key into the index (the file is `append`'s)."""
        self._trusted.add(names.exact[0], key)


def parse_key(kind: str, text: str) -> HostKey | None:
    """A key from its two words in a file; None when the second is not a key of the first's type."""
    try:
        blob = _decoded(text)
    except ValueError:
        return None
    length = int.from_bytes(blob[:4], "big")
    return HostKey(kind, blob) if blob[4 : 4 + length] == kind.encode() else None


def append(path: str, names: Names, key: HostKey) -> None:
    """Add one line to a file that only we can read, in one write: others may be adding lines at the same time."""
    file = Path(path).expanduser()
    _refuse_other_files(file)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    line = f"{names.exact[0]} {key.text}\n".encode()
    with open(file, "ab+", opener=lambda p, flags: os.open(p, flags, 0o600), buffering=0) as f:
        end = f.seek(0, os.SEEK_END)
        if end and f.seek(end - 1) and f.read(1) != b"\n":
            line = b"\n" + line
        f.write(line)
        os.fsync(f.fileno())


def _refuse_other_files(file: Path) -> None:
    """An inventory names the file: a line of ours in authorized_keys or a shell's profile would mean something else."""
    if file.resolve().name.startswith("authorized_keys") or not all(map(_is_entry, _head(file))):
        raise OSError(errno.EINVAL, "it is no known_hosts file", str(file))


def _head(file: Path) -> list[str]:
    """The first lines of a file, whole ones."""
    if not file.exists():
        return []
    with file.open("rb") as f:
        lines = f.read(_LOOKED_AT).decode("utf-8", "replace").split("\n")
    return lines[:-1] or lines


def _is_entry(line: str) -> bool:
    words = line.split(None, 4)
    if not words or words[0].startswith("#"):
        return True
    words = words[1:] if words[0].startswith("@") else words
    return len(words) >= 3 and re.fullmatch(r"(ssh-|ecdsa-|sk-|rsa-|x509|[0-9]+$).*", words[1]) is not None


def _text(file: Path) -> str:
    try:
        with file.open("rb") as f:
            return f.read(MAX_FILE_BYTES).decode("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return ""


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as e:
        raise ValueError(str(e)) from None


def _pattern(hosts: str, key: HostKey) -> _Pattern:
    words = hosts.split(",")
    wanted = tuple(_glob(w) for w in words if not w.startswith("!"))
    return _Pattern(key, wanted, tuple(_glob(w[1:]) for w in words if w.startswith("!")))


def _glob(pattern: str) -> re.Pattern[str]:
    """* and ? alone are special: [host]:port is a name."""
    return re.compile("".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in pattern))
