"""The hosts that the bench runs against: light ones by the thousand, real OpenSSH ones, and an OpenSSH jump host."""

from __future__ import annotations

import json
import os
import pwd
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench import lightfleet
from bench.lightfleet import LightHost, Template

SOURCES = Path(__file__).parent / "lighthosts"
GO_PATH = Path("/usr/share/gocode")  # where Debian's golang-golang-x-crypto-dev puts the library
JUMP_ADDRESS, JUMP_PORT = "127.1.0.1", 2923
_UP_LIMIT_S = 60


def cache() -> Path:
    """Where what is built and installed stays from one run to the next, outside the project."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "llmgwctl-bench"


def can_build() -> bool:
    return shutil.which("go") is not None and (GO_PATH / "src/golang.org/x/crypto/ssh").is_dir()


def build(directory: Path | None = None) -> Path:
    """The server of the light hosts, compiled when its sources are newer than it."""
    program = (directory or cache()) / "lighthosts"
    newest = max(p.stat().st_mtime for p in SOURCES.glob("*.go"))
    if not program.exists() or program.stat().st_mtime < newest:
        program.parent.mkdir(parents=True, exist_ok=True)
        own = {"GO111MODULE": "off", "GOPATH": str(GO_PATH), "GOFLAGS": "-trimpath"}
        subprocess.run(["go", "build", "-o", str(program), "."], cwd=SOURCES, env=os.environ | own, check=True)
    return program


@dataclass(slots=True)
class LightHosts:
    """A running fleet. Its files (inventory, known_hosts, key, ssh_config) lie in `directory`."""

    hosts: Sequence[LightHost]
    directory: Path
    made: list[Template]
    process: subprocess.Popen[str]
    port: int = lightfleet.PORT

    def counts(self) -> dict[str, int]:
        """What the server has seen, and what is open now."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        found: dict[str, int] = json.loads(self.process.stdout.readline())
        return found

    def settled(self, within_s: float = 20) -> dict[str, int]:
        """The counts once the last client's connections and commands are gone, or after that time."""
        deadline = time.monotonic() + within_s
        while True:
            seen = self.counts()
            if not seen["connections"] + seen["sessions"] or time.monotonic() > deadline:
                return seen
            time.sleep(0.05)

    def cpu_s(self) -> float:
        """What the server has used so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def light_hosts(
    program: Path,
    directory: Path,
    hosts: Sequence[LightHost],
    made: list[Template],
    *,
    delay_s: float = 0.0,
    ssh: dict[str, object] | None = None,
    port: int = lightfleet.PORT,
) -> Iterator[LightHosts]:
    """Serve them. They end with this process, however that ends: their input ends with it."""
    raise_file_limit()
    directory.mkdir(parents=True, exist_ok=True)
    public = client_key(directory)
    (directory / "known_hosts").write_text(lightfleet.known_hosts(hosts, port=port))
    (directory / "inventory.toml").write_text(lightfleet.inventory(hosts, directory, ssh or {}, port=port))
    (directory / "ssh_config").write_text(ssh_config(directory, port, lightfleet.USER))
    (directory / "hosts").write_text("".join(f"{h.address}\n" for h in hosts))
    described = directory / "fleet.json"
    described.write_text(lightfleet.description(hosts, made, public, delay_s, port))
    pipe = subprocess.PIPE
    with subprocess.Popen([str(program), str(described)], stdin=pipe, stdout=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("the light hosts did not start (is another bench running?)")
            yield LightHosts(hosts, directory, made, process, port)
        finally:
            process.kill()


def client_key(directory: Path) -> str:
    """The public half of the one client's key, made when it is not there."""
    private = directory / "id_ed25519"
    if not private.exists():
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "bench", "-f", str(private)], check=True)
    return private.with_suffix(".pub").read_text().strip()


def ssh_config(directory: Path, port: int, user: str) -> str:
    """For the tools that start `ssh`: the same keys, the same checking of host keys, nothing of the operator's."""
    return f"""Host *
    User {user}
    Port {port}
    IdentityFile {directory}/id_ed25519
    IdentitiesOnly yes
    UserKnownHostsFile {directory}/known_hosts
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    BatchMode yes
    ConnectTimeout 15
    KexAlgorithms curve25519-sha256
    Ciphers aes128-gcm@openssh.com
"""


def raise_file_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


# --- an OpenSSH jump host -------------------------------------------------------------------------------------------


@contextmanager
def jump_host(directory: Path, public_key: str) -> Iterator[str]:
    """sshd with its own limits of connections (MaxStartups 10:30:100): how a ProxyJump names it. Needs root."""
    place = directory / "jump"
    place.mkdir(parents=True, exist_ok=True)
    key = place / "host_key"
    if not key.exists():
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    (place / "authorized_keys").write_text(public_key + "\n")
    (place / "sshd_config").write_text(_JUMP_CONFIG.format(place=place, address=JUMP_ADDRESS, port=JUMP_PORT))
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    argv = [shutil.which("sshd") or "/usr/sbin/sshd", "-D", "-e", "-f", str(place / "sshd_config")]
    with (place / "log").open("wb") as log, subprocess.Popen(argv, stderr=log, start_new_session=True) as process:
        try:
            _wait_for(place / "log", process)
            yield f"{pwd.getpwuid(os.getuid()).pw_name}@{JUMP_ADDRESS}:{JUMP_PORT}"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)


def jump_known_hosts(directory: Path) -> str:
    name = lightfleet.line_name(JUMP_ADDRESS, hashed=False, port=JUMP_PORT)
    return f"{name} {(directory / 'jump/host_key.pub').read_text().strip()}\n"


def _wait_for(log: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _UP_LIMIT_S
    while "Server listening" not in log.read_text():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the jump host did not start: {log.read_text()[-500:]}")
        time.sleep(0.02)


_JUMP_CONFIG = """Port {port}
ListenAddress {address}
HostKey {place}/host_key
AuthorizedKeysFile {place}/authorized_keys
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
PidFile none
UseDNS no
KexAlgorithms curve25519-sha256
Ciphers aes128-gcm@openssh.com
"""
