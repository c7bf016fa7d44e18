"""Which quantization runs on which GPU: smallest compute capability by method, as the engines' own tables say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from llmgwctl.model.fact import fact
from llmgwctl.model.numbers import of_version, whole

Floor = int | None  # capability x 10; None: that version does not have the method


@fact
class Table:
    """Floors of one engine in two of its versions, newer first."""

    newer: tuple[int, ...]
    older: tuple[int, ...]
    floors: Mapping[str, tuple[Floor, Floor]]
    plugins: Mapping[str, str] = field(
        default_factory=dict
    )  # methods that moved out of the engine, and what brings them

    def floor(self, method: str, version: str) -> Floor:
        """The floor of a method; the newest version's when the version is not known.

        Between the two versions the lower one counts: refusing what works is worse than letting the engine refuse.
        """
        newer, older = self.floors[method]
        have = of_version(version)
        if not have or have >= self.newer:
            return newer
        if have <= self.older:
            return older
        return min((f for f in (newer, older) if f is not None), default=None)


# get_min_capability() of each method in vLLM 0.33.0 and 0.12.0.
VLLM = Table(
    (0, 33),
    (0, 12, 99),
    {
        "fp8": (75, 80),
        **dict.fromkeys(("fp8_per_tensor", "fp8_per_block", "fp8_per_channel", "nvfp4_per_token"), (75, None)),
        **dict.fromkeys(("int8_per_channel_weight_only", "online", "mxfp8", "humming"), (75, None)),
        "fbgemm_fp8": (80, 80),
        "fp_quant": (100, 100),
        "modelopt": (80, 89),
        "modelopt_fp4": (75, 80),
        "modelopt_mixed": (75, None),
        "modelopt_mxfp8": (80, None),
        "awq": (75, 75),
        "auto_awq": (75, None),
        "awq_marlin": (75, 80),
        "gptq": (60, 60),
        "auto_gptq": (60, 60),
        "gptq_marlin": (60, 80),
        **dict.fromkeys(("gptq_marlin_24", "gptq_bitblas", "hqq", "rtn"), (None, 80)),
        "bitblas": (None, 70),
        "compressed-tensors": (70, 70),
        "bitsandbytes": (None, 70),
        "gguf": (None, 60),
        "experts_int8": (80, 80),
        "moe_wna16": (70, 70),
        "mxfp4": (80, 80),
        "gpt_oss_mxfp4": (80, 80),
        "quark": (70, 70),
        "torchao": (75, 75),
        "inc": (60, 60),
        "auto-round": (60, 60),
        "deepseek_v4_fp8": (75, None),
        "deepspeedfp": (None, 60),
    },
    plugins={"bitsandbytes": "vllm-bnb-plugin", "gguf": "vllm-gguf-plugin"},
)

# loader.py of SGLang 0.5.23 and 0.5.6.
SGLANG = Table(
    (0, 5, 23),
    (0, 5, 6),
    {
        "fp8": (80, 80),
        "mxfp8": (100, None),
        "w8a8_fp8": (89, 89),
        "w8a8_int8": (75, 75),
        "blockwise_int8": (80, 80),
        "w4afp8": (90, 90),
        "modelopt": (89, 89),
        "modelopt_fp8": (89, 89),
        "modelopt_fp4": (80, 100),
        "modelopt_mixed": (80, 100),
        "nvfp4_online": (100, None),
        "humming": (75, None),
        "awq": (75, 75),
        "awq_marlin": (80, 80),
        "gptq_marlin": (80, 80),
        "gptq": (None, 60),
        "auto-round": (60, 60),
        "bitsandbytes": (70, 70),
        "gguf": (60, 60),
        "compressed-tensors": (70, 70),
        "moe_wna16": (70, 70),
        "mxfp4": (80, 80),
        **dict.fromkeys(("qoq", "marlin", "fbgemm_fp8"), (None, 80)),
    },
)

# Methods of other hardware; no NVIDIA GPU runs them.
NOT_CUDA = frozenset(
    ("ptpc_fp8", "petit_nvfp4", "tpu_int8", "ipex", "cpu_gptq", "cpu_awq", "quark_mxfp4", "quark_int4fp8_moe")
)

# What a checkpoint of compressed-tensors holds decides, not the method's own floor: (vLLM 0.33, vLLM 0.12, SGLang).
SCHEMES: Mapping[str, tuple[Floor, Floor, Floor]] = {
    "W8A8-FP8": (89, 89, 89),
    "W8A16-FP8": (75, 80, None),
    "W8A8-INT8": (75, 75, 80),
    "WNA16": (75, 75, 80),
    "W4A8-FP8": (90, None, None),
    "W4A4-NVFP4": (75, 100, 100),
    "W4A16-NVFP4": (75, 80, None),
    "W4A4-MXFP4": (80, None, None),
    "W8A8-MXFP8": (75, None, None),
}

KV_FP8 = 89  # below it only vLLM's FlashInfer backend (8.0 to 8.8) reads an fp8 cache
BF16 = 80


def capability(text: str | None) -> int | None:
    """ "9.0" -> 90; None where the driver does not say."""
    major, _, minor = (text or "").partition(".")
    first, second = whole(major, 3), whole(minor, 3)
    return first * 10 + second if first is not None and second is not None else None


def shown(value: int) -> str:
    return f"{value // 10}.{value % 10}"
