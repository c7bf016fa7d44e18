"""Names of replicas as they are typed."""

from __future__ import annotations

from test_life_cli import Cli, cli  # noqa: F401 (a fixture)


async def test_slips_in_names(cli: Cli) -> None:  # noqa: F811
    """A name that nothing could bear, beside one that is nearly it, is asked about; what is gone may be stopped again;
    a replica or a rank that is not there is said with what is."""
    assert (await cli("place", "sim-small", "--no-wait"))[0] == 0
    for words, code, said in (
        (("stop", "sim-small"), 2, "there is no replica sim-small: did you mean sim-small-0?"),
        (("stop", "sim-small_0"), 2, "did you mean sim-small-0?"),
        (("stop", "sim-nvl-0", "Sim-Small-0"), 2, "did you mean sim-small-0?"),
        (("stop", "sim-small-7"), 0, "sim-small-7: nothing of it"),
        (("stop", "elsewhere"), 0, "elsewhere: nothing of it"),
        (("ps", "nope-3"), 2, "there is no replica nope-3 on the hosts that answered; running: sim-small-0"),
        (("ps", "nope-3", "--check"), 1, "there is no replica nope-3"),
        (("logs", "sim-small"), 2, "did you mean sim-small-0?"),
        (("restart", "sim-small"), 2, "did you mean sim-small-0?"),
        (("logs", "sim-small-0", "--rank", "7"), 2, "sim-small-0 has no rank 7: it has 0"),
    ):
        found, out, err = await cli(*words)
        assert (found, out) == (code, ""), words
        assert said in err, words
    assert "\\n" not in (await cli("ps", "-v"))[1]
    assert len(cli.processes()) > 0
