"""Rows that several nodes take are made once, and are for each what they would be for it alone."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compactor.pipelines.config import Source, parse_pipeline
from compactor.pipelines.nodes.source import SourceReader, open_source
from compactor.pipelines.pipeline_run import PipelineRun
from compactor.pipelines.provenance import Batches
from compactor.pipelines.work import Reading

Nodes = dict[str, Any]
ROWS = 300
ENDINGS = ("ndjson", "csv", "parquet", "arrow")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`a` and `b` in every format, sorted by `k`, with several rows of each value."""
    folder = tmp_path_factory.mktemp("sources")
    for name in ("a", "b"):
        rows = [{"k": n // 3, "_id": f"{name}{n}", "size": n % 7} for n in range(ROWS)]
        table = pa.Table.from_pylist(rows)
        pq.write_table(table, folder / f"{name}.parquet")
        with pa.ipc.new_file(str(folder / f"{name}.arrow"), table.schema) as writer:
            writer.write_table(table)
        lines = [json.dumps(row) for row in rows]
        (folder / f"{name}.ndjson").write_text("\n".join(lines))
        cells = [",".join(map(str, row.values())) for row in rows]
        (folder / f"{name}.csv").write_text("\n".join(["k,_id,size", *cells]))
    return folder


def merge(mode: str, *inputs: str, **more: Any) -> Nodes:
    return {"merge": {"inputs": list(inputs), "mode": mode, **more}}


def combine(method: str, **more: Any) -> Nodes:
    return {"combine": {"probe": "a", "build": "c", "method": method, **more}}


C: Nodes = {
    "c": {"transform": {"input": "b", "columns": {"from": "k", "to": "k + 1", "name": "_id"}}}
}
SHARED: dict[str, Nodes] = {
    "concat": {"x": merge("concat", "a", "b")},
    "interleave": {"x": merge("interleave", "a", "b")},
    "seeded": {"x": merge("interleave", "a", "b", interleave_seed=3)},
    "key": {"x": merge("key", "a", "b", sort_by="k")},
    "entity": {"x": merge("entity", "a", "b", entity={"equality": [["eq", "a.k", "b.k"]]})},
    "seeded of seeded": {"y": merge("interleave", "a", "b", interleave_seed=3),
                         "z": {"transform": {"input": "y"}},
                         "x": merge("interleave", "z", "y", interleave_seed=4)},
    "key of a shared interleave": {"y": merge("interleave", "a", "b"),
                                   "s": {"sort": {"input": "y", "by": "k"}},
                                   "w": {"sort": {"input": "y", "by": "k"}},
                                   "x": merge("key", "s", "w", sort_by="k")},
    "sort": {"m": merge("interleave", "a", "b"), "x": {"sort": {"input": "m", "by": "size,_id"}}},
    "aggregate": {"x": {"aggregate": {"input": "m", "group_by": ["size"], "columns": {"k": "sum(k)"}}},
                  "m": merge("interleave", "a", "b")},
    "window": {"x": {"transform": {"input": "m", "columns": {"k": "lag(k)"},
                                   "window": {"partition_by": ["size"], "order_by": "k,_id"}}},
               "m": merge("interleave", "a", "b")},
    "route": {"r": {"route": {"input": "m", "branches": {"few": "size < 3"}, "otherwise": "rest"}},
              "m": merge("interleave", "a", "b"), "x": merge("interleave", "r.rest", "r.few")},
    "hash": {**C, "x": combine("hash", on={"k": "from"})},
    "sort_merge": {**C, "x": combine("sort_merge", on={"k": "from"}, how="full")},
    "range": {**C, "x": combine("range", range={"column": "k", "from": "from", "to": "to"})},
    "asof": {**C, "x": combine("asof", at={"k": "from"})},
}  # fmt: skip
"""Nodes between the sources `a` and `b` and `x`."""
TAKERS: list[Nodes] = [
    {"o0": {"output": {"input": "x", "path": "OUT/o0.ndjson"}}},
    {"t": {"transform": {"input": "x"}}, "o1": {"output": {"input": "t", "path": "OUT/o1.ndjson"}}},
    {"u": {"transform": {"input": "x"}}, "v": merge("interleave", "x", "u"),
     "o2": {"output": {"input": "v", "path": "OUT/o2.ndjson"}}},
    {"o3": {"output": {"input": "a", "path": "OUT/o3.ndjson"}}},
]  # fmt: skip


class Opened:
    """Opens sources, and counts how often the rows of each are read."""

    def __init__(self) -> None:
        self.reads: Counter[str] = Counter()

    def __call__(self, name: str, node: Source, how: Reading, /) -> SourceReader:
        reader = open_source(name, node, how)
        batches = reader.batches

        def counted() -> Batches:
            self.reads[name] += 1
            return batches()

        reader.batches = counted
        return reader


def run(nodes: Nodes, folder: Path, place: Path, ending: str) -> dict[str, list[str]]:
    """The lines of each output, in the order of a run in which it is alone."""
    sources = {n: {"source": {"path": f"{folder}/{n}.{ending}"}} for n in ("a", "b")}
    taken = {name for node in nodes.values() for name in taken_by(node)}
    document: Nodes = {"nodes": {n: node for n, node in sources.items() if n in taken} | nodes}
    place.mkdir()
    opener = Opened()
    text = json.dumps(document | {"batch_size": 64}).replace("OUT/", f"{place}/")
    report = PipelineRun(parse_pipeline(text, "test.yaml"), opener).run()
    assert dict(report.records_read) == dict.fromkeys(opener.reads, ROWS)
    assert set(opener.reads.values()) == {1}
    return {path.stem: sorted(path.read_text().splitlines()) for path in place.iterdir()}


def taken_by(node: Nodes) -> list[str]:
    [value] = node.values()
    return [
        *value.get("inputs", ()),
        *(value[n] for n in ("input", "probe", "build") if n in value),
    ]


@pytest.mark.parametrize("case", SHARED)
def test_a_node_gives_several_what_it_gives_to_one(case: str, folder: Path, tmp_path: Path) -> None:
    nodes = SHARED[case]
    for ending in ENDINGS if case == "interleave" else ENDINGS[:1]:
        alone: dict[str, list[str]] = {}
        for number, taker in enumerate(TAKERS):
            used = taker if "o3" in taker else nodes | taker
            alone |= run(used, folder, tmp_path / f"{ending}{number}", ending)
        together = nodes | {name: node for taker in TAKERS for name, node in taker.items()}
        assert run(together, folder, tmp_path / ending, ending) == alone
        assert len(alone["o2"]) == 2 * len(alone["o0"]) > 0
