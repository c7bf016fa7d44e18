"""A model's files on the hosts of a replica: there, whole and the same, by names and sizes, without hashing.

The one judgement of them: the check of the launch and the last look before a start both say this and nothing else.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from importlib.resources import files

from llmgwctl.doctor.names import few
from llmgwctl.model.profile import Profile
from llmgwctl.model.weights import WEIGHTS, Kind, ModelFiles

POINTER_BYTES = 1024  # a Git LFS pointer is some 130 bytes, and no weights are that small
KINDS: Mapping[str, Kind] = {"folder": "folder", "file": "file", "absent": "absent", "unreadable": "unreadable"}
LOADER, PLAIN_LOADERS = "--load-format", ("auto", "safetensors", "pt")
CONFIGS = ("config.json", "params.json")  # of Hugging Face, and of Mistral's own format
_FILE = re.compile(r"file (\d{1,18}) (.{1,255})")
_SPLIT = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf\Z")


def script() -> str:
    return files("llmgwctl.doctor").joinpath("model_files.sh").read_text(encoding="utf-8")


def folder_of(path: str) -> str:
    """What is looked at: of a split .gguf its folder, where the other parts lie."""
    return path.rpartition("/")[0] or "/" if _SPLIT.match(path) else path


def read(text: str, path: str) -> ModelFiles | None:
    """What the script said of folder_of(path); None: its words end early."""
    lines = text.replace("\r", "").split("\n")
    kind = KINDS.get(next((line.removeprefix("path ") for line in lines if line.startswith("path ")), ""))
    if kind is None or "end" not in lines:
        return None
    sizes = {m[2]: int(m[1]) for line in lines if (m := _FILE.fullmatch(line))}
    indexed = frozenset(line.removeprefix("indexed ") for line in lines if line.startswith("indexed "))
    if (split := _SPLIT.match(path.rpartition("/")[2])) is not None:
        base, _, count = split.groups()
        indexed = frozenset(f"{base}-{i:05}-of-{count}.gguf" for i in range(1, min(int(count), 999) + 1))
        sizes = {n: s for n, s in sizes.items() if n in indexed}
    return ModelFiles(sizes, indexed, kind)


def wrong(profile: Profile, seen: Mapping[str, ModelFiles]) -> Iterator[tuple[str, str]]:
    """(host, what is wrong there). `seen`: the hosts that read the model, in rank order: the first is the measure."""
    whole: dict[str, ModelFiles] = {}
    for host, found in seen.items():
        why = _lacks(profile, found)
        if why:
            yield host, f"{profile.model_path} {why}"
        else:
            whole[host] = found
    measure = next(iter(whole), "")
    for host, found in whole.items():
        if unlike := _unlike(whole[measure], found):
            yield host, f"{profile.model_path} is not that of {measure}: {unlike} differs"


def _lacks(profile: Profile, found: ModelFiles) -> str:
    if found.kind == "absent":
        return "is not there"
    if found.kind == "unreadable":
        return "cannot be read by this account"
    if _reads_weights(profile) and (why := _lacks_weights(found)):
        return why
    gguf = found.kind == "file" or any(n.endswith(".gguf") for n in found.weights)
    return "" if gguf or any(n in found.sizes for n in CONFIGS) else "holds no config.json"


def _lacks_weights(found: ModelFiles) -> str:
    lacking = sorted(n for n in found.indexed if not found.sizes.get(n))
    pointers = sorted(n for n, size in found.weights.items() if size < POINTER_BYTES)
    if lacking:
        return f"is incomplete: {few(lacking)} not there or empty, and its index lists that"
    if pointers:
        return f"is incomplete: {few(pointers)} no larger than a Git LFS pointer"
    return "" if found.weights else "holds no weights"


def _reads_weights(profile: Profile) -> bool:
    """Some loaders of vLLM and SGLang need no weights on disk (dummy), or have them elsewhere or in another form."""
    for before, word in itertools.pairwise(("", *profile.args)):
        if before == LOADER and word not in PLAIN_LOADERS:
            return False
        if word.startswith(f"{LOADER}=") and word.partition("=")[2] not in PLAIN_LOADERS:
            return False
    return True


def _unlike(measure: ModelFiles, found: ModelFiles) -> str:
    """The first file that is not the same."""
    names = {*measure.sizes, *found.sizes}
    return next((n for n in sorted(names) if _counts(n) and measure.sizes.get(n) != found.sizes.get(n)), "")


def _counts(name: str) -> bool:
    return name.endswith((*WEIGHTS, ".json", ".model"))
