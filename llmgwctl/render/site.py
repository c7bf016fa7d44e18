"""The static site as paths and texts: pages for people, the document and the metrics for machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llmgwctl.model.fabric import FabricMap
from llmgwctl.model.host import Snapshot
from llmgwctl.model.replica import ReplicaState
from llmgwctl.render import json as documents
from llmgwctl.render.html import node_page, rack_page
from llmgwctl.render.visible import dumps


def site(
    fmap: FabricMap,
    snapshot: Snapshot,
    replicas: Sequence[ReplicaState],
    metrics: str,
    *,
    made_at: float,
    refresh_s: int = 0,
    doctor: str = "",
) -> Iterator[tuple[str, str]]:
    """(path, text) of each file. `metrics` and `doctor` are whole texts; no doctor, no link to it."""

    def racks(up: str) -> str:
        return rack_page(
            fmap,
            snapshot,
            replicas,
            made_at=made_at,
            node_href=f"{up}nodes/{{}}.html",
            doctor_href=f"{up}doctor.html" if doctor else "",
            refresh_s=refresh_s,
        )

    yield "index.html", racks("")
    yield "admin/nvlink/index.html", racks("../../")
    for facts in snapshot.hosts:
        name = facts.host.name
        page = node_page(
            name, fmap, snapshot, replicas, made_at=made_at, home_href="../index.html", refresh_s=refresh_s
        )
        yield f"nodes/{name}.html", page
    if doctor:
        yield "doctor.html", doctor
    yield "api/v1/nvlink", dumps(documents.nvlink(fmap, snapshot)) + "\n"
    yield "metrics", metrics
