"""A simulated rack that runs: every host an SSH server on loopback, with faults that can be changed at any time."""

from __future__ import annotations

import os
import random
import shutil
import socket
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from llmgwctl.model.errors import UsageError
from llmgwctl.rack import faults, host, inventory_text, processes
from llmgwctl.rack.fleet import RackSpec
from llmgwctl.rack.machine import Machine
from llmgwctl.rack.tree import Tree

if TYPE_CHECKING:
    from llmgwctl.rack.sshd import HostServer

PORT = 2222
_STICKY = ("run/lock", "dev/shm", "tmp")


class Rack:
    """What `serve` gives: where things are, and the hands that break and mend them. All changes take effect at once."""

    def __init__(self, spec: RackSpec, directory: Path, port: int, net: str) -> None:
        self.directory = directory
        self.port = port
        self.net = net
        self.spec = spec.at(net)
        self.healthy = {m.name: replace(m, boot_id=str(uuid.uuid4())) for m in self.spec.machines}
        self.faults: dict[str, tuple[str, ...]] = dict.fromkeys(self.healthy, ())
        self._off: set[str] = set()
        self._servers: dict[str, HostServer] = {}
        self._trees: dict[str, Tree] = {}
        for name, texts in spec.faults.items():
            for text in texts:
                self._add(name, text)

    @property
    def inventory(self) -> Path:
        return self.directory / "inventory.toml"

    @property
    def identity_file(self) -> Path:
        return self.directory / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        return self.directory / "known_hosts"

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(self.healthy)

    @property
    def _trees_root(self) -> Path:
        return self.directory / "hosts"

    def tree(self, name: str) -> Path:
        """The root of a host's files."""
        return self._trees_root / name

    def home(self, name: str) -> Path:
        return self.tree(name) / "home" / "ops"

    def address(self, name: str) -> str:
        return self.healthy[name].address

    def machine(self, name: str) -> Machine:
        """The host as it is now, with its faults."""
        m = faults.apply(self.healthy[name], self.faults[name])
        return replace(m, powered=name not in self._off)

    def set(self, name: str, fault: str) -> None:
        """Add a fault to those that the host has."""
        self._add(name, fault)
        self._refresh()

    def clear(self, name: str, fault: str | None = None) -> None:
        """Take away one fault, or all of them."""
        self._known(name)
        self.faults[name] = tuple(f for f in self.faults[name] if fault and not _is(f, fault))
        self._refresh()

    def kill(self, name: str) -> None:
        """Power loss: every process of the host ends at once, its network is gone, and so is /run."""
        self._known(name)
        self._off.add(name)
        self._refresh()
        processes.kill_all(self.tree(name))
        for place in _STICKY:
            shutil.rmtree(self.tree(name) / place, ignore_errors=True)

    def boot(self, name: str) -> None:
        """Switch a host on (or off and on): another boot id, nothing running."""
        self.kill(name)
        self._off.discard(name)
        self.healthy[name] = replace(self.healthy[name], boot_id=str(uuid.uuid4()))
        self._places(name)
        self._refresh()

    def running(self, name: str) -> list[int]:
        """Processes that were started on this host and live."""
        return processes.of_host(self.tree(name))

    def _known(self, name: str) -> None:
        faults.known(name, self.healthy)

    def _add(self, name: str, fault: str) -> None:
        faults.check(fault, self.healthy, name)
        self.faults[name] = (*(f for f in self.faults[name] if f != fault), fault)

    def _refresh(self) -> None:
        """Render what changed. IMEX speaks of its peers, so that one host's fault shows on all."""
        machines = {name: self.machine(name) for name in self.healthy}
        fleet = {m.address: m for m in machines.values()}
        for name, machine in machines.items():
            self._trees[name].write(host.entries(machine, fleet, datetime.now().astimezone()))
            if name in self._servers:
                self._servers[name].become(machine)

    def _places(self, name: str) -> None:
        for place in _STICKY:
            (self.tree(name) / place).mkdir(parents=True, exist_ok=True)
            (self.tree(name) / place).chmod(0o1777)
        self.home(name).mkdir(mode=0o700, parents=True, exist_ok=True)
        python = self.tree(name) / "usr/bin/python3"
        if not shutil.which("python3", path="/usr/bin:/bin") and not python.is_symlink():  # then lend them ours
            python.parent.mkdir(parents=True, exist_ok=True)
            python.symlink_to(sys.executable)

    def _prepare(self) -> None:
        processes.kill_all(self._trees_root)  # left behind by a rack that was killed in this directory
        shutil.rmtree(self._trees_root, ignore_errors=True)
        for name in self.healthy:
            self._trees[name] = Tree(self.tree(name))
            self._places(name)
        self._refresh()

    def start(self) -> None:
        """Write everything and listen. Call it inside a running event loop."""
        from llmgwctl.rack import sshd

        self._prepare()
        hosts = {name: sshd.generate_key() for name in self.healthy}
        keys = sshd.Keys(sshd.client_key(self.directory).convert_to_public(), hosts, sshd.generate_key())
        self.known_hosts.write_text(
            "".join(
                f"[{self.address(n)}]:{self.port} {k.export_public_key().decode().strip()}\n" for n, k in hosts.items()
            )
        )
        self.inventory.write_text(inventory_text.inventory(self.spec, self.directory, self.port))
        for name in self.healthy:
            server = sshd.HostServer(self.machine(name), self.port, self.tree(name), keys)
            self._servers[name] = server
            server.open()

    def stop(self) -> None:
        """Close the servers and end every process that was started on the hosts. The files stay."""
        for server in self._servers.values():
            server.close()
        processes.kill_all(self._trees_root)


def _is(fault: str, named: str) -> bool:
    """Whether NAME or NAME:ARGUMENT means this fault."""
    return fault == named or fault.partition(":")[0] == named


@asynccontextmanager
async def serve(
    spec: RackSpec, directory: Path | str, *, port: int = PORT, net: str | None = None
) -> AsyncIterator[Rack]:
    """Run the rack in `directory` (its keys, inventory and trees). `net`: the first half of all addresses; chosen
    where None, so that several racks can run side by side."""
    with claimed_net(net, port) as first_half:
        rack = Rack(spec, prepared(directory), port, first_half)
        try:
            rack.start()
            yield rack
        finally:
            rack.stop()


def prepared(directory: Path | str) -> Path:
    """The directory, ours alone: whoever reads the key in it may log in."""
    path = Path(directory).resolve()
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_uid != os.getuid():
        raise UsageError(f"{path} belongs to somebody else")
    return path


@contextmanager
def claimed_net(wanted: str | None, port: int) -> Iterator[str]:
    """A half of an address (127.N) that no other rack on this machine has; a UDP socket on it is the claim."""
    usual = ("127.77", *(f"127.{n}" for n in random.sample(range(2, 255), 60)))
    for net in (wanted,) if wanted else usual:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as claim:
            try:
                claim.bind((f"{net}.0.1", port))
            except OSError:
                continue
            yield net
            return
    raise UsageError(f"another simulated rack has port {port} on {wanted or 'every loopback network that was tried'}")
