"""~/.ssh/config: as ssh itself would read it, and the inventory above it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from llmgwctl.model.errors import InventoryError
from llmgwctl.model.host import Host
from llmgwctl.transport.settings import SshSettings
from llmgwctl.transport.ssh_config import SshConfig, local_user
from llmgwctl.transport.target import Resolver, Target


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.setenv("SSH_AUTH_SOCK", "/agent/socket")
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / ".ssh" / "config"
    file.parent.mkdir()

    def write(text: str) -> Path:
        file.write_text(text)
        return file

    return write


def target(file: Path, host: Host, **settings) -> Target:
    return Resolver(SshSettings(config_file=str(file), **settings)).target(host)


FILES = {
    "first word counts": "Host r1-t01\n  User one\nHost r1-*\n  User two\n  Port 2200\nHost *\n User three\n Port 1\n",
    "negation": "Host * !r1-t01\n  User other\nHost r1-t0?\n  Port 2201\n",
    "equals and quotes": 'Host "r1-t01"\n  User="a b"\n  Port = 2202\n  IdentityFile "/keys/with space" # comment\n',
    "keys pile up": "IdentityFile /keys/a\nHost r1-t01\n  IdentityFile /k/%h-%r-%n\nHost *\n  IdentityFile /k/c\n",
    "hostname": "Host r1-t01\n  HostName %h.example.net\nHost *\n  User u\n",
    "match": "Match host r1-t01\n  User m\nMatch originalhost r1-* user m\n  Port 2203\nMatch all\n  Port 2204\n",
    "match not": "Match !host r1-t01\n  User m\nMatch host r2-*,!r2-t01\n  User n\nMatch user nobody\n Port 3\n",
    "match after hostname": "Host r1-t01\n  HostName tray1.example\nMatch host tray1.example\n  Port 2205\n",
    "jump first": "Host r1-t01\n  ProxyJump j1\n  ProxyCommand nc %h %p\n",
    "command first": "Host r1-t01\n  ProxyCommand nc -x 'a b' %h %p\n  ProxyJump j1\n",
    "case": "HOST r1-t01\n  uSeR x\n\n\n   # comment\n\tPort\t2206\n",
    "unknown keys": "Host *\n  ControlMaster auto\n  ServerAliveInterval 1m\n  ConnectTimeout 1m\n  User y\n",
    "alias and files": "Host *\n  HostKeyAlias fleet\n  UserKnownHostsFile /kh/a /kh/b\n  GlobalKnownHostsFile /kh/c\n",
}


@pytest.mark.parametrize("name", FILES)
def test_it_is_read_as_ssh_reads_it(config, name):
    """Every option that we use, against what `ssh -G` prints for the same file and host."""
    file = config(FILES[name])
    found = SshConfig(file).options(("r1-t01",))
    said = subprocess.run(
        ["ssh", "-G", "-F", str(file), "r1-t01"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    theirs: dict[str, list[str]] = {}
    for line in said:
        key, _, value = line.partition(" ")
        theirs.setdefault(key, []).append(value)
    ours = target(file, Host("r1-t01"))
    assert [ours.user] == theirs["user"]
    assert [str(ours.port)] == theirs["port"]
    assert [ours.address] == theirs["hostname"]
    assert found.get("proxyjump", []) == theirs.get("proxyjump", [])
    assert found.get("proxycommand", []) == theirs.get("proxycommand", [])
    if "identityfile" in found:
        assert list(ours.identities.files) == [f.replace("%h", ours.address) for f in _expanded(theirs["identityfile"])]
    if "hostkeyalias" in found:
        assert [ours.names.exact[0]] == theirs["hostkeyalias"]
        assert list(ours.known_hosts) == " ".join(theirs["userknownhostsfile"] + theirs["globalknownhostsfile"]).split()


def _expanded(files: list[str]) -> list[str]:
    return [f.replace("%r", local_user()).replace("%n", "r1-t01") for f in files]


def test_included_files(config, tmp_path):
    """In order of their names; one inside a Host block counts for that host alone."""
    (tmp_path / "10-a.conf").write_text("Host r1-t01\n  User a\n")
    (tmp_path / "20-b.conf").write_text("Host r1-t01\n  User b\n  Port 2222\n")
    (tmp_path / "only").write_text("Port 2223\n")
    file = config(f"Include {tmp_path}/*.conf\nHost r2-*\n  Include {tmp_path}/only\n  User c\n")
    assert (target(file, Host("r1-t01")).user, target(file, Host("r1-t01")).port) == ("a", 2222)
    assert (target(file, Host("r2-t01")).user, target(file, Host("r2-t01")).port) == ("c", 2223)
    assert target(file, Host("r3-t01")).port == 22


def test_a_file_that_includes_itself(config, tmp_path):
    file = config(f"Include {tmp_path}/.ssh/config\nUser x\n")
    assert target(file, Host("h")).user == "x"


def test_what_we_cannot_judge_is_asked_of_ssh(config):
    """`Match exec` and the like: the whole file goes to `ssh -G`, and nothing is guessed."""
    file = config('Match exec "test %h = r1-t01"\n  User fromexec\nHost *\n  Port 2210\n')
    parsed = SshConfig(file)
    assert parsed.needs_referee == "Match exec"
    assert (target(file, Host("r1-t01")).user, target(file, Host("r1-t01")).port) == ("fromexec", 2210)
    assert target(file, Host("r1-t02")).user == local_user()


def test_a_file_that_ssh_refuses_is_an_error(config):
    file = config("Match exec true\n  Port nonsense\n")
    with pytest.raises(InventoryError, match="ssh -G"):
        target(file, Host("h"))


def test_the_inventory_is_above_the_file(config):
    """What a host says, then the [ssh] table, then ~/.ssh/config, then what ssh would do."""
    file = config("Host *\n  User c\n  Port 3\n  IdentityFile /c\n  HostName elsewhere\n  UserKnownHostsFile /kh/c\n")
    mine = target(
        file, Host("h", address="10.0.0.1", user="h", port=1, identity_file="/h"), user="s", identity_file="/s"
    )
    assert (mine.address, mine.user, mine.port, mine.identities.files) == ("10.0.0.1", "h", 1, ("/h",))
    table = target(file, Host("h"), user="s", identity_file="~/s", known_hosts=("~/kh",))
    home = os.path.expanduser("~")
    assert (table.address, table.user, table.port) == ("elsewhere", "s", 3)
    assert (table.identities.files, table.known_hosts) == ((f"{home}/s",), (f"{home}/kh",))
    assert table.identities.only_these
    assert target(file, Host("h")).identities.files == ("/c",)


def test_without_any_file():
    """The defaults of ssh: its keys, its agent, its known_hosts."""
    plain = Resolver(SshSettings(config_file="")).target(Host("h", address="10.0.0.1"))
    assert (plain.address, plain.port, plain.user) == ("10.0.0.1", 22, local_user())
    assert plain.known_hosts[0].endswith("/.ssh/known_hosts")
    assert plain.names.exact == ("10.0.0.1", "h")
    assert not plain.identities.only_these


def test_a_block_for_the_address_counts_too(config):
    """An operator may have written down the name or the address."""
    file = config("Host 10.0.0.*\n  User byaddress\n")
    assert target(file, Host("tray", address="10.0.0.1")).user == "byaddress"


@pytest.mark.parametrize(
    ("line", "agent"),
    [
        ("", "/agent/socket"),
        ("IdentityAgent none", ""),
        ("IdentityAgent SSH_AUTH_SOCK", "/agent/socket"),
        ("IdentityAgent $SSH_AUTH_SOCK", "/agent/socket"),
        ("IdentityAgent /other/%u", f"/other/{local_user()}"),
    ],
)
def test_the_agent(config, line, agent):
    assert target(config(f"{line}\n"), Host("h")).identities.agent == agent


def test_jump_hosts(config):
    """Each hop by its own lines in the file; the first by its own ProxyJump too; the same hop is the same target."""
    file = config(
        "Host gate\n  HostName gate.example\n  Port 2022\n  User g\n  ProxyJump outer\n"
        "Host r1-*\n  ProxyJump gate,x@inner:23\n"
    )
    one, two = target(file, Host("r1-t01")), target(file, Host("r1-t02"))
    inner = one.jump
    assert inner is not None
    assert inner == two.jump
    assert (inner.address, inner.port, inner.user) == ("inner", 23, "x")
    gate = inner.jump
    assert gate is not None
    assert (gate.address, gate.port, gate.user) == ("gate.example", 2022, "g")
    assert gate.jump is not None
    assert (gate.jump.address, gate.jump.jump) == ("outer", None)


def test_a_jump_host_does_not_jump_to_itself(config):
    """`Host *` with a ProxyJump is also read for the jump host."""
    file = config("Host *\n  ProxyJump gate\n")
    jump = target(file, Host("h")).jump
    assert jump is not None
    assert jump.jump is None
    assert target(file, Host("gate")).jump is None


def test_the_inventory_may_say_directly(config):
    file = config("Host *\n  ProxyJump gate\n  ProxyCommand nc\n")
    assert target(file, Host("h", proxy_jump="none")).jump is None
    asked = target(file, Host("h", proxy_jump="a@[2001:db8::1]:24")).jump
    assert asked is not None
    assert (asked.address, asked.port, asked.user) == ("2001:db8::1", 24, "a")


@pytest.mark.parametrize("hop", ["a b", "host:port", "", "@", "x@y@z:1:2"])
def test_a_hop_that_is_none(config, hop):
    with pytest.raises(InventoryError, match="ProxyJump"):
        target(config(""), Host("h", proxy_jump=f"ok,{hop}"))


def test_jumps_in_a_circle(config):
    with pytest.raises(InventoryError, match="eight hops"):
        target(config("Host a\n  ProxyJump b\nHost b\n  ProxyJump a\n"), Host("h", proxy_jump="a"))


def test_a_port_that_is_none(config):
    with pytest.raises(InventoryError, match="Port"):
        target(config("Port 99999\n"), Host("h"))


def test_ten_thousand_blocks_are_found_by_name(config):
    """A block for one name is not looked at for the others."""
    parsed = SshConfig(config("".join(f"Host h{i}\n  Port {i + 1}\n" for i in range(10_000)) + "Host *\n  User u\n"))
    assert parsed.options(("h4711",)) == {"port": ["4712"], "user": ["u"]}
    assert len(parsed._others) == 2


# --- what an inventory may not do on this machine ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "Host *\n  ProxyCommand touch {mark}\n",
        "Host *\n  ProxyCommand=sh -c 'touch {mark}'\n",
        'Match exec "touch {mark}"\n  User x\n',
        'Match all exec "touch {mark}"\n  User x\n',
        'Match canonical exec "touch {mark}"\n  User x\n',
        'CanonicalizeHostname yes\nMatch host h exec "touch {mark}"\n',
        "Include {beside}/more\n",
    ],
)
def test_a_file_that_the_inventory_names_runs_no_command(tmp_path, text):
    """ProxyCommand and Match exec are the operator's own to write, included files too; `ssh -G` is never asked."""
    mark = tmp_path / "ran"
    (tmp_path / "more").write_text(f"Host *\n  ProxyCommand touch {mark}\n")
    file = tmp_path / "ssh.cfg"
    file.write_text(text.format(mark=mark, beside=tmp_path))
    with pytest.raises(InventoryError, match="named by the inventory"):
        target(file, Host("h"))
    assert not mark.exists()


def test_a_file_that_the_inventory_names_may_say_how_hosts_are_reached(tmp_path):
    file = tmp_path / "ssh.cfg"
    file.write_text("Host h\n  Port 2222\n  ProxyJump gate\n  ProxyCommand none\n")
    mine = target(file, Host("h"))
    assert (mine.port, mine.jump.address if mine.jump else "") == (2222, "gate")


@pytest.mark.parametrize(
    "host",
    [
        Host("h", user="$(touch x)"),
        Host("h", user="a;b"),
        Host("h", user="-Fx"),
        Host("h", address="`id`"),
        Host("h", proxy_jump="$(id)@gate"),
        Host("h", proxy_jump="-Fevil@gate"),
        Host("$(id)"),
    ],
)
def test_a_proxy_command_gets_words_alone(config, host):
    """%h, %n and %r of an inventory go into a line that /bin/sh reads (CVE-2023-51385)."""
    file = config("Host *\n  ProxyCommand nc -x %r@%n %h %p\n")
    with pytest.raises(InventoryError, match="a shell would read more in it"):
        target(file, host)


def test_a_proxy_command_of_the_operator(config):
    file = config("Host *\n  ProxyCommand nc -x '%r' [%h]:%p\n")
    assert target(file, Host("h", address="2001:db8::1", user="a.b")).proxy_command == "nc -x 'a.b' [2001:db8::1]:22"


def test_a_host_key_alias_is_a_name(config):
    """It is written to a file under this name."""
    with pytest.raises(InventoryError, match="HostKeyAlias"):
        target(config("Host *\n  HostKeyAlias $(id)\n"), Host("h"))
