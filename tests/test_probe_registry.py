"""The tuple of probes, and what becomes of a host's answers."""

from __future__ import annotations

from dataclasses import fields

import smi

from llmgwctl.model.host import Host, HostFacts
from llmgwctl.model.reading import broken
from llmgwctl.probe import FABRIC_SET, PROBES, assemble
from llmgwctl.probe.base import Output, Probe

SECTIONS = [s for p in PROBES for s in p.sections]


def test_every_probe_has_its_field_and_its_names():
    """A probe fills one field of HostFacts; section names are files in a bundle and are there once."""
    assert {p.field for p in PROBES} <= {f.name for f in fields(HostFacts)}
    assert len({p.field for p in PROBES}) == len(PROBES)
    assert len({s.name for s in SECTIONS}) == len(SECTIONS)
    assert set(FABRIC_SET) <= set(PROBES)


def test_every_section_runs_something():
    """Either an argv or a script that is beside the probe and fits on a command line; never a verb that changes."""
    for section in SECTIONS:
        assert bool(section.argv) != bool(section.script), section.name
        assert not section.script or section.body().startswith("#")
        assert len(section.body()) < 100_000
        assert not {"-r", "--gpu-reset", "-pm", "-mig"} & set(section.argv)


def test_sections_wait_only_for_sections_of_their_lane():
    """`after` and `unless` name a section of the same lane that comes before."""
    for place, section in enumerate(SECTIONS):
        before = {s.name for s in SECTIONS[:place] if s.lane == section.lane}
        assert {n for n in (section.after, section.unless) if n} <= before, section.name


def test_facts_of_a_host():
    """What was asked is read, what was not is broken, and nothing is silently missing."""
    outputs = {"nvidia-smi-q": Output(smi.text("580.126", smi.trays()))}
    facts = assemble(Host("r1-t01"), outputs, 1000.0, 1.5)
    assert facts.gpus.value is not None
    assert facts.gpus.value.all_readable
    assert (facts.reachable.value, facts.taken_at) == (1.5, 1000.0)
    for reading in (facts.system, facts.imex, facts.hcas, facts.network, facts.life):
        assert reading == broken("not saved")


def test_a_parser_that_fails_costs_its_own_reading():
    """Whatever a parser raises becomes words in its own field."""

    def stumbles(_):
        raise KeyError("surprise")

    assert "surprise" in Probe("system", (), stumbles, True).read({}).why
