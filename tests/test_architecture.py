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
    ("fleet", "spark"),
    ("lakes", "write"),
    ("compaction", "read", "simulate"),
    ("merge", "planner"),
    ("table",),
    ("settings", "stores"),
    ("files", "predicate", "resources", "rows"),
    ("errors",),
    ("common", "lsm_fragment"),
)
"""The rooms of `compactor`, and `lsm_fragment`, from the top down: each imports itself and lower layers."""

MERGE_ROOMS: Final = (("",), ("groups",), ("order",), ("inputs",), ("outputs",))
"""The rooms of `compactor/merge`, from the top down; the files above all rooms have the empty name."""
BELOW_MERGE_ROOMS: Final = ("errors", "tasks")
"""The files of `compactor/merge` that every room may import."""
MAX_MERGE_FLOORS: Final = 8
MAX_MERGE_ATTRIBUTES: Final = 12
MAX_MERGE_METHODS: Final = 20

FORBIDDEN: Final = {
    "compactor/resources/": ("lsm_fragment",),
    "compactor/stores/": ("lsm_fragment",),
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
    "obstore": ("compactor/stores/obstore_store.py",),
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
    "plotly": ("compactor/report/",),
    "jinja2": ("compactor/report/",),
    "tenacity": ("compactor/common/second_tries.py",),
    "deltalake": ("compactor/lakes/delta.py",),
    "pyiceberg": ("compactor/lakes/iceberg.py",),
    "zstandard": ("format/lsm_fragment/blocks/compression.py", "compactor/files/"),
}


def sources() -> list[Path]:
    return sorted([*(ROOT / "format").rglob("*.py"), *(ROOT / "compactor").rglob("*.py")])


def place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def dotted(path: Path) -> str:
    """The module's name: the package of the format has a folder of its own above it."""
    return place(path).removeprefix("format/").removesuffix(".py").replace("/", ".")


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
    if first == "lsm_fragment":
        return first
    if first != "compactor":
        return None
    return rest[0] if rest else "__init__"


def used_rooms() -> Iterator[tuple[str, str, str, str]]:
    """A file, its room, what it imports and the room of that."""
    for path in sources():
        room = room_of(dotted(path))
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


def merge_imports() -> dict[str, set[str]]:
    """The modules of `compactor.merge`, without that prefix, and those that each imports."""
    prefix = "compactor.merge."
    return {
        dotted(path).removeprefix(prefix): {
            name.removeprefix(prefix) for name in imports_of(path) if name.startswith(prefix)
        }
        for path in sources()
        if dotted(path).startswith(prefix) and path.stem != "__init__"
    }


def test_imports_of_the_merge_run_down_its_rooms() -> None:
    height = {room: -layer for layer, rooms in enumerate(MERGE_ROOMS) for room in rooms}
    for module, used in merge_imports().items():
        room = "" if "." not in module else module.split(".")[0]
        for name in used - set(BELOW_MERGE_ROOMS):
            other = "" if "." not in name else name.split(".")[0]
            assert other == room or height[other] < height[room], f"{module} imports {name}"


def test_the_merge_has_few_floors() -> None:
    imports = merge_imports()

    def floor(module: str) -> int:
        return 1 + max((floor(name) for name in imports[module]), default=0)

    assert max(map(floor, imports)) <= MAX_MERGE_FLOORS


def test_classes_of_the_merge_stay_small() -> None:
    """None has many attributes that its methods set, fields, or methods."""
    for path in sources():
        if not place(path).startswith("compactor/merge/"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
                assert len(methods) <= MAX_MERGE_METHODS, f"{place(path)}: {node.name}"
                assert len(set(attributes_of(node))) <= MAX_MERGE_ATTRIBUTES, node.name


def attributes_of(node: ast.ClassDef) -> Iterator[str]:
    """The attributes that the methods of a class set on `self`."""
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store):
            owner = part.value
            if isinstance(owner, ast.Name) and owner.id == "self":
                yield part.attr


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


MOVING_METHODS: Final = frozenset(
    {"take", "filter", "drop_null", "fill_null", "combine_chunks", "sort_by"}
)
"""Of arrays, batches and tables of Arrow."""
MOVING_FUNCTIONS: Final = frozenset(
    {
        "array_filter", "array_take", "case_when", "choose", "coalesce", "concat_arrays", "concat_batches",
        "concat_tables", "drop_null", "fill_null", "fill_null_backward", "fill_null_forward", "filter",
        "if_else", "inverse_permutation", "list_element", "list_flatten", "list_slice", "map_lookup",
        "replace_with_mask", "scatter", "take",
    }
)  # fmt: skip
"""Of `pyarrow` and `pyarrow.compute`."""
MOVES_FLAT_VALUES: Final = {
    "compactor/api/dataset.py": "conditions",
    "compactor/api/lazy_frame.py": "frames of Polars",
    "format/lsm_fragment/arrays/moves.py": "moves values of any type, by flat ones",
    "format/lsm_fragment/arrays/joining.py": "numbers of rows",
    "format/lsm_fragment/arrays/dictionaries.py": "indices, and values as bytes",
    "format/lsm_fragment/encodings/stored_templates.py": "codes of templates",
    "format/lsm_fragment/encodings/template.py": "bytes of variables",
    "format/lsm_fragment/encodings/varlen.py": "texts",
    "format/lsm_fragment/gather/nested.py": "numbers of rows",
    "format/lsm_fragment/arrays/nested_bytes.py": "bits and texts",
    "format/lsm_fragment/arrays/storage.py": "values that are not nested",
    "format/lsm_fragment/arrays/json_texts.py": "texts",
    "format/lsm_fragment/arrays/times.py": "times and texts",
    "format/lsm_fragment/failing.py": "texts and distinct values",
    "compactor/entities/": "texts and numbers",
    "compactor/files/base64_arrays.py": "texts",
    "compactor/files/csv.py": "cells",
    "compactor/files/csvtext.py": "cells",
    "compactor/files/int96.py": "numbers",
    "compactor/files/jsontext.py": "texts",
    "compactor/files/number_text.py": "texts",
    "compactor/files/fixed.py": "texts",
    "compactor/files/fixedtext.py": "texts",
    "compactor/files/lines.py": "texts",
    "compactor/files/text_values.py": "texts and times",
    "compactor/files/xml_shapes.py": "texts",
    "compactor/files/xmltext.py": "texts",
    "compactor/merge/inputs/decoded.py": "codes",
    "compactor/pipelines/aggregating.py": "keys",
    "compactor/pipelines/carried.py": "flat values",
    "compactor/pipelines/dead_letters.py": "names and reasons",
    "compactor/pipelines/exact_sums.py": "numbers",
    "compactor/pipelines/expressions.py": "conditions",
    "compactor/pipelines/nodes/output.py": "groups",
    "compactor/pipelines/nodes/source.py": "texts",
    "compactor/pipelines/measures.py": "numbers",
    "compactor/pipelines/sorted_rows.py": "conditions",
    "compactor/pipelines/time_windows.py": "times and conditions",
    "compactor/pipelines/value_runs.py": "texts",
    "compactor/pipelines/window_calls.py": "numbers",
    "compactor/predicate/": "values that conditions compare",
    "compactor/read/stored_templates.py": "templates",
    "compactor/read/template_counts.py": "texts and codes",
    "compactor/rows/bounded_keys.py": "texts",
    "compactor/rows/flags.py": "conditions",
    "compactor/rows/fold.py": "sums",
    "compactor/spark/shuffle/exchange.py": "makes tables of several chunks, joined by `one_batch`",
    "compactor/spark/source/types.py": "numbers",
    "compactor/table/": "the log's own columns, and times",
    "compactor/write/search.py": "bits of rows",
}
"""What Arrow's kernels may move: `tests/format/test_kernels.py` shows that they are right for flat values.
All else goes through `moves` and `batches` of `lsm_fragment.arrays` (decision 66)."""
OWN_TAKERS: Final = (
    "compactor/compaction/worker.py", "compactor/merge/column_phase.py", "compactor/merge/order/key_merge.py",
    "compactor/merge/key_phase.py", "compactor/merge/tasks.py", "compactor/pipelines/asof_join.py",
    "compactor/pipelines/hash_index.py", "compactor/pipelines/merge_join.py",
    "compactor/pipelines/merging.py", "compactor/pipelines/work.py",
    "compactor/pipelines/range_join.py", "compactor/read/merged_rows.py",
    "compactor/read/row_groups_ahead.py", "compactor/read/steps.py",
    "compactor/stores/upload_parts.py", "compactor/write/ingest/fragments.py",
    "format/lsm_fragment/threads.py", "format/lsm_fragment/encodings/letters.py",
    "format/lsm_fragment/encodings/reading.py",
    "format/lsm_fragment/encodings/template_decoder.py",
    "format/lsm_fragment/encodings/vocabulary.py",
    "format/lsm_fragment/encodings/text_decoder.py", "format/lsm_fragment/arrays/sizes.py",
    "format/lsm_fragment/container/writer.py",
)  # fmt: skip
"""Files in which `take` is a method of our own classes, or of numpy."""


def moving_calls(path: Path) -> Iterator[str]:
    """Yields the names of kernels of Arrow, or of methods named like them, that a file calls."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        owner, name = node.func.value, node.func.attr
        if isinstance(owner, ast.Name) and owner.id in ("pa", "pc"):
            if name in MOVING_FUNCTIONS:
                yield name
        elif name in MOVING_METHODS:
            yield name


def test_kernels_of_arrow_move_flat_values_only() -> None:
    allowed = dict.fromkeys(MOVES_FLAT_VALUES, MOVING_METHODS | MOVING_FUNCTIONS)
    allowed |= dict.fromkeys(OWN_TAKERS, frozenset({"take"}))
    used = set()
    for path in sources():
        for name in moving_calls(path):
            known = [prefix for prefix in allowed if place(path).startswith(prefix)]
            assert any(name in allowed[prefix] for prefix in known), (
                f"{place(path)} calls `{name}`: take `moves` or `batches` of `lsm_fragment.arrays`"
            )
            used |= set(known)
    assert used == set(allowed), f"superfluous: {set(allowed) - used}"


def test_compute_functions_are_imported_on_first_use() -> None:
    for path in sources():
        assert "pyarrow.compute" not in imports_of(path), (
            f"{place(path)}: write `from lsm_fragment import compute as pc`"
        )


def test_batches_and_arrays_are_not_imported_from_arrow_under_other_names() -> None:
    """The rule above knows Arrow by the names `pa` and `pc`."""
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "lsm_fragment.compute":
                raise AssertionError(f"{place(path)} imports kernels by name")
            if isinstance(node, ast.ImportFrom) and node.module == "lsm_fragment":
                kernels = [alias for alias in node.names if alias.name == "compute"]
                assert all(alias.asname == "pc" for alias in kernels), place(path)
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name == "pyarrow":
                        assert alias.asname in (None, "pa"), place(path)
