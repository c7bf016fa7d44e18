"""The metrics: names and labels that stay, what is unknown without a sample, and a dead host that is not forgotten."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from datetime import date
from pathlib import Path
from types import SimpleNamespace

import pytest
from facts import hgx, rack, snapshot, unreachable, with_gpu, with_imex
from hypothesis import given
from hypothesis import strategies as st
from pages import dropped, fleet, whole
from prometheus_client.parser import text_string_to_metric_families

from llmgwctl.fabric import fabric_map
from llmgwctl.launch.state import replicas
from llmgwctl.model.finding import Suppression
from llmgwctl.model.gpu import Fabric
from llmgwctl.model.reading import broken, ok
from llmgwctl.model.replica import ReplicaState, ShardState
from llmgwctl.render.prom import FAMILIES, file_sd, metrics, seen_before

DOCS = Path(__file__).parents[1] / "docs"
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool (package prometheus) is not here"
)


def text(snap=None, **more) -> str:
    snap = snap or fleet()
    return metrics(fabric_map(snap), snap, replicas(snap), **more)


def samples(exposition: str, name: str, **labels) -> list[float]:
    """The values of a metric whose labels are at least these."""
    return [
        s.value
        for f in text_string_to_metric_families(exposition)
        for s in f.samples
        if s.name == name and labels.items() <= s.labels.items()
    ]


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("llmgw_gpu_nvlink_joined", {"host": "r1-t01", "gpu": "0", "uuid": "GPU-r1-t01-0"}, [1.0]),
        ("llmgw_gpu_nvlink_joined", {"host": "r1-t03", "gpu": "1"}, [0.0]),
        ("llmgw_gpu_nvlink_joined", {"host": "r1-t17", "gpu": "2"}, []),  # this driver does not say
        ("llmgw_gpu_nvlink_joined", {"host": "r1-t10"}, []),  # it does not answer
        ("llmgw_gpu_nvlink_joined", {"host": "h100-001"}, []),  # no domain is expected of it
        ("llmgw_gpu_fabric_state", {"host": "r1-t03", "gpu": "1"}, [2.0]),
        ("llmgw_gpu_fabric_state", {"host": "r1-t01", "gpu": "1"}, [3.0]),
        ("llmgw_gpu_fabric_health", {"host": "r1-t09", "gpu": "0"}, [2.0]),
        ("llmgw_gpu_fabric_health", {"host": "r1-t07", "gpu": "3"}, [3.0]),
        ("llmgw_gpu_nvlink_bandwidth_degraded", {"host": "r1-t07", "gpu": "3"}, [1.0]),
        ("llmgw_gpu_nvlink_bandwidth_degraded", {"host": "r1-t07", "gpu": "2"}, [0.0]),
        ("llmgw_gpu_nvlink_bandwidth_degraded", {"host": "r1-t03", "gpu": "1"}, []),  # In Progress prints no health
        ("llmgw_gpus_attached", {"host": "r1-t12"}, [4.0]),
        ("llmgw_gpus_readable", {"host": "r1-t12"}, [3.0]),
        ("llmgw_imex_applicable", {"host": "h100-001"}, [0.0]),
        ("llmgw_imex_applicable", {"host": "r1-t05"}, [1.0]),
        ("llmgw_imex_applicable", {"host": "r1-t10"}, []),
        ("llmgw_imex_up", {"host": "r1-t05"}, [0.0]),
        ("llmgw_imex_up", {"host": "r1-t01"}, [1.0]),
        ("llmgw_imex_up", {"host": "h100-001"}, []),
        ("llmgw_imex_peers_connected", {"host": "r1-t01"}, [17.0]),
        ("llmgw_imex_peers_expected", {"host": "r1-t01"}, [17.0]),
        ("llmgw_imex_channel_present", {"host": "r1-t16"}, [0.0]),
        ("llmgw_imex_channel_present", {"host": "r1-t01"}, [1.0]),
        ("llmgw_hca_port_up", {"host": "h100-001", "hca": "mlx5_7", "port": "1", "link_layer": "InfiniBand"}, [1.0]),
        ("llmgw_probe_success", {"host": "r1-t10"}, [0.0]),
        ("llmgw_probe_success", {"host": "r1-t01"}, [1.0]),
        ("llmgw_probe_duration_seconds", {"host": "r1-t01"}, [0.2]),
        ("llmgw_probe_duration_seconds", {"host": "r1-t10"}, []),
        ("llmgw_probe_timestamp_seconds", {"host": "r1-t10"}, [1_780_000_000.0]),
        ("llmgw_host_eligible", {"host": "r1-t04"}, [1.0]),
        ("llmgw_host_eligible", {"host": "r1-t05"}, [0.0]),
        ("llmgw_host_eligible", {"host": "r1-t17"}, []),  # it could not be told
        ("llmgw_replica_ready", {"replica": "deepseek-r1-0", "profile": "deepseek-r1"}, [1.0]),
        ("llmgw_replica_ranks_expected", {"replica": "deepseek-r1-0"}, [2.0]),
        ("llmgw_replica_ranks_alive", {"replica": "deepseek-r1-0"}, [2.0]),
        ("llmgw_replica_transport", {"replica": "deepseek-r1-0", "path": "nvlink"}, [1.0]),
        ("llmgw_replica_transport", {"replica": "deepseek-r1-0", "path": "tcp"}, [0.0]),
        ("llmgw_snapshot_timestamp_seconds", {}, [1_780_000_000.0]),
    ],
)
def test_samples(name, labels, value):
    """What is known has its number, and what is not has none."""
    assert samples(text(), name, **labels) == value


def test_domains_have_their_counts():
    told = text()
    main = {"domain": "nvl:5e1fab1e-0000-4000-8000-00000000000a.32766", "rack": "r1"}
    assert samples(told, "llmgw_domain_hosts_expected", **main) == [18.0]
    assert samples(told, "llmgw_domain_hosts_joined", **main) == [12.0]
    assert samples(told, "llmgw_domain_hosts_eligible", **main) == [8.0]


def test_a_domain_that_dropped_is_zero_and_not_gone():
    """The rack keeps its series, so that an alert sees it."""
    told = text(snapshot(dropped()))
    assert samples(told, "llmgw_domain_hosts_joined", rack="r1") == [0.0]
    assert set(samples(told, "llmgw_gpu_nvlink_joined")) == {0.0}


def test_a_tray_where_a_domain_is_expected_counts_also_when_none_is_measured():
    hosts = {n: replace(f, host=replace(f.host, rack=None)) for n, f in rack(1).items()}
    lone = with_gpu(
        hosts["r1-t01"], 0, fabric=Fabric("In Progress"), platform=hosts["r1-t01"].gpus.value.gpus[0].platform
    )
    assert 0.0 in samples(text(snapshot({"r1-t01": lone})), "llmgw_gpu_nvlink_joined", host="r1-t01")


def test_a_dead_host_keeps_the_age_of_its_facts():
    """Out of the exposition before: that file is the only memory there is."""
    first = snapshot(rack(2))
    before = text(first)
    gone = rack(2)
    gone["r1-t02"] = unreachable(gone["r1-t02"])
    later = replace(snapshot(gone), taken_at=first.taken_at + 600)
    told = text(later, last_seen=seen_before(before))
    assert samples(told, "llmgw_facts_timestamp_seconds", host="r1-t02") == [first.taken_at]
    assert samples(told, "llmgw_facts_timestamp_seconds", host="r1-t01") == [later.taken_at]
    again = replace(later, taken_at=later.taken_at + 600)
    assert samples(text(again, last_seen=seen_before(told)), "llmgw_facts_timestamp_seconds", host="r1-t02") == [
        first.taken_at
    ]
    assert samples(text(later), "llmgw_facts_timestamp_seconds", host="r1-t02") == []


@given(st.text())
def test_no_file_is_too_odd_to_remember_from(junk):
    assert isinstance(
        seen_before(f'{junk}\nllmgw_facts_timestamp_seconds{{{junk}\nllmgw_facts_timestamp_seconds{{host="a"}} x'), dict
    )


def test_a_reading_that_is_broken_is_named():
    hosts = rack(1)
    hosts["r1-t01"] = replace(hosts["r1-t01"], imex=broken("timed out after 30 s"))
    told = text(snapshot(hosts))
    assert samples(told, "llmgw_reading_success", host="r1-t01", reading="imex") == [0.0]
    assert samples(told, "llmgw_reading_success", host="r1-t01", reading="gpus") == [1.0]
    assert samples(told, "llmgw_imex_up") == []
    assert samples(text(snapshot(hgx(1))), "llmgw_reading_success", host="h100-001", reading="imex") == [1.0]


def test_peers_are_those_of_the_hosts_own_row():
    """An IMEX that cannot find itself in its list says nothing of its peers."""
    hosts = rack(3)
    table = replace(hosts["r1-t01"].imex.value.table, cells={(0, 0): "C", (0, 1): "N", (0, 2): "C"})
    one = with_imex(hosts["r1-t01"], table=table)
    others = replace(table, nodes=tuple(replace(n, host=f"x{n.index}") for n in table.nodes))
    stranger = with_imex(hosts["r1-t02"], table=others)
    told = text(snapshot(hosts | {"r1-t01": one, "r1-t02": stranger}))
    assert samples(told, "llmgw_imex_peers_connected", host="r1-t01") == [1.0]
    assert samples(told, "llmgw_imex_peers_connected", host="r1-t02") == []


def state(word: str, *shards: str, name: str = "a-0", **more) -> ReplicaState:
    ranks = tuple(ShardState(i, f"h{i}", s) for i, s in enumerate(shards))
    return ReplicaState(name, "l", word, ranks, profile="a", **more)


@pytest.mark.parametrize(
    ("states", "ready", "alive"),
    [
        ([state("ready", "running", "running")], [1.0], [2.0]),
        ([state("failed", "running", "exited")], [0.0], [1.0]),
        ([state("unknown", "running", "unknown")], [], []),  # a host that is not seen has neither died nor lived
        ([state("failed", "exited"), state("ready", "running")], [1.0], [1.0]),  # what was left of an earlier launch
    ],
)
def test_replicas(states, ready, alive):
    snap = snapshot(rack(1))
    told = metrics(fabric_map(snap), snap, states)
    assert samples(told, "llmgw_replica_ready", replica="a-0") == ready
    assert samples(told, "llmgw_replica_ranks_alive", replica="a-0") == alive


def test_findings_are_counted_by_host():
    snap = snapshot(rack(1))
    found = [
        SimpleNamespace(id="LG301", severity="block", hosts=("a", "b")),
        SimpleNamespace(id="LG301", severity="warn", hosts=()),
    ]
    told = metrics(fabric_map(snap), snap, (), found)
    assert samples(told, "llmgw_doctor_findings", id="LG301", severity="block") == [2.0]
    assert samples(told, "llmgw_doctor_findings", id="LG301", severity="warn") == [1.0]


def test_suppressions_that_have_ended_are_there():
    """One line for a check and its last day, however many there were."""
    snap = snapshot(rack(1))
    ended = [Suppression("LG301", why, date(2026, 1, 31)) for why in ("ticket 7", "ticket 8")]
    told = metrics(fabric_map(snap), snap, ended=ended)
    assert samples(told, "llmgw_doctor_suppressions_ended", id="LG301", until="2026-01-31") == [2.0]
    assert samples(metrics(fabric_map(snap), snap), "llmgw_doctor_suppressions_ended") == []


def test_one_line_never_twice():
    """Two cards of one name would make node_exporter refuse the whole file."""
    hosts = rack(1)
    report = hosts["r1-t01"].gpus.value
    hosts["r1-t01"] = replace(hosts["r1-t01"], gpus=ok(replace(report, gpus=report.gpus[:1] * 4)))
    told = text(snapshot(hosts))
    lines = [line.rpartition(" ")[0] for line in told.splitlines() if not line.startswith("#")]
    assert len(lines) == len(set(lines))


@given(st.text())
def test_any_text_of_a_host_is_one_label(words):
    hosts = rack(1)
    hosts["r1-t01"] = with_gpu(hosts["r1-t01"], 0, uuid=words)
    told = text(snapshot(hosts))
    told.encode()
    found = samples(told, "llmgw_gpu_nvlink_joined", host="r1-t01", gpu="0")
    assert found == [1.0]


def test_targets_for_prometheus():
    """The endpoint of each replica once, with the path of its engine's metrics."""
    states = [
        state("ready", "running", endpoint="http://10.1.0.1:8000", engine="vllm", model="m"),
        state("failed", "exited", endpoint="http://10.1.0.9:8000", engine="vllm"),
        state("ready", "running", name="b-0", endpoint="http://[fd00::1]:8000", engine="odd"),
        state("starting", "claimed", name="c-0"),
    ]
    told = json.loads(file_sd(states, {"vllm": "/vllm-metrics"}))
    assert [t["targets"] for t in told] == [["10.1.0.1:8000"], ["[fd00::1]:8000"]]
    assert told[0]["labels"]["__metrics_path__"] == "/vllm-metrics"
    assert told[0]["labels"]["replica"] == "a-0"


def test_every_metric_is_explained_and_every_explained_one_is_there():
    """A reader who searches docs/metrics.md for a name finds its line, with its labels."""
    page = (DOCS / "metrics.md").read_text()
    rows = dict(re.findall(r"^\| `(llmgw_\w+)` \|([^|]*)\|", page, re.MULTILINE))
    assert rows.keys() == FAMILIES.keys()
    for name, (_, labels) in FAMILIES.items():
        assert tuple(re.findall(r"`(\w+)`", rows[name])) == labels, name


def test_every_alert_is_explained_and_uses_metrics_that_are_there():
    rules, page = (DOCS / "alerts.yml").read_text(), (DOCS / "metrics.md").read_text()
    alerts = re.findall(r"alert: (\w+)", rules)
    assert len(alerts) == len(set(alerts))
    assert [a for a in alerts if f"`{a}`" not in page] == []
    assert set(re.findall(r"llmgw_\w+", rules)) <= set(FAMILIES)


@needs_promtool
@pytest.mark.parametrize(
    "snap", [fleet(), snapshot(whole()), snapshot(dropped()), snapshot()], ids=lambda s: len(s.hosts)
)
def test_promtool_finds_no_fault(snap):
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text(snap), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@needs_promtool
def test_the_alerts_are_rules_and_fire_when_they_should(tmp_path):
    """Checked and run by promtool: minutes of series, and which alerts they raise."""
    for file in (DOCS / "alerts.yml", Path(__file__).parent / "alerts_test.yml"):
        shutil.copy(file, tmp_path)
    for argv in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]):
        done = subprocess.run(["promtool", *argv], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
