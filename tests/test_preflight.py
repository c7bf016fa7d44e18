"""What is asked of the chosen hosts right before a launch, and what stands against it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from engine_cases import BUILDS, contexts, sized
from facts import hgx, rack
from local_hosts import replica_plan
from test_life_cli import Cli

from llmgwctl.cli import preflight as asking
from llmgwctl.engines import ENGINES
from llmgwctl.engines.base import Build
from llmgwctl.engines.preflight import EngineSeen, Image, Placed, Seen, build_on, engine_seen, hidden, judge, unknown
from llmgwctl.engines.programs import script
from llmgwctl.model.host import Host
from llmgwctl.model.machine import NcclFile
from llmgwctl.model.plan import Plan
from llmgwctl.model.profile import Container, Profile
from llmgwctl.model.weights import ModelFiles
from llmgwctl.rack import nvl72, serve

VLLM = ENGINES["vllm"]
WHOLE = ModelFiles({"config.json": 9, "a.safetensors": 4096}, frozenset({"a.safetensors"}))
OK = Seen(engine=EngineSeen({"vllm": "0.33.0", "nvidia-nccl-cu13": "2.29.7", "ray": "2.60.0"}), model=WHOLE)


def placed(seen: dict[str, Seen], build: Build = BUILDS["vllm"], wanted: Profile | None = None) -> Placed:
    wanted = wanted or sized("vllm", 2, 4, 8)
    replica = contexts(wanted, rack(2), build)[0].replica
    gpus = {s.host: rack(2)[s.host].gpus.value.gpus for s in replica.shards}
    return Placed(replica, wanted, ENGINES[wanted.engine], dict.fromkeys(gpus, build), seen, gpus)


def hosts_of(seen: dict[str, Seen], **more) -> list[str]:
    verdict = judge(placed(seen, **more))
    assert verdict.profile == ()
    return [str(p) for p in verdict.hosts]


def both(one: Seen, other: Seen | None = None) -> dict[str, Seen]:
    return {"r1-t01": one, "r1-t02": other or one}


def test_hosts_that_are_alike_and_whole_have_nothing_against_them():
    assert hosts_of(both(OK)) == []


def test_what_nobody_could_tell_is_no_problem_and_is_said():
    dark = Seen(unknown=("version of vllm: no answer within its limit (20 s)",))
    assert hosts_of(both(dark)) == []
    assert list(unknown(both(dark))) == [f"not checked on r1-t01, r1-t02: {dark.unknown[0]}"]


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (replace(OK, engine=EngineSeen({}, "no program vllm")), "vllm is missing on r1-t02 (no program vllm)"),
        (replace(OK, engine=EngineSeen({**OK.engine.installed, "vllm": "0.32.0"})), "r1-t01: 0.33.0, r1-t02: 0.32.0"),
        (replace(OK, engine=EngineSeen({**OK.engine.installed, "nvidia-nccl-cu13": "2.28.3"})), "nvidia-nccl-cu13"),
    ],
)
def test_a_host_that_is_not_like_the_other(other: Seen, says: str):
    """The host's name, what is wrong there, and the profile are in the message."""
    assert any(says in p and p.startswith("profile big: ") for p in hosts_of(both(OK, other)))


def test_weights_that_do_not_fit_name_the_host_and_the_gpu():
    big = ModelFiles({"a.safetensors": 4 << 40})
    says = hosts_of(both(replace(OK, model=big)))
    assert len(says) == 8
    assert "GPU 0 (GPU-r1-t01-0) of r1-t01 has" in says[0]
    assert "an estimate" in says[0]


def test_ray_must_be_there_where_it_is_wanted():
    without = replace(OK, engine=EngineSeen({"vllm": "0.33.0"}))
    assert "Ray is missing on r1-t01, r1-t02" in hosts_of(both(without), build=BUILDS["vllm-ray"])[0]
    assert hosts_of(both(without)) == []


def test_a_config_that_the_sizes_do_not_divide_is_the_profiles_fault():
    wrong = judge(placed(both(replace(OK, config={"num_attention_heads": 60}))))
    assert "60 attention heads, which tp = 8 does not divide" in str(wrong.profile[0])


def test_a_gpu_that_does_not_do_is_named_with_its_host():
    """Both hosts have a GPU 0: which of them is meant is in the message."""
    one = placed(both(OK), wanted=sized("vllm", 2, 4, 8, args=("-q", "fp8")))
    old = {h: tuple(replace(g, compute_cap="7.0") for g in some) for h, some in one.gpus.items()}
    assert "GPU 0 (GPU-r1-t01-0) of r1-t01 and 7 more" in str(judge(replace(one, gpus=old)).profile[0])


def test_the_version_that_was_read_decides_what_is_refused():
    """gguf left vLLM in 0.33; what the inventory says of a build counts more than what a host says."""
    seen = both(OK)
    build = build_on(BUILDS["vllm"], VLLM, OK)
    assert (build.version, build.nccl) == ("0.33.0", "2.29.7")
    assert build_on(Build(version="9", nccl="2"), VLLM, OK) == Build(version="9", nccl="2")
    wanted = sized("vllm", 2, 4, 8, args=("--quantization", "hqq"))
    assert "hqq is not in vLLM 0.33.0" in str(judge(placed(seen, build, wanted)).profile[0])
    assert judge(placed(seen, replace(build, version="0.12.0"), wanted)).profile == ()


def test_an_engine_is_what_its_own_package_says():
    """A Python without SGLang is no SGLang, whatever else is installed there."""
    assert engine_seen(ENGINES["sglang"], "python 3.12.9\ntorch 2.13.0\n").missing
    assert engine_seen(ENGINES["sglang"], "motd\nsglang 0.5.23\n") == EngineSeen({"sglang": "0.5.23"})


def sims(one: EngineSeen | None, other: EngineSeen | None) -> list[str]:
    """What stands against a sim replica on two hosts."""
    wanted = Profile("drill", "sim", nodes=2)
    replica = replica_plan([Host("a"), Host("b")], "drill-0")
    seen = {"a": Seen(engine=one), "b": Seen(engine=other)}
    verdict = judge(Placed(replica, wanted, ENGINES["sim"], dict.fromkeys(seen, Build()), seen, {}))
    assert verdict.profile == ()
    return [str(p) for p in verdict.hosts]


def test_sim_runs_on_any_python3_from_3_8_on():
    """Not the same one on all hosts; the host and what it has are named, and a way out that needs no build."""
    new, old = EngineSeen({"python3": "3.12.9"}), EngineSeen({"python3": "3.6.8"})
    assert sims(new, EngineSeen({"python3": "3.8.0"})) == []
    (says,) = sims(new, old)
    assert says.startswith("profile drill: sim needs python3 3.8 or newer, and b has 3.6.8: install one there")
    assert "takes no build" in says
    assert "path in [engines" not in says
    (says,) = sims(engine_seen(ENGINES["sim"], "", "no program python3"), new)
    assert "and a has none (no program python3)" in says
    assert "and a, b have 3.6.8" in sims(old, old)[0]
    assert sims(None, new) == []  # could not be told: a note says so, and the start will tell


def test_hidden_settings_are_told_with_their_effect():
    """A file, one that cannot be read, and an image: what the shard sets itself is not changed by them."""
    file = NcclFile("/etc/nccl.conf", (("NCCL_DEBUG", "WARN"), ("NCCL_IB_TC", "96")))
    seen = {"a": Seen(nccl_files=(file,)), "b": Seen(nccl_files=(file,), image=Image("x", (("NCCL_ALGO", "Ring"),)))}
    told = list(hidden(seen, dict.fromkeys(seen, ("NCCL_DEBUG",))))
    assert told == [
        "a, b: /etc/nccl.conf sets NCCL_DEBUG=WARN, which the shard's environment overrides",
        "a, b: /etc/nccl.conf sets NCCL_IB_TC=96, and NCCL takes it",
        "b: the image sets NCCL_ALGO=Ring, and NCCL takes it",
    ]
    assert "cannot be read" in next(hidden({"a": Seen(nccl_files=(NcclFile("/x", why="no"),))}, {}))


# --- the image script -------------------------------------------------------------------------------------------------


def image(folder: Path, runtime: str, name: str) -> tuple[str, str]:
    argv = ("sh", "-c", script("image.sh"), "image", runtime, name)
    env = {"PATH": f"{folder}:/usr/bin:/bin"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    return done.stdout, done.stderr


@contextmanager
def docker(folder: Path, text: str) -> Iterator[None]:
    program = folder / "docker"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    yield


def test_an_image_is_known_by_its_digests_and_a_daemon_without_rights_says_nothing(tmp_path: Path):
    assert image(tmp_path, "docker", "e:1") == ("runtime missing\n", "")
    says = "case $* in 'image ls -q') ;; *Config*) echo NCCL_X=1; echo PATH=/ ;; *inspect*) echo b@2; echo a@1 ;; esac"
    with docker(tmp_path, says):
        assert image(tmp_path, "docker", "e:1")[0] == "digest a@1 b@2\nenv NCCL_X=1\n"
    with docker(tmp_path, "case $* in *inspect*) exit 1 ;; esac"):
        assert image(tmp_path, "docker", "e:1")[0] == "image missing\n"
    with docker(tmp_path, "echo permission denied >&2; exit 1"):
        assert image(tmp_path, "docker", "e:1") == ("", "permission denied\n")
    (tmp_path / "e.sqsh").write_bytes(b"12345")
    (tmp_path / "enroot").write_text("#!/bin/sh\n")
    (tmp_path / "enroot").chmod(0o755)
    assert image(tmp_path, "enroot", f"{tmp_path}/e.sqsh")[0] == "digest 5 bytes\n"
    assert image(tmp_path, "enroot", f"{tmp_path}/f.sqsh")[0] == "image missing\n"


def test_images_of_hosts_are_compared():
    """The runtime missing on one, the image on the other; two digests of one name, and one digest of two registries."""
    wanted = sized("vllm", 2, 4, 8, container=Container("docker", "e:1"))
    one, other = Seen(image=Image("sha256:1")), Seen(image=Image("sha256:2"))
    assert "not the same on all hosts" in hosts_of(both(one, other), wanted=wanted)[0]
    many, far = Seen(image=Image("a/e@sha256:1 b/e@sha256:2")), Seen(image=Image("c.example/e@sha256:1"))
    assert hosts_of(both(many, far), wanted=wanted) == []
    assert "not the same" in hosts_of(both(far, Seen(image=Image("c.example/e@sha256:2"))), wanted=wanted)[0]
    assert (
        "not the same" in hosts_of(both(Seen(image=Image("5 bytes")), Seen(image=Image("6 bytes"))), wanted=wanted)[0]
    )
    assert "no docker on r1-t02" in hosts_of(both(one, Seen(image=Image(None))), wanted=wanted)[0]
    assert "no image e:1 on r1-t02" in hosts_of(both(one, Seen(image=Image(""))), wanted=wanted)[0]


# --- at the command line, on a simulated rack -------------------------------------------------------------------------


@pytest.fixture
async def cli(tmp_path: Path):
    async with serve(nvl72(2, hgx=0), tmp_path / "rack") as rack_of:
        yield Cli(rack_of, tmp_path / "home")


async def test_plan_and_place_refuse_what_the_hosts_cannot_carry(cli: Cli):
    """Exit 4 with the host's name: the plan is printed all the same, and place claims nothing."""
    assert (await cli("plan", "deepseek-r1"))[0] == 0
    cli.rack.set("r1-t02", "vllm-version:0.32.0")
    code, out, err = await cli("plan", "deepseek-r1")
    assert code == 4
    assert "vllm differs between hosts (r1-t01: 0.33.0, r1-t02: 0.32.0)" in err
    assert err.count("profile deepseek-r1") == 1
    assert "deepseek-r1-0" in out
    assert "differs between hosts" in (await cli.json("plan", "deepseek-r1"))["warnings"][0]
    for fault, says in (("vllm-missing", "vllm is missing on r1-t02"), ("model-missing", "LG913 on r1-t02")):
        cli.rack.clear("r1-t02")
        cli.rack.set("r1-t02", fault)
        code, _, err = await cli("place", "deepseek-r1")
        assert code == 4
        assert says in err
    assert (await cli.json("ps"))["replicas"] == []


async def test_a_profile_that_its_model_does_not_allow_is_exit_2(cli: Cli):
    cli.change("tp = 8", "tp = 8\nep = true")
    cli.change("/models/deepseek-r1", "/models/llama-70b")
    code, _, err = await cli("place", "deepseek-r1")
    assert code == 2
    lines = cli.rack.inventory.read_text().splitlines()
    where = lines.index("ep = true", lines.index("[profiles.deepseek-r1]")) + 1
    assert f"{cli.rack.inventory}:{where}: profiles.deepseek-r1.ep: " in err
    assert "the model has no experts" in err


async def test_env_and_plan_show_files_that_change_nccl_and_no_secret(cli: Cli):
    """What /etc/nccl.conf sets is told with its effect; the value of a token is told nowhere."""
    (cli.rack.inventory.parent / "hosts/r1-t01/etc/nccl.conf").write_text("NCCL_IB_TC=96\nNCCL_DEBUG=WARN\n")
    cli.change("[profiles.deepseek-r1]\n", '[profiles.deepseek-r1]\nenv = {HF_TOKEN = "hf_abc", TOKENIZERS_X = "1"}\n')
    for words in (("plan", "deepseek-r1"), ("--json", "plan", "deepseek-r1"), ("env", "deepseek-r1")):
        _, out, err = await cli(*words)
        assert "sets NCCL_IB_TC=96, and NCCL takes it" in " ".join((out + err).split())
        assert "hf_abc" not in out + err
        assert "***" in out
    shards = json.loads((await cli("--json", "plan", "deepseek-r1"))[1])["replicas"][0]["shards"]
    assert shards[0]["env"]["TOKENIZERS_X"] == "1"
    _, out, _ = await cli("env", "deepseek-r1", "--shell")
    assert "hf_abc" not in out


@pytest.fixture
def python_of(cli: Cli, tmp_path: Path) -> Callable[[str, str], None]:
    """python_of(HOST, SAYS): that host's python3 is one that says this, or, for "", none is on its PATH."""

    def become(host: str, says: str) -> None:
        programs = tmp_path / f"bin-{host}"
        programs.mkdir(exist_ok=True)
        for name in ("cat", "sh", "env", "sleep", "tr", "sed"):
            if not (programs / name).exists():
                (programs / name).symlink_to(shutil.which(name) or "")
        (programs / "python3").unlink(missing_ok=True)
        if says:
            (programs / "python3").write_text(f"#!/bin/sh\n{says}\n")
            (programs / "python3").chmod(0o755)
        (tmp_path / f"{host}.sh").write_text(f"PATH={programs}\n")
        text = cli.rack.inventory.read_text()
        if f"[engines.sim.hosts.{host}]" not in text:
            cli.rack.inventory.write_text(f'{text}\n[engines.sim.hosts.{host}]\nsource = "{tmp_path}/{host}.sh"\n')

    return become


async def test_sim_is_not_started_where_there_is_no_python3_for_it(cli: Cli, python_of: Callable[[str, str], None]):
    """None, or one that is too old: exit 4 with profile, host and what was found, nothing claimed, nothing started."""
    for says, told in (("", "r1-t02 has none (no program python3)"), ("echo python3 3.6.8", "r1-t02 has 3.6.8")):
        python_of("r1-t02", says)
        code, out, err = await cli("place", "sim-nvl")
        assert (code, out) == (4, "")
        assert f"profile sim-nvl: sim needs python3 3.8 or newer, and {told}" in err
        assert (await cli("plan", "sim-nvl"))[0] == 4
    assert (await cli.json("ps"))["replicas"] == []
    assert "sim       r1-t02       python3 3.6.8: too old, 3.8 is needed" in (await cli("engines"))[1]
    python_of("r1-t02", "")
    assert "sim       r1-t02       no python3" in (await cli("engines"))[1]


async def test_a_python3_that_says_nothing_is_told_and_no_refusal(cli: Cli, python_of: Callable[[str, str], None]):
    """Not checked, with host and why: whether it runs is seen at the start."""
    python_of("r1-t02", "echo it is broken >&2; exit 3")
    code, _, err = await cli("env", "sim-nvl")
    assert code == 0, err
    assert "not checked on r1-t02: version of sim: it is broken" in err


async def test_engines_are_listed_with_their_versions_host_by_host(cli: Cli):
    """Equal hosts fold into one line; a host that cannot be read is exit 3."""
    code, out, err = await cli("engines")
    assert code == 0, err
    assert "vllm      r1-t[01-02]  python 3.12.9, vllm 0.33.0" in out
    assert "sglang    r1-t[01-02]  not installed" in out
    cli.rack.set("r1-t02", "vllm-version:0.32.0")
    found = {h["name"]: h["installed"] for h in (await cli.json("engines"))["hosts"]}
    versions = {n: e["versions"].get("vllm") for n, some in found.items() for e in some if e["engine"] == "vllm"}
    assert versions == {"r1-t01": "0.33.0", "r1-t02": "0.32.0"}
    cli.rack.set("r1-t02", "refused")
    assert (await cli("engines"))[0] == 3


def test_every_section_that_is_asked_is_read():
    """No section falls to the reader of another: each has words for what it is when it cannot be told."""
    wanted = sized("vllm", 2, 4, 8)
    names = [s.name for s in asking._sections(Host("h"), wanted, VLLM, Build(), (0,))]
    assert names == ["nccl", "engine-version-vllm", asking.MODEL, asking.CONFIG]
    words = {asking._what(n, wanted, VLLM) for n in names if n != asking.MODEL}
    assert len(words) == len(names) - 1


def test_only_the_leader_of_llamacpp_reads_the_model():
    """On the other hosts nothing is looked for, and nothing is missed."""
    wanted = sized("llamacpp", 2, 8, 16)
    replica = contexts(wanted, hgx(2), BUILDS["llamacpp"])[0].replica
    here = Placed(replica, wanted, ENGINES["llamacpp"], {}, {}, {})
    leader, other = (s.host for s in replica.shards)
    assert list(asking._of_readers(here, {leader: WHOLE, other: ModelFiles(kind="absent")})) == [leader]
    names = [s.name for s in asking._sections(Host("h"), wanted, ENGINES["llamacpp"], Build(), (1,))]
    assert asking.MODEL not in names


def test_a_host_that_leads_one_replica_and_works_for_another_reads_the_model():
    """In whichever order they were planned: all ranks of a host count."""
    wanted = sized("llamacpp", 2, 8, 16)
    one = contexts(wanted, hgx(2), BUILDS["llamacpp"])[0].replica
    first, second = one.shards
    turned = replace(one, shards=(replace(first, host=second.host), replace(second, host=first.host)))
    for replicas in ((one, turned), (turned, one)):
        ranks = asking._ranks(Plan("p", "nvlink", "", replicas, ()))
        assert ranks == {first.host: {0, 1}, second.host: {0, 1}}
    names = [s.name for s in asking._sections(Host("h"), wanted, ENGINES["llamacpp"], Build(), ranks[first.host])]
    assert asking.MODEL in names
