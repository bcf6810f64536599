"""Names, docs, dashboard and alerts agree on which metrics there are."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from compactor.telemetry.metrics.catalog import METRICS, Change, Metric, MetricKind
from compactor.telemetry.metrics.registry import MetricsRegistry
from deploy.grafana.dashboard import text

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yaml"
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "compactor.json").read_text())
BY_NAME = {metric.name: metric for metric in METRICS}
UNITS = ("bytes", "seconds", "ratio")
OF_THE_SCRAPE = {"instance", "job", "le"}


def dashboard_queries() -> list[str]:
    targets = [t for panel in DASHBOARD["panels"] for t in panel.get("targets", ())]
    return [target["expr"] for target in targets]


def alert_queries() -> list[str]:
    rules = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
    return [rule["expr"] for rule in rules]


def metric_of(series: str) -> Metric | None:
    """By the name of a series, which for histograms has an ending."""
    base = re.sub(r"_(bucket|count|sum)$", "", series)
    if series in BY_NAME and BY_NAME[series].kind is not MetricKind.HISTOGRAM:
        return BY_NAME[series]
    return BY_NAME.get(base) if base != series else None


def promtool() -> str:
    found = shutil.which("promtool") or shutil.which("promtool", path=Path(sys.executable).parent)
    if found is None:
        assert not os.environ.get("CI"), "CI must have promtool: deploy/setup/promtool.sh"
        pytest.skip("no promtool here; deploy/setup/promtool.sh fetches it where there is apt")
    return found


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_go_by_prometheus_rules(metric: Metric) -> None:
    assert re.fullmatch(r"compactor_[a-z0-9]+(_[a-z0-9]+)*", metric.name)
    assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER)
    assert not re.search(r"_(ms|millis|kb|mb|percent|count|sum|bucket|created)$", metric.name)
    assert metric.help.endswith(".")
    assert len(set(metric.labels)) == len(metric.labels)
    assert (metric.kind is MetricKind.HISTOGRAM) == bool(metric.buckets)
    assert list(metric.buckets) == sorted(metric.buckets)
    for unit in UNITS:  # comes last, before _total
        if f"_{unit}" in metric.name:
            assert metric.name.removesuffix("_total").endswith(f"_{unit}")


def test_every_metric_is_named_once_and_of_one_help() -> None:
    assert len(BY_NAME) == len(METRICS) > 40
    assert len({metric.help for metric in METRICS}) == len(METRICS)


def test_the_docs_have_every_metric_with_its_labels_and_meaning() -> None:
    text = (ROOT / "docs/reference/metrics.md").read_text()
    rows = re.findall(r"^\| `(compactor_\w+)` \| (\w+) \| (.*?) \| (.*) \|$", text, re.MULTILINE)
    assert rows == [
        (m.name, str(m.kind), ", ".join(f"`{label}`" for label in m.labels), m.help)
        for m in METRICS
    ]


def test_the_docs_name_no_metric_that_is_not_there() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        for name in re.findall(
            r"\bcompactor_[a-z0-9_]+_(?:total|bytes|seconds|ratio)\b", page.read_text()
        ):
            assert metric_of(name) or name in BY_NAME, f"{page.name}: {name}"


@pytest.mark.parametrize("query", [*dashboard_queries(), *alert_queries()])
def test_queries_name_metrics_and_labels_that_are_there(query: str) -> None:
    labels = set(OF_THE_SCRAPE)
    for series in re.findall(r"\bcompactor_[a-z0-9_]+", query):
        metric = metric_of(series)
        assert metric is not None, series
        labels |= set(metric.labels)
    for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", query):
        assert {name.strip() for name in group.split(",") if group} <= labels
    for series, selector in re.findall(r"\b(compactor_[a-z0-9_]+)\{([^}]*)\}", query):
        metric = metric_of(series)
        assert metric is not None
        assert set(re.findall(r"(\w+)=", selector)) <= {*metric.labels, *OF_THE_SCRAPE}


def test_the_dashboard_shows_every_metric_of_watch() -> None:
    shown = {n for q in dashboard_queries() for n in re.findall(r"\bcompactor_[a-z0-9_]+", q)}
    seen = {metric.name for name in shown if (metric := metric_of(name))}
    of_batch = {m.name for m in METRICS[[m.name for m in METRICS].index("compactor_run_success") :]}
    # These are for other queries than curves.
    rest = {"compactor_level_rows", "compactor_task_seconds_total"}
    assert set(BY_NAME) - seen - of_batch == rest
    assert of_batch & seen == {
        "compactor_run_success", "compactor_run_seconds", "compactor_vacuumed_bytes_total",
        "compactor_run_last_success_timestamp_seconds",
    }  # fmt: skip


def test_the_dashboard_is_what_the_catalogue_makes() -> None:
    made = "run `python -m deploy.grafana.dashboard`"
    assert (ROOT / "deploy" / "grafana" / "compactor.json").read_text() == text(), made


def test_the_dashboard_opens_with_numbers_at_a_glance() -> None:
    first = [panel for panel in DASHBOARD["panels"] if panel["gridPos"]["y"] == 0]
    assert len(first) == 6
    assert {panel["type"] for panel in first} == {"stat"}


def test_the_dashboard_has_its_variables_rows_and_a_grid_without_overlaps() -> None:
    variables = {v["name"]: v["type"] for v in DASHBOARD["templating"]["list"]}
    assert variables == {"datasource": "datasource", "table": "query"}
    rows = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert rows == [
        "Debt and back-pressure", "Throughput", "Amplification", "Errors, retries, quarantine",
        "Batch commands and vacuums", "Memory and local disk", "Latency",
    ]  # fmt: skip
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    cells = [cell for panel in DASHBOARD["panels"] for cell in _cells(panel["gridPos"])]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
    for panel in DASHBOARD["panels"]:
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${datasource}"


def _cells(grid: dict[str, Any]) -> list[tuple[int, int]]:
    return [
        (grid["x"] + column, grid["y"] + line)
        for column in range(grid["w"])
        for line in range(grid["h"])
    ]


@pytest.mark.program
def test_promtool_accepts_the_alerts_and_they_fire_when_they_should() -> None:
    tests = ["alerts_test.yaml", "alerts_of_days_test.yaml"]
    for words in (["check", "rules", "alerts.yaml"], ["test", "rules", *tests]):
        done = subprocess.run(
            [promtool(), *words], cwd=ALERTS.parent, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    tested = "".join((ALERTS.parent / name).read_text() for name in tests)
    for rule in yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]:
        assert f"alertname: {rule['alert']}" in tested


@pytest.mark.program
def test_promtool_can_read_the_queries_of_the_dashboard(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": query.replace("$__rate_interval", "5m")}
        for number, query in enumerate(dashboard_queries())
    ]
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = subprocess.run(
        [promtool(), "check", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.program
def test_promtool_finds_nothing_to_blame_in_what_is_served() -> None:
    from prometheus_client import generate_latest

    registry = MetricsRegistry()
    registry.apply(Change(metric, 1, tuple("x" for _ in metric.labels)) for metric in METRICS
                   if metric.name != "compactor_build_info")  # fmt: skip
    served = generate_latest(registry.prometheus)
    assert b"_created" not in served
    done = subprocess.run(
        [promtool(), "check", "metrics"], input=served, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")
