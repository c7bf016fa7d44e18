"""The inventory says exactly what is wrong with it, and where."""

from __future__ import annotations

import os
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from llmgwctl.inventory import Inventory, default_path, dumps, load, loads
from llmgwctl.inventory.locate import locate
from llmgwctl.inventory.ranges import BadRange, chosen, expand
from llmgwctl.inventory.schema import BuildTable, Document
from llmgwctl.model.errors import InventoryError, UsageError

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "inventory.example.toml"


@pytest.fixture(autouse=True)
def all_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules of numbers hold for each engine by its name, whichever of them this version has."""
    monkeypatch.setattr("llmgwctl.inventory.engines.known_engines", lambda: ("vllm", "sglang", "llamacpp", "sim"))


ONE = '[[hosts]]\nname = "r1-t[01-04]"\npool = "prod"\n'


def inventory(text: str) -> Inventory:
    return loads(text, Path("inv.toml"))


def refusal(text: str) -> str:
    with pytest.raises(InventoryError) as caught:
        inventory(text)
    assert caught.value.exit_code == 2
    return str(caught.value)


def profile(body: str, engine: str = "vllm") -> str:
    return f'{ONE}[profiles.big]\nengine = "{engine}"\n{body}'


# what is refused: name -> (text, line, key, words that must be there)
REFUSED: dict[str, tuple[str, int, str, tuple[str, ...]]] = {
    "no TOML": ("[[hosts]]\nname = r1\n", 2, "8", ("no TOML",)),
    "key given twice": (ONE + 'pool = "a"\n', 4, "", ("no TOML", "overwrite")),
    "unknown table": (ONE + "[profile.big]\n", 4, "profile", ("unknown key", "profiles")),
    "unknown key of ssh": (f'[ssh]\nusr = "ops"\n{ONE}', 2, "ssh.usr", ("nearest known key is user",)),
    "unknown key of a host": (ONE + "adress = 'x'\n", 4, "hosts[0].adress", ("nearest known key is address",)),
    "unknown key in an inline table": (
        ONE + "expect = { gpus = 4,\tgpuz = 1 }\n",
        4,
        "hosts[0].expect.gpuz",
        ("nearest known key is gpu",),
    ),
    "unknown key in a dotted key": (ONE + "expect.domian = true\n", 4, "hosts[0].expect.domian", ("is domain",)),
    "unknown key of a profile": (
        profile("gpu_per_node = 4\n"),
        6,
        "profiles.big.gpu_per_node",
        ("nearest known key is gpus_per_node",),
    ),
    "unknown key of a build": (
        ONE + '[engines.vllm.hosts."r1-t01"]\npth = "/x"\n',
        5,
        "engines.vllm.hosts.r1-t01.pth",
        ("nearest known key is path",),
    ),
    "key like no other": (ONE + "zzzz = 1\n", 4, "hosts[0].zzzz", ("each known key", "proxy_jump")),
    "wrong type": (ONE + 'port = "22"\n', 4, "hosts[0].port", ("valid integer", "the string '22'")),
    "a boolean for a number": (profile("tp = true\n"), 6, "profiles.big.tp", ("valid integer", "boolean true")),
    "a number for a boolean": (ONE + "sudo = 1\n", 4, "hosts[0].sudo", ("valid boolean",)),
    "a table for a list": ("[hosts]\nname = 'a'\n", 1, "hosts", ("valid list", "a table")),
    "an argument that is no string": (
        profile('args = [\n  "--x",\n  1,\n]\n'),
        8,
        "profiles.big.args[1]",
        ("valid string",),
    ),
    "a choice that is none": (profile('fabric = "nvlink"\n'), 6, "profiles.big.fabric", ("prefer-nvlink", "nvlink")),
    "name is missing": ("[[hosts]]\npool = 'a'\n", 1, "hosts[0].name", ("required",)),
    "empty": ("# nothing\n", 1, "the file", ("empty", "[[hosts]]")),
    "no name": ('[[hosts]]\nname = " "\n', 2, "hosts[0].name", ("empty",)),
    "host twice in a block": ('[[hosts]]\nname = "a[1-3],a2"\n', 2, "hosts[0].name", ("a2 is already named",)),
    "host twice across ranges": (
        ONE + '[[hosts]]\nname = "r1-t[03-09]"\n',
        5,
        "hosts[1].name",
        ("r1-t03 is already named", "line 2"),
    ),
    "address twice": (
        '[[hosts]]\nname = "a"\naddress = "10.0.0.1"\n[[hosts]]\nname = "b"\naddress = "10.0.0.1"\n',
        6,
        "hosts[1].address",
        ("b: address 10.0.0.1 is already that of a", "line 3"),
    ),
    "address that is another host's name": (
        '[[hosts]]\nname = "a"\n[[hosts]]\nname = "b"\naddress = "A"\n',
        5,
        "hosts[1].address",
        ("already that of a",),
    ),
    "management address twice": (
        '[[hosts]]\nname = "a[1-2]"\nmgmt_address = "10.0.0.1,10.0.0.1"\n',
        3,
        "hosts[0].mgmt_address",
        ("already that of a1",),
    ),
    "ranges that do not pair": (
        '[[hosts]]\nname = "a[1-3]"\naddress = "10.0.0.[1-2]"\n',
        3,
        "hosts[0].address",
        ("2 addresses", "3 names"),
    ),
    "management range that does not pair": (
        '[[hosts]]\nname = "a[1-3]"\nmgmt_address = "10.0.0.[1-4]"\n',
        3,
        "hosts[0].mgmt_address",
        ("4 addresses", "3 names"),
    ),
    "range backwards": ('[[hosts]]\nname = "a[9-1]"\n', 2, "hosts[0].name", ("backwards",)),
    "range without end": ('[[hosts]]\nname = "a[1-"\n', 2, "hosts[0].name", ("bad range",)),
    "huge range": ('[[hosts]]\nname = "a[1-9999999999]"\n', 2, "hosts[0].name", ("9,999,999,999 hosts", "50,000")),
    "huge product": ('[[hosts]]\nname = "a[1-9999]b[1-9999]"\n', 2, "hosts[0].name", ("50,000",)),
    "name like an option": ('[[hosts]]\nname = "-oProxyCommand"\n', 2, "hosts[0].name", ("no name",)),
    "name with shell characters": ('[[hosts]]\nname = "a;reboot"\n', 2, "hosts[0].name", ("no name", "a;reboot")),
    "name that leads elsewhere": ('[[hosts]]\nname = ".."\n', 2, "hosts[0].name", ("no name",)),
    "address with shell characters": (ONE.replace("pool", "address"), 3, "hosts[0].address", ("do not pair",)),
    "address like an option": ("[[hosts]]\nname='a'\naddress='-x'\n", 3, "hosts[0].address", ("neither",)),
    "pool with a space": ('[[hosts]]\nname = "a"\npool = "a b"\n', 3, "hosts[0].pool", ("no name",)),
    "rack with a slash": ('[[hosts]]\nname = "a"\nrack = "a/b"\n', 3, "hosts[0].rack", ("no name",)),
    "jump host like an option": (ONE + 'proxy_jump = "-x"\n', 4, "hosts[0].proxy_jump", ("'-' first",)),
    "jump host for a shell": (ONE + 'proxy_jump = "$(id)@g"\n', 4, "hosts[0].proxy_jump", ("letters, digits",)),
    "user for a shell": (ONE + 'user = "a;id"\n', 4, "hosts[0].user", ("letters, digits",)),
    "state_dir that is relative": (ONE + 'state_dir = "x"\n', 4, "hosts[0].state_dir", ("begins with / or ~/",)),
    "root_prefix that climbs": (ONE + 'root_prefix = "/a/../b"\n', 4, "hosts[0].root_prefix", ("absolute",)),
    "profile with a slash": (ONE + '[profiles."a/b"]\nengine = "vllm"\n', 4, 'profiles."a/b"', ("no name",)),
    "unknown engine": (profile("", "vlm"), 5, "profiles.big.engine", ("unknown engine 'vlm'", "is vllm")),
    "unknown engine, nothing near": (profile("", "qqq"), 5, "profiles.big.engine", ("each known engine: ", "sim")),
    "unknown engine of a table": (ONE + "[engines.vlm]\n", 4, "engines.vlm", ("unknown engine", "is vllm")),
    "unknown pool": (profile('pool = "prd"\n'), 6, "profiles.big.pool", ("'prd'", "nearest known pool is prod")),
    "pool not said": (
        profile("").replace("[profiles", '[[hosts]]\nname = "b"\npool = "c"\n[profiles'),
        7,
        "profiles.big",
        ("pool is required", "c, prod"),
    ),
    "pool of a build": (ONE + "[engines.vllm.pools.prid]\n", 4, "engines.vllm.pools.prid", ("is prod",)),
    "host of a build": (
        ONE + '[engines.vllm.hosts."r1-t[03-05]"]\n',
        4,
        'engines.vllm.hosts."r1-t[03-05]"',
        ("'r1-t05' not in the inventory",),
    ),
    "host in two tables": (
        ONE + '[engines.vllm.hosts."r1-t[01-02]"]\n[engines.vllm.hosts.r1-t02]\n',
        5,
        "engines.vllm.hosts.r1-t02",
        ("two tables",),
    ),
    "numbers that do not fit": (
        profile("tp = 8\nnodes = 2\ngpus_per_node = 8\n"),
        8,
        "profiles.big.gpus_per_node",
        ("2 x 8 = 16", "tp x pp x dp = 8"),
    ),
    "numbers of sglang": (
        profile("tp = 8\ndp = 8\nnodes = 2\ngpus_per_node = 2\n", "sglang"),
        9,
        "profiles.big.gpus_per_node",
        ("2 x 2 = 4", "tp x pp = 8"),
    ),
    "gpus_per_node not said": (profile("tp = 8\nnodes = 2\n"), 7, "profiles.big.nodes", ("required above one node",)),
    "more than fits on a node": (profile("tp = 128\n"), 4, "profiles.big", ("128 GPUs do not fit on one node",)),
    "a number below one": (profile("pp = 0\n"), 6, "profiles.big.pp", ("greater than or equal to 1",)),
    "no GPU for an engine that needs one": (
        profile("gpus_per_node = 0\n"),
        6,
        "profiles.big.gpus_per_node",
        ("1 GPU",),
    ),
    "tp of llama.cpp": (profile("tp = 4\n", "llamacpp"), 6, "profiles.big.tp", ("knows no tp",)),
    "port range backwards": (profile('port = "8015-8000"\n'), 6, "profiles.big.port", ("upwards",)),
    "port that is none": (profile("port = 70000\n"), 6, "profiles.big.port", ("65535",)),
    "port text": (profile('port = "http"\n'), 6, "profiles.big.port", ("8000-8015",)),
    "runtime of a container": (
        profile('container = { runtime = "dockr", image = "x" }\n'),
        6,
        "profiles.big.container.runtime",
        ("'docker'", "dockr"),
    ),
    "image of a container": (
        profile('container.runtime = "docker"\n'),
        6,
        "profiles.big.container.image",
        ("required",),
    ),
    "newline in an argument": (profile('args = ["a\\nb"]\n'), 6, "profiles.big.args[0]", ("newline",)),
    "NUL in a variable": (profile('env = { A = "\\u0000" }\n'), 6, "profiles.big.env.A", ("NUL",)),
    "name of a variable": (profile('env = { "A-B" = "1" }\n'), 6, "profiles.big.env.A-B", ("environment variable",)),
    "our own mark": (profile('env = { LLMGWCTL_SHARD = "1" }\n'), 6, "profiles.big.env.LLMGWCTL_SHARD", ("itself",)),
    "our own root": (profile('env = { LLMGWCTL_ROOT = "1" }\n'), 6, "profiles.big.env.LLMGWCTL_ROOT", ("itself",)),
    "what keeps our mark": (profile('env = { SPT_NOENV = "" }\n'), 6, "profiles.big.env.SPT_NOENV", ("itself",)),
    "number for a variable": (profile("env.A = 1\n"), 6, "profiles.big.env.A", ("valid string", "the number 1")),
    "a key for the path of a key": (
        profile('api_key_file = "sk-abcdefghijkl"\n'),
        6,
        "profiles.big.api_key_file",
        ("path",),
    ),
    "two places of a key": (
        profile('api_key_file = "k"\napi_key_env = "K"\n'),
        7,
        "profiles.big.api_key_env",
        ("keep one",),
    ),
    "fabric of strangers": (ONE + '[fabrics.ib]\nhosts = "r1-t[04-05]"\n', 5, "fabrics.ib.hosts", ("'r1-t05' not",)),
    "string without quotes": ("[[hosts]]\nname = r1-t[01-18]\n", 2, "", ("no TOML", "needs quotes")),
    "address without quotes": (ONE + "address = 10.1.1.1\n", 4, "", ("no TOML", "needs quotes")),
    "quote that is not closed": (ONE + 'rack = "r1\n', 4, "", ("no TOML", "no closing quote")),
    "blocks after a list": ('hosts = [{ name = "a" }]\n' + ONE, 2, "", ("[[hosts]] block",)),
    "one bracket for hosts": ("[hosts]\nname = 'a'\n", 1, "hosts", ("write [[hosts]]",)),
    "two brackets for ssh": ("[[ssh]]\n" + ONE, 1, "ssh", ("write [ssh]",)),
    "root_prefix that replaces nothing": (
        ONE + 'root_prefix = "/x/{nam}"\n',
        4,
        "hosts[0].root_prefix",
        ("only {name} is replaced",),
    ),
    "relative path of an engine": (
        ONE + '[engines.vllm]\npath = "venv/bin/vllm"\n',
        5,
        "engines.vllm.path",
        ("'venv/bin/vllm' is an absolute path",),
    ),
    "path of an engine at home": (
        ONE + '[engines.vllm.pools.prod]\nsource = "~/env.sh"\n',
        5,
        "engines.vllm.pools.prod.source",
        ("without ~",),
    ),
    "path of an engine that takes no build": (
        ONE + '[engines.sim.pools.prod]\npath = "/opt/bin/python3"\n',
        5,
        "engines.sim.pools.prod.path",
        ("sim takes no build", "only source counts"),
    ),
    "case of a product": (profile('gpu_class = "gb200"\n'), 6, "profiles.big.gpu_class", ("did you mean GB200?",)),
    "vendor before a product": (
        profile('gpu_class = "NVIDIA H100 80GB"\n'),
        6,
        "profiles.big.gpu_class",
        ("did you mean H100?",),
    ),
    "product of a host": (ONE + 'expect.gpu = "Gb300"\n', 4, "hosts[0].expect.gpu", ("did you mean GB300?",)),
    "fabric with a space": (ONE + '[fabrics."i b"]\nhosts = "r1-t04"\n', 4, 'fabrics."i b"', ("no name",)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_line_and_key(case: str) -> None:
    """Each kind of fault names file, line and key, what is wrong, and what is known instead."""
    text, line, key, words = REFUSED[case]
    said = refusal(text)
    assert any(
        f.startswith(f"inv.toml:{line}:") and key in f and all(w in f for w in words) for f in said.split("\n")
    ), said


def test_all_faults_at_once() -> None:
    """One run names every fault, in the order of the lines, so that one edit repairs them all."""
    said = refusal(f"stat_dir = '/x'\n{ONE}prt = 1\n[profiles.x]\nengine = 1\n").split("\n")
    assert [s.split(": ")[0] for s in said] == ["inv.toml:1", "inv.toml:5", "inv.toml:7"]


def test_a_key_is_never_printed() -> None:
    """The message about a key in the place of a path does not repeat the key."""
    assert "abcdefghijkl" not in refusal(profile('api_key_file = "sk-abcdefghijkl"\n'))


def test_the_example_says_every_key() -> None:
    """inventory.example.toml loads, and every key that the schema knows stands in it, with a comment near."""
    found = load(EXAMPLE)
    assert len(found.hosts) == 50
    assert _missing(Document, tomllib.loads(EXAMPLE.read_text())) == []


def _missing(model: type[BaseModel], *tables: dict[str, Any], at: str = "") -> list[str]:
    """Keys of a model, at any depth, that none of these tables has."""
    missing = []
    for key, field in model.model_fields.items():
        values = [t[key] for t in tables if key in t]
        if not values:
            missing.append(f"{at}{key}")
        for kind in _models(field.annotation):
            if kind is BuildTable:  # the same keys as the general table of the engine
                continue
            below = [b for v in values for b in (v if isinstance(v, list) else _named(v, kind))]
            missing += _missing(kind, *below, at=f"{at}{key}.")
    return missing


def _named(value: dict[str, Any], kind: type[BaseModel]) -> list[dict[str, Any]]:
    return [value] if set(value) & set(kind.model_fields) else list(value.values())


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [m for a in getattr(annotation, "__args__", ()) for m in _models(a)]


def test_hosts_keep_order_and_pairs() -> None:
    """Names and addresses pair as they are written, whatever their sort order."""
    found = inventory('[[hosts]]\nname = "b[2,1],a"\naddress = "10.0.0.[9,3],10.0.0.1"\n')
    assert [(h.name, h.address) for h in found.hosts] == [("b2", "10.0.0.9"), ("b1", "10.0.0.3"), ("a", "10.0.0.1")]
    assert [h.order for h in found.hosts] == [0, 1, 2]


def test_overrides_of_a_block() -> None:
    """Keys of a block hold for its hosts alone, and {name} stands for each of them in root_prefix."""
    found = inventory(
        'state_dir = "/srv/a"\n[ssh]\nsudo = true\n[[hosts]]\nname = "a[1-2]"\nroot_prefix = "/sim/{name}"\n'
        'port = 2222\nstate_dir = "/srv/b"\nsudo = false\nexpect = { gpus = 4, gpu = "GB200", domain = true }\n'
        '[[hosts]]\nname = "c"\n'
    )
    a1, a2, c = found.hosts
    assert (a1.root_prefix, a2.root_prefix, c.root_prefix) == ("/sim/a1", "/sim/a2", "")
    assert (a1.port, a1.state_dir, a1.sudo, a1.expect.gpu) == (2222, "/srv/b", False, "GB200")
    assert (c.port, c.state_dir, c.sudo, c.expect.gpus) == (None, "/srv/a", True, None)


def test_same_address_behind_another_port() -> None:
    """Two hosts behind one address and two ports are two hosts."""
    found = inventory(
        '[[hosts]]\nname="a"\naddress="10.0.0.1"\nport=1022\n[[hosts]]\nname="b"\naddress="10.0.0.1"\nport=2022\n'
    )
    assert len(found.hosts) == 2


def test_build_of_a_host() -> None:
    """A host's table wins over its pool's, which wins over the general one, key by key."""
    found = load(EXAMPLE)
    by_name = {h.name: h for h in found.hosts}
    assert found.build_for("vllm", by_name["r1-t01"]).path == "/opt/vllm/bin/vllm"
    assert found.build_for("vllm", by_name["h100-009"]).path == "/home/ubuntu/vllm/bin/vllm"
    first = found.build_for("vllm", by_name["h100-001"])
    assert (first.path, first.source) == ("/scratch/vllm-next/bin/vllm", "/opt/vllm/env.sh")
    assert found.build_for("sim", by_name["h100-001"]).path == ""
    assert found.build_for("vllm", by_name["r1-t01"]).nccl == "2.27.3"
    container = found.profiles["deepseek-r1"].container
    assert container is not None
    assert (container.runtime, container.mounts) == ("docker", ("/models:/models:ro",))


def test_profile_is_completed() -> None:
    """GPUs per node of one node are the product of the sizes; the only pool is the profile's pool."""
    made = inventory(profile("tp = 2\npp = 2\ndp = 2\n")).profiles["big"]
    assert (made.gpus_per_node, made.pool, made.port_min, made.port_max) == (8, "prod", 8000, 8000)
    ranged = inventory(profile('port = "8000-8015"\nenv = { A = "1" }\nargs = ["-x"]\nep = 4\n')).profiles["big"]
    assert (ranged.port_min, ranged.port_max, ranged.env, ranged.args, ranged.ep) == (
        8000,
        8015,
        (("A", "1"),),
        ("-x",),
        4,
    )


def test_simulator_needs_no_gpus() -> None:
    """A sim profile may have no GPU at all, on several nodes too, or any number of them."""
    assert inventory(profile("", "sim")).profiles["big"].gpus_per_node == 0
    assert inventory(profile("nodes = 2\ngpus_per_node = 0\n", "sim")).profiles["big"].nodes == 2
    assert inventory(profile("nodes = 2\ngpus_per_node = 4\n", "sim")).profiles["big"].gpus_per_node == 4


def test_paths_of_the_workstation(tmp_path: Path) -> None:
    """A relative path begins at the inventory's folder, ~ at home; paths on hosts are left alone."""
    file = tmp_path / "inventory.toml"
    file.write_text(
        f'{ONE}identity_file = "id"\n[ssh]\nknown_hosts = ["kh", "~/kh"]\n'
        '[profiles.big]\nengine = "vllm"\napi_key_file = "a.key"\n'
    )
    found = load(file)
    assert found.hosts[0].identity_file == str(tmp_path / "id")
    assert found.ssh.known_hosts == (str(tmp_path / "kh"), str(Path.home() / "kh"))
    assert found.profiles["big"].api_key_file == str(tmp_path / "a.key")
    assert found.hosts[0].state_dir == "~/.local/state/llmgwctl"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """A missing file, a folder and a file that is not UTF-8 are errors that say so, with the line of the byte."""
    with pytest.raises(InventoryError, match="No such file"):
        load(tmp_path / "none.toml")
    with pytest.raises(InventoryError, match="cannot be read"):
        load(tmp_path)
    (tmp_path / "l.toml").write_bytes(b"# one\n# tw\xf6\n")
    with pytest.raises(InventoryError, match=r"l\.toml:2: byte 0xf6 is not UTF-8"):
        load(tmp_path / "l.toml")


def test_where_the_inventory_is(tmp_path: Path) -> None:
    """-i wins over the variable, the variable over ./inventory.toml, that over the one in ~/.config; else an error."""
    cwd, home = tmp_path / "cwd", tmp_path / "home"
    config = home / ".config/llmgwctl/inventory.toml"
    config.parent.mkdir(parents=True)
    cwd.mkdir()
    with pytest.raises(InventoryError, match="llmgwctl init"):
        default_path(None, {}, cwd, home)
    config.touch()
    assert default_path(None, {}, cwd, home) == config
    (cwd / "inventory.toml").touch()
    assert default_path(None, {}, cwd, home) == Path("inventory.toml")
    assert default_path(None, {"LLMGWCTL_INVENTORY": "/e.toml"}, cwd, home) == Path("/e.toml")
    assert default_path(Path("/i.toml"), {"LLMGWCTL_INVENTORY": "/e.toml"}, cwd, home) == Path("/i.toml")


def test_select() -> None:
    """-w takes NodeSet with its operators, --pool narrows it, and order is that of the inventory."""
    found = load(EXAMPLE)
    names = lambda *a: [h.name for h in found.select(*a)]  # noqa: E731
    assert names("h100-002,r1-t02") == ["r1-t02", "h100-002"]
    assert names("r1-t[01-03]!r1-t02") == ["r1-t01", "r1-t03"]
    assert len(names(None, "prod")) == 18
    assert len(names()) == 50


@pytest.mark.parametrize(
    ("nodeset", "pool", "words"),
    [
        ("r1-t19", None, "nearest known host is r1-t1"),
        ("", None, "names no host"),
        ("zzz", None, "h100-[001-032],r1-t[01-18]"),
        ("a[", None, "bad range"),
        ("r1-t[1-99999999999]", None, "50,000"),
        ("@all", None, "'@all' not in"),
        ("nohost", None, "each known host: h100-[001-032],r1-t[01-18]"),
        ("r1-t01!r1-t01", None, "names no host"),
        (None, "prd", "nearest known pool is prod"),
        ("h100-001", "prod", "no host of h100-001"),
    ],
)
def test_select_refuses(nodeset: str | None, pool: str | None, words: str) -> None:
    """A host or pool that is not there is an error with the nearest one, and so is a choice of nothing."""
    with pytest.raises(UsageError) as caught:
        load(EXAMPLE).select(nodeset, pool)
    assert words in str(caught.value)


def test_a_host_that_is_an_argument_is_not_called_w() -> None:
    """The message names the option that was typed, and none where none was."""
    found = load(EXAMPLE)
    with pytest.raises(UsageError, match=r"^'r1-t0' not in .*; the nearest known host is r1-t\d\d$"):
        found.select("r1-t0", option="")
    with pytest.raises(UsageError, match=r"^NODESET 'r1-t01,x': 'x' not in "):
        found.select("r1-t01,x", option="NODESET ")
    small = inventory('[[hosts]]\nname = "r1-t[01-06]"\n')
    with pytest.raises(UsageError, match=r"each known host: r1-t\[01-06\]$"):
        small.select("nohost", option="")


def test_what_is_written_loads() -> None:
    """What `init` writes is an inventory."""
    text = dumps({"hosts": [{"name": "r1-t[01-18]", "rack": "r1", "expect": {"gpus": 4}}]})
    assert len(inventory(text).hosts) == 18


def test_what_is_written_can_be_gone_on_with() -> None:
    """However short a block is, it stands as [[hosts]], so that another one can be added below."""
    text = dumps({"hosts": [{"name": "a", "expect": {"gpus": 4, "gpu": "GB200"}}], "state_dir": "/srv/x"})
    more = inventory(f'{text}\n[[hosts]]\nname = "b"\n')
    assert [(h.name, h.expect.gpu, h.state_dir) for h in more.hosts] == [
        ("a", "GB200", "/srv/x"),
        ("b", None, "/srv/x"),
    ]


def test_products_that_are_not_in_the_table_are_taken() -> None:
    """What is newer than this program may be asked for."""
    assert inventory(profile('gpu_class = "R200"\n')).profiles["big"].gpu_class == "R200"


def test_byte_order_mark(tmp_path: Path) -> None:
    """Some editors put one before everything."""
    file = tmp_path / "inventory.toml"
    file.write_bytes(b"\xef\xbb\xbf" + ONE.encode())
    assert len(load(file).hosts) == 4


def test_only_a_missing_file_is_one_to_write(tmp_path: Path) -> None:
    """`init` is no remedy for a file that is there."""
    with pytest.raises(InventoryError, match=r"No such file or directory; `llmgwctl init` writes one"):
        load(tmp_path / "none.toml")
    with pytest.raises(InventoryError, match=r"Is a directory$"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("profile big has no model_path: set it", "inv.toml:4: profiles.big: has no model_path: set it"),
        ("profile big: ep = 3, and tp x dp = 2", "inv.toml:7: profiles.big.ep: ep = 3, and tp x dp = 2"),
        (
            "profile big: args has --tensor-parallel-size, which is ours",
            "inv.toml:8: profiles.big.args[1]: args has --tensor-parallel-size, which is ours",
        ),
    ],
)
def test_what_an_engine_says_has_its_line(what: str, said: str) -> None:
    """File, line and key like every other fault, and the name once."""
    found = inventory(profile('tp = 2\nep = 3\nargs = ["--seed", "--tensor-parallel-size=2"]\n'))
    assert found.of_profile("big", what) == said


def test_ranges_in_written_order() -> None:
    """Padding, steps, several groups and lists expand as they are written."""
    assert expand("a[08-10]") == ["a08", "a09", "a10"]
    assert expand("a[3,1-2]b[1-2].x") == ["a3b1.x", "a3b2.x", "a1b1.x", "a1b2.x", "a2b1.x", "a2b2.x"]
    assert expand("a[1-9/4], b") == ["a1", "a5", "a9", "b"]


@given(st.text("ab[]-,0123456789!&^@* ", max_size=30))
def test_any_range_is_names_or_refused(text: str) -> None:
    """No text makes the range parsers fail in another way, or take long."""
    for read in (expand, chosen):
        with suppress(BadRange):
            assert len(list(read(text))) <= 50_000


_KEYS = st.text("abcXYZ09_-. \"'é", min_size=1, max_size=6)
_VALUES = st.recursive(
    st.one_of(st.integers(-99, 99), st.booleans(), st.text("ab\"'\\\n#=[]{},é", max_size=12), st.floats(0, 9)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_KEYS, inner, max_size=3)),
    max_leaves=8,
)


@settings(max_examples=200)
@given(st.dictionaries(_KEYS, _VALUES, max_size=4), st.booleans())
def test_every_key_is_located(document: dict[str, Any], multiline: bool) -> None:
    """Each key of any TOML document is found, and on a line that holds it."""
    text = tomli_w.dumps(document, multiline_strings=multiline)
    lines = locate(text)
    shown = text.split("\n")
    for path in _paths(tomllib.loads(text)):
        assert path in lines, (path, text)
        key = path[-1]
        if isinstance(key, str) and key.isascii() and key.isalnum():
            assert key in shown[lines[path] - 1]


def _paths(value: Any, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [p for key, inner in items for p in [(*at, key), *_paths(inner, (*at, key))]]


@settings(max_examples=200)
@given(
    st.one_of(
        st.text(max_size=80),
        st.lists(
            st.sampled_from([*ONE.split("\n"), '"', "[", "]]", "= {", "x=1", "\r\n", "'''", '"""', "profiles.a.tp=3"]),
            max_size=8,
        ).map("\n".join),
    )
)
def test_any_text_is_an_inventory_or_refused(text: str) -> None:
    """No text makes loading fail in another way than with an InventoryError."""
    with suppress(InventoryError):
        assert inventory(text).hosts


def test_suppressions_name_checks_hosts_and_a_last_day() -> None:
    """A finding that is set aside has a reason and an end; what names nothing is refused with its line."""
    text = ONE + '\n[[doctor.suppress]]\ncheck = "{}"\nhosts = "{}"\nreason = "known"\nuntil = 2027-01-31\n'
    first = inventory(ONE).hosts[0].name
    (one,) = inventory(text.format("LG701", first)).suppressions
    assert (one.check, one.hosts, one.until.isoformat()) == ("LG701", frozenset({first}), "2027-01-31")
    with pytest.raises(InventoryError, match=r"no check is named 'LG999'; each known check: LG"):
        inventory(text.format("LG999", first))
    with pytest.raises(InventoryError, match="'elsewhere' not in the inventory"):
        inventory(text.format("LG701", "elsewhere"))
    for lacking in ("reason", "until"):
        lines = text.format("LG701", first).splitlines()
        with pytest.raises(InventoryError, match=lacking):
            inventory("\n".join(line for line in lines if not line.startswith(lacking)))


@pytest.mark.parametrize("kind", ["writable", "foreign"])
def test_an_inventory_that_somebody_left_here_is_not_taken_unasked(tmp_path, kind):
    """A folder may be anybody's, and an inventory says what is started where: then it has to be named."""
    here = tmp_path / "inventory.toml"
    here.write_text(ONE)
    if kind == "writable":
        here.chmod(0o666)
    elif os.geteuid() == 0:
        os.chown(here, 65534, 65534)
    else:
        pytest.skip("needs root to give a file away")
    with pytest.raises(InventoryError, match="only when it is named"):
        default_path(None, {}, tmp_path, tmp_path)
    assert default_path(here, {}, tmp_path, tmp_path) == here
