"""A model's config.json against the parallel sizes and the GPUs of a profile, as the engines check it much later."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from llmgwctl.engines.base import Problem
from llmgwctl.engines.capability import SCHEMES, SGLANG, VLLM, Floor
from llmgwctl.engines.checks import method_fits, too_low
from llmgwctl.model.gpu import Gpu
from llmgwctl.model.numbers import of_version
from llmgwctl.model.profile import Profile

Config = Mapping[str, Any]  # a stranger's file: nothing in it is taken for granted
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_routed_experts")
MODELOPT = {"NVFP4": "modelopt_fp4", "FP8": "modelopt", "MIXED_PRECISION": "modelopt_mixed", "MXFP8": "modelopt_mxfp8"}


def check(profile: Profile, config: Config, gpus: Sequence[Gpu] = (), version: str = "") -> tuple[Problem, ...]:
    """All that a readable config.json says against a profile of vLLM or SGLang."""
    return (*_heads(profile, config), *_layers(profile, config), *_experts(profile, config), *_quantized(
        profile, config, gpus, version
    ))  # fmt: skip


def text_part(config: Config) -> Config:
    """Models of several modalities keep the language model's numbers in a part of their own."""
    for key in ("text_config", "llm_config", "language_config", "thinker_config"):
        part = config.get(key)
        if isinstance(part, Mapping):
            return part if key != "thinker_config" else text_part(part)
    return config


def _number(config: Config, *keys: str) -> int | None:
    values = (text_part(config).get(k) for k in keys)
    return next((v for v in values if isinstance(v, int) and not isinstance(v, bool) and v > 0), None)


def _heads(profile: Profile, config: Config) -> Iterable[Problem]:
    """Attention heads split over tp; SGLang splits them over tp / dp, since dp is attention data parallel there."""
    ways = profile.tp // profile.dp if profile.engine == "sglang" and profile.tp % profile.dp == 0 else profile.tp
    heads = _number(config, "num_attention_heads", "n_head")
    kv = _number(config, "num_key_value_heads")
    if heads is not None and heads % ways:
        what = f"profile {profile.name}: the model has {heads} attention heads, which tp = {ways} does not divide"
        yield Problem(what, "a tp that divides them, and pp for the rest of the GPUs")
        return
    # A latent-attention model (MLA) keeps one cache for all heads, whatever its config says of KV heads.
    if kv is not None and "kv_lora_rank" not in text_part(config) and (kv % ways if kv >= ways else ways % kv):
        what = f"profile {profile.name}: the model has {kv} KV heads, which do not go evenly with tp = {ways}"
        yield Problem(what, "a tp that divides them or is a multiple of them")


def _layers(profile: Profile, config: Config) -> Iterable[Problem]:
    layers = _number(config, "num_hidden_layers", "n_layer")
    if layers is not None and layers < profile.pp:
        yield Problem(f"profile {profile.name}: pp = {profile.pp}, and the model has {layers} layers", "a smaller pp")


def _experts(profile: Profile, config: Config) -> Iterable[Problem]:
    if profile.ep and _number(config, *EXPERTS) is None:
        yield Problem(f"profile {profile.name}: ep is set, and the model has no experts", "take ep out")


def method_of(config: Config) -> str | None:
    """The quantization that a checkpoint names itself, as an engine calls it."""
    told = config.get("quantization_config") or text_part(config).get("quantization_config")
    if not isinstance(told, Mapping):
        return None
    method = told.get("quant_method")
    if method == "modelopt" or (method is None and "quant_algo" in told):
        return MODELOPT.get(str(told.get("quant_algo")), "modelopt")
    return method if isinstance(method, str) else None


def _quantized(profile: Profile, config: Config, gpus: Sequence[Gpu], version: str) -> Iterable[Problem]:
    method = method_of(config)
    if method is None or profile.engine not in ("vllm", "sglang"):
        return
    table, engine = (VLLM, "vLLM") if profile.engine == "vllm" else (SGLANG, "SGLang")
    if method == "mxfp8" and profile.engine == "vllm":
        method = "modelopt_mxfp8"  # --quantization mxfp8 quantizes at load; a checkpoint goes to this class
    yield from method_fits(profile, gpus, table, engine, method=method, version=version)
    scheme = scheme_of(config) if method == "compressed-tensors" else None
    if scheme is not None and (floor := _scheme_floor(scheme, profile.engine, version)) is not None:
        yield from too_low(gpus, floor, f"profile {profile.name}: a compressed-tensors checkpoint of {scheme}")


def _scheme_floor(scheme: str, engine: str, version: str) -> Floor:
    newer, older, sglang = SCHEMES[scheme]
    if engine == "sglang":
        return sglang
    have = of_version(version)
    return older if have and have <= VLLM.older else newer


def scheme_of(config: Config) -> str | None:
    """What the first group of a compressed-tensors checkpoint holds; None: not one that the table knows."""
    told = config.get("quantization_config") or text_part(config).get("quantization_config")
    groups = told.get("config_groups") if isinstance(told, Mapping) else None
    first = next(iter(groups.values()), None) if isinstance(groups, Mapping) else None
    if not isinstance(first, Mapping) or not isinstance(first.get("weights"), Mapping):
        return None
    inputs = first.get("input_activations")
    weights, acts = _kind(first["weights"]), _kind(inputs) if isinstance(inputs, Mapping) else ""
    return {
        ("float8", "float8"): "W8A8-FP8",
        ("float8", ""): "W8A16-FP8",
        ("int8", "int8"): "W8A8-INT8",
        ("int8", ""): "WNA16",
        ("int4", ""): "WNA16",
        ("int4", "float8"): "W4A8-FP8",
        ("nvfp4", "nvfp4"): "W4A4-NVFP4",
        ("nvfp4", ""): "W4A16-NVFP4",
        ("mxfp4", "mxfp4"): "W4A4-MXFP4",
        ("mxfp8", "mxfp8"): "W8A8-MXFP8",
    }.get((weights, acts))


def _kind(part: Mapping[str, Any]) -> str:
    kind, bits, group = part.get("type"), part.get("num_bits"), part.get("group_size")
    if kind == "float" and bits == 4:
        return "nvfp4" if group == 16 else "mxfp4"
    if kind == "float" and bits == 8 and group == 32:
        return "mxfp8"
    return f"{kind}{bits}"
