"""ensure where something is wrong with one profile, or here: the others are seen to, no secret is saved, cron hears."""

from __future__ import annotations

from test_ensure import told
from test_life_cli import Cli, cli  # noqa: F401 (a fixture)

PLANTED = "hf_planted-secret-9431"
OTHER = """
[profiles.sim-other]
engine = "sim"
gpus_per_node = 1
port = "8200-8299"
"""


def add(cli: Cli, text: str) -> None:  # noqa: F811
    cli.rack.inventory.write_text(cli.rack.inventory.read_text() + text)


async def test_a_profile_that_is_wrong_is_exit_code_2_and_keeps_no_other_from_its_start(cli: Cli) -> None:  # noqa: F811
    """Nothing of it runs; then one of it is starting, and cannot be asked for want of its key."""
    add(cli, OTHER)
    cli.change("[profiles.sim-small]\n", '[profiles.sim-small]\nargs = ["--rank", "7"]\n')
    assert (await told(cli, "sim-small"))[0] == 2
    cli.change('args = ["--rank", "7"]\n', 'args = ["--never-ready"]\n')
    assert (await told(cli, "sim-small"))[0] == 0
    cli.change('args = ["--never-ready"]\n', 'api_key_file = "/nowhere/key"\n')
    code, out, _ = await cli("ensure", "sim-small", "sim-other")
    assert code == 2
    assert "sim-small-0: not ready yet" in out
    assert "api_key_file /nowhere/key cannot be read" in " ".join(out.split())
    assert "sim-other: place sim-other-0" in out


async def test_the_last_words_are_saved_without_secrets(cli: Cli) -> None:  # noqa: F811
    env = f'env = {{ HF_TOKEN = "{PLANTED}" }}\nargs = ["--refuse", "{PLANTED}"]\n'
    cli.change("[profiles.sim-small]\n", f"[profiles.sim-small]\n{env}")
    assert (await cli("ensure", "sim-small"))[0] in (0, 1)
    assert (await told(cli, "sim-small"))[0] == 1
    said = [f.read_text() for f in (cli.home / "llmgwctl/logs").glob("*/*.log")]
    assert any("unrecognized arguments: ***" in text for text in said)
    assert not any(PLANTED in text for text in said)


async def test_what_has_failed_is_ended_where_its_last_words_cannot_be_saved(cli: Cli) -> None:  # noqa: F811
    cli.change("[profiles.sim-small]\n", '[profiles.sim-small]\nargs = ["--refuse", "x"]\n')
    (cli.home / "llmgwctl").mkdir(parents=True)
    (cli.home / "llmgwctl/logs").write_text("a file")
    assert (await cli("ensure", "sim-small"))[0] in (0, 1)
    code, out, err = await cli("ensure", "sim-small")
    assert code == 1, out
    assert "its last words could not be saved" in err
    assert (await cli.json("ps"))["replicas"] == []
