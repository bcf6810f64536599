"""Imports run one way, and each third-party package stays where it belongs."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Package prefix -> prefixes of this project it must not import.
FORBIDDEN = {
    "format": ["compactor"],
    "compactor/flow": ["format", "compactor.stores", "compactor.merge", "compactor.planner",
                       "compactor.table", "compactor.cli", "compactor.spark", "compactor.compaction.attempt",
                       "compactor.settings.compaction"],
    "compactor/resources/merge_plan.py": ["format", "compactor.stores", "compactor.merge", "compactor.planner",
                                 "compactor.table", "compactor.compaction.attempt", "compactor.settings.compaction"],
    "compactor/merge": ["compactor.stores", "compactor.planner", "compactor.spark", "compactor.cli",
                        "compactor.table.commit_log", "compactor.compaction.attempt"],
    "compactor/planner": ["compactor.stores", "compactor.merge", "compactor.spark", "compactor.cli",
                          "compactor.table.commit_log", "compactor.compaction.attempt"],
    "compactor/stores": ["compactor.merge", "compactor.planner", "compactor.spark", "compactor.cli",
                         "compactor.table.commit_log", "compactor.compaction.attempt", "format"],
    "compactor/files": ["compactor.stores", "compactor.merge", "compactor.planner", "compactor.spark",
                        "compactor.cli", "compactor.table.commit_log"],
    "compactor/pipeline": ["compactor.spark", "compactor.cli"],
    "compactor/spark": ["compactor.cli"],
    "compactor/entity": ["compactor.cli", "compactor.spark", "compactor.pipelines", "compactor.compaction.driver"],
    "compactor/report": ["compactor.spark", "compactor.cli", "compactor.compaction.engine", "compactor.compaction.worker"],
    "compactor/compaction/attempt.py": ["compactor.spark", "compactor.cli", "compactor.table.commit_log"],
    "compactor/table": ["compactor.planner", "compactor.merge", "compactor.compaction.attempt", "compactor.spark",
                        "compactor.cli", "compactor.compaction.driver"],
    "compactor/compaction/driver.py": ["compactor.spark", "compactor.cli", "compactor.compaction.engine", "compactor.compaction.worker"],
    "compactor/compaction/engine.py": ["compactor.spark", "compactor.cli", "compactor.compaction.driver"],
    "compactor/compaction/worker.py": ["compactor.spark", "compactor.cli"],
    "compactor/metrics": ["compactor.cli", "compactor.spark", "compactor.common.logs"],
    "compactor/telemetry/metrics/catalog.py": ["compactor", "prometheus_client"],
    "compactor/telemetry/metrics/mapping.py": ["prometheus_client", "compactor.stores"],
    "compactor/telemetry/tracing.py": ["compactor.cli", "compactor.spark", "compactor.telemetry.metrics"],
    "compactor/telemetry/events.py": ["compactor.cli", "compactor.spark", "compactor.telemetry.metrics"],
    "compactor/common/logs.py": ["compactor.cli", "compactor.compaction.attempt", "compactor.compaction.driver", "compactor.telemetry.metrics"],
}  # fmt: skip

ONLY_IN = {
    "boto3": ["compactor/stores/s3.py"],
    "botocore": ["compactor/stores/s3.py"],
    "pyspark": ["compactor/spark/"],
    "click": ["compactor/cli/"],
    "rich": ["compactor/cli/"],
    "prometheus_client": ["compactor/telemetry/metrics/"],
    "waitress": ["compactor/telemetry/metrics/server.py"],
    "pythonjsonlogger": ["compactor/common/logs.py"],
    "opentelemetry": ["compactor/telemetry/tracing.py"],
    "scipy": ["compactor/entities/components.py"],
    "plotly": ["compactor/report/"],
    "jinja2": ["compactor/report/"],
    "zstandard": ["format/compression.py", "compactor/files/"],
}


def sources() -> list[Path]:
    return sorted([*(ROOT / "format").rglob("*.py"), *(ROOT / "compactor").rglob("*.py")])


def imports_of(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


@pytest.mark.parametrize("prefix", FORBIDDEN)
def test_imports_run_one_way(prefix: str) -> None:
    seen = 0
    for path in sources():
        if not path.relative_to(ROOT).as_posix().startswith(prefix):
            continue
        seen += 1
        for name in imports_of(path):
            for banned in FORBIDDEN[prefix]:
                assert name != banned, f"{path} imports {name}"
                assert not name.startswith(f"{banned}."), f"{path} imports {name}"
    assert seen


@pytest.mark.parametrize("package", ONLY_IN)
def test_third_party_packages_stay_where_they_belong(package: str) -> None:
    for path in sources():
        relative = path.relative_to(ROOT).as_posix()
        used = any(name == package or name.startswith(f"{package}.") for name in imports_of(path))
        assert not used or any(relative.startswith(place) for place in ONLY_IN[package]), relative
