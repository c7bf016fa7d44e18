"""Each document that others build on is what its schema in docs/schema says."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from facts import IN_PROGRESS, rack, snapshot, with_gpu
from jsonschema import Draft202012Validator
from pages import fleet, seven_faults, whole

from llmgwctl.cli import main, watching
from llmgwctl.doctor import CHECKS, diagnose
from llmgwctl.fabric import fabric_map
from llmgwctl.launch.state import replicas
from llmgwctl.model.machine import Installed
from llmgwctl.model.reading import ok
from llmgwctl.render import doctor, engines, life, node, prom
from llmgwctl.render import fleet as hosts_pages
from llmgwctl.render import json as documents
from llmgwctl.watch import step
from llmgwctl.watch.tell import Transition

FOLDER = Path(__file__).parents[1] / "docs/schema"
SCHEMAS = {json.loads(p.read_text())["$id"]: json.loads(p.read_text()) for p in FOLDER.glob("*.json")}


def check(document) -> None:
    """Through JSON and back, as a reader gets it."""
    told = json.loads(json.dumps(document))
    Draft202012Validator(SCHEMAS[told["schema"]]).validate(told)


def of_fleet():
    snap = fleet()
    fmap = fabric_map(snap)
    yield documents.nvlink(fmap, snap)
    yield documents.probe(snap)
    yield hosts_pages.hosts_document([f.host for f in snap.hosts])
    yield life.ps_document(replicas(snap))
    yield doctor.document(diagnose(snap, fmap), snap.taken_at)
    yield doctor.catalogue(CHECKS)
    yield watching.document((), snap, first=True)
    yield watching.document((), None, first=False)
    yield prom.document(prom.metrics(fmap, snap, replicas(snap)))
    row = {"name": "vllm", "health_path": "/health", "metrics_path": "/metrics", "package": "vllm"}
    told = ok((Installed("vllm", (("vllm", "0.33.0"),)),))
    read = replace(snap, hosts=(replace(snap.hosts[0], engines=told), *snap.hosts[1:]))
    row |= {"needs_build": True, "least": ""}
    yield engines.document([{**row, "gpuless": False, "uses_nccl": True}], read)
    for facts in snap.hosts:
        yield node.document(facts, fmap)


def of_watch():
    _, before = None, snapshot(whole())
    seen, _ = step(None, fabric_map(before), before, replicas(before))
    after = replace(snapshot(seven_faults()), taken_at=before.taken_at + 60)
    seen, found = step(seen, fabric_map(after), after, replicas(after))
    assert len(found) > 5
    yield watching.document(found, after, first=False)
    yield from (t.document() for t in found)


@pytest.mark.parametrize("document", [*of_fleet(), *of_watch()], ids=lambda d: d["schema"])
def test_documents(document):
    check(document)


PROFILE = """
[engines.vllm]
path = "/opt/vllm/bin/vllm"

[profiles.big]
engine = "vllm"
tp = 8
nodes = 2
gpus_per_node = 4
model_path = "/models/big"
"""


@pytest.mark.parametrize("words", [["plan", "big"], ["env", "big"], ["plan", "big", "--replicas", "9"]], ids=" ".join)
def test_what_a_plan_says(words, tmp_path, capsys):
    """Also where no placement fits."""
    rack = Path(__file__).parent / "racks/whole"
    inventory = tmp_path / "inventory.toml"
    inventory.write_text((rack / "inventory.toml").read_text() + PROFILE)
    assert main(["-i", str(inventory), "--from", str(rack / "hosts"), *words, "--json"]) in (0, 4)
    check(json.loads(capsys.readouterr().out))


def test_schemas_are_schemas_and_named_after_what_they_describe():
    for schema in SCHEMAS.values():
        Draft202012Validator.check_schema(schema)
    names = {f"llmgwctl.{p.name.replace('.v1.json', '')}/v1" for p in FOLDER.glob("*.json")}
    assert names == set(SCHEMAS)


def test_every_document_has_a_schema():
    """What a command prints with --json is described, whoever adds the command."""
    package = Path(__file__).parents[1] / "llmgwctl"
    sources = [p.read_text() for folder in ("cli", "render", "watch") for p in (package / folder).glob("*.py")]
    said = {name for text in sources for name in re.findall(r'"schema": "(llmgwctl\.[a-z-]+/v1)"', text)}
    assert len(said) > 15
    assert said <= set(SCHEMAS)


def test_every_kind_of_transition_is_in_the_schema():
    """A new kind is a new word that others see."""
    source = (Path(__file__).parents[1] / "llmgwctl/watch/tell.py").read_text()
    said = set(re.findall(r'^        "([a-z-]+)": f?"', source, re.MULTILINE)) - {"host", "gpus", "imex", "replica"}
    said |= {"domain-dropped", "domain-back", "domain-reidentified"}
    kinds = set(SCHEMAS["llmgwctl.transition/v1"]["properties"]["kind"]["enum"])
    assert kinds == said - {"bandwidth", "health"}
    assert Transition("x", "worse", "", 0).document().keys() == set(SCHEMAS["llmgwctl.transition/v1"]["required"])


def test_a_wrong_document_is_refused():
    """The schema would notice a key that is gone, or a word that nobody knows."""
    snap = snapshot(rack(2) | {"r1-t01": with_gpu(rack(2)["r1-t01"], 0, fabric=IN_PROGRESS)})
    good = documents.nvlink(fabric_map(snap), snap)
    for change in ({"taken_at": "yesterday"}, {"schema": "llmgwctl.nvlink/v1", "domains": None}):
        with pytest.raises(Exception, match=r"(?i)(does not match|is not of type)"):
            check(good | change)
