"""A model's files on one host, by names and sizes: what is there, and what should be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from llmgwctl.model.fact import fact

Kind = Literal["folder", "file", "absent", "unreadable"]
WEIGHTS = (".safetensors", ".bin", ".pt", ".gguf")  # in the order in which engines prefer them


@fact
class ModelFiles:
    """What a host has at a model's path. `sizes`: name -> bytes; `indexed`: names that the weights index lists."""

    sizes: Mapping[str, int] = field(default_factory=dict)
    indexed: frozenset[str] = frozenset()
    kind: Kind = "folder"

    @property
    def weights(self) -> Mapping[str, int]:
        """Those of the index where there is one: a folder often holds the same weights in a second format."""
        if self.indexed:
            return {n: self.sizes[n] for n in self.indexed if n in self.sizes}
        for suffix in WEIGHTS:
            if found := {name: size for name, size in self.sizes.items() if name.endswith(suffix)}:
                return found
        return {}

    @property
    def weights_bytes(self) -> int:
        return sum(self.weights.values())
