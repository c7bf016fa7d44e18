"""An answer that broke off: what did not come is not known, and is no fault of what was asked."""

from __future__ import annotations

from doctor_racks import said

from llmgwctl.doctor import diagnose
from llmgwctl.fabric import fabric_map
from llmgwctl.model.host import READINGS, Host, Snapshot
from llmgwctl.probe import PROBES, assemble
from llmgwctl.probe.base import Output, failure
from llmgwctl.probe.engines import PREFIX
from llmgwctl.transport.frames import LOST

GONE = Output(exit_code=None, note=LOST)


def test_what_did_not_come_says_so_and_what_was_too_slow_is_another_thing():
    assert failure(GONE) == LOST
    assert failure(Output(exit_code=None, ms=60_000, note="could not be killed")) == "no answer within its limit (60 s)"
    assert failure(Output(exit_code=124, ms=30_000)) == "no answer within its limit (30 s)"


def test_nobody_is_accused_of_what_did_not_come():
    """Every reading says that the answer broke off, and no check takes that for a program that hangs."""
    asked = [s.name for p in PROBES for s in p.sections] + [f"{PREFIX}vllm"]
    facts = assemble(Host("r1-t01", "10.0.0.1"), dict.fromkeys(asked, GONE), 0.0, 0.1)
    # IMEX is put together of several sections, each of which says for itself why it is not known.
    assert {getattr(facts, name).why for name in READINGS if name != "imex"} == {LOST}
    assert (facts.imex.value.state, facts.imex.value.why) == ("", LOST)
    snapshot = Snapshot(0.0, (facts,))
    report = diagnose(snapshot, fabric_map(snapshot))
    assert said(report, info=True) == {}
    assert report.unknown
