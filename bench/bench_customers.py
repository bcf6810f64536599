"""Compares `entity-merge` with Splink's deterministic rules on 1.2 million noisy customers.

    python -m bench.bench_customers                           1.2 million records, two threads
    python -m bench.bench_customers --records 10000000 --engines clusters,splink

`bench.customers` makes the records, with typos, missing fields and shared telephones. Two are one if they
have the same mail address, the same telephone and last name, or the same names and date of birth. Splink has
these rules as its blocking rules for `deterministic_link`, and connects their pairs by
`cluster_pairwise_predictions_at_threshold`, on DuckDB. Engines:

    clusters    entity-merge as a dry run: from Parquet to clusters in memory
    splink      the same by Splink
    table       entity-merge to the end: the merged customers in a table

Splink is left out where it is not installed; `make peers` installs it. Each runs once, in a process of its
own, whose CPU counts from its start. All must find the same clusters.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.customers import write_customers
from bench.peers.usage import cpu_seconds, peak_rss_bytes
from bench.results import RESULTS, ROOT, write_results
from compactor.common.counts import counted
from compactor.entities.entity_merge import EntityMerge
from compactor.entities.run import EntityRun
from compactor.entities.spec import EntityMergeSpec, load_spec
from compactor.read.scan import scan
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog

_RULES: Final = (("mail",), ("phone", "last"), ("first", "last", "born"))
_SPLINK: Final = "splink"
_CORES: Final = 2
_IDS: Final = "$ids"

Numbers = npt.NDArray[np.int64]


def _spec(folder: Path) -> EntityMergeSpec:
    rules = [["and", *(["eq", f"c.{name}", f"c.{name}"] for name in rule)] for rule in _RULES]
    path = folder / "spec.json"
    wanted = {"version": 2, "datasets": ["customers c"], "identity": "first", "equality": rules}
    path.write_text(json.dumps(wanted), encoding="utf-8")
    return load_spec(str(path))


def with_table(folder: Path, done: Callable[[], None]) -> Numbers:
    """Returns the clusters of a table that an entity merge wrote."""
    store = open_store(str(folder / "table"))
    EntityMerge(EntityRun(spec=_spec(folder), store=store, folder=str(folder))).run()
    done()
    return _clusters_of(scan(store, CommitLog(store).current()))


def with_clusters(folder: Path, done: Callable[[], None]) -> Numbers:
    """Returns the clusters of a dry run, which folds nothing before its rows are taken."""
    _, rows = EntityMerge(EntityRun(spec=_spec(folder), store=None, folder=str(folder))).look()
    done()
    assert rows is not None
    return _clusters_of(rows)


def with_splink(folder: Path, done: Callable[[], None]) -> Numbers:
    """Returns the clusters of Splink's deterministic linkage."""
    import duckdb
    from splink import DuckDBAPI, Linker, SettingsCreator, block_on

    connection = duckdb.connect()
    connection.execute(f"SET threads = {_CORES}")
    file = folder / "customers.parquet"
    connection.execute(f"CREATE TABLE customers AS SELECT * FROM read_parquet('{file}')")
    settings = SettingsCreator(
        link_type="dedupe_only",
        unique_id_column_name="_id",
        blocking_rules_to_generate_predictions=[block_on(*rule) for rule in _RULES],
        retain_matching_columns=False,
    )
    linker = Linker(DuckDBAPI(connection).register("customers"), settings, log_level=30)
    pairs = linker.inference.deterministic_link()
    found = linker.clustering.cluster_pairwise_predictions_at_threshold(pairs)
    done()
    rows: Any = connection.sql(f'SELECT "_id", cluster_id FROM {found.physical_name}')
    rows = rows.to_arrow_table()
    names = rows["cluster_id"].combine_chunks().dictionary_encode()
    return _labels(_numbers(rows["_id"]), np.asarray(names.indices).astype(np.int64))


def _clusters_of(rows: Iterable[pa.RecordBatch]) -> Numbers:
    nodes, of, clusters = [], [], 0
    for batch in rows:
        lists = batch.column(_IDS)
        nodes.append(_numbers(lists.flatten()))
        of.append(clusters + np.asarray(lists.value_parent_indices()).astype(np.int64))
        clusters += len(lists)
    return _labels(np.concatenate(nodes), np.concatenate(of))


def _numbers(ids: pa.Array | pa.ChunkedArray) -> Numbers:
    """Returns the n of ids `cn`."""
    return np.array([int(name[1:]) for name in ids.to_pylist()], np.int64)


def _labels(nodes: Numbers, clusters: Numbers) -> Numbers:
    """Returns for each record the smallest of its cluster. nodes: each record once."""
    assert len(np.unique(nodes)) == len(nodes)
    smallest = np.full(int(clusters.max()) + 1, len(nodes))
    np.minimum.at(smallest, clusters, nodes)
    labels = np.empty(len(nodes), np.int64)
    labels[nodes] = smallest[clusters]
    return labels


ENGINES: Final = {"clusters": with_clusters, _SPLINK: with_splink, "table": with_table}


def run_here(engine: str, folder: Path) -> dict[str, Any]:
    """Returns one engine's figures, and writes its clusters."""
    figures: dict[str, Any] = {"engine": engine}
    started = time.perf_counter()

    def done() -> None:
        figures["seconds"] = round(time.perf_counter() - started, 2)
        figures["cpu_seconds"] = round(cpu_seconds(), 2)
        figures["peak_rss_mb"] = round(peak_rss_bytes() / 1e6)

    labels = ENGINES[engine](folder, done)
    np.save(folder / f"{engine}.npy", labels)
    return figures | {"clusters": len(np.unique(labels))}


def _run_apart(engine: str, folder: Path) -> dict[str, Any]:
    command = [
        sys.executable,
        "-m",
        "bench.bench_customers",
        "--in",
        str(folder),
        "--engines",
        engine,
    ]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--records", type=int, default=1_200_000)
    parser.add_argument("--engines", default=",".join(ENGINES), help="default: %(default)s")
    parser.add_argument("--results", type=Path, default=RESULTS / "customers.json")
    parser.add_argument("--in", dest="folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    engines = options.engines.split(",")
    if _SPLINK in engines and importlib.util.find_spec(_SPLINK) is None:
        engines.remove(_SPLINK)
        left_out = f"{_SPLINK} is not installed; make peers installs it"
        if not engines:
            parser.error(left_out)
        print(left_out)
    if unknown := set(engines) - set(ENGINES):
        parser.error(f"--engines: no {', '.join(sorted(unknown))}; there are {', '.join(ENGINES)}")
    if options.folder:
        print(json.dumps(run_here(engines[0], options.folder)))
        return
    with tempfile.TemporaryDirectory(prefix="bench-customers-") as work:
        folder = Path(work)
        write_customers(folder, options.records)
        print(f"{counted(options.records, 'record')}")
        print(f"{'engine':<10}{'CPU':>10}{'wall':>10}{'peak RSS':>12}{'clusters':>12}")
        cases = []
        for engine in engines:
            case = _run_apart(engine, folder)
            print(
                f"{engine:<10}{case['cpu_seconds']:>8.1f} s{case['seconds']:>8.1f} s"
                f"{case['peak_rss_mb']:>9,} MB{case['clusters']:>12,}"
            )
            cases.append(case)
        first, *others = (np.load(folder / f"{engine}.npy") for engine in engines)
    same = all(np.array_equal(first, other) for other in others)
    print("same clusters" if same else "FAILED: other clusters")
    write_results(options.results, {"records": options.records, "same_clusters": same}, cases)
    if not same:
        sys.exit(1)


if __name__ == "__main__":
    main()
