"""A model's files on the hosts of a replica: what the script says of them, and the one judgement of it."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from llmgwctl.doctor.model_files import folder_of, read, script, wrong
from llmgwctl.model.profile import Profile
from llmgwctl.model.weights import ModelFiles

M = Profile("m", "vllm", "/models/m")
BIG = 5_000_000_000
WHOLE = ModelFiles({"config.json": 10, "a.safetensors": BIG, "README.md": 1}, frozenset({"a.safetensors"}))


def but(**sizes: int | None) -> ModelFiles:
    """The whole model with files of other sizes, or (None) without them; `_` stands for the dot of a name."""
    changed = {**WHOLE.sizes, **{name.replace("_", ".", 1): size for name, size in sizes.items()}}
    return replace(WHOLE, sizes={n: s for n, s in changed.items() if s is not None})


# --- the judgement ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (WHOLE, ""),
        (ModelFiles({"m.gguf": BIG}, kind="file"), ""),
        (ModelFiles({"a.safetensors": BIG, "params.json": 9}), ""),
        (ModelFiles({"config.json": 9, "a.safetensors": BIG, "scheduler.pt": 627}), ""),
        (ModelFiles(kind="absent"), "is not there"),
        (ModelFiles(kind="unreadable"), "cannot be read by this account"),
        (but(a_safetensors=None), "is incomplete: a.safetensors not there or empty, and its index lists that"),
        (but(a_safetensors=0), "is incomplete: a.safetensors not there or empty, and its index lists that"),
        (but(a_safetensors=134), "is incomplete: a.safetensors no larger than a Git LFS pointer"),
        (but(config_json=None), "holds no config.json"),
        (ModelFiles({"config.json": 9}), "holds no weights"),
    ],
)
def test_what_is_wrong_with_a_model_on_one_host(found: ModelFiles, why: str) -> None:
    assert list(wrong(M, {"h": found})) == ([("h", f"/models/m {why}")] if why else [])


def test_it_is_the_same_on_all_hosts() -> None:
    """The first that is whole is the measure; what does not count, such as a README, may differ."""
    assert list(wrong(M, {"h1": WHOLE, "h2": but(README_md=2)})) == []
    other = {"h1": ModelFiles(kind="absent"), "h2": WHOLE, "h3": but(config_json=11), "h4": WHOLE}
    assert list(wrong(M, other)) == [
        ("h1", "/models/m is not there"),
        ("h3", "/models/m is not that of h2: config.json differs"),
    ]


@pytest.mark.parametrize(
    ("args", "needed"),
    [
        (("--load-format", "dummy"), False),
        (("--load-format=runai_streamer",), False),
        (("--load-format", "safetensors"), True),
        (("--load-format=auto", "--x", "dummy"), True),
    ],
)
def test_a_loader_that_reads_no_weights_needs_none(args: tuple[str, ...], *, needed: bool) -> None:
    """`dummy` makes them up; nobody is told that they are missing."""
    assert bool(list(wrong(replace(M, args=args), {"h": ModelFiles({"config.json": 9})}))) == needed


# --- what a host says -------------------------------------------------------------------------------------------------


def test_a_list_that_ends_early_is_none() -> None:
    assert read("path folder\nfile 9 config.json\n", "/m") is None
    assert read("path odd\nend\n", "/m") is None
    assert read("", "/m") is None
    assert read("path absent\nend\n", "/m") == ModelFiles(kind="absent")


def test_of_a_split_gguf_every_part_must_be_there() -> None:
    """And no other file of the folder counts."""
    path = "/models/big-00001-of-00002.gguf"
    assert folder_of(path) == "/models"
    assert folder_of("/models/m") == "/models/m"
    found = read(f"path folder\nfile {BIG} big-00001-of-00002.gguf\nfile 7 other.gguf\nend\n", path)
    assert found is not None
    assert found.sizes == {"big-00001-of-00002.gguf": BIG}
    assert "big-00002-of-00002.gguf not there" in dict(wrong(replace(M, model_path=path), {"h": found}))["h"]


class Folder:
    """A model's folder on this machine, as the script reads it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.put("config.json", "{}")

    def put(self, name: str, text: str = "x" * 2000) -> Folder:
        (self.root / "models").mkdir(exist_ok=True)
        (self.root / "models" / name).write_text(text)
        return self

    def index(self, name: str, *files: str) -> Folder:
        weights = ", ".join(f'"layer.{i}.weight": "{f}"' for i, f in enumerate((*files, *files)))
        return self.put(name, '{"metadata": {"total_size": 9}, "weight_map": {' + weights + "}}\n")

    def read(self, path: str = "/models") -> ModelFiles:
        argv = ("sh", "-c", script(), "model_files", str(self.root), "", "", path)
        said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        found = read(said, path)
        assert found is not None, said
        return found


SAFE, TORCH = "model.safetensors.index.json", "pytorch_model.bin.index.json"


@pytest.mark.parametrize(
    ("index", "parts"),
    [
        (SAFE, ("model-1.safetensors", "model-2.safetensors")),
        (TORCH, ("pytorch_model-1.bin", "pytorch_model-2.bin")),
    ],
)
def test_the_index_of_either_format_says_what_should_be_there(
    tmp_path: Path, index: str, parts: tuple[str, str]
) -> None:
    """A shard that was not brought is missed by its name, in .safetensors and in .bin."""
    folder = Folder(tmp_path).index(index, *parts).put(parts[0])
    found = folder.read()
    assert found.indexed == set(parts)
    assert dict(wrong(M, {"h": found})) == {
        "h": f"/models/m is incomplete: {parts[1]} not there or empty, and its index lists that"
    }
    assert list(wrong(M, {"h": folder.put(parts[1]).read()})) == []


def test_only_the_format_that_was_brought_counts(tmp_path: Path) -> None:
    """Repositories hold both indexes, and most people bring one of the formats; with nothing brought, it is missed."""
    folder = Folder(tmp_path).index(SAFE, "a.safetensors").index(TORCH, "pytorch_model-1.bin")
    assert folder.read().indexed == {"a.safetensors"}
    folder.put("pytorch_model-1.bin").put("training_args.bin")
    assert folder.read().indexed == {"pytorch_model-1.bin"}
    assert list(wrong(M, {"h": folder.read()})) == []
    folder.put("a.safetensors")
    assert folder.read().indexed == {"a.safetensors"}


def test_a_link_whose_file_was_not_brought_is_missed(tmp_path: Path) -> None:
    """As a Hugging Face cache has it: every name is a link to a blob."""
    folder = Folder(tmp_path).index(SAFE, "a.safetensors", "b.safetensors").put("b.safetensors")
    (tmp_path / "models/a.safetensors").symlink_to("../blobs/nowhere")
    assert "a.safetensors not there" in dict(wrong(M, {"h": folder.read()}))["h"]


def test_a_file_and_nothing(tmp_path: Path) -> None:
    folder = Folder(tmp_path).put("m.gguf")
    assert folder.read("/models/m.gguf") == ModelFiles({"m.gguf": 2000}, kind="file")
    assert folder.read("/nowhere") == ModelFiles(kind="absent")
