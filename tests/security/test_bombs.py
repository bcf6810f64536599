"""What a few bytes can make this program hold; the cases are in `bombs`, read by a process that counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compactor import Table
from compactor.errors import InputError
from compactor.files.read import open_table_file
from compactor.predicate import parse_where
from compactor.predicate.tree import matching
from lsm_fragment.container.reader import FragmentReader
from tests.support.fragments import BytesSource, rows_of, write_fragment
from tests.support.wording import refuses

ROOT = Path(__file__).parents[2]
MAX_BYTES = 160 << 20
_ERRORS = ("InputError: ", "ConfigError: ", "CorruptFragmentError: ", "DataError: ")


@pytest.mark.long
def test_small_inputs_that_stand_for_large_ones_are_refused_in_bounded_memory(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.security.bombs", str(tmp_path / "bombs")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == 18
    for line in lines:
        assert line["said"].startswith(_ERRORS), line
        assert "\n" not in line["said"], line
        assert line["grown_bytes"] < MAX_BYTES, line


def test_a_text_that_stands_for_gigabytes_is_read_in_batches() -> None:
    text = "x" * (1 << 20)
    table = pa.table({"k": range(300), "t": pa.array([text] * 300).dictionary_encode()})
    table = table.set_column(1, "t", table["t"].cast(pa.string()))
    reader = FragmentReader(BytesSource(data := write_fragment(table, "k")), len(data), "mem")
    batches = reader.scan()
    first = next(batches)
    assert first.nbytes <= 65 << 20
    keys = [*first.column("k").to_pylist()]
    for batch in batches:
        assert batch.nbytes <= 65 << 20
        keys += batch.column("k").to_pylist()
    assert keys == list(range(300))


def test_a_large_row_group_of_parquet_is_read_in_batches(tmp_path: Path) -> None:
    """However well it is compressed: stack traces are, and honest."""
    values = pa.py_buffer(bytes(16 << 20))
    zeros = pa.Array.from_buffers(pa.binary(1024), 16 << 10, [None, values])
    table = pa.table({"k": pa.chunked_array([zeros] * 70)})
    path = str(tmp_path / "a.parquet")
    pq.write_table(
        table, path, compression="zstd", use_dictionary=False, row_group_size=table.num_rows
    )
    assert Path(path).stat().st_size < 6 << 20
    rows, largest_bytes = 0, 0
    with open_table_file(path) as file:
        for batch in file:
            rows += batch.num_rows
            largest_bytes = max(largest_bytes, batch.nbytes)
    assert rows == table.num_rows
    assert largest_bytes <= 16 << 20


def test_parquet_text_that_is_no_text_is_refused(tmp_path: Path) -> None:
    """Arrow writes and reads it; fragments with it could not be read."""
    offsets, data = pa.py_buffer(b"\0\0\0\0\2\0\0\0\4\0\0\0"), pa.py_buffer(b"ab\xff\xfe")
    text = pa.Array.from_buffers(pa.string(), 2, [None, offsets, data])
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"k": [1, 2], "v": text}), path)
    with (
        pytest.raises(InputError, match=r"a.parquet\b.*: column 'v': Invalid UTF8"),
        open_table_file(str(path)) as file,
    ):
        list(file)


@pytest.mark.parametrize("damage", ["cut", "changed", "more"])
def test_zstd_that_is_damaged_is_told_from_its_end(tmp_path: Path, damage: str) -> None:
    import zstandard

    frames = b"".join(
        zstandard.ZstdCompressor().compress(f'{{"a": {n}}}\n'.encode() * 1000) for n in range(3)
    )
    path = tmp_path / "a.ndjson.zst"
    path.write_bytes(frames)
    with open_table_file(str(path)) as file:
        assert sum(batch.num_rows for batch in file) == 3000
    damaged = {
        "cut": frames[:-5],
        "changed": frames[:60] + b"\xff\xff" + frames[62:],
        "more": frames + b"not a frame",
    }
    path.write_bytes(damaged[damage])
    with (
        refuses(InputError),
        open_table_file(str(path)) as file,
    ):
        list(file)


@pytest.mark.parametrize("where", ["v LIKE '%a%a%a%a%a%a%a%a%a%b'", "v LIKE '" + "%a" * 500 + "b'"])
def test_patterns_take_time_by_the_length_of_a_text(where: str) -> None:
    """Backtracking would take 2^n steps: the test would not come back."""
    batch = pa.table({"v": ["a" * 50_000]})
    condition = parse_where(where, batch.schema)
    assert matching(condition, {"v": batch["v"].combine_chunks()}, 1).to_pylist() == [False]


def test_rows_of_a_fragment_are_the_same_however_batches_are_cut() -> None:
    table = pa.table({"k": range(1000), "t": [str(n % 7) for n in range(1000)]})
    data = write_fragment(table, "k")
    reader = FragmentReader(BytesSource(data), len(data), "mem")
    assert rows_of(reader.scan()) == table.to_pylist()


_READ_WITH_LITTLE_MEMORY = """
import resource, sys
from pathlib import Path
from compactor import Table
from compactor.errors import MachineError
taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
limit = taken + (128 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    Table.create(sys.argv[2], sys.argv[1], "k")
except MachineError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are Linux's")
def test_memory_that_a_page_of_parquet_does_not_get_is_an_error_with_the_files_name(
    tmp_path: Path,
) -> None:
    path = tmp_path / "large.parquet"
    value = pa.array([bytes(200 << 20)], pa.large_binary())
    rows = pa.table({"k": [1], "v": value})
    pq.write_table(rows, path, compression="zstd", use_dictionary=False, write_statistics=False)
    assert path.stat().st_size < 1 << 20
    command = [sys.executable, "-c", _READ_WITH_LITTLE_MEMORY, str(path), str(tmp_path / "t")]
    # Other allocators reserve much more than they give.
    env = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"}
    child = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
    assert child.stdout.startswith(
        f"{path}: there is not enough memory to read it (malloc of size 2"
    )
    assert child.stdout.count("\n") == 1
    assert not Table.exists(tmp_path / "t")
