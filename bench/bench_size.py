"""Claim: no column of a compacted fragment is more than 5% more than in Parquet.

    python -m bench.bench_size                       1 million rows of logs, in two sort orders
    python -m bench.bench_size --strict              exit code 1 if a column is worse

Logs are compacted, and the very same sorted rows written to Parquet by PyArrow, zstd at the same level,
with its default encodings: once in the row groups that the compaction made, once in groups of 131,072 rows.
A column is marked WORSE if its stored bytes are more than 5% above either. The figures go to
size.json, in the folder that RESULTS names.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from bench.results import RESULTS, write_results
from bench.tables import LOG_SORT, compaction_of_all, write_table
from bench.workload import make_overlapping_inputs
from compactor.common.counts import counted
from compactor.compaction.attempt import run_compaction
from compactor.read.fragment_columns import open_fragment
from compactor.settings.compaction import CompactionSettings
from compactor.stores.base import Store
from compactor.stores.local import LocalStore
from compactor.table.entry import FragmentEntry
from lsm_fragment.container.reader import FragmentReader

SORTS: Final = (LOG_SORT, "timestamp")
LEVELS: Final = (1, 3)
LARGE_GROUP_ROWS: Final = 131_072
MAX_RATIO: Final = 1.05


def sizes_of_table(store: Store, level: int) -> list[dict[str, Any]]:
    """Returns the stored bytes of every column of a table compacted at a zstd level, beside Parquet's."""
    outputs = compacted(store, level)
    rows = sum(entry.rows for entry in outputs)
    raw, ours = Counter[str](), Counter[str]()
    for entry in outputs:
        raw.update({name: column.raw for name, column in entry.columns.items()})
        ours.update({name: column.stored for name, column in entry.columns.items()})
    readers = [open_fragment(store, entry.key, entry.size_bytes) for entry in outputs]
    same = parquet_bytes((batch for reader in readers for batch in reader.scan()), level)
    table = pa.Table.from_batches([batch for reader in readers for batch in reader.scan()])
    large = parquet_bytes(groups_of(table, LARGE_GROUP_ROWS), level)
    for entry in outputs:
        store.delete(entry.key)
    return [
        {
            "column": name,
            "rows": rows,
            "row_groups": sum(entry.row_groups for entry in outputs),
            "raw_bytes": raw[name],
            "stored_bytes": ours[name],
            "parquet_same_groups_bytes": same[name],
            "parquet_large_groups_bytes": large[name],
            "ratio_same_groups": round(ours[name] / max(1, same[name]), 4),
            "ratio_large_groups": round(ours[name] / max(1, large[name]), 4),
            "encodings": _encodings(readers, name),
        }
        for name in table.schema.names
    ]


def _encodings(readers: Sequence[FragmentReader], name: str) -> str:
    """Encodings of a column's chunks, the most frequent one first."""
    counts = Counter(
        chunk.encoding for reader in readers for chunk in reader.footer.columns.get(name, ())
    )
    return ", ".join(encoding.lower() for encoding, _ in counts.most_common())


def compacted(store: Store, level: int) -> Sequence[FragmentEntry]:
    compaction = compaction_of_all(store, CompactionSettings(compression_level=level))
    outcome = run_compaction(compaction, store)
    assert outcome.failure is None, outcome.failure
    return outcome.outputs


def parquet_bytes(groups: Iterable[pa.RecordBatch], level: int) -> Counter[str]:
    """Returns the bytes of every column's pages and dictionaries, without statistics; each batch is a row
    group."""
    groups = iter(groups)
    first = next(groups)
    sink = io.BytesIO()
    with pq.ParquetWriter(
        sink, first.schema, compression="zstd", compression_level=level
    ) as writer:
        for batch in (first, *groups):
            writer.write_batch(batch, row_group_size=batch.num_rows)
    metadata = pq.read_metadata(pa.BufferReader(sink.getbuffer()))
    sizes = Counter[str]()
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        for number in range(group.num_columns):
            column = group.column(number)
            sizes[column.path_in_schema.partition(".")[0]] += column.total_compressed_size
    return sizes


def groups_of(table: pa.Table, rows: int) -> Iterable[pa.RecordBatch]:
    """Yields all rows in batches of `rows` rows."""
    for start in range(0, table.num_rows, rows):
        (batch,) = table.slice(start, rows).combine_chunks().to_batches()
        yield batch


def is_worse(case: dict[str, Any]) -> bool:
    return bool(max(case["ratio_same_groups"], case["ratio_large_groups"]) > MAX_RATIO)


def show(cases: Iterable[dict[str, Any]]) -> None:
    for (sort, level), columns in groupby(cases, lambda case: (case["sort"], case["level"])):
        chosen = list(columns)
        print(
            f"\nsorted by {sort}, zstd {level}: {counted(chosen[0]['rows'], 'row')} in "
            f"{counted(chosen[0]['row_groups'], 'row group')}"
        )
        print(
            f"  {'column':<12}{'raw':>13}{'ours':>13}{'Parquet':>13}{'ratio':>7}"
            f"{'Parquet 128k':>14}{'ratio':>7}"
        )
        for case in [*chosen, _total(chosen)]:
            print(
                f"  {case['column']:<12}{case['raw_bytes']:>13,}{case['stored_bytes']:>13,}"
                f"{case['parquet_same_groups_bytes']:>13,}{case['ratio_same_groups']:>7.2f}"
                f"{case['parquet_large_groups_bytes']:>14,}{case['ratio_large_groups']:>7.2f}"
                f"  {'WORSE  ' if is_worse(case) else ''}{case.get('encodings', '')}"
            )


def _total(cases: Sequence[dict[str, Any]]) -> dict[str, Any]:
    names = ("raw_bytes", "stored_bytes", "parquet_same_groups_bytes", "parquet_large_groups_bytes")
    total: dict[str, Any] = {name: sum(case[name] for case in cases) for name in names}
    for ratio, name in zip(("ratio_same_groups", "ratio_large_groups"), names[2:], strict=True):
        total[ratio] = total["stored_bytes"] / total[name]
    return {"column": "all", **total}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--inputs", type=int, default=16)
    parser.add_argument("--strict", action="store_true", help="exit code 1 if a column is WORSE")
    parser.add_argument("--results", type=Path, default=RESULTS / "size.json")
    options = parser.parse_args()
    cases: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as work:
        for sort in SORTS:
            folder = Path(work) / sort
            write_table(folder, make_overlapping_inputs(options.rows, options.inputs, seed=7), sort)
            for level in LEVELS:
                cases += [
                    {"sort": sort, "level": level, **sizes, "is_worse": is_worse(sizes)}
                    for sizes in sizes_of_table(LocalStore(folder), level)
                ]
    show(cases)
    write_results(options.results, {"rows": options.rows, "inputs": options.inputs}, cases)
    worse = sum(map(is_worse, cases))
    print(f"\ncolumns that are more than 5% larger than in Parquet: {worse} of {len(cases)}")
    if options.strict and worse:
        sys.exit(1)


if __name__ == "__main__":
    main()
