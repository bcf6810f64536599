"""Compares connected components with Splink's deterministic clustering and GraphFrames, on 10 million
records.

    python -m bench.bench_components                          10 million records, local[2]; takes 6 GB
    python -m bench.bench_components --quick                  200,000
    python -m bench.bench_components --engines union-find,splink

The records have planted clusters: a hub with a tenth of all records, a chain with a hundredth, twenty chains
with a thousandth each, and clusters of power-law sizes, which are random trees with three extra links for
every ten. Numbers and order are shuffled. The clock runs from links in Parquet to the cluster of each record
in Parquet. Each engine runs once, in its own process; Spark's session starts before the clock. The clusters
found must equal the planted ones. GraphFrames runs only if its JAR is on Spark's class path; PyPI has none.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import asdict

from bench.results import RESULTS, write_results
from compactor.common.counts import counted
from compactor.entities.components import components
from compactor.entities.spark_components import EDGES_IN_ONE_TASK, Round, connected_components

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ZIPF_EXPONENT: Final = 2.2
_LARGEST_CLUSTER: Final = 10_000
_OVER: Final = 0.3
_QUICK_RECORDS: Final = 200_000
_SEED: Final = 7
_CORES: Final = 2


def write_links(folder: Path, records: int) -> int:
    """Writes links.parquet, and planted.parquet with the smallest record of each record's cluster. Returns
    the number of links."""
    random = np.random.default_rng(_SEED)
    chains = [records // 100] + [records // 1000] * 20
    sizes = np.concatenate([[records // 10], chains, _power_law(random, records, chains)])
    cluster = np.repeat(np.arange(len(sizes)), sizes)
    start = (np.cumsum(sizes) - sizes)[cluster]
    rank = np.arange(records) - start
    before = (random.random(records) * rank).astype(np.int64)
    before[cluster == 0] = 0
    in_chain = (cluster > 0) & (cluster <= len(chains))
    before[in_chain] = rank[in_chain] - 1
    linked = np.flatnonzero(rank > 0)
    over = linked[(cluster[linked] > len(chains)) & (random.random(len(linked)) < _OVER)]
    other = (start + random.random(records) * sizes[cluster]).astype(np.int64)[over]
    left = np.concatenate([linked, over])
    right = np.concatenate([(start + before)[linked], other])
    number = random.permutation(records)
    order = random.permutation(len(left))
    links = {"left": number[left[order]], "right": number[right[order]]}
    pq.write_table(pa.table(links), folder / "links.parquet", row_group_size=1 << 20)
    planted = np.empty(records, np.int64)
    planted[number] = np.minimum.reduceat(number, np.unique(start))[cluster]
    pq.write_table(pa.table({"component": planted}), folder / "planted.parquet")
    return len(left)


def _power_law(random: np.random.Generator, records: int, chains: list[int]) -> np.ndarray:
    """Returns cluster sizes that sum to the records left by hub and chains."""
    rest = records - records // 10 - sum(chains)
    sizes = np.minimum(random.zipf(_ZIPF_EXPONENT, rest), _LARGEST_CLUSTER)
    sizes = sizes[: np.searchsorted(np.cumsum(sizes), rest)]
    return np.append(sizes, rest - sizes.sum())


def with_union_find(folder: Path, records: int) -> dict[str, Any]:
    """Finds components as `entity-merge` does in one process."""
    started = time.perf_counter()
    links = pq.read_table(folder / "links.parquet")
    found = components(records, links["left"].to_numpy(), links["right"].to_numpy())
    pq.write_table(
        pa.table({"node": np.arange(records), "component": found}), folder / "found.parquet"
    )
    return {"seconds": time.perf_counter() - started}


def with_spark(folder: Path, records: int) -> dict[str, Any]:
    """Runs 10 million records with our defaults. For fewer, lowers the limit of the final task, so that there
    are rounds."""
    return _on_spark(folder, {"edges_in_one_task": min(EDGES_IN_ONE_TASK, records // 10)})


def with_spark_rounds_only(folder: Path, _: int) -> dict[str, Any]:
    """Finishes no edges in one task."""
    return _on_spark(folder, {"edges_in_one_task": 0})


def _on_spark(folder: Path, options: dict[str, int]) -> dict[str, Any]:
    spark = _session()
    rounds: list[Round] = []
    started = time.perf_counter()
    links = spark.read.parquet(str(folder / "links.parquet"))
    found = connected_components(links, str(folder / "rounds"), on_round=rounds.append, **options)
    seconds = time.perf_counter() - started
    found.write.parquet(str(folder / "found.parquet"))
    return {"seconds": seconds, "options": options, "rounds": [asdict(r) for r in rounds]}


def with_splink(folder: Path, records: int) -> dict[str, Any]:
    """Clusters links with certainty 1 by Splink's deterministic linkage, on DuckDB."""
    import duckdb
    from splink import DuckDBAPI
    from splink.clustering import cluster_pairwise_predictions_at_threshold

    connection = duckdb.connect()
    connection.execute(f"SET threads = {_CORES}")
    started = time.perf_counter()
    connection.execute(f"CREATE TABLE records AS SELECT range AS record FROM range({records})")
    connection.execute(
        'CREATE TABLE links AS SELECT "left" AS record_l, "right" AS record_r '
        f"FROM read_parquet('{folder / 'links.parquet'}')"
    )
    found = cluster_pairwise_predictions_at_threshold(
        connection.table("records"), connection.table("links"), DuckDBAPI(connection), "record"
    )
    connection.execute(
        f"COPY (SELECT record AS node, cluster_id AS component FROM {found.physical_name}) "
        f"TO '{folder / 'found.parquet'}' (FORMAT parquet)"
    )
    return {"seconds": time.perf_counter() - started}


def with_graphframes(folder: Path, records: int) -> dict[str, Any]:
    """Runs GraphFrames' default algorithm, with checkpoints beside ours."""
    from graphframes import GraphFrame

    spark = _session()
    spark.sparkContext.setCheckpointDir(str(folder / "checkpoints"))
    started = time.perf_counter()
    nodes = spark.range(records)
    links = spark.read.parquet(str(folder / "links.parquet")).toDF("src", "dst")
    found = GraphFrame(nodes, links).connectedComponents()
    found.toDF("node", "component").write.parquet(str(folder / "found.parquet"))
    return {"seconds": time.perf_counter() - started}


def _session() -> SparkSession:
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", "--driver-memory 6g pyspark-shell")
    from compactor.spark.session import open_session

    spark = open_session(f"local[{_CORES}]")
    spark.conf.set("spark.sql.shuffle.partitions", str(4 * _CORES))
    spark.range(1000).selectExpr("sum(id)").collect()
    return spark


ENGINES: Final[dict[str, Callable[[Path, int], dict[str, Any]]]] = {
    "union-find": with_union_find,
    "spark": with_spark,
    "spark-rounds-only": with_spark_rounds_only,
    "splink": with_splink,
    "graphframes": with_graphframes,
}


def is_planted(folder: Path, records: int) -> bool:
    """Returns whether the clusters found equal the planted ones, up to labels. Records without links may be
    missing."""
    found = pq.read_table(folder / "found.parquet")
    node, name = found["node"].to_numpy(), found["component"].to_numpy()
    _, name = np.unique(name, return_inverse=True)
    smallest = np.full(len(node), records, np.int64)
    np.minimum.at(smallest, name, node)
    component = np.arange(records)
    component[node] = smallest[name]
    planted = pq.read_table(folder / "planted.parquet")["component"].to_numpy()
    return len(np.unique(node)) == len(node) and np.array_equal(component, planted)


def run_here(engine: str, folder: Path, records: int) -> dict[str, Any]:
    """Returns one engine's figures, or the reason why it cannot run."""
    try:
        figures = ENGINES[engine](folder, records)
    except ImportError as error:
        return {"engine": engine, "not_run": str(error)}
    except Exception as error:
        if engine == "graphframes" and "ClassNotFoundException" in str(error):
            return {"engine": engine, "not_run": "its JAR is not on the class path"}
        raise
    return {"engine": engine, **figures, "same_clusters": is_planted(folder, records)}


def run_apart(engine: str, links: Path, records: int) -> dict[str, Any]:
    """Runs an engine in a new process and folder, with the same links."""
    with tempfile.TemporaryDirectory() as work:
        for name in ("links.parquet", "planted.parquet"):
            (Path(work) / name).symlink_to(links / name)
        command = [sys.executable, "-m", "bench.bench_components", "--in", work, "--engines", engine,
                   "--records", str(records)]  # fmt: skip
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        return {"engine": engine, "not_run": f"failed with exit code {done.returncode}"}
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def show(case: dict[str, Any]) -> None:
    if "not_run" in case:
        print(f"{case['engine']:<20}not run: {case['not_run']}")
        return
    same = "same clusters" if case["same_clusters"] else "OTHER CLUSTERS"
    print(f"{case['engine']:<20}{case['seconds']:>8.1f} s   {same}")
    for each in case.get("rounds", ()):
        one = ", in one task" if each["in_one_task"] else ""
        print(
            f"    round {each['number']:>2}: {each['edges']:>12,} edges, {each['seconds']:.1f} s{one}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--quick", action="store_true", help=f"{_QUICK_RECORDS:,} records")
    parser.add_argument("--engines", default=",".join(ENGINES), help="default: %(default)s")
    parser.add_argument("--results", type=Path, default=RESULTS / "components.json")
    parser.add_argument("--in", dest="folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    records = _QUICK_RECORDS if options.quick else options.records
    engines = options.engines.split(",")
    if unknown := set(engines) - set(ENGINES):
        parser.error(f"--engines: no {', '.join(sorted(unknown))}; there are {', '.join(ENGINES)}")
    if options.folder:
        print(json.dumps(run_here(engines[0], options.folder, records)))
        return
    with tempfile.TemporaryDirectory() as work:
        links = write_links(Path(work), records)
        print(f"{counted(records, 'record')}, {counted(links, 'link')}")
        cases = []
        for engine in engines:
            cases.append(run_apart(engine, Path(work), records))
            show(cases[-1])
    write_results(options.results, {"records": records, "links": links}, cases)


if __name__ == "__main__":
    main()
