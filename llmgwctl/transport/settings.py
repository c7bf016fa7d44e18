"""The [ssh] table of the inventory, checked and completed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SshSettings:
    """How hosts are reached. Empty or None: ~/.ssh/config decides, then what OpenSSH would do.

    `known_hosts`: files; the first one is where "accept-new" writes. There is no setting that checks no host key.
    `compress`: whether hosts pack their answers with gzip; "auto" where a jump host is on the way.
    `config_file` None: ~/.ssh/config when it is there; "" reads none.
    """

    user: str | None = None
    identity_file: str | None = None
    known_hosts: tuple[str, ...] = ()
    host_key_policy: Literal["strict", "accept-new"] = "strict"
    connect_timeout_s: float = 10
    login_timeout_s: float = 15
    host_deadline_s: float = 120
    handshakes: int = 64
    in_flight: int = 4096
    max_output_bytes: int = 16 * MIB
    compress: Literal["auto", "yes", "no"] = "auto"
    sudo: bool = False
    config_file: str | None = None
