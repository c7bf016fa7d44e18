"""IMEX on one host: what `nvidia-imex-ctl` says on stdout (its exit codes lie), its service, files and channels."""

from __future__ import annotations

from dataclasses import dataclass, field

from llmgwctl.model.imex import Imex, ImexChannel, ImexTable
from llmgwctl.model.reading import Reading, absent, broken, ok
from llmgwctl.probe.base import NOT_SAVED, Output, Probe, Section, failure
from llmgwctl.probe.imex_table import NoTable, read_table
from llmgwctl.probe.same import same

FILES, QUERY, JSON, TEXT = "imex-files", "nvidia-imex-ctl-q", "nvidia-imex-ctl-N-j", "nvidia-imex-ctl-N"
READY, DOWN, MISSING = "READY", "DOWN", 127
LIMIT_LINES = 20_000
MAX_ADDRESSES = 32  # of one name: each counts for every node of the table that bears it
SECTIONS = (
    Section(FILES, "sys", 30, script="imex-files.sh"),
    Section(QUERY, "imex", 30, argv=("nvidia-imex-ctl", "-q")),
    Section(JSON, "imex", 60, argv=("nvidia-imex-ctl", "-N", "-j"), after=QUERY, after_says=READY),
    Section(TEXT, "imex", 60, argv=("nvidia-imex-ctl", "-N"), after=QUERY, after_says=READY, unless=JSON),
)
STATES = frozenset(
    {
        READY,
        "INITIALIZING",
        "STARTING_AUTH_SERVER",
        "WAITING_FOR_PEERS",
        "WAITING_FOR_RECOVERY",
        "INIT_GPU",
        "SHUTTING_DOWN",
        "UNAVAILABLE",
    }
)


@dataclass(slots=True)
class Files:
    """imex-files.sh as it printed: unit properties, config, node list, channels."""

    unit: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    config: str = ""
    nodes: list[str] = field(default_factory=list)
    resolved: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    channels: list[ImexChannel] = field(default_factory=list)
    major: int | None = None

    @property
    def nothing(self) -> bool:
        """Neither unit nor configuration: nobody set IMEX up here."""
        return self.config == "absent" and self.unit.get("LoadState", "not-found") == "not-found"

    @property
    def cmd_enabled(self) -> bool | None:
        """IMEX_CMD_ENABLED; a key that is absent means 0. None: the file is not there or not readable."""
        return self.settings.get("IMEX_CMD_ENABLED", "0") != "0" if self.config == "present" else None


def parse(outputs: dict[str, Output]) -> Reading[object]:
    """IMEX as far as it can be told. Absent: no command, no unit, no configuration."""
    files_said, query = outputs.get(FILES, NOT_SAVED), outputs.get(QUERY, NOT_SAVED)
    files_why = failure(files_said) or ""
    files = read_files(files_said.stdout)
    table, table_why = _table(outputs)
    if query.exit_code == MISSING and files.nothing:
        return absent("no IMEX on this host")
    if query.state == files_said.state == "not-saved" and table is None:
        return broken("not saved")
    state, why = state_of(query)
    return ok(
        Imex(
            state=state,
            why=_judged(why, files),
            table=table,
            table_why=table_why,
            node_list=same(tuple(files.nodes)),
            node_addresses=same(tuple(files.resolved)),
            unit_load=files.unit.get("LoadState"),
            unit_active=files.unit.get("ActiveState"),
            unit_file=files.unit.get("UnitFileState"),
            cmd_enabled=files.cmd_enabled,
            channels=same(tuple(sorted(files.channels, key=lambda c: c.number))),
            channel_major=files.major,
            files_why=files_why,
        )
    )


def state_of(query: Output) -> tuple[str, str]:
    """(state, why). Only stdout names a state; DOWN is said when nobody answers; all else is not known."""
    if (why := failure(query)) is not None:
        return "", why
    word = query.stdout.strip()
    if word in STATES:
        return word, ""
    text = " ".join(query.stderr.split())
    if not word and "error code: 14" in text:
        return DOWN, "no IMEX daemon answers"
    if "control service is disabled" in text:
        return "", "its command service is disabled"
    if query.exit_code == MISSING:
        return "", "nvidia-imex-ctl is not installed"
    return "", f"nvidia-imex-ctl -q: {(word or text or 'no answer')[:120]} (exit code {query.exit_code})"


def _judged(why: str, files: Files) -> str:
    """Where the daemon cannot be asked, what systemd says of it stands beside the reason."""
    active = files.unit.get("ActiveState")
    return f"{why}; unit nvidia-imex is {active}" if why and active else why


def _table(outputs: dict[str, Output]) -> tuple[ImexTable | None, str]:
    """The first form that can be read, else why the last one that was tried cannot."""
    why = "not saved"
    for name in (JSON, TEXT):
        said = outputs.get(name, NOT_SAVED)
        if said.state in ("not-saved", "unneeded"):
            why = said.note or why if name == JSON else why
            continue
        if (why := failure(said) or "") == "":
            try:
                return read_table(said.stdout), ""
            except NoTable as e:
                why = " ".join(said.stderr.split())[:120] or str(e)
    return None, why


def read_files(text: str) -> Files:
    """One fact a line; a line of another kind is passed over."""
    files = Files()
    for kind, _, rest in (line.partition(" ") for line in text.replace("\r", "").split("\n")[:LIMIT_LINES]):
        key, _, value = rest.partition("=")
        if kind == "unit":
            files.unit.setdefault(key, value)
        elif kind == "set":
            files.settings[key] = value
        elif kind == "config":
            files.config = rest
        elif kind == "node" and rest:
            files.nodes.append(rest)
        elif kind == "resolved":
            name, *addresses = rest.split() or [""]
            files.resolved.append((name, tuple(addresses[:MAX_ADDRESSES])))
        elif kind == "major" and rest.isascii() and rest.isdigit():
            files.major = int(rest[:9])
        elif kind == "channel" and (channel := _channel(rest.split())) is not None:
            files.channels.append(channel)
    return files


def _channel(words: list[str]) -> ImexChannel | None:
    if len(words) != 3 or not all(w.isascii() and w.isdigit() and len(w) < 10 for w in words[:2]):
        return None
    return ImexChannel(int(words[0]), int(words[1]), words[2] == "yes")


PROBE = Probe("imex", SECTIONS, parse, fabric_set=True)
