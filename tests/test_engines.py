"""What each engine refuses, notes and says about itself, without any host."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from engine_cases import BUILDS, cases, contexts, roce, sized
from facts import gpu, hgx, rack
from test_placement import roce_hca, roce_host

from llmgwctl.engines import ENGINES, container, engine_of, memory, model_config
from llmgwctl.engines.base import Build
from llmgwctl.engines.env import environment, removed
from llmgwctl.engines.options import fighting_args, value_of, without
from llmgwctl.engines.programs import beside, host_port, is_folder, program
from llmgwctl.engines.versions import differing, nccl_of, parse
from llmgwctl.model.errors import UsageError
from llmgwctl.model.numbers import of_version, older
from llmgwctl.model.profile import Container, Profile
from llmgwctl.model.reading import ok
from llmgwctl.model.weights import ModelFiles

VLLM, SGLANG, LLAMA = ENGINES["vllm"], ENGINES["sglang"], ENGINES["llamacpp"]


def profile(engine: str = "vllm", **more) -> Profile:
    return Profile("big", engine, "/models/big.gguf" if engine == "llamacpp" else "/models/big", **more)


def cards(cap: str | None = "9.0", name: str = "NVIDIA H100 80GB HBM3", count: int = 1):
    return tuple(replace(gpu(i, name), compute_cap=cap) for i in range(count))


def problems(wanted: Profile, gpus=()) -> list[str]:
    return [str(p) for p in ENGINES[wanted.engine].validate(wanted, gpus)]


def only(found: list[str]) -> str:
    assert len(found) == 1, found
    return found[0]


# --- the registry ----------------------------------------------------------------------------------------------------


def test_an_unknown_engine_is_refused_with_those_known():
    with pytest.raises(UsageError, match="no engine 'vlllm': known are vllm, sglang, llamacpp, sim"):
        engine_of("vlllm")


@pytest.mark.parametrize("name", ENGINES)
def test_what_every_engine_says_of_itself(name):
    """Only rank 0 serves; each is asked for its version, or, what takes no build, for that of what it runs on."""
    engine = ENGINES[name]
    assert engine.name == name
    assert engine.serves_http(0)
    assert not engine.serves_http(1)
    assert engine.version is not None
    assert bool(engine.version.package) != engine.needs_build
    assert engine.health_path in engine.open_paths or name == "sim"


@pytest.mark.parametrize("name", ENGINES)
def test_the_ports_of_a_replica_fit_its_block(name):
    """Named ports, and for SGLang and Ray what they take behind the last one, are not more than 32."""
    names = ENGINES[name].ports(profile(name, nodes=2))
    behind = {"dist-init": 20, "ray": 11 + 17 - 1}
    assert len(names) + behind.get(names[-1], 0) <= 32
    assert ENGINES[name].ports(profile(name)) == ()


# --- numbers and arguments -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llamacpp"])
def test_no_model_is_refused(engine):
    """vLLM would start to download a default one."""
    assert "has no model_path" in only(problems(replace(profile(engine), model_path="")))


@pytest.mark.parametrize("key", ["tp", "pp", "dp", "gpus_per_node"])
def test_sizes_are_positive(key):
    assert any(f"{key} is 0" in p for p in problems(profile(**{key: 0})))


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (profile(tp=8, gpus_per_node=4), "nodes x gpus_per_node is 4, tp x pp x dp is 8"),
        (profile(tp=4, dp=2, gpus_per_node=4), "tp x pp x dp is 8"),
        (profile("sglang", tp=8, gpus_per_node=4), "tp x pp is 8"),
        (profile("sglang", tp=4, dp=3, gpus_per_node=4), "dp = 3 lies inside tp = 4"),
        (profile("sglang", tp=4, ep=3, gpus_per_node=4), "ep = 3 lies inside tp = 4"),
        (profile("sglang", tp=1, served_model_name="a:b"), "':' in served_model_name"),
        (profile("llamacpp", tp=4), "knows no tp"),
        (profile("llamacpp", ep=True), "knows no ep"),
        (replace(profile("llamacpp"), model_path="/models/big"), ".gguf"),
        (profile(dp=3, nodes=2, gpus_per_node=3, tp=2), "dp = 3 replicas do not lie evenly on 2 nodes"),
        (profile(ep=4, tp=2, gpus_per_node=2), "spreads experts over tp x dp = 2"),
        (profile(served_model_name="--x"), "would be taken for an option"),
    ],
)
def test_numbers_that_cannot_work_are_refused(wanted, says):
    assert says in only(problems(wanted))


def test_numbers_that_work_are_not_refused():
    """SGLang's data parallel ranks need no GPUs of their own; data parallel over more hosts than replicas is fine."""
    assert problems(profile("sglang", tp=8, dp=8, ep=True, gpus_per_node=8)) == []
    assert problems(profile(tp=8, dp=2, nodes=4, gpus_per_node=4)) == []
    assert problems(profile(tp=2, dp=4, ep=8, nodes=2, gpus_per_node=4)) == []


@pytest.mark.parametrize(
    ("engine", "arg"),
    [
        ("vllm", "--tensor-parallel-size=4"),
        ("vllm", "--tensor_parallel_size"),
        ("vllm", "--tensor-par"),
        ("vllm", "-tp"),
        ("vllm", "--nnodes"),
        ("vllm", "--port"),
        ("vllm", "-dpl=2"),
        ("sglang", "--tp"),
        ("sglang", "--dist-init-addr"),
        ("sglang", "--model"),
        ("llamacpp", "--rpc"),
        ("llamacpp", "-ngl"),
    ],
)
def test_arguments_that_fight_what_is_generated_are_refused(engine, arg):
    """Whatever spelling the engine's own parser would take for it."""
    assert "which llmgwctl generates" in only(problems(profile(engine, args=(arg, "4"))))


@pytest.mark.parametrize(
    ("engine", "args"),
    [
        ("vllm", ("--max-model-len", "32768", "-q", "fp8", "--enable-prefix-caching")),
        ("vllm", ("--enforce-eager", "--disable-custom-all-reduce")),
        ("sglang", ("--mem-fraction-static", "0.8", "--pp-max-micro-batch-size", "4")),
        ("llamacpp", ("-c", "8192", "--parallel", "4", "--mlock")),
    ],
)
def test_other_arguments_pass(engine, args):
    assert problems(profile(engine, args=args), cards()) == []


def test_a_key_in_the_inventory_is_refused():
    """In args it would be in every list of processes, in env in the inventory."""
    assert any("holds an API key" in p for p in problems(profile(args=("--api-key", "sk-1"))))
    assert any("holds an API key" in p for p in problems(profile("sglang", args=("--api-key=sk-1",))))
    assert "holds an API key" in only(problems(profile(env=(("VLLM_API_KEY", "sk-1"),))))


def test_options_are_read_like_argparse_does():
    assert value_of(("-q", "awq", "--quantization=fp8"), "--quantization", "-q") == "fp8"
    assert value_of(("--quantization",), "--quantization") == ""
    assert value_of(("--other", "x"), "--quantization") is None
    assert without(("--a", "1", "--b=2", "-c"), "--a", "--b") == ("-c",)
    assert list(fighting_args(profile(args=("--no",)), ("--nodes",), abbreviations=False)) == []


# --- GPUs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [("--quantization", "X"), ("--quantization=X",), ("-q", "X"), ("-q=X",)])
@pytest.mark.parametrize(
    ("engine", "method", "cap", "floor"),
    [
        ("vllm", "fp8", "7.0", "7.5"),
        ("vllm", "awq", "7.0", "7.5"),
        ("vllm", "fp_quant", "9.0", "10.0"),
        ("vllm", "compressed-tensors", "6.1", "7.0"),
        ("sglang", "fp8", "7.5", "8.0"),
        ("sglang", "w4afp8", "8.9", "9.0"),
        ("sglang", "modelopt_fp8", "8.6", "8.9"),
        ("sglang", "mxfp8", "9.0", "10.0"),
    ],
)
def test_quantization_against_compute_capability(engine, method, cap, floor, form):
    """Refused below the engine's own floor with GPU, value and floor; at the floor it passes."""
    args = tuple(a.replace("X", method) for a in form)
    says = only(problems(profile(engine, args=args), cards(cap)))
    assert f"quantization {method} needs compute capability {floor}; H100 has {cap} (GPU 0" in says
    assert problems(profile(engine, args=args), cards(floor)) == []


def test_a_table_follows_the_version():
    """Newest when unknown; between the two that were read the lower floor counts."""
    table = {"0.33.1": 75, "": 75, "0.20.0": 75, "0.12.0": 80, "0.11.2": 80}
    from llmgwctl.engines.capability import VLLM as floors

    assert {v: floors.floor("fp8", v) for v in table} == table
    assert floors.floor("bitsandbytes", "0.33.0") is None


def test_quantization_that_nothing_here_runs_is_refused_and_what_cannot_be_told_is_noted():
    assert "not for NVIDIA GPUs" in only(problems(profile(args=("-q", "petit_nvfp4")), cards()))
    for args, says in (
        (("-q", "gguf"), "vllm-gguf-plugin"),
        (("-q", "nosuch"), "not checked, the engine decides"),
        (("-q", "rtn"), "not checked, the engine decides"),
    ):
        wanted = profile(args=args)
        assert problems(wanted, cards()) == []
        assert says in " ".join(VLLM.notes(wanted, cards()))
    assert "not read: whether fp8" in " ".join(VLLM.notes(profile(args=("-q", "fp8")), cards(None)))


def test_a_method_that_a_known_version_does_not_have_is_refused():
    wanted = profile(args=("-q", "rtn"), tp=8, gpus_per_node=8)
    ctx = contexts(replace(wanted, pool="prod"), hgx(1), Build())[0]
    builds = {ctx.shard.host: Build(version="0.33.0")}
    assert "rtn is not in vLLM 0.33.0" in str(VLLM.refuse(ctx.replica, wanted, builds)[0])
    assert VLLM.refuse(ctx.replica, wanted, {ctx.shard.host: Build(version="0.12.0")}) == ()


def test_a_vllm_too_old_for_several_hosts_is_refused_on_each_of_them():
    """--nnodes came with 0.11.1; under Ray, or where the version is not known, nothing is said."""
    wanted = profile(tp=8, nodes=2, gpus_per_node=4, pool="prod")
    ctx = contexts(wanted, rack(2), Build())[0]
    one, other = (s.host for s in ctx.replica.shards)

    def said(version: str, **more: str) -> list[str]:
        return [
            str(p) for p in VLLM.refuse(ctx.replica, wanted, {h: Build(version=version, **more) for h in (one, other)})
        ]

    assert [h in text for h, text in zip((one, other), said("0.11.0"), strict=True)] == [True, True]
    assert 'vLLM 0.11.1 or newer, or distributed = "ray"' in said("0.11.0")[0]
    assert said("0.11.1") == said("") == said("0.11.0", distributed="ray") == []


@pytest.mark.parametrize(
    ("wanted", "cap", "fine"),
    [
        (profile(args=("--kv-cache-dtype", "fp8_e4m3")), "8.6", False),
        (profile(args=("--kv-cache-dtype=fp8",)), "8.9", True),
        (profile(args=("--kv-cache-dtype", "fp8"), env=(("VLLM_ATTENTION_BACKEND", "FLASHINFER"),)), "8.6", True),
        (profile(args=("--kv-cache-dtype", "auto")), "7.5", True),
        (profile("sglang", args=("--kv-cache-dtype", "fp8_e5m2")), "8.6", False),
        (profile(args=("--dtype", "bfloat16")), "7.5", False),
        (profile(args=("--dtype", "bfloat16")), "8.0", True),
        (profile("sglang", args=("--dtype", "bfloat16")), "7.5", True),
        (profile("sglang"), "7.0", False),
    ],
)
def test_types_against_compute_capability(wanted, cap, fine):
    """fp8 caches from 8.9 (8.0 with FlashInfer), bfloat16 from 8.0 where the engine does not switch it off itself."""
    found = problems(wanted, cards(cap))
    assert found == [] if fine else "compute capability" in only(found)


def test_gpus_that_do_not_do():
    """Fewer than needed, of two models, split by MIG: with the GPU and the way out."""
    two = profile(tp=2, gpus_per_node=2)
    assert "needs 2 GPUs and has 1" in only(problems(two, cards()))
    mixed = (gpu(0, "NVIDIA H100 80GB HBM3"), gpu(1, "NVIDIA H200"))
    assert "H100: GPU 0 (GPU-h-0), H200: GPU 1 (GPU-h-1)" in only(problems(two, mixed))
    split = (replace(gpu(0), mig_enabled=True), gpu(1))
    assert "MIG is on for GPU 0" in only(problems(two, split))


# --- the model -------------------------------------------------------------------------------------------------------

LLAMA70 = {"num_attention_heads": 64, "num_key_value_heads": 8, "num_hidden_layers": 80}


@pytest.mark.parametrize(
    ("wanted", "config", "says"),
    [
        (profile(tp=8), LLAMA70, None),
        (profile(tp=16), LLAMA70, None),
        (profile(tp=3), LLAMA70, "64 attention heads, which tp = 3"),
        (profile(tp=6), LLAMA70 | {"num_attention_heads": 48}, "8 KV heads"),
        (profile(pp=100), LLAMA70, "the model has 80 layers"),
        (profile(ep=True), LLAMA70, "has no experts"),
        (profile(ep=True), LLAMA70 | {"n_routed_experts": 256}, None),
        (profile("sglang", tp=16, dp=16), LLAMA70, None),
        (profile(tp=3), {"text_config": LLAMA70}, "64 attention heads"),
        (profile(tp=16), LLAMA70 | {"num_key_value_heads": 3, "kv_lora_rank": 512}, None),
        (profile(tp=3), {"num_attention_heads": "64", "num_key_value_heads": None}, None),
        (profile(), {"quantization_config": "fp8"}, None),
    ],
)
def test_a_model_against_its_sizes(wanted, config, says):
    """Heads over tp, layers over pp, experts for ep; a config that says nothing of them passes."""
    found = [str(p) for p in model_config.check(wanted, config)]
    assert found == [] if says is None else says in only(found)


@pytest.mark.parametrize(
    ("engine", "told", "cap", "says"),
    [
        ("vllm", {"quant_method": "fp8"}, "7.0", "needs compute capability 7.5"),
        ("sglang", {"quant_method": "fp8"}, "7.5", "needs compute capability 8.0"),
        ("vllm", {"quant_method": "mxfp8"}, "7.5", "modelopt_mxfp8 needs compute capability 8.0"),
        ("sglang", {"quant_method": "modelopt", "quant_algo": "NVFP4"}, "7.5", "modelopt_fp4 needs"),
        ("vllm", {"quant_method": "gptq"}, "7.0", None),
        ("vllm", {"quant_method": 5}, "7.0", None),
    ],
)
def test_a_checkpoint_names_its_own_quantization(engine, told, cap, says):
    found = [str(p) for p in model_config.check(profile(engine), {"quantization_config": told}, cards(cap))]
    assert found == [] if says is None else says in only(found)


def compressed(weights, activations=None):
    group = {"weights": weights, "input_activations": activations}
    return {"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}}


@pytest.mark.parametrize(
    ("config", "scheme"),
    [
        (compressed({"type": "float", "num_bits": 8}, {"type": "float", "num_bits": 8}), "W8A8-FP8"),
        (compressed({"type": "float", "num_bits": 8}), "W8A16-FP8"),
        (compressed({"type": "int", "num_bits": 4}), "WNA16"),
        (compressed({"type": "int", "num_bits": 8}, {"type": "int", "num_bits": 8}), "W8A8-INT8"),
        (compressed({"type": "float", "num_bits": 4, "group_size": 16}), "W4A16-NVFP4"),
        (compressed({"type": "new", "num_bits": 3}), None),
        ({"quantization_config": {"config_groups": []}}, None),
    ],
)
def test_schemes_of_compressed_tensors(config, scheme):
    assert model_config.scheme_of(config) == scheme


def test_a_scheme_has_its_own_floor():
    """W8A8-FP8 is native only from 8.9, though the method as such runs from 7.0."""
    config = compressed({"type": "float", "num_bits": 8}, {"type": "float", "num_bits": 8})
    assert "W8A8-FP8 needs compute capability 8.9" in str(
        only(list(model_config.check(profile(), config, cards("8.6"))))
    )
    assert model_config.check(profile(), config, cards("9.0")) == ()


def test_weights_that_do_not_fit_are_refused_as_an_estimate():
    """160 GiB over two GPUs of 80 GiB leave nothing; over four they do."""
    card = replace(gpu(0, "NVIDIA H100 80GB HBM3"), memory_total_mib=81559, memory_used_mib=1000)
    weights = 161 << 30
    says = str(only(list(memory.check(profile(tp=2), (card,), weights))))
    assert "GPU 0 (GPU-h-0) has 80559 MiB free" in says
    assert "estimate" in says
    assert list(memory.check(profile(tp=4), (card,), weights)) == []
    assert list(memory.check(profile(tp=2), (replace(card, memory_total_mib=None),), weights)) == []


def test_weights_are_counted_once():
    """The index decides; without one, the first format that is there."""
    both = {"a.safetensors": 5, "b.safetensors": 6, "pytorch_model.bin": 11}
    assert ModelFiles(both).weights_bytes == 11
    assert ModelFiles(both, frozenset({"a.safetensors"})).weights_bytes == 5
    assert ModelFiles({}).weights_bytes == 0


# --- environment -----------------------------------------------------------------------------------------------------


def test_llama_cpp_gets_no_nccl_variable():
    for ctx in contexts(*cases()["llamacpp-infiniband"]):
        assert {v.name for v in environment(ctx, LLAMA)} == {"CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES"}


def test_roce_without_one_index_needs_an_nccl_that_is_known_to_choose():
    """Refused with the adapters and their indexes; NCCL 2.21 or newer on every host, or an index by hand, passes."""
    hosts = roce()
    hosts["a"] = replace(hosts["a"], hcas=ok((roce_hca(1, 1, 3), roce_hca(2, 1, 5))))
    wanted = sized("vllm", 2, 4, 8)
    replica = contexts(wanted, hosts, Build())[0].replica
    for nccl in ("", "2.20.5"):
        says = str(only(list(VLLM.refuse(replica, wanted, {h: Build(nccl=nccl) for h in "ab"}))))
        assert "on a no RoCE v2 GID index serves all adapters (mlx5_1:1: 3; mlx5_2:1: 5)" in says
    assert VLLM.refuse(replica, wanted, {h: Build(nccl="2.21.5") for h in "ab"}) == ()
    by_hand = replace(wanted, env=(("NCCL_IB_GID_INDEX", "3"),))
    assert VLLM.refuse(replica, by_hand, {}) == ()


def test_names_that_differ_between_hosts_are_not_copied_by_ray():
    """A newer Ray executor keeps what a host has; the legacy one overwrites it, unless vLLM's own list forbids."""
    ranks = contexts(*cases()["vllm-ray-roce"])
    listed = json.loads(VLLM.files(ranks[0])["ray_non_carry_over_env_vars.json"])
    assert listed == ["NCCL_IB_GID_INDEX", "VLLM_CONFIG_ROOT"]
    assert VLLM.files(ranks[1]) == {}
    same = contexts(*cases()["vllm-ray-infiniband"])
    assert "ray_non_carry_over_env_vars.json" not in VLLM.files(same[0])


def test_inherited_variables_that_would_lead_elsewhere_are_removed():
    ctx = contexts(*cases()["vllm-domain"])[0]
    assert {"RAY_ADDRESS", "VLLM_PORT", "LLAMA_ARG_"} <= set(removed(ctx))


def test_one_host_uses_no_ray_whatever_the_build_says():
    wanted = sized("vllm", 1, 8, 8)
    (ctx,) = contexts(wanted, hgx(1), BUILDS["vllm-ray"])
    assert [c.name for c in VLLM.commands(ctx)] == ["vllm"]


def test_ray_is_refused_where_it_is_known_not_to_work():
    wanted = sized("vllm", 2, 4, 4, dp=2)
    replica = contexts(wanted, rack(2), Build())[0].replica
    ray = {s.host: BUILDS["vllm-ray"] for s in replica.shards}
    assert "data parallel over Ray" in str(VLLM.refuse(replica, wanted, ray)[0])
    boxed = replace(wanted, dp=1, tp=8, container=Container("docker", "x"))
    assert "two containers" in str(VLLM.refuse(replica, boxed, ray)[0])
    half = {replica.shards[0].host: BUILDS["vllm-ray"]}
    assert "mp on some of its hosts and ray on others" in str(
        VLLM.refuse(replica, replace(wanted, dp=1, tp=8), half)[0]
    )


# --- the endpoint and its key ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in cases() if not n.startswith("vllm-found")])
def test_the_leader_listens_on_its_management_address_alone(name):
    for ctx in contexts(*cases()[name]):
        words = [w for c in ENGINES[ctx.profile.engine].commands(ctx) for w in c.argv]
        hosts = [words[i + 1] for i, w in enumerate(words[:-1]) if w in ("--host", "-H")]
        assert hosts == ([ctx.shard.address] if ctx.leader or ctx.profile.engine != "vllm" else [])


def test_everything_is_listened_on_only_when_the_profile_says_so():
    wanted = replace(sized("vllm", 1, 8, 8), listen_all=True)
    (ctx,) = contexts(wanted, hgx(1), Build())
    v6 = replace(ctx, shard=replace(ctx.shard, address="fd00::1"))
    for at, everything in ((ctx, "0.0.0.0"), (v6, "::")):
        assert at.listen == everything
        for engine in ENGINES.values():
            (command,) = engine.commands(at)
            assert command.argv[command.argv.index("--host") + 1] == everything


def test_a_key_reaches_sglang_by_a_file_that_only_the_leader_has():
    """In no argument list, and no other rank is told."""
    ranks = contexts(*cases()["sglang-api-key"])
    (leader,), (worker,) = (SGLANG.commands(r) for r in ranks)
    assert leader.argv[-2:] == ("--config", "sglang-key.yaml")
    assert "--config" not in worker.argv
    assert SGLANG.api_key_files('a"b') == {"sglang-key.yaml": 'api-key: "a\\"b"\n'}
    assert any("own log" in n for n in SGLANG.notes(ranks[0].profile, ()))


def test_a_second_config_file_is_refused_beside_a_key():
    wanted = profile("sglang", args=("--config", "x.yaml"), api_key_env="KEY")
    assert "one --config" in only(problems(wanted))


@pytest.mark.parametrize("name", [n for n in cases() if "docker" in n or "podman" in n or "enroot" in n])
def test_a_container_is_handed_names_and_no_values(name):
    """Every variable of the shard arrives, and the marker by which its processes are known; none stands in `ps`."""
    for ctx in contexts(*cases()[name]):
        engine = ENGINES[ctx.profile.engine]
        (command,) = engine.commands(ctx)
        passed = [command.argv[i + 1] for i, w in enumerate(command.argv) if w in ("-e", "--env")]
        given = {v.name for v in environment(ctx, engine)} | {"LLMGWCTL_SHARD", "SPT_NOENV"}
        assert given <= set(passed)
        assert {p.split("=")[0] for p in passed if "=" in p} <= {
            "NVIDIA_IMEX_CHANNELS", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES",
        }  # fmt: skip
        key = engine.api_key_env
        assert (key in passed) == bool(key and ctx.leader and ctx.profile.has_api_key)


@pytest.mark.parametrize(
    ("box", "says"),
    [
        (Container("lxc", "x"), "no container runtime 'lxc'"),  # type: ignore[arg-type]
        (Container("docker", ""), "has no image"),
        (Container("docker", "x", mounts=("cache:/c",)), "is no mount"),
    ],
)
def test_containers_that_cannot_be(box, says):
    assert says in only(problems(profile(container=box)))


def test_a_path_with_a_colon_cannot_be_mounted():
    """Without a container it may have one; a name of a hub is no path."""
    boxed = replace(profile(container=Container("docker", "x")), model_path="/models/a:b")
    assert "has a colon" in only(problems(boxed))
    assert problems(replace(boxed, container=None)) == problems(replace(boxed, model_path="org/a:b")) == []


def test_an_image_is_the_same_on_all_hosts():
    boxed = profile(container=Container("podman", "reg/x:1"))
    told = [str(p) for p in container.on_hosts(boxed, {"h1": "sha256:a", "h2": "sha256:b", "h3": "", "h4": None})]
    for words, problem in zip(
        ("no image reg/x:1 on h3", "no podman on h4", "h1: sha256:a, h2: sha256:b"), told, strict=True
    ):
        assert words in problem
    assert list(container.on_hosts(boxed, {"h1": "sha256:a", "h2": "sha256:a"})) == []


# --- builds and versions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "main", "ray"),
    [
        ("", "vllm", "ray"),
        ("/opt/v/bin/vllm", "/opt/v/bin/vllm", "/opt/v/bin/ray"),
        ("/opt/v/bin", "/opt/v/bin/vllm", "/opt/v/bin/ray"),
        ("/opt/v/", "/opt/v/vllm", "/opt/v/ray"),
        ("/opt/run-vllm.sh", "/opt/run-vllm.sh", "/opt/ray"),
    ],
)
def test_where_programs_are(path, main, ray):
    build = Build(path)
    assert (program(build, "vllm"), beside(build, "ray")) == (main, ray)
    assert is_folder(path) == (path not in ("", main))


def test_a_path_that_only_a_shell_would_expand_is_refused():
    for engine in (VLLM, SGLANG, LLAMA):
        wanted = profile(engine.name)
        (ctx,) = contexts(replace(wanted, pool="prod"), hgx(1), Build())
        says = str(only(list(engine.refuse(ctx.replica, wanted, {"h100-001": Build("~/bin/x")}))))
        assert "on h100-001 is ~/bin/x: an absolute path" in says
        assert engine.refuse(ctx.replica, wanted, {"h100-001": Build("my-engine")}) == ()


def test_addresses_of_both_families():
    assert (host_port("10.0.0.1", 80), host_port("fd00::1", 80)) == ("10.0.0.1:80", "[fd00::1]:80")


def test_versions_are_read_and_compared():
    """Banner noise is nothing; what differs is named with its hosts."""
    found = parse("Welcome to h1!\npython 3.11.7\nvllm 0.33.0+cu130\nnvidia-nccl-cu13 2.28.9\n\x1b[0m x\n")
    assert found["vllm"] == "0.33.0+cu130"
    assert nccl_of(found) == "2.28.9"
    assert of_version("0.33.0+cu130") == (0, 33, 0)
    assert of_version("dev") == ()
    assert [older(v, "3.8") for v in ("3.6.8", "3.8.0", "3.11.2", "2.7", "dev", "")] == [
        True,
        False,
        False,
        True,
        False,
        False,
    ]
    told = differing("big", VLLM.version, {"h1": found, "h2": found | {"vllm": "0.32.0"}, "h3": found})
    assert "vllm differs between hosts (h1, h3: 0.33.0+cu130, h2: 0.32.0)" in str(only(list(told)))
    assert list(differing("big", VLLM.version, {"h1": found, "h2": dict(found)})) == []


# --- the rest --------------------------------------------------------------------------------------------------------


def test_a_grace_that_is_too_short_is_noted():
    assert any("stop_grace_s is 2" in n for n in VLLM.notes(profile(stop_grace_s=2), ()))
    assert VLLM.notes(profile(), ()) == ()


def test_a_roce_host_is_what_the_cases_think():
    """The two hosts of the RoCE case have different GID indexes, each its own."""
    assert {h.ports[0].gids[1].index for h in roce_host("b", 2, (1,), 5).hcas.value} == {5}
