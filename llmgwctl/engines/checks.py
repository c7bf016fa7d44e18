"""Checks that several engines share: numbers that must fit, and GPUs that must do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from llmgwctl.engines.base import Build, Problem, Stop
from llmgwctl.engines.capability import BF16, KV_FP8, NOT_CUDA, Table, capability, shown
from llmgwctl.engines.options import fighting_args as fighting_args  # noqa: PLC0414 (engines import it from here)
from llmgwctl.engines.options import value_of
from llmgwctl.model.gpu import Gpu
from llmgwctl.model.product import token_of
from llmgwctl.model.profile import Profile

QUANTIZATION = ("--quantization", "-q")


def common(profile: Profile, gpus: Sequence[Gpu], key_env: str) -> Iterable[Problem]:
    """What every engine that loads a model refuses."""
    yield from model(profile)
    yield from sizes(profile)
    yield from cards(profile, gpus)
    if key_env and key_env in dict(profile.env):
        yield Problem(f"profile {profile.name}: env holds an API key ({key_env})", "use api_key_file")


def model(profile: Profile) -> Iterable[Problem]:
    if not profile.model_path:
        # vLLM without a model starts to download its default one.
        yield Problem(f"profile {profile.name} has no model_path", "set it to the folder of the model")
    for key, value in (("model_path", profile.model_path), ("served_model_name", profile.served_model_name)):
        if value.startswith("-"):
            yield Problem(
                f"profile {profile.name}: {key} {value!r} would be taken for an option", "give it another name"
            )


def sizes(profile: Profile) -> Iterable[Problem]:
    for key in ("tp", "pp", "dp", "nodes", "gpus_per_node"):
        if getattr(profile, key) < 1:
            yield Problem(f"profile {profile.name}: {key} is {getattr(profile, key)}", "it is at least 1")
    if not isinstance(profile.ep, bool) and profile.ep < 1:
        yield Problem(f"profile {profile.name}: ep is {profile.ep}", "it is true, false or at least 1")


def parallel_fits(profile: Profile, world: int, formula: str) -> Iterable[Problem]:
    """GPUs of the replica against the engine's own arithmetic."""
    have = profile.nodes * profile.gpus_per_node
    if have != world:
        what = f"profile {profile.name}: nodes x gpus_per_node is {have}, {formula} is {world}"
        yield Problem(what, "make the two equal")


def cards(profile: Profile, gpus: Sequence[Gpu]) -> Iterable[Problem]:
    """The chosen GPUs: enough, of one model, none split by MIG."""
    if not gpus:
        return
    need = profile.nodes * profile.gpus_per_node
    if len(gpus) < need:
        yield Problem(f"profile {profile.name} needs {need} GPUs and has {len(gpus)}", "fewer nodes or gpus_per_node")
    by_model: dict[str, list[Gpu]] = defaultdict(list)
    for g in gpus:
        by_model[token_of(g.name)].append(g)
    if len(by_model) > 1:
        told = ", ".join(f"{token}: {', '.join(label(g) for g in found)}" for token, found in by_model.items())
        yield Problem(f"profile {profile.name}: GPU models mixed in one replica ({told})", "set gpu_class")
    for g in gpus:
        if g.mig_enabled:
            yield Problem(
                f"profile {profile.name}: MIG is on for {label(g)}, and a whole GPU is asked", "nvidia-smi -mig 0"
            )


def label(gpu: Gpu) -> str:
    return f"GPU {gpu.index} ({gpu.uuid})"


def quantization(profile: Profile, gpus: Sequence[Gpu], table: Table, engine: str, version: str = "") -> list[Problem]:
    """--quantization against the compute capability of the GPUs."""
    method = value_of(profile.args, *QUANTIZATION)
    return [] if method is None else method_fits(profile, gpus, table, engine, method=method, version=version)


def method_fits(
    profile: Profile, gpus: Sequence[Gpu], table: Table, engine: str, *, method: str, version: str = ""
) -> list[Problem]:
    """A method that an argument or the checkpoint names; one that is not in the table is the engine's affair."""
    who = f"profile {profile.name}: quantization {method}"
    if method in NOT_CUDA:
        return [Problem(f"{who} is not for NVIDIA GPUs", "another method, or a checkpoint of another one")]
    if method not in table.floors:
        return []
    floor = table.floor(method, version)
    if floor is not None:
        return too_low(gpus, floor, who)
    if version and method not in table.plugins:
        return [Problem(f"{who} is not in {engine} {version}", "another method, or an engine that has it")]
    return []


def too_low(gpus: Sequence[Gpu], floor: int, who: str) -> list[Problem]:
    """GPUs below a floor, one message for all of them."""
    known = ((g, capability(g.compute_cap)) for g in gpus)
    low = [(g, have) for g, have in known if have is not None and have < floor]
    if not low:
        return []
    gpu, have = low[0]
    who_not = f"{token_of(gpu.name)} has {shown(have)} ({_few([g for g, _ in low])})"
    what = f"{who} needs compute capability {shown(floor)}; {who_not}"
    return [Problem(what, "another method, or a gpu_class that has it")]


def _few(gpus: Sequence[Gpu]) -> str:
    more = f" and {len(gpus) - 1} more" if len(gpus) > 1 else ""
    return label(gpus[0]) + more


def kv_cache(profile: Profile, gpus: Sequence[Gpu], *, flashinfer: bool) -> list[Problem]:
    """An fp8 cache; `flashinfer`: this profile chose the backend that also reads it below 8.9."""
    wish = value_of(profile.args, "--kv-cache-dtype") or ""
    if not wish.startswith("fp8"):
        return []
    return too_low(gpus, BF16 if flashinfer else KV_FP8, f"profile {profile.name}: --kv-cache-dtype {wish}")


def bfloat16(profile: Profile, gpus: Sequence[Gpu]) -> list[Problem]:
    if value_of(profile.args, "--dtype") != "bfloat16":
        return []
    return too_low(gpus, BF16, f"profile {profile.name}: --dtype bfloat16 (or use --dtype half)")


def unread_capability(profile: Profile, gpus: Sequence[Gpu]) -> Iterable[str]:
    """Could not tell is said; the engine itself will refuse."""
    wanted = value_of(profile.args, *QUANTIZATION, "--kv-cache-dtype", "--dtype")
    unknown = [g for g in gpus if capability(g.compute_cap) is None]
    if wanted and unknown:
        yield f"compute capability of {_few(unknown)} not read: whether {wanted} runs there is not checked"


def unknown_method(profile: Profile, table: Table, engine: str) -> Iterable[str]:
    method = value_of(profile.args, *QUANTIZATION)
    if method is None or method in NOT_CUDA:
        return
    if method in table.plugins:
        yield f"quantization {method} left {engine}: it needs {table.plugins[method]} on every host"
    elif method not in table.floors or table.floor(method, "") is None:
        yield f"quantization {method} is not known of the newest {engine}: not checked, the engine decides"


def plain_paths(profile: Profile, builds: Mapping[str, Build]) -> Iterable[Problem]:
    """No shell expands what stands in an argument list."""
    for host, build in builds.items():
        for key, value in (("path", build.path), ("source", build.source)):
            if value and "/" in value and not value.startswith("/"):
                what = f"profile {profile.name}: {key} of {profile.engine} on {host} is {value}"
                yield Problem(what, "an absolute path in [engines], without ~")


def short_grace(profile: Profile, stop: Stop, engine: str) -> Iterable[str]:
    if profile.stop_grace_s < stop.takes_s:
        yield f"stop_grace_s is {profile.stop_grace_s}, and {engine} ends in up to {stop.takes_s} s: it will be killed"
