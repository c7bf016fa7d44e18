"""IMEX as one host sees it: its own state, the connectivity table, and the channels that programs use."""

from __future__ import annotations

from llmgwctl.model.fact import fact


@fact
class ImexNode:
    """One line of the table. `host` is the line of nodes_config.cfg: an address or a name."""

    index: int
    host: str
    status: str  # READY, UNAVAILABLE, WAITING_FOR_PEERS ...
    version: str = ""
    local: bool | None = None  # the `* addr *` mark (580+ text); None: this format does not mark


@fact
class ImexTable:
    """`nvidia-imex-ctl -N`. `cells[(i, j)]`: node i's connection to j, as a token (C N R D I A !V! !M! !A! !R!)."""

    nodes: tuple[ImexNode, ...]
    cells: dict[tuple[int, int], str]
    domain_state: str  # UP | DEGRADED | DOWN


@fact
class ImexChannel:
    """/dev/nvidia-caps-imex-channels/channelN: major as on the device node, writable for the account that asked."""

    number: int
    major: int
    writable: bool


@fact
class Imex:
    """IMEX on one host, from the command, the service and its files.

    `state`: the word of `-q` (READY ...), "DOWN" when the command says that no daemon answers, "" when it could
    not be asked (then `why` says: command service disabled, timeout ...). `node_list`: resolved addresses of
    nodes_config.cfg by line. `unit_*`: systemctl show. `channel_major`: from /proc/devices.
    """

    state: str
    why: str = ""
    table: ImexTable | None = None
    table_why: str = ""
    node_list: tuple[str, ...] = ()
    node_addresses: tuple[tuple[str, tuple[str, ...]], ...] = ()  # (line, addresses it resolves to on this host)
    unit_load: str | None = None
    unit_active: str | None = None
    unit_file: str | None = None  # enabled | disabled | masked
    cmd_enabled: bool | None = None
    channels: tuple[ImexChannel, ...] = ()
    channel_major: int | None = None
    files_why: str = ""  # not empty: unit, node list and channels could not be read, and an empty one says nothing

    @property
    def ready(self) -> bool:
        return self.state == "READY"
