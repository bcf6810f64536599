"""Imports run one way, and each third-party package stays where it belongs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]

LAYERS: Final = (
    ("__main__",),
    ("cli",),
    ("report", "telemetry"),
    ("__init__", "pipelines"),
    ("api", "entities"),
    ("spark",),
    ("write",),
    ("compaction", "read", "simulate"),
    ("merge", "planner"),
    ("table",),
    ("settings", "stores"),
    ("files", "predicate", "resources", "rows"),
    ("errors",),
    ("common", "format"),
)
"""The rooms of `compactor`, and `format`, from the top down: each imports itself and lower layers."""

FORBIDDEN: Final = {
    "compactor/resources/": ("format",),
    "compactor/stores/": ("format",),
    "compactor/planner/": ("compactor.stores", "compactor.table.commit_log"),
    "compactor/merge/": ("compactor.stores", "compactor.table.commit_log"),
    "compactor/files/": ("compactor.stores",),
    "compactor/compaction/attempt.py": ("compactor.table.commit_log",),
    "compactor/compaction/engine.py": ("compactor.compaction.driver",),
    "compactor/compaction/driver.py": (
        "compactor.compaction.engine",
        "compactor.compaction.worker",
    ),
    "compactor/entities/": ("compactor.compaction.driver",),
    "compactor/report/": (
        "compactor.spark",
        "compactor.compaction.engine",
        "compactor.compaction.worker",
    ),
    "compactor/telemetry/": ("compactor.spark",),
    "compactor/telemetry/metrics/catalog.py": ("compactor",),
    "compactor/telemetry/metrics/mapping.py": ("compactor.stores",),
}
"""What the layers would allow, and these must not import all the same: plans are pure, a merge knows no
store, a driver no engine."""

ONLY_IN: Final = {
    "boto3": ("compactor/stores/s3.py",),
    "botocore": ("compactor/stores/s3.py",),
    "pyspark": (
        "compactor/spark/",
        "compactor/entities/on_spark.py",
        "compactor/entities/spark_",
        "compactor/pipelines/on_spark.py",
    ),
    "click": ("compactor/cli/",),
    "rich": ("compactor/cli/",),
    "prometheus_client": ("compactor/telemetry/metrics/",),
    "waitress": ("compactor/telemetry/metrics/server.py",),
    "pythonjsonlogger": ("compactor/common/logs.py",),
    "opentelemetry": ("compactor/telemetry/tracing.py",),
    "scipy": ("compactor/entities/components.py",),
    "plotly": ("compactor/report/",),
    "jinja2": ("compactor/report/",),
    "zstandard": ("format/compression.py", "compactor/files/"),
}


def sources() -> list[Path]:
    return sorted([*(ROOT / "format").rglob("*.py"), *(ROOT / "compactor").rglob("*.py")])


def place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports_of(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names.add(str(node.module))
    return names


def is_of(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def room_of(module: str) -> str | None:
    """The room of a dotted name; None for other people's packages."""
    first, *rest = module.split(".")
    if first == "format":
        return "format"
    if first != "compactor":
        return None
    return rest[0] if rest else "__init__"


def used_rooms() -> Iterator[tuple[str, str, str, str]]:
    """A file, its room, what it imports and the room of that."""
    for path in sources():
        room = room_of(".".join(path.relative_to(ROOT).with_suffix("").parts))
        for name in imports_of(path):
            if (used := room_of(name)) is not None and room is not None:
                yield place(path), room, name, used


def test_no_room_imports_one_of_its_own_layer_or_above() -> None:
    height = {room: -layer for layer, rooms in enumerate(LAYERS) for room in rooms}
    seen = set()
    for path, room, name, used in used_rooms():
        seen.add(room)
        assert used == room or height[used] < height[room], f"{path} imports {name}"
    assert seen == set(height)


@pytest.mark.parametrize("prefix", FORBIDDEN)
def test_what_the_layers_would_allow_is_not_imported_either(prefix: str) -> None:
    files = [path for path in sources() if place(path).startswith(prefix)]
    assert files
    for path in files:
        for name in imports_of(path):
            assert not any(is_of(name, banned) for banned in FORBIDDEN[prefix]), (
                f"{path} imports {name}"
            )


def test_commands_open_tables_by_one_door() -> None:
    openers = [
        place(path)
        for path in sources()
        if place(path).startswith("compactor/cli/") and "compactor.stores.open" in imports_of(path)
    ]
    assert openers == ["compactor/cli/tables.py"]


@pytest.mark.long
@pytest.mark.parametrize("package", ONLY_IN)
def test_third_party_packages_stay_where_they_belong(package: str) -> None:
    users = [place(p) for p in sources() if any(is_of(n, package) for n in imports_of(p))]
    assert users
    for user in users:
        assert user.startswith(ONLY_IN[package]), user
