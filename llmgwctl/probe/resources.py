"""What the account may use and what there is: limits, memory, room in file systems, settings of the kernel."""

from __future__ import annotations

import ipaddress

from llmgwctl.model.machine import Limit, OwnName, Resources, Room
from llmgwctl.model.reading import Reading, broken, ok
from llmgwctl.probe.base import NOT_SAVED, Output, Probe, Section, failure
from llmgwctl.probe.lines import grouped, pairs
from llmgwctl.probe.smi_tree import number

LIMITS, ROOMS = "resources", "rooms"
SECTIONS = (
    Section(LIMITS, "sys", 10, script="resources.sh"),
    Section(ROOMS, "sys", 12, script="rooms.sh"),
)
LIMIT_MOUNTS, LIMIT_ROOMS = 2000, 64
SILENT = "it does not answer (a dead file server?)"


def parse(outputs: dict[str, Output]) -> Reading[object]:
    """Broken only when neither section could be read; a file system that does not answer says so in its own row."""
    limits, rooms = outputs.get(LIMITS, NOT_SAVED), outputs.get(ROOMS, NOT_SAVED)
    why = failure(limits)
    if why is not None and failure(rooms) is not None:
        return broken(why)
    found = grouped(limits.stdout)
    memory = pairs(found.get("memory", []), " ")
    if why is None and not found:
        return broken(limits.stderr.strip()[:200] or "no limit could be read")
    return ok(
        Resources(
            limits=tuple(x for rest in found.get("limit", []) if (x := _limit(rest)) is not None),
            memory_total_mib=_mib(memory.get("MemTotal")),
            memory_available_mib=_mib(memory.get("MemAvailable")),
            rooms=_rooms(rooms),
            settings=tuple(pairs(found.get("setting", []), " ").items()),
            own_name=_own_name(found),
        )
    )


def _mib(kib: str | None) -> int | None:
    found = number(kib)
    return found // 1024 if found is not None else None


def _limit(rest: str) -> Limit | None:
    name, soft, hard = (*rest.split("|"), "", "", "")[:3]
    told = [text == "unlimited" or number(text) is not None for text in (soft, hard)]
    return Limit(name.removeprefix("Max "), number(soft), number(hard)) if all(told) else None


def _own_name(found: dict[str, list[str]]) -> OwnName | None:
    """None where the question was not asked: no name, no resolver, or a bundle of an older version."""
    name = (found.get("name") or [""])[0][:255]
    addresses = dict.fromkeys(a for text in found.get("named", [])[:LIMIT_ROOMS] if (a := _address(text)))
    refused = (found.get("unnamed") or [""])[0]
    if not name or not (addresses or refused):
        return None
    return OwnName(name, tuple(addresses), "" if addresses or refused == "not-found" else "its resolver did not answer")


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text.strip().partition("%")[0]))  # behind it anything may stand
    except ValueError:
        return ""


def _rooms(said: Output) -> tuple[Room, ...]:
    """A row for each path that was asked, in that order; the first answer of a path counts."""
    found = grouped(said.stdout)
    answers = pairs(found.get("room", []), "|")
    refusals = pairs(found.get("none", []), "|")
    mounts = [words for rest in found.get("mount", [])[:LIMIT_MOUNTS] if len(words := rest.split()) == 3]
    silent = failure(said) or SILENT
    asked = dict.fromkeys(found.get("ask", [])[:LIMIT_ROOMS])
    return tuple(_room(path, answers.get(path), refusals.get(path) or silent, mounts) for path in asked)


def _room(path: str, answer: str | None, why: str, mounts: list[list[str]]) -> Room:
    numbers = (answer or "").split("|")
    told = [number(text) for text in numbers[:5]]
    size, blocks, free = (*told, None, None, None)[:3]
    mount = max((m for m in mounts if _holds(m[0], path)), key=lambda m: len(m[0]), default=None)
    read_only = mount[2] == "ro" if mount else None
    if size is None or blocks is None or free is None:
        return Room(path, mount[1] if mount else "", read_only=read_only, why=why[:200])
    kind = mount[1] if mount else (numbers[5] if len(numbers) > 5 else "")[:40]
    inodes = told[4] if len(told) > 4 and told[3] else None  # btrfs counts none
    return Room(path, kind, size * blocks // 2**20, size * free // 2**20, inodes, read_only)


def _holds(mount: str, path: str) -> bool:
    return mount in ("/", path) or path.startswith(f"{mount}/")


PROBE = Probe("resources", SECTIONS, parse, fabric_set=False)
