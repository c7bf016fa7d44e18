"""What is left running, or may live on, is named with commands that can be typed as they stand."""

from __future__ import annotations

import asyncio
import re
import shlex
from types import SimpleNamespace

import pytest

from llmgwctl.cli.placing import Detached, _served, begun_rows
from llmgwctl.model.errors import ContactLost

JOB = SimpleNamespace(session=SimpleNamespace(asked=SimpleNamespace(quiet=True)))


def bringing(error: BaseException):
    async def end():
        raise error

    return [SimpleNamespace(prepared=[SimpleNamespace(replica=n)], begin=end, serve=end) for n in ("big-0", "big-1")]


@pytest.mark.parametrize("waits", [True, False])
async def test_lost_contact_says_how_to_look_and_how_to_end_it(waits):
    some = bringing(ContactLost("n1: no contact for 60 s"))
    with pytest.raises(ContactLost, match="n1: no contact for 60 s; it may live on and nothing was stopped") as lost:
        await (_served(JOB, None, some) if waits else begun_rows(JOB, some))
    assert [shlex.split(c) for c in re.findall("`([^`]*)`", str(lost.value))] == [
        ["llmgwctl", "ps"],
        ["llmgwctl", "stop", "big-0", "big-1"],
    ]


async def test_the_others_have_ended_before_one_that_failed_is_told():
    """What is undone then is not started by anybody at the same moment."""
    began, ended = asyncio.Event(), []

    async def waiting():
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("big-1")

    async def lost():
        await began.wait()
        raise ContactLost("n1")

    some = bringing(ContactLost(""))
    some[0].begin, some[1].begin = lost, waiting
    with pytest.raises(ContactLost):
        await begun_rows(JOB, some)
    assert ended == ["big-1"]


async def test_ctrl_c_while_waiting_names_the_command_that_ends_all_of_them():
    with pytest.raises(Detached, match="`llmgwctl stop big-0 big-1` ends it"):
        await _served(JOB, None, bringing(asyncio.CancelledError()))
