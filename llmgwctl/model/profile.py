"""How a model runs on a GPU class."""

from __future__ import annotations

from typing import Literal

from llmgwctl.model.fact import fact

FabricWish = Literal["prefer-nvlink", "require-nvlink", "require-rdma", "allow-tcp"]
Runtime = Literal["docker", "podman", "enroot"]


@fact
class Container:
    """The engine runs from an image. `path`: where its programs are in it, "" when they are on its PATH.

    `mounts` are "/on/host:/inside" or "/on/host:/inside:ro"; the model's folder is always there.
    """

    runtime: Runtime
    image: str
    path: str = ""
    mounts: tuple[str, ...] = ()


@fact
class Profile:
    """One [profiles.NAME] table, checked and completed. `gpus_per_node` is never 0 except for a sim without GPUs."""

    name: str
    engine: str
    model_path: str = ""
    served_model_name: str = ""
    gpu_class: str | None = None
    pool: str = "default"
    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: bool | int = False
    nodes: int = 1
    gpus_per_node: int = 1
    fabric: FabricWish = "prefer-nvlink"
    require_declared_fabric: bool = False
    allow_degraded: bool = False
    spare_trays: int = 0  # eligible trays that stay free in a domain
    replicas: int = 1
    port_min: int = 8000
    port_max: int = 8000
    listen_all: bool = False
    ready_timeout_s: int = 1800
    stop_grace_s: int = 30
    api_key_file: str | None = None
    api_key_env: str | None = None  # a variable of the operator's own environment
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    container: Container | None = None
    replace_unreachable_after_s: int | None = None  # for `ensure`; None: what cannot be reached is never doubled

    @property
    def has_api_key(self) -> bool:
        return bool(self.api_key_file or self.api_key_env)

    @property
    def model_name(self) -> str:
        """The name by which the API serves it."""
        return self.served_model_name or self.model_path or self.name
