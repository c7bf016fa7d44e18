"""What was saved and is read again says byte for byte what the live run said, masked or not."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmgwctl.cli import main
from llmgwctl.cli.common import Session

PORT = "2467"
pytestmark = pytest.mark.xdist_group("rack-2467")  # one fleet has one port
FAULTS = ("r1-t02:imex-down", "r1-t03:gpu-not-joined:2", "h100-01:smi-missing")
COMMANDS = (
    ("nvlink",),
    ("nvlink", "--json"),
    ("node", "r1-t01"),
    ("node", "r1-t02", "--json"),
    ("node", "h200-01"),
    ("node", "h100-01", "--json"),
    ("plan", "sim-nvl"),
    ("plan", "sim-nvl", "--json"),
    ("probe",),
    ("probe", "--json"),
    ("probe", "r1-t01", "--raw", "nvidia-smi-topo-m"),
)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The inventory of a mixed fleet that runs, with faults."""
    directory = tmp_path_factory.mktemp("fleet")
    faults = [w for f in FAULTS for w in ("--fault", f)]
    size = ["mixed", "--trays", "3", "--hgx", "1", "--port", PORT, "--dir", str(directory)]
    argv = [sys.executable, "-m", "llmgwctl", "rack", *size, *faults]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        yield Path(server.stdout.readline().strip())
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == 0


def said(capsys, *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(list(words))
    out = capsys.readouterr()
    return code, out.out, out.err


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_replay_says_the_same(words, live, tmp_path, monkeypatch, capsys):
    """Output, complaints and exit code of a live run, and of its saved answers."""
    monkeypatch.setenv("COLUMNS", "120")
    saved = tmp_path / "saved"
    collect = Session.collect

    async def saving(self, *args, **more):
        return await collect(self, *args, **{**more, "save": saved})

    with monkeypatch.context() as patched:
        patched.setattr(Session, "collect", saving)
        first = said(capsys, *words, "-i", str(live))
    if "--raw" in words:  # that one asks a host for one section, and no other reading is made
        assert main(["probe", "r1-t01", "-i", str(live), "--save", str(saved), "-q"]) in (0, 3)
    second = said(capsys, *words, "-i", str(live), "--from", str(saved))
    assert first == second
    assert len(first[1]) > 100


@pytest.fixture(scope="module")
def bundles(live: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same fleet, saved plainly, masked, and masked with its names."""
    base = tmp_path_factory.mktemp("bundles")
    for name, options in {"plain": [], "masked": ["--mask"], "named": ["--mask-names"]}.items():
        assert main(["probe", "-i", str(live), "--save", str(base / name), "-q", *options]) == 3
    return {name: base / name for name in ("plain", "masked", "named")}


def document(capsys, bundle: Path, *words: str) -> dict:
    return json.loads(said(capsys, *words, "--json", "-q", "--from", str(bundle))[1])


SECRETS = re.compile(
    r"GPU-[0-9a-f]{8}-[0-9a-f-]{27}|127\.77\.\d+\.\d+|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    r"|\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b|(?<!:)\b[0-9a-f]{4}(?::[0-9a-f]{4}){3}\b(?!:)|Serial Number *: \d+"
)


def texts(bundle: Path) -> dict[str, str]:
    return {str(p.relative_to(bundle)): p.read_text() for p in sorted(bundle.rglob("*")) if p.is_file()}


def test_a_mask_leaves_nothing_behind(bundles):
    """No UUID, serial, GUID, MAC or address of the fleet is in the masked bundle; zeros and loopback stay."""
    plain, masked = texts(bundles["plain"]), texts(bundles["masked"])
    assert plain.keys() == masked.keys()
    secrets = {s for text in plain.values() for s in SECRETS.findall(text)}
    kept = {s for s in secrets if not set(re.sub("^(GPU-|Serial Number *: )", "", s)) - set("0-:.")}
    kept |= {s for s in secrets if s.startswith("127.")}  # simulated hosts live on loopback, which is nobody's
    assert len(secrets - kept) > 30
    for name, text in masked.items():
        for secret in secrets - kept:
            assert secret not in text, (name, secret)


def test_a_mask_keeps_every_shape(bundles):
    """Same files, same lines, same lengths of line: only letters and digits of ids are others."""
    plain, masked = texts(bundles["plain"]), texts(bundles["masked"])
    for name, text in plain.items():
        if name.endswith(
            ("meta.json", "clock.txt", "processes.txt", "life.txt", "network.txt", "resources.txt", "rooms.txt")
        ):
            continue  # another run: other times and processes
        ours, theirs = text.splitlines(), masked[name].splitlines()
        assert len(ours) == len(theirs), name
        shapes = [re.sub("[0-9]+", "9", re.sub("[0-9a-f]{4,}", "9", line)) for line in ours]
        others = [re.sub("[0-9]+", "9", re.sub("[0-9a-f]{4,}", "9", line)) for line in theirs]
        assert [s.replace("9", "") for s in shapes if "UUID" not in s and "gid" not in s.lower()] == [
            s.replace("9", "") for s in others if "UUID" not in s and "gid" not in s.lower()
        ], name


def test_a_masked_fleet_is_the_same_fleet(bundles, capsys):
    """Domains, eligibility, reasons, fabrics and tiers are those of the plain bundle."""
    plain = document(capsys, bundles["plain"], "nvlink")
    masked = document(capsys, bundles["masked"], "nvlink")

    def shape(d: dict) -> list:
        hosts = [
            (h["name"], h["eligible"], h["imex"]["state"], [g["joined"] for g in h["gpus"]])
            for x in d["domains"]
            for h in x["hosts"]
        ]
        return [
            hosts,
            [x["joined_hosts"] for x in d["domains"]],
            [(s["kind"], s["hosts"]) for s in d["scale_out"]],
            len(d["outside"]),
        ]

    assert shape(plain) == shape(masked)
    assert plain["domains"][0]["cluster_uuid"] != masked["domains"][0]["cluster_uuid"]
    one, other = (document(capsys, bundles[b], "node", "r1-t01") for b in ("plain", "masked"))
    assert [g["nearest"] for g in one["gpus"]] == [g["nearest"] for g in other["gpus"]]
    assert [p["cell"] for p in one["imex"]["peers"]] == [p["cell"] for p in other["imex"]["peers"]]
    assert [g["uuid"] for g in one["gpus"]] != [g["uuid"] for g in other["gpus"]]


def test_names_behind_others(bundles, capsys):
    """With the names masked too no host is called what it is called, and the fleet still reads."""
    names = {p.name for p in bundles["plain"].iterdir()}
    for name, text in texts(bundles["named"]).items():
        assert not any(host in text for host in names), name
    found = document(capsys, bundles["named"], "nvlink")
    assert {h["name"] for d in found["domains"] for h in d["hosts"]} <= {f"host-{i:04d}" for i in range(1, 9)}
    assert (
        found["domains"][0]["joined_hosts"]
        == document(capsys, bundles["plain"], "nvlink")["domains"][0]["joined_hosts"]
    )


def test_mask_is_for_what_is_saved(capsys):
    assert said(capsys, "probe", "--mask")[0] == 2
