"""What strangers say reaches a terminal and a document without anything that would be obeyed or not be seen."""

from __future__ import annotations

import io
import json
import re
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_life_state import facts, record, seen

from llmgwctl import cli
from llmgwctl.cli.common import out_json
from llmgwctl.launch.state import replicas
from llmgwctl.render import life
from llmgwctl.render.text import clean
from llmgwctl.render.visible import dumps, lines, shown

EVIL = "a\x1b[2J\x9b31m\u202eb\u200bc\x7f\x00\u2028d\ufeffe\U000e0041\xadf\udc80"
HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def hidden(text, meant=""):
    return [c for c in text if unicodedata.category(c) in HIDDEN and c not in meant]


def test_every_such_character_is_known():
    """Those of Unicode's classes, and no other."""
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    assert hidden(shown(every), "\t\n") == []
    seen = "".join(c for c in every if unicodedata.category(c) not in HIDDEN)
    assert shown(seen) == seen


@given(st.text())
def test_documents_say_the_same(text):
    """Read back it is what went in; on the way it holds no such character."""
    said = dumps({"a": text, text: [text]}, indent=2)
    assert json.loads(said) == {"a": text, text: [text]}
    assert hidden(said, "\n") == []


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda v: st.lists(v) | st.dictionaries(st.text(), v) | st.tuples(v, v),
)


@given(VALUES)
def test_what_is_indented_says_what_a_line_says(value):
    """Two writers, one document: numbers, characters, empty lists and all."""
    assert json.loads(dumps(value, indent=2)) == json.loads(dumps(value))


@pytest.mark.parametrize("indent", [None, 2])
def test_a_document_has_no_number_that_json_lacks(indent):
    """Nor does half a character cost the document."""
    said = dumps({"a": [float("nan"), 1.5, (float("inf"),)], "b": "\udc80"}, indent=indent)
    assert json.loads(said, parse_constant=pytest.fail) == {"a": [None, 1.5, [None]], "b": "\udc80"}
    said = dumps({"a": [float("nan"), 1.5, (float("inf"),)]}, indent=indent)
    assert json.loads(said, parse_constant=pytest.fail) == {"a": [None, 1.5, [None]]}


def test_sentences_keep_their_lines():
    assert lines("a\nb\x1b[2J\n\tc") == "a\nb\\x1b[2J\n\\tc"
    assert hidden(lines(EVIL)) == []


def test_documents_on_stdout(capsys):
    out_json({"why": EVIL.replace("\udc80", "")})
    said = capsys.readouterr().out
    assert hidden(said, "\n") == []
    assert json.loads(said)["why"] == EVIL.replace("\udc80", "")


@pytest.mark.parametrize("error", ["LlmgwError", "ValueError"])
def test_the_last_word_of_a_command(monkeypatch, capsys, error):
    """An error may quote a host's log."""
    from llmgwctl.model.errors import LlmgwError

    def fails(_argv):
        raise (LlmgwError if error == "LlmgwError" else ValueError)(f"it died\n  {EVIL}")

    monkeypatch.setattr(cli, "_run", fails)
    assert cli.main([]) == 1
    said = capsys.readouterr().err
    assert "it died\n  a\\x1b[2J" in said
    assert hidden(said, "\n") == []


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("terminal", [True, False])
def test_raw_answers(monkeypatch, tmp_path, terminal):
    """Unchanged into a file or a pipe; on a terminal with escapes."""
    (tmp_path / "n1").mkdir()
    (tmp_path / "n1" / "nvidia-smi-q.txt").write_text("x\x1b]0;evil\x07\n\ty\u202e\n")
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    assert cli.main(["--from", str(tmp_path), "probe", "n1", "--raw", "nvidia-smi-q"]) in (0, 3)
    said = stream.getvalue()
    assert said == ("x\\x1b]0;evil\\x07\n\ty\\u202e\n" if terminal else "x\x1b]0;evil\x07\n\ty\u202e\n")


def test_replicas_are_told_without_escapes_of_ours():
    """A line break of ours is one: only a host's stands as an escape."""
    failed = facts("n0", [record(0, "exited")]), facts("n1", [record(1)])
    said = life.ps(replicas(seen(*failed)))
    assert "p-0 is failed" in said
    assert "\\n" not in said


def test_cells_are_clean():
    assert hidden(clean(EVIL)) == []
    assert not re.search(r"\n", clean("a\nb"))
