"""Serials, ids and addresses of a saved answer behind others of the same shape, the same everywhere in one bundle."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from llmgwctl.probe.base import Output

HEX = r"[0-9a-fA-F]"
V6 = rf"(?<![0-9A-Za-z:.%])(?:{HEX}{{1,4}}:){{7}}{HEX}{{1,4}}|(?<![0-9A-Za-z:.%])(?:{HEX}{{0,4}}:){{2,7}}{HEX}{{0,4}}"
PATTERN = re.compile(
    "|".join(
        (
            rf"(?P<uuid>(?<![0-9A-Za-z]){HEX}{{8}}-{HEX}{{4}}-{HEX}{{4}}-{HEX}{{4}}-{HEX}{{12}}(?![0-9A-Za-z]))",
            rf"(?P<guid>(?<![0-9A-Za-z])0x{HEX}{{16}}(?![0-9A-Za-z]))",
            rf"(?P<gid>(?<![0-9A-Za-z:.])(?:{HEX}{{4}}:){{7}}{HEX}{{4}}(?![0-9A-Za-z:]))",
            rf"(?P<guid4>(?<![0-9A-Za-z:.]){HEX}{{4}}(?::{HEX}{{4}}){{3}}(?![0-9A-Za-z:.]))",
            rf"(?P<mac>(?<![0-9A-Za-z:.]){HEX}{{2}}(?::{HEX}{{2}}){{5,19}}(?![0-9A-Za-z:.]))",
            r"(?P<v4>(?<![0-9A-Za-z.])\d{1,3}(?:\.\d{1,3}){3}(?![0-9A-Za-z.]))",
            rf"(?P<v6>(?:{V6})(?![0-9A-Za-z:.]))",
            r"(?P<serial>Serial Number[ \t]*: *[^\s].*)",
            r"(?P<tag><(?:serial|chassis_serial_number)>[^<]*<)",
        )
    )
)
NOT_SECRET = frozenset({"N/A", "[N/A]", "None", "", "GPU is lost", "Unknown Error"})
KEPT_V4 = tuple(ipaddress.ip_network(n) for n in ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3"))
VERSION = re.compile(r"\d{3}\.\d{1,3}\.\d{1,3}\.\d{1,3}")
LITTLE = re.compile(r"^(proc route \S+[ \t]+)([0-9A-F]{8})([ \t]+)([0-9A-F]{8})", re.MULTILINE)
LISTEN = re.compile(r"^(listen )([0-9A-F]{8}|[0-9A-F]{32})(:[0-9A-F]{4})$", re.MULTILINE)
HEX128 = re.compile(r"^(proc (?:if_inet6|ipv6_route) )(.*)$", re.MULTILINE)
PERSON = re.compile(
    r"(^account |^(?:claim|blocked) .* owner=|^user \d+ |^  (?:operator|workstation)=|"
    r"\"(?:operator|workstation)\": ?\")"
    r"([A-Za-z0-9._@-]+)",
    re.MULTILINE,
)
V6_WORD = re.compile(r"\b[0-9a-f]{32}\b")


@dataclass(slots=True)
class Mask:
    """One bundle's mask. `names`: host names with what stands for them; none: they and the people's names are kept.

    Addresses keep their prefixes in common, so that subnets, rails and routes stay what they are; a UUID of zeros, the
    loopback and link-local addresses are nobody's and stay.
    """

    key: bytes
    names: Mapping[str, str] = field(default_factory=dict)
    _known: dict[str, str] = field(default_factory=dict)
    _names: Callable[[str], str] | None = None

    def __post_init__(self) -> None:
        if self.names:
            longest = sorted(self.names, key=len, reverse=True)
            words = re.compile(rf"(?<![0-9A-Za-z-])(?:{'|'.join(map(re.escape, longest))})(?![0-9A-Za-z-])")
            self._names = lambda text: words.sub(lambda m: self.names[m[0]], text)

    def output(self, said: Output) -> Output:
        return replace(said, stdout=self.text(said.stdout), stderr=self.text(said.stderr), note=self.text(said.note))

    def text(self, text: str) -> str:
        """The same text, line by line and of the same layout."""
        text = LITTLE.sub(lambda m: f"{m[1]}{self._little(m[2])}{m[3]}{self._little(m[4])}", text)
        text = LISTEN.sub(lambda m: f"{m[1]}{self._words(m[2])}{m[3]}", text)
        text = HEX128.sub(lambda m: m[1] + V6_WORD.sub(lambda w: self._packed6(w[0]), m[2]), text)
        text = PATTERN.sub(self._token, text)
        if self._names is None:
            return text
        return PERSON.sub(lambda m: m[1] + self._same_shape(m[2]), self._names(text))

    # --- tokens

    def _token(self, found: re.Match[str]) -> str:
        kind, text = found.lastgroup or "", found[0]
        if text not in self._known:
            self._known[text] = self._masked(kind, text)
        return self._known[text]

    def _masked(self, kind: str, text: str) -> str:
        if kind == "v4":
            return self._v4(text)
        if kind in ("v6", "gid"):
            return self._v6(text)
        if kind == "serial":
            head, _, value = text.partition(": ")
            return text if value.strip() in NOT_SECRET else f"{head}: {self._same_shape(value)}"
        if kind == "tag":
            head, _, value = text.partition(">")
            return text if value[:-1] in NOT_SECRET else f"{head}>{self._same_shape(value[:-1])}<"
        if not set(text.lower()) - set("0x:-"):
            return text  # zeros are nobody's
        return f"0x{self._same_shape(text[2:])}" if kind == "guid" else self._same_shape(text)

    def _stream(self, *of: str) -> bytes:
        return hmac.new(self.key, "\0".join(of).encode("utf-8", "replace"), hashlib.sha512).digest()

    def _same_shape(self, text: str) -> str:
        """Digits for digits, letters for letters of that case and alphabet; all else stays."""
        lower = text.lower()
        stream = b"".join(self._stream("shape", lower, str(n)) for n in range(len(text) // 64 + 1))
        hexadecimal = bool(set(lower) & set("abcdef")) and not set(lower) - set("0123456789abcdef:-. ")
        uuid_like = len(text) == 36 or hexadecimal
        return "".join(_like(c, b, uuid_like) for c, b in zip(text, stream, strict=False))

    # --- addresses

    def _v4(self, text: str) -> str:
        try:
            address = ipaddress.IPv4Address(text)
        except ValueError:
            return text
        if any(address in net for net in KEPT_V4) or VERSION.fullmatch(text):
            return text
        return str(ipaddress.IPv4Address(self._prefixed("4", int(address), 32, 8)))

    def _v6(self, text: str) -> str:
        try:
            address = ipaddress.IPv6Address(text)
        except ValueError:
            return text
        masked = ipaddress.IPv6Address(self._of_v6(address))
        return masked.exploded if len(text) == 39 else str(masked)

    def _of_v6(self, address: ipaddress.IPv6Address) -> int:
        value = int(address)
        if address.ipv4_mapped is not None:
            return (value >> 32 << 32) | int(ipaddress.IPv4Address(self._v4(str(address.ipv4_mapped))))
        if address.is_loopback or address.is_unspecified or address.is_multicast:
            return value
        return self._prefixed("6", value, 128, 64 if address.is_link_local else 16)

    def _prefixed(self, kind: str, value: int, bits: int, kept: int) -> int:
        """Two that share their first n bits do so afterwards: a bit is turned by what stands before it alone."""
        turned = 0
        for bit in range(kept, bits):
            before = value >> (bits - bit)
            turned |= (self._stream(kind, str(bit), str(before))[0] & 1) << (bits - 1 - bit)
        return value ^ turned

    def _little(self, text: str) -> str:
        """Four bytes of /proc/net/route, the last one first."""
        packed = bytes.fromhex(text)[::-1]
        masked = ipaddress.IPv4Address(self._v4(str(ipaddress.IPv4Address(packed))))
        return masked.packed[::-1].hex().upper()

    def _words(self, text: str) -> str:
        """/proc/net/tcp and tcp6: words of four bytes, each the last one first."""
        if len(text) == 8:
            return self._little(text)
        words = bytes.fromhex(text)
        packed = b"".join(words[i : i + 4][::-1] for i in range(0, 16, 4))
        masked = self._of_v6(ipaddress.IPv6Address(packed)).to_bytes(16, "big")
        return b"".join(masked[i : i + 4][::-1] for i in range(0, 16, 4)).hex().upper()

    def _packed6(self, text: str) -> str:
        return f"{self._of_v6(ipaddress.IPv6Address(int(text, 16))):032x}"


def _like(character: str, byte: int, hexadecimal: bool) -> str:
    if hexadecimal and character in "0123456789abcdefABCDEF":
        made = "0123456789abcdef"[byte % 16]
        return made.upper() if character.isupper() else made
    if character.isascii() and character.isdigit():
        return str(byte % 10)
    if character.isascii() and character.isalpha():
        made = chr(ord("a") + byte % 26)
        return made.upper() if character.isupper() else made
    return character
