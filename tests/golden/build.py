"""Golden fragments of format version 1: written once, read for ever.

`python -m tests.golden.build` writes them anew; only a new format version has a reason to do so, and
then into a folder of its own. What these do not catch: a writer that changes what it writes (the
worked example of SPEC.md does), and faults common to all versions of the reader.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa

from format.writer import WriterOptions
from tests.support.fragments import read_random, rows_of, write_fragment
from tests.support.samples import SAMPLES, sample_array

FOLDER = Path(__file__).parent / "v1"


def golden_tables() -> dict[str, tuple[pa.Table, str, WriterOptions]]:
    """Name -> table, sort schema, writer options."""
    every = {name: sample_array(name, 6).slice(0, 12) for name in SAMPLES if name != "long_strings"}
    rows = list(range(12))
    return {
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


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, (table, sort, options) in golden_tables().items():
        data = write_fragment(table, sort, options)
        (FOLDER / f"{name}.frag").write_bytes(data)
        expected = json.dumps([repr(row) for row in rows_of(read_random(data))], indent=0)
        (FOLDER / f"{name}.json").write_text(expected + "\n")


if __name__ == "__main__":
    main()
