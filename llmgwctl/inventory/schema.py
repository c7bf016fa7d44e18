"""The edge: the tables of an inventory as they may be written; every other key or type is refused."""

from __future__ import annotations

import re
from datetime import date
from ipaddress import ip_address
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from llmgwctl.model.names import is_address, is_name

_WORD = re.compile(r"[A-Za-z0-9._@:,%+\[\]/-]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INTERFACE = re.compile(r"[A-Za-z0-9_.:@-]{1,15}")
_SECRET = re.compile(r"(sk|hf|nvapi|xai|gsk|ghp)[-_][A-Za-z0-9_-]{8,}")


def plain(text: str) -> str:
    """A text that fits on one line: it ends up in a file of NAME=VALUE lines, or in an argument a line."""
    if any(c in text for c in "\0\n\r"):
        raise ValueError("a newline or a NUL cannot be passed on to a host")
    return text


def filled(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty")
    return plain(text)


def name(text: str) -> str:
    if not is_name(text):
        raise ValueError(f"{text[:60]!r} is no name: letters, digits, '.', '_' and '-', and neither '-' nor '.' first")
    return text


def address(text: str) -> str:
    if not is_address(text):
        raise ValueError(f"{text[:60]!r} is neither an address nor a host name")
    return text


def ip(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError:
        raise ValueError(f"{text[:60]!r} is no IP address") from None


def word(text: str) -> str:
    """A user, a jump host: it may end up in the ProxyCommand of ~/.ssh/config, so nothing that a shell would read."""
    if not _WORD.fullmatch(text) or text.startswith("-"):
        raise ValueError(f"{text[:60]!r}: letters, digits and . _ @ : , % + [ ] / - alone, and no '-' first")
    return text


def interface(text: str) -> str:
    if not _INTERFACE.fullmatch(text) or text.startswith("-"):
        raise ValueError(f"{text[:60]!r} is no name of a network interface")
    return text


def remote_path(text: str) -> str:
    if not text.startswith(("/", "~/")):
        raise ValueError("is a path on the hosts: it begins with / or ~/")
    return plain(text)


def unclimbing(text: str) -> str:
    if text and (not text.startswith("/") or ".." in text.split("/")):
        raise ValueError("is an absolute path without '..'")
    return plain(text)


def variable(text: str) -> str:
    if not _VARIABLE.fullmatch(text):
        raise ValueError(f"{text[:60]!r} is no name of an environment variable")
    return text


def engine_variable(text: str) -> str:
    """One that a profile may set. Ours say which launch a process is of: with another's, it would be ended as that."""
    if text.startswith("LLMGWCTL_") or text == "SPT_NOENV":
        raise ValueError(f"{text} is set by llmgwctl itself, which knows its processes by it")
    return variable(text)


def key_file(text: str) -> str:
    """The key itself is never in the inventory, and a message about it must not print it."""
    if _SECRET.fullmatch(text):
        raise ValueError("is the path of a file that holds the key, and this looks like a key itself")
    return filled(text)


def port_range(value: int | str) -> tuple[int, int]:
    """First and last port of 8000 or "8000-8015"."""
    first, _, last = str(value).partition("-")
    if not (re.fullmatch(r"\d{1,5}", first) and re.fullmatch(r"\d{1,5}", last or first)):
        raise ValueError('is a port or a range of ports like "8000-8015"')
    low, high = int(first), int(last or first)
    if not 1 <= low <= high <= 65535:
        raise ValueError("ports run upwards from 1 to 65535")
    return low, high


def ports(value: int | str) -> int | str:
    port_range(value)
    return value


Name = Annotated[str, AfterValidator(name)]
Text = Annotated[str, AfterValidator(filled)]
Line = Annotated[str, AfterValidator(plain)]
Word = Annotated[str, AfterValidator(word)]
RemotePath = Annotated[str, AfterValidator(remote_path)]
PortNumber = Annotated[int, Field(ge=1, le=65535)]
Seconds = Annotated[int, Field(ge=1, le=7 * 86400)]
Count = Annotated[int, Field(ge=1, le=50_000)]


class Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Ssh(Table):
    user: Word | None = None
    identity_file: Text | None = None
    known_hosts: Text | list[Text] | None = None
    host_key_policy: Literal["strict", "accept-new"] = "strict"
    config_file: Line | None = None
    connect_timeout_s: Annotated[float, Field(gt=0, le=600)] = 10
    login_timeout_s: Annotated[float, Field(gt=0, le=600)] = 15
    host_deadline_s: Annotated[float, Field(gt=0, le=86400)] = 120
    handshakes: Annotated[int, Field(ge=1, le=4096)] = 64
    in_flight: Annotated[int, Field(ge=1, le=65536)] = 4096
    max_output_bytes: Annotated[int, Field(ge=65536, le=2**30)] = 16 * 2**20
    compress: Literal["auto", "yes", "no"] = "auto"
    sudo: bool = False


class Expect(Table):
    gpus: Annotated[int, Field(ge=0, le=64)] | None = None
    gpu: Text | None = None
    domain: bool | None = None


class Hosts(Table):
    """One [[hosts]] block. `name`, `address` and `mgmt_address` are ranges and are checked after they are expanded."""

    name: Text
    address: Text | None = None
    pool: Name = "default"
    rack: Name | None = None
    user: Word | None = None
    port: PortNumber | None = None
    identity_file: Text | None = None
    proxy_jump: Word | None = None
    state_dir: RemotePath | None = None
    mgmt_interface: Annotated[str, AfterValidator(interface)] | None = None
    mgmt_address: Text | None = None
    shared_with_scheduler: bool = False
    sudo: bool | None = None
    root_prefix: Annotated[str, AfterValidator(unclimbing)] = ""
    expect: Expect = Expect()


class Fabric(Table):
    hosts: Text
    hcas: list[Name] = []


class BuildTable(Table):
    path: Line | None = None
    source: Line | None = None
    distributed: Literal["mp", "ray"] | None = None
    nccl: Text | None = None
    version: Text | None = None
    rpc_server: Text | None = None


class EngineTable(BuildTable):
    pools: dict[Name, BuildTable] = {}
    hosts: dict[str, BuildTable] = {}


class ContainerTable(Table):
    runtime: Literal["docker", "podman", "enroot"]
    image: Text
    path: Line = ""
    mounts: list[Text] = []


class ProfileTable(Table):
    engine: str
    gpu_class: Text | None = None
    pool: Name | None = None
    tp: Count = 1
    pp: Count = 1
    dp: Count = 1
    ep: bool | Count = False
    nodes: Count = 1
    gpus_per_node: Annotated[int, Field(ge=0, le=64)] | None = None
    model_path: Line = ""
    served_model_name: Line = ""
    fabric: Literal["prefer-nvlink", "require-nvlink", "require-rdma", "allow-tcp"] = "prefer-nvlink"
    require_declared_fabric: bool = False
    allow_degraded: bool = False
    spare_trays: Annotated[int, Field(ge=0, le=576)] = 0
    replicas: Annotated[int, Field(ge=0, le=50_000)] = 1
    replace_unreachable_after_s: Annotated[int, Field(ge=60, le=7 * 86400)] | None = None
    port: Annotated[int | str, AfterValidator(ports)] = 8000
    listen_all: bool = False
    ready_timeout_s: Seconds = 1800
    stop_grace_s: Annotated[int, Field(ge=0, le=86400)] = 30
    api_key_file: Annotated[str, AfterValidator(key_file)] | None = None
    api_key_env: Annotated[str, AfterValidator(variable)] | None = None
    container: ContainerTable | None = None
    args: list[Line] = []
    env: dict[Annotated[str, AfterValidator(engine_variable)], Line] = {}


class Suppress(Table):
    """[[doctor.suppress]]: a finding that is known, why, and until when nobody wants to hear of it."""

    check: Text
    hosts: Text | None = None
    reason: Text
    until: date


class Doctor(Table):
    suppress: list[Suppress] = []


class Document(Table):
    state_dir: RemotePath = "~/.local/state/llmgwctl"
    ssh: Ssh = Ssh()
    hosts: list[Hosts] = []
    fabrics: dict[Name, Fabric] = {}
    engines: dict[str, EngineTable] = {}
    profiles: dict[Name, ProfileTable] = {}
    doctor: Doctor = Doctor()
