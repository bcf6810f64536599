"""Runs the graph of a seed and compares its outputs and dead letters with what Python says."""

from __future__ import annotations

import csv
import json
import math
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from compactor.errors import CompactorError
from compactor.pipelines.config import parse_pipeline
from compactor.pipelines.phases import run_pipeline
from tests.generated.pool import count
from tests.generated.rowwise.graph import Graph
from tests.generated.rowwise.rows import Edge

TIMEOUT_S: Final = 60.0
_SHOWN: Final = 300
_SEGMENTS: Final = (".edi", ".x12", ".hl7")


def check(seed: int) -> str | None:
    """Returns what is wrong with the graph of a seed."""
    rng = random.Random(f"rowwise {seed}")
    with tempfile.TemporaryDirectory(prefix="rowwise-") as folder:
        graph = Graph(rng, Path(folder))
        graph.grow()
        text = json.dumps(graph.document(), indent=1, ensure_ascii=False)
        try:
            report = run_pipeline(parse_pipeline(text, "graph.json"))
        except CompactorError as error:
            return f"{type(error).__name__}: {error}\n{text}"
        for path, edge in graph.expected():
            if fault := _compared(Path(path), edge):
                return f"{path}: {fault}\n{text}"
        expected = graph.dead_letters()
        lines = Path(folder, "dead.ndjson").read_text().splitlines() if graph.may_fail else []
        found = Counter((r["source"], r["row"] - 1, r["node"]) for r in map(json.loads, lines))
        if (found, report.dlq_count) != (expected, expected.total()):
            extra, missing = list(found - expected), list(expected - found)
            return f"dead letters: {extra[:3]} too many, {missing[:3]} missing\n{text}"
        count("dead letters", len(lines))
        count("graphs with groups", graph.has_groups)
        count("graphs with an init phase", "init" in text)
    return None


def _compared(path: Path, edge: Edge) -> str | None:
    count(f"outputs {path.suffix}")
    if path.suffix in _SEGMENTS:
        given = Path(edge.file).read_bytes()
        if path.suffix == ".x12":  # has these marks whatever was read
            given = given.replace(b"|", b"*").replace(b"\n", b"~")
        return None if path.read_bytes() == given else "other segments"
    expected = [_canonical(row.cells | row.others) for row in edge.rows]
    if path.suffix == ".ndjson":
        expected = [tuple(cell for cell in row if not _is_odd(cell[1])) for row in expected]
    found = [_canonical(row) for row in _rows(path, edge)]
    if found == expected:
        return None
    at = next((n for n, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), -1)
    shown = (
        f"row {at} is {found[at]!r:.{_SHOWN}}, not {expected[at]!r:.{_SHOWN}}" if at >= 0 else ""
    )
    return f"{len(found)} rows, not {len(expected)}; {shown}"


def _rows(path: Path, edge: Edge) -> Iterator[dict[str, Any]]:
    if path.suffix == ".parquet":
        yield from pq.read_table(path).to_pylist()
    elif path.suffix == ".csv":
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                yield {c: _parsed(cell, edge.columns[c]) for c, cell in row.items()}
    else:
        for line in path.read_text().splitlines():
            yield json.loads(line)


def _parsed(cell: str, kind: str) -> Any:
    if cell == "":
        return None
    return {"int": int, "real": float, "text": str}[kind](cell)


def _is_odd(value: Any) -> bool:
    """Returns whether a canonical value is a number that JSON does not have, and that is null there."""
    return value == "nan" or (isinstance(value, tuple) and value[:1] in ((math.inf,), (-math.inf,)))


def _canonical(value: Any) -> Any:
    """Returns a form in which NaN is itself, zeros have signs, and null fields are missing."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else (value, math.copysign(1, value))
    if isinstance(value, dict):
        return tuple(sorted((k, _canonical(v)) for k, v in value.items() if v is not None))
    if isinstance(value, list):
        return tuple(map(_canonical, value))
    return value
