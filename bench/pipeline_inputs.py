"""Writes the inputs of the pipeline benchmark: python -m bench.pipeline_inputs FOLDER ROWS"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from compactor.files.jsontext import json_lines

_ROWS_PER_KEY: Final = 10


def write_inputs(folder: Path, rows: int) -> None:
    """Writes rows.csv, rows.ndjson, rows.parquet, and others.csv with a row for each key."""
    random = np.random.default_rng(11)
    keys = max(1, rows // _ROWS_PER_KEY)
    key = random.integers(0, keys, rows)
    levels = np.array(["INFO", "WARN", "ERROR", "DEBUG"])
    start = np.datetime64("2026-03-01T00:00:00", "ms")
    table = pa.table(
        {
            "id": np.arange(rows),
            "key": key,
            "level": levels[random.choice(4, rows, p=[0.6, 0.2, 0.1, 0.1])],
            "amount": np.round(random.normal(100, 30, rows), 2),
            "qty": random.integers(-100, 1000, rows),
            "ts": start + random.integers(0, 86_400 * 30 * 1000, rows).astype("timedelta64[ms]"),
            "name": [f"user-{number}" for number in (key * 7919 % 100_003).tolist()],
        }
    )
    others = random.permutation(keys)
    sides = pa.table(
        {
            "key": others,
            "city": [f"city-{number % 997}" for number in others.tolist()],
            "weight": np.round(random.random(keys) * 10, 3),
        }
    )
    pq.write_table(table, folder / "rows.parquet")
    pa_csv.write_csv(table, folder / "rows.csv")
    pa_csv.write_csv(sides, folder / "others.csv")
    with (folder / "rows.ndjson").open("wb") as file:
        for batch in table.to_batches(max_chunksize=65_536):
            file.write(json_lines(batch))


if __name__ == "__main__":
    write_inputs(Path(sys.argv[1]), int(sys.argv[2]))
