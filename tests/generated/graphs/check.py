"""Runs the graph of a seed and compares its outputs with DuckDB's answer."""

from __future__ import annotations

import json
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from compactor.errors import CompactorError
from compactor.pipelines.config import Pipeline, parse_pipeline
from compactor.pipelines.phases import run_pipeline
from compactor.pipelines.run_report import RunReport
from compactor.resources.errors import MemoryLimitError
from tests.generated.graphs.edges import Row
from tests.generated.graphs.outputs import Place
from tests.generated.graphs.steps import Graph
from tests.generated.pool import count

TIMEOUT_S: Final = 60.0
_SHOWN_ROWS: Final = 3
_SHOWN_CHARACTERS: Final = 300
Run = Callable[[Pipeline], RunReport]


def check(seed: int) -> str | None:
    """Returns what is wrong with the graph of a seed."""
    return check_runs(seed, {"here": run_pipeline})


def check_runs(seed: int, runs: dict[str, Run], *, in_stages: bool = False) -> str | None:
    """Returns what is wrong with a graph that is run in several ways, each into a folder of its name."""
    rng = random.Random(f"graphs {seed}")
    with tempfile.TemporaryDirectory(prefix="graphs-") as name:
        graph = Graph(rng, Path(name), in_stages=in_stages)
        graph.grow()
        places = graph.outputs()
        document = _document(rng, graph)
        for way, run in runs.items():
            folder = Path(name) / way
            folder.mkdir()
            text = json.dumps(_at(document, folder), indent=1, ensure_ascii=False)
            fault = _fault(graph, places, run, text, folder)
            if fault is not None:
                return f"{way}: {fault}\n{text}"
    return None


def _document(rng: random.Random, graph: Graph) -> dict[str, Any]:
    document: dict[str, Any] = {
        "memory": {"limit": rng.choice(("512MiB", "64MiB", "16MiB", "4MiB"))}
    }
    if rng.random() < 0.5:
        document["batch_size"] = graph.batch_size()
    if graph.puts_bad_rows_aside:
        document |= {"on_error": "continue", "dead_letter": "dead.ndjson"}
    return document | {"nodes": graph.nodes}


def _at(document: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Returns the pipeline with its outputs in a folder."""
    moved = json.loads(json.dumps(document))
    places = [moved, *(node["output"] for node in moved["nodes"].values() if "output" in node)]
    for place in places:
        for key in ("path", "table", "dead_letter"):
            if key in place:
                place[key] = str(folder / place[key])
    return moved  # type: ignore[no-any-return]


def _fault(graph: Graph, places: list[Place], run: Run, text: str, folder: Path) -> str | None:
    try:
        report = run(parse_pipeline(text, "graph.json"))
    except MemoryLimitError:
        count("refused for memory")
        return None
    except CompactorError as error:
        return f"{type(error).__name__}: {error}"
    count("outputs", len(places))
    count("runs that spilled", report.spills > 0)
    for place in places:
        if fault := _compared(graph, place, folder):
            return f"{place.edge.name}: {fault}"
    if report.dlq_count != graph.bad_rows:
        return f"{report.dlq_count} dead letters, not {graph.bad_rows}"
    count("dead letters", report.dlq_count)
    return None


def _compared(graph: Graph, place: Place, folder: Path) -> str | None:
    expected, found = graph.answers.rows(place.edge), place.rows(folder)
    missing, extra = Counter(expected) - Counter(found), Counter(found) - Counter(expected)
    if missing or extra:
        return (
            f"{len(found):,} rows, not {len(expected):,}; missing {_first(list(missing))}, "
            f"too many {_first(list(extra))}"
        )
    if place.has_order and place.edge.has_order:
        count("rows in order", len(found))
        for at, (row, right) in enumerate(zip(found, expected, strict=True)):
            if row != right:
                return f"row {at} is {_first([row])}, not {_first([right])}"
    return None


def _first(rows: Sequence[Row]) -> str:
    return ", ".join(repr(row)[:_SHOWN_CHARACTERS] for row in rows[:_SHOWN_ROWS])
