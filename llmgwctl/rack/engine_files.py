"""What a simulated host has of an engine: a vllm that tells its version and starts nothing, and a model's files."""

from __future__ import annotations

import json
from importlib.resources import files

from llmgwctl.rack.machine import Machine
from llmgwctl.rack.tree import Entry, File

# A name that no real machine has: it is found in the tree of the host, or nowhere.
PYTHON = "python3.12.9"
VERSIONS = "usr/share/llmgw-rack/vllm-versions"
PARTS = 2
WEIGHTS = bytes(4096)  # of a part: enough not to be taken for a pointer

MODELS: dict[str, dict[str, object]] = {
    "deepseek-r1": {
        "architectures": ["DeepseekV3ForCausalLM"],
        "num_attention_heads": 128,
        "num_key_value_heads": 128,
        "kv_lora_rank": 512,
        "num_hidden_layers": 61,
        "n_routed_experts": 256,
        "quantization_config": {"quant_method": "fp8"},
    },
    "llama-70b": {
        "architectures": ["LlamaForCausalLM"],
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "num_hidden_layers": 80,
    },
}


def entries(m: Machine) -> dict[str, Entry]:
    program = files("llmgwctl.rack").joinpath("programs", "python-vllm.sh").read_text(encoding="utf-8")
    found: dict[str, Entry] = {}
    if m.vllm:
        found["usr/bin/vllm"] = File(f"#!/usr/bin/env {PYTHON}\n", 0o755)
        found[f"usr/bin/{PYTHON}"] = File(program, 0o755)
        found[VERSIONS] = File(f"python 3.12.9\nvllm {m.vllm}\ntorch 2.13.0\nnvidia-nccl-cu13 2.29.7\n")
    for name, config in MODELS.items() if m.models else ():
        found |= _model(f"models/{name}", config)
    return found


def _model(folder: str, config: dict[str, object]) -> dict[str, Entry]:
    parts = [f"model-{i:05}-of-{PARTS:05}.safetensors" for i in range(1, PARTS + 1)]
    index = {"weight_map": {f"layer.{i}": part for i, part in enumerate(parts)}}
    found: dict[str, Entry] = {f"{folder}/{part}": File(WEIGHTS) for part in parts}
    found[f"{folder}/config.json"] = File(json.dumps(config, indent=2) + "\n")
    found[f"{folder}/model.safetensors.index.json"] = File(json.dumps(index, indent=2) + "\n")
    return found
