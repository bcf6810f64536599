"""Golden fragments of each format version: written once, read for ever.

`python -m tests.golden.build` writes them anew; only a new format version has a reason to do so, and
then into a folder of its own. What these do not catch: a writer that changes what it writes (the
worked example of SPEC.md does), and faults common to all versions of the reader.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa

from format.layout import VERSION
from format.writer import WriterOptions
from tests.support.fragments import read_random, rows_of, write_fragment
from tests.support.samples import SAMPLES, sample_array

FOLDERS = [Path(__file__).parent / f"v{version}" for version in range(1, VERSION + 1)]


def golden_tables(version: int) -> dict[str, tuple[pa.Table, str, WriterOptions]]:
    """Name -> table, sort schema, writer options. What a version brought has a table since then."""
    every = {name: sample_array(name, 6).slice(0, 12) for name in SAMPLES if name != "long_strings"}
    rows = list(range(12))
    tables = {
        "every_type": (pa.table({"k": rows} | every), "k", WriterOptions(max_rows=5)),
        "empty": (pa.table({"k": pa.array([], pa.int64())}), "k", WriterOptions()),
        "sorted_mixed": (
            pa.table({"a": ["x", "x", "y", None], "b": [2.5, -0.0, float("nan"), 1.0]}),
            "a,b:desc",
            WriterOptions(max_rows=2, compression_level=0),
        ),
        "encodings": (
            pa.table(
                {
                    "k": list(range(1200)),
                    "runs": [n // 200 for n in range(1200)],
                    "delta": [n * n for n in range(1200)],
                    "dictionary": [f"value {n % 7}" for n in range(1200)],
                    "text": [f"text {n * 7919 % 1201}" for n in range(1200)],
                    "planes": [10**9 + n * 7919 % 70_000 for n in range(1200)],
                }
            ),
            "k",
            WriterOptions(max_rows=500, compression_level=3),
        ),
    }
    if version >= 2:
        numbers = range(1200)
        tables["lists_and_decimals"] = (
            pa.table(
                {
                    "k": list(numbers),
                    "decimal": [None if n % 11 == 0 else n * 7919 % 977 / 1000 for n in numbers],
                    "whole": [float(n % 5) for n in numbers],
                    "tags": [None if n % 7 == 0 else ["a" * (n % 3), f"t{n % 4}"] for n in numbers],
                    "long": [f"{n:04d}" * (n % 40) for n in numbers],
                }
            ),
            "k",
            WriterOptions(max_rows=500),
        )
    return tables


def main() -> None:
    folder = FOLDERS[-1]
    folder.mkdir(exist_ok=True)
    for name, (table, sort, options) in golden_tables(VERSION).items():
        data = write_fragment(table, sort, options)
        (folder / f"{name}.frag").write_bytes(data)
        expected = json.dumps([repr(row) for row in rows_of(read_random(data))], indent=0)
        (folder / f"{name}.json").write_text(expected + "\n")


if __name__ == "__main__":
    main()
