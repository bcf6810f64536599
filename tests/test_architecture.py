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
                       "compactor.table", "compactor.cli", "compactor.spark", "compactor.job",
                       "compactor.config"],
    "compactor/memory_plan.py": ["format", "compactor.stores", "compactor.merge", "compactor.planner",
                                 "compactor.table", "compactor.job", "compactor.config"],
    "compactor/merge": ["compactor.stores", "compactor.planner", "compactor.spark", "compactor.cli",
                        "compactor.table.commit_log", "compactor.job"],
    "compactor/planner": ["compactor.stores", "compactor.merge", "compactor.spark", "compactor.cli",
                          "compactor.table.commit_log", "compactor.job"],
    "compactor/stores": ["compactor.merge", "compactor.planner", "compactor.spark", "compactor.cli",
                         "compactor.table.commit_log", "compactor.job", "format"],
    "compactor/files": ["compactor.stores", "compactor.merge", "compactor.planner", "compactor.spark",
                        "compactor.cli", "compactor.table.commit_log"],
    "compactor/pipeline": ["compactor.spark", "compactor.cli"],
    "compactor/spark": ["compactor.cli"],
    "compactor/entity": ["compactor.cli", "compactor.spark", "compactor.pipeline", "compactor.driver"],
    "compactor/report": ["compactor.spark", "compactor.cli", "compactor.engine", "compactor.worker"],
    "compactor/job.py": ["compactor.spark", "compactor.cli", "compactor.table.commit_log"],
    "compactor/table": ["compactor.planner", "compactor.merge", "compactor.job", "compactor.spark",
                        "compactor.cli", "compactor.driver"],
    "compactor/driver.py": ["compactor.spark", "compactor.cli", "compactor.engine", "compactor.worker"],
    "compactor/engine.py": ["compactor.spark", "compactor.cli", "compactor.driver"],
    "compactor/worker.py": ["compactor.spark", "compactor.cli"],
    "compactor/metrics": ["compactor.cli", "compactor.spark", "compactor.logs"],
    "compactor/metrics/catalog.py": ["compactor", "prometheus_client"],
    "compactor/metrics/mapping.py": ["prometheus_client", "compactor.stores"],
    "compactor/tracing.py": ["compactor.cli", "compactor.spark", "compactor.metrics"],
    "compactor/events.py": ["compactor.cli", "compactor.spark", "compactor.metrics"],
    "compactor/logs.py": ["compactor.cli", "compactor.job", "compactor.driver", "compactor.metrics"],
}  # fmt: skip

ONLY_IN = {
    "boto3": ["compactor/stores/s3.py"],
    "botocore": ["compactor/stores/s3.py"],
    "pyspark": ["compactor/spark/"],
    "click": ["compactor/cli/"],
    "rich": ["compactor/cli/"],
    "prometheus_client": ["compactor/metrics/"],
    "waitress": ["compactor/metrics/server.py"],
    "pythonjsonlogger": ["compactor/logs.py"],
    "opentelemetry": ["compactor/tracing.py"],
    "scipy": ["compactor/entity/components.py"],
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
