"""Real OpenSSH hosts on one machine: each a set of namespaces with its own address, files in their real places.

The same rendered trees as in the simulated rack, but with an empty root prefix: /usr/bin/nvidia-smi, /sys/class,
/dev/nvidia-caps-imex-channels (real device nodes), /etc/nvidia-imex, /proc/devices, boot id, host name, /run and homes.
Needs root, openssh-server, iproute2 and util-linux. What the kernel lacks (/proc/driver on some) is left out.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import asyncssh
import tomli_w

from llmgwctl.rack import RackSpec, faults, host, inventory_text
from llmgwctl.rack.machine import CHANNEL_MAJOR, Machine
from llmgwctl.rack.tree import Tree

BASE = Path("/var/lib/llmgw-e2e")  # not below /tmp or /run, which each host has for itself
NET = "10.78"
Change = Callable[[Machine], Machine]
NEEDED = ("ip", "unshare", "nsenter", "setpriv", "/usr/sbin/sshd", "mount")
OPS = 2000  # user and group id of the account without rights
INIT = Path(__file__).with_name("host-init.sh")
PROGRAMS = ("nvidia-smi", "nvidia-imex-ctl", "systemctl", "journalctl", "dmesg")  # `ip` is the real one
UP_LIMIT_S = 20


def missing() -> list[str]:
    """What this machine lacks; empty when hosts can be made."""
    lacks = [tool for tool in NEEDED if shutil.which(tool) is None]
    return lacks if os.geteuid() == 0 else ["root", *lacks]


def command(*argv: str, stdin: str = "") -> str:
    """Run a tool of the machine; its complaint is in the error."""
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr.strip()}"
    return done.stdout


def batch(namespace: str | None, lines: list[str]) -> None:
    """Many `ip` commands in one process, in a network namespace or in the machine's own."""
    where = ("-n", namespace) if namespace else ()
    command("ip", *where, "-batch", "-", stdin="\n".join(lines) + "\n")


@dataclass(frozen=True, slots=True)
class Done:
    """What a command that was run as the controller, or on a host, said."""

    code: int
    out: str
    err: str


class Bed:
    """A fleet of such hosts and a controller on the same switch. `spec` names hosts as in the simulated rack."""

    def __init__(self, spec: RackSpec, user: str = "ops", shared: Sequence[Path] = ()) -> None:
        """`shared`: folders of this machine that every host sees at the same paths, for reading."""
        self.spec = spec.at(NET)
        self.user = user
        self.shared = shared
        self.label = f"lg{os.getpid()}-{uuid.uuid4().hex[:4]}"
        self.directory = BASE / self.label
        self.healthy = {m.name: replace(m, boot_id=str(uuid.uuid4())) for m in self.spec.machines}
        self.faults: dict[str, tuple[str, ...]] = {n: tuple(self.spec.faults.get(n, ())) for n in self.healthy}
        self._off: set[str] = set()
        self._cut: set[str] = set()
        self._scripted: set[str] = set()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._trees: dict[str, Tree] = {}
        self._ports = {name: f"p{i}" for i, name in enumerate(self.healthy)}

    # --- what a test asks ---------------------------------------------------------------------------------------

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

    def address(self, name: str) -> str:
        return self.healthy[name].address

    def home(self, name: str, user: str = "ops") -> Path:
        """The home of an account on a host, as this process sees it."""
        where = self.directory / name
        return where / "root" if user == "root" else where / "home" / user

    def run(self, *argv: str, timeout_s: float = 120, env: dict[str, str] | None = None) -> Done:
        """Run something as the controller, which reaches the hosts and nothing else."""
        return self._run(("ip", "netns", "exec", self._namespace("ctl"), *argv), timeout_s, env)

    def popen(self, *argv: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        """Start something as the controller, for tests that watch it or end it."""
        where = ("ip", "netns", "exec", self._namespace("ctl"), *argv)
        pipe = subprocess.PIPE
        return subprocess.Popen(where, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, env=env)

    def inside(self, name: str, *argv: str, timeout_s: float = 60) -> Done:
        """Run something on a host as root, without SSH."""
        return self._run(("nsenter", "-t", str(self.init_pid(name)), "-a", *argv), timeout_s, None)

    def init_pid(self, name: str) -> int:
        """The pid, as this machine sees it, of a host's first process."""
        parent = self._processes[name].pid
        return int(Path(f"/proc/{parent}/task/{parent}/children").read_text().split()[0])

    def log(self, name: str) -> str:
        """What the host's sshd said."""
        return (self.directory / name / "log").read_text(errors="replace")

    # --- what a test does ---------------------------------------------------------------------------------------

    def set(self, name: str, fault: str) -> None:
        """Add a fault of the hardware or of its programs; for the network there are cut and kill."""
        found = faults.check(fault, self.healthy, name)
        if faults.apply(self.healthy[name], [fault]).ssh != "ok":
            raise ValueError(f"{found.name}: here the SSH server is a real one; use cut() or kill()")
        self.faults[name] = (*(f for f in self.faults[name] if f != fault), fault)
        self._refresh()

    def clear(self, name: str) -> None:
        self.faults[name] = ()
        self._refresh()

    def script(self, name: str, *stages: Change) -> None:
        """The K-th whole report of nvidia-smi, and all that it says until the next, is of the host changed by the K-th
        stage; the last one stays. So a change has its moment, however slow the machine is."""
        places = self.directory / name / "stages"
        shutil.rmtree(places, ignore_errors=True)
        for number, stage in enumerate(stages, 1):
            m = stage(self._machine(name))
            Tree(places / str(number)).write(host.entries(m, {m.address: m}, datetime.now().astimezone()))
        (places / "reports").touch(mode=0o666)
        (places / "reports").chmod(0o666)
        smi = self.directory / name / "tree/usr/bin/nvidia-smi"
        smi.unlink()
        smi.write_text(SCRIPTED.format(places=places, last=len(stages)))
        smi.chmod(0o755)
        self._scripted.add(name)

    def reports(self, name: str) -> int:
        """How many whole reports a scripted nvidia-smi has given."""
        return len((self.directory / name / "stages/reports").read_text().splitlines())

    def cut(self, name: str) -> None:
        """Pull the cable: nothing arrives any more, and what runs goes on running."""
        self._cut.add(name)
        self._link(name)
        self._refresh()

    def heal(self, name: str) -> None:
        self._cut.discard(name)
        self._link(name)
        self._refresh()

    def kill(self, name: str) -> None:
        """Power loss: every process ends at once and the address answers nobody."""
        self._off.add(name)
        self._link(name)
        self._end(name)
        self._refresh()

    def boot(self, name: str) -> None:
        """Switch a host on (or off and on): another boot id, /run and /tmp empty, nothing of ours running."""
        self.kill(name)
        self._off.discard(name)
        self.healthy[name] = replace(self.healthy[name], boot_id=str(uuid.uuid4()))
        self._refresh()
        self._link(name)
        self._start(name)
        self._wait_up([name])

    def restore(self) -> None:
        """Everything as it was at first: no fault but those of the spec, all cables in, all hosts on."""
        for name in self.healthy:
            self.faults[name] = tuple(self.spec.faults.get(name, ()))
            if name in self._scripted:
                self._trees[name] = Tree(self.directory / name / "tree")  # knows nothing of what lies there: all is new
                self._scripted.discard(name)
            if name in self._cut:
                self.heal(name)
            if name in self._off or self._processes[name].poll() is not None:
                self.boot(name)
        self._refresh()

    # --- how it is made and unmade ------------------------------------------------------------------------------

    def __enter__(self) -> Bed:
        sweep()
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End every host and remove its namespaces and files."""
        for name in self._processes:
            self._end(name)
        remove(self.label)

    def _make(self) -> None:
        self.directory.mkdir(mode=0o755, parents=True)
        client = asyncssh.generate_private_key("ssh-ed25519")
        write_private(self.identity_file, client.export_private_key())
        public = client.export_public_key().decode()
        known = [self._files(m, public) for m in self.healthy.values()]
        self.known_hosts.write_text("".join(known))
        self._refresh()
        self._network()
        for name in self.healthy:
            self._start(name)
        self._wait_up(list(self.healthy))
        document = {
            "ssh": inventory_text.ssh_table(self.directory, self.user),
            "hosts": inventory_text.blocks(self.spec, {}),
            "profiles": inventory_text.profiles(self.spec),
        }
        self.inventory.write_text(tomli_w.dumps(document))

    def _files(self, m: Machine, public: str) -> str:
        """The lower layers and homes of one host; its line of known_hosts."""
        d = self.directory / m.name
        for sub in (
            "usr/bin",
            "usr/share",
            "etc/llmgw-e2e",
            "dev",
            "home/ops/.ssh",
            "root/.ssh",
            "run",
            "tmp",
            "vartmp",
        ):
            (d / sub).mkdir(parents=True)
        if m.imex:
            (d / "etc/nvidia-imex").mkdir()
            (d / "channels").mkdir()
        self._trees[m.name] = Tree(d / "tree")
        for program in PROGRAMS:  # through a link, so that a program can vanish and come back while the host runs
            (d / "usr/bin" / program).symlink_to(d / "tree/usr/bin" / program)
        (d / "usr/share/llmgw-rack").symlink_to(d / "tree" / host.TEXTS)
        self._accounts(d, public)
        key = asyncssh.generate_private_key("ssh-ed25519")
        write_private(d / "etc/llmgw-e2e/hostkey", key.export_private_key())
        (d / "etc/llmgw-e2e/sshd_config").write_text(SSHD_CONFIG)
        (d / "etc/hosts").write_text(
            "127.0.0.1 localhost\n" + "".join(f"{p.address} {p.name}\n" for p in self.spec.machines)
        )
        (d / "log").touch()
        return f"{m.address} {key.export_public_key().decode().strip()}\n"

    def _accounts(self, d: Path, public: str) -> None:
        for name, line in (("passwd", f"ops:x:{OPS}:{OPS}::/home/ops:/bin/bash\n"), ("group", f"ops:x:{OPS}:\n")):
            (d / "etc" / name).write_text(Path("/etc", name).read_text() + line)
        (d / "etc/shadow").write_text(Path("/etc/shadow").read_text() + "ops:*:19000:0:99999:7:::\n")
        (d / "etc/shadow").chmod(0o600)
        for home, owner in ((d / "root", 0), (d / "home/ops", OPS)):
            (home / ".ssh/authorized_keys").write_text(public)
            home.chmod(0o700)
            for path in (home, *home.rglob("*")):
                os.chown(path, owner, owner)

    def _network(self) -> None:
        """A switch, the controller and the hosts on it; other interfaces of a host end in the switch's namespace."""
        switch, controller = self._namespace("sw"), self._namespace("ctl")
        names = {name: self._namespace(name) for name in self.healthy}
        batch(None, [f"netns add {n}" for n in (switch, controller, *names.values())])
        lines = [
            "link add br0 type bridge",
            "link set br0 up",
            f"link add ctl type veth peer name eth0 netns {controller}",
        ]
        lines += ["link set ctl master br0 up"]
        for name, m in self.healthy.items():
            for k, i in enumerate(m.interfaces):
                port = self._ports[name] + (f"x{k}" if k else "")
                lines.append(f"link add {port} type veth peer name {i.name} netns {names[name]}")
                lines.append(f"link set {port} {'' if k else 'master br0 '}mtu {i.mtu} up")
        batch(switch, lines)
        batch(controller, ["link set lo up", f"addr add {NET}.0.1/16 dev eth0", "link set eth0 up"])
        for name, m in self.healthy.items():
            own = [f"addr add {i.address} dev {i.name}" for i in m.interfaces]
            batch(names[name], ["link set lo up", *own, *(f"link set {i.name} mtu {i.mtu} up" for i in m.interfaces)])

    def _namespace(self, name: str) -> str:
        return f"{self.label}-{name}"

    def _link(self, name: str) -> None:
        down = name in self._cut or name in self._off
        batch(self._namespace("sw"), [f"link set {self._ports[name]} {'down' if down else 'up'}"])

    def _machine(self, name: str) -> Machine:
        m = faults.apply(self.healthy[name], self.faults[name])
        return replace(m, powered=name not in self._off and name not in self._cut)

    def _refresh(self) -> None:
        machines = {name: self._machine(name) for name in self.healthy}
        fleet = {m.address: m for m in machines.values()}
        for name, m in machines.items():
            self._trees[name].write(host.entries(m, fleet, datetime.now().astimezone()))
            self._channels(m)

    def _channels(self, m: Machine) -> None:
        """Real device nodes, in a directory that the host has mounted."""
        directory = self.directory / m.name / "channels"
        if m.imex is None:
            return
        wanted = {f"channel{n}": n for n in m.imex.channels}
        for path in directory.iterdir():
            if path.name not in wanted:
                path.unlink()
        for name, number in wanted.items():
            if not (directory / name).exists():
                os.mknod(directory / name, stat.S_IFCHR, os.makedev(CHANNEL_MAJOR, number))
                (directory / name).chmod(0o666)

    def _start(self, name: str) -> None:
        d = self.directory / name
        for fresh, mode in (("run", 0o755), ("tmp", 0o1777), ("vartmp", 0o1777)):
            shutil.rmtree(d / fresh, ignore_errors=True)
            (d / fresh).mkdir()
            (d / fresh).chmod(mode)
        (d / "run/sshd").mkdir()
        (d / "run/lock").mkdir()
        (d / "run/lock").chmod(0o1777)
        (d / "boot_id").write_text(self.healthy[name].boot_id + "\n")
        (d / "log").write_text("")
        with_it = ("setpriv", "--pdeathsig", "KILL")  # the host dies with this process, however that ends
        own = ("-m", "-u", "-p", "--fork", "--kill-child", "--mount-proc", "--propagation", "private")
        where = ("ip", "netns", "exec", self._namespace(name), "unshare", *own)
        argv = (*with_it, *where, "sh", str(INIT), str(d), name, *map(str, self.shared))
        with (d / "log").open("ab") as log:
            self._processes[name] = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _wait_up(self, names: list[str]) -> None:
        deadline = time.monotonic() + UP_LIMIT_S
        for name in names:
            while "Server listening on" not in self.log(name):
                late = self._processes[name].poll() is not None or time.monotonic() > deadline
                assert not late, f"{name} did not come up:\n{self.log(name)}"
                time.sleep(0.01)

    def _end(self, name: str) -> None:
        process = self._processes[name]
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def _run(self, argv: tuple[str, ...], timeout_s: float, env: dict[str, str] | None) -> Done:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=timeout_s, env=env
        )
        return Done(done.returncode, done.stdout, done.stderr)


SCRIPTED = """#!/bin/sh
case $1 in -q) echo >>{places}/reports ;; esac
number=$(wc -l <{places}/reports)
[ "$number" -le {last} ] || number={last}
[ "$number" -ge 1 ] || number=1
exec "{places}/$number/usr/bin/nvidia-smi" "$@"
"""
SSHD_CONFIG = """Port 22
ListenAddress 0.0.0.0
HostKey /etc/llmgw-e2e/hostkey
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
PidFile none
MaxStartups 500
UseDNS no
"""


def write_private(path: Path, data: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(data)


def remove(label: str) -> None:
    """The namespaces and files of one bed."""
    for name in namespaces():
        if name.startswith(f"{label}-"):
            command("ip", "netns", "delete", name)
    shutil.rmtree(BASE / label, ignore_errors=True)


def namespaces() -> list[str]:
    return [line.split()[0] for line in command("ip", "netns", "list").splitlines() if line.strip()]


def sweep() -> None:
    """Remove what a test run left behind that was killed; its hosts died with it."""
    labels = {"-".join(n.split("-")[:2]) for n in namespaces() if n.startswith("lg")}
    labels |= {p.name for p in BASE.iterdir()} if BASE.is_dir() else set()
    for label in labels:
        pid = label.removeprefix("lg").partition("-")[0]
        if pid.isdigit() and not Path("/proc", pid).exists():
            remove(label)
