"""Rows that can't be taken go to a file with reasons, if that is asked for; all others go to the table."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor import Table
from compactor.cli.main import run
from compactor.errors import JobError
from compactor.files.source import BadRow
from compactor.write.ingest.rejects import Rejects
from tests.support.wording import refuses, says

_GOOD_CSV = st.integers(-9, 9).map(lambda n: (f"{n},x", n))
_BAD_CSV = st.sampled_from(["1,2,3", "7", "word,x", '"1 1",x', "\udcff,x", '1,"\udcff"'])
_GOOD_JSON = st.integers(-9, 9).map(lambda n: (f'{{"k": {n}, "t": "x"}}', n))
_BAD_JSON = st.sampled_from(
    ["nope", '{"k": "word"}', "[1]", '{"k": 1, "k": 2}', '{"k": "\udcff"}', "7"]
)


def rejected(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def keys(folder: Path) -> list[int]:
    found: list[int] = Table.open(str(folder / "t")).scan(["k"]).to_table()["k"].to_pylist()
    return found


def ingest(folder: Path, *arguments: str) -> int:
    return run(["ingest", str(folder / "t"), *arguments, "--rejects", str(folder / "bad.ndjson")])


@settings(max_examples=10, deadline=None)
@given(st.lists(_GOOD_CSV | _BAD_CSV, max_size=20), st.lists(_GOOD_JSON | _BAD_JSON, max_size=20))
def test_each_row_is_in_the_table_or_among_the_rejects(
    cells: list[tuple[str, int] | str], lines: list[tuple[str, int] | str]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        Table.create(str(folder / "t"), pa.table({"k": [100], "t": ["x"]}), "k")
        expected, taken = [], [100]
        for file, begin, rows in (("a.csv", "k,t\n", cells), ("b.ndjson", "", lines)):
            texts = [row if isinstance(row, str) else row[0] for row in rows]
            text = begin + "".join(f"{text}\n" for text in texts)
            (folder / file).write_bytes(text.encode(errors="surrogateescape"))
            for number, row in enumerate(rows):
                if isinstance(row, str):
                    shown = row.replace("\udcff", "\ufffd")
                    expected.append((str(folder / file), number + 1, shown))
                else:
                    taken.append(row[1])
        assert ingest(folder, str(folder / "a.csv"), str(folder / "b.ndjson")) == 0
        assert keys(folder) == sorted(taken)
        found = rejected(folder / "bad.ndjson")
        assert [(row["file"], row["row"], row["text"]) for row in found] == expected
        assert all(row["reason"].startswith(f"{row['file']}, ") for row in found)


def test_a_row_that_only_the_common_type_of_several_files_holds_is_no_reject(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.csv").write_text("k,t\n1,2\nbad\n")
    (tmp_path / "b.csv").write_text("k,t\n2,2.5\n")
    files = [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]
    assert ingest(tmp_path, *files, "--sort-by", "k") == 0
    assert Table.open(str(tmp_path / "t")).scan().to_table()["t"].to_pylist() == [2.0, 2.5]
    assert [row["text"] for row in rejected(tmp_path / "bad.ndjson")] == ["bad"]


def test_rejects_of_earlier_runs_stay(tmp_path: Path) -> None:
    kept = tmp_path / "bad.ndjson"
    kept.write_text('{"file": "before.csv"}')  # of another program, which ended no line
    kept.chmod(0o600)
    for name in ("a", "b", "a"):
        (tmp_path / f"{name}.csv").write_text(f"k,t\n1,2\n{name}\n")
        assert ingest(tmp_path, str(tmp_path / f"{name}.csv"), "--sort-by", "k") == 0
    found = [Path(row["file"]).name for row in rejected(kept)]
    assert found == ["before.csv", "a.csv", "b.csv", "a.csv"]
    assert kept.stat().st_mode & 0o777 == 0o600


def test_rejects_of_two_runs_at_one_time_stay(tmp_path: Path) -> None:
    kept = tmp_path / "bad.ndjson"
    one, other = Rejects(str(kept)), Rejects(str(kept))
    for number in range(3):
        for name, rejects in (("one", one), ("other", other)):
            rejects.add(name, [BadRow(number, "reason", "text")])
            rejects.write()
            rejects.write()  # once
    found = [(row["file"], row["row"]) for row in rejected(kept)]
    assert found == [(name, row) for row in (1, 2, 3) for name in ("one", "other")]


def test_a_run_without_rejects_leaves_the_file_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "bad.ndjson"
    kept.write_text("old, without an end")
    before = kept.stat()
    pq.write_table(pa.table({"k": [1]}), tmp_path / "a.parquet")
    assert ingest(tmp_path, str(tmp_path / "a.parquet"), "--sort-by", "k", "--json") == 0
    said = capsys.readouterr()
    assert (json.loads(said.out)["rejected_rows"], said.err) == (0, "")
    assert kept.read_text() == "old, without an end"
    assert (kept.stat().st_ino, kept.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_disk_that_is_full_leaves_no_part_of_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "bad.ndjson"
    kept.write_text("{}\n")
    rejects = Rejects(str(kept))
    rejects.add("a.csv", [BadRow(0, "reason", "text")])

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with refuses(JobError, "bad.ndjson: writing failed, and nothing was left behind"):
        rejects.write()
    assert kept.read_text() == "{}\n"


def test_more_rejects_than_allowed_commit_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.ndjson").write_text('{"k": 1}\nnope\n{"k": 2}\nnope\n')
    files = [str(tmp_path / "a.ndjson"), str(tmp_path / "b.ndjson")]
    for given_files, limit in ((files[:1], "1"), (files, "3")):
        options = ["--sort-by", "k", "--one-commit", "--max-rejects", limit]
        assert ingest(tmp_path, *given_files, *options) == 3
        says(capsys.readouterr().err)
        assert not Table.exists(str(tmp_path / "t"))
        assert not (tmp_path / "bad.ndjson").exists()
    assert ingest(tmp_path, *files, "--sort-by", "k", "--max-rejects", "4") == 0
    says(capsys.readouterr().err)
    assert keys(tmp_path) == [1, 1, 2, 2]


def test_rejects_are_in_their_file_before_the_rest_is_in_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.ndjson").write_text('{"k": 1}\nnope\n')

    def commit(*_: object, **__: object) -> None:
        assert len(rejected(tmp_path / "bad.ndjson")) == 1
        raise KeyboardInterrupt

    monkeypatch.setattr("compactor.write.ingest.adding.Adding.commit", commit)
    assert ingest(tmp_path, str(tmp_path / "a.ndjson"), "--sort-by", "k") == 130
    assert len(rejected(tmp_path / "bad.ndjson")) == 1


def test_rows_of_a_file_that_is_not_added_are_no_rejects(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k,t\n1,x\nbad\n")
    (tmp_path / "b.csv").write_text("t,u\nx,y\nbad\n")
    assert ingest(tmp_path, str(tmp_path / "a.csv"), "--sort-by", "k") == 0
    files = [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]
    assert ingest(tmp_path, *files) == 3
    assert keys(tmp_path) == [1, 1]
    assert [row["file"] for row in rejected(tmp_path / "bad.ndjson")] == 2 * files[:1]


def test_a_promoted_column_does_not_hide_rejects(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_text('{"k": 1, "m": {"a": 1}}\nnope\n')
    options = ["--sort-by", "k", "--promote", "m"]
    assert ingest(tmp_path, str(tmp_path / "a.ndjson"), *options) == 0
    assert len(rejected(tmp_path / "bad.ndjson")) == 1


def test_options_that_make_no_sense_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.ndjson"
    file.write_text('{"k": 1}\n')
    assert ingest(tmp_path, str(file), "--sort-by", "k") == 2
    says(capsys.readouterr().err)
    assert run(["ingest", str(tmp_path / "t"), str(file), "--max-rejects", "3"]) == 2
    says(capsys.readouterr().err)


@pytest.mark.parametrize("on_conflict", ["error", "string", "split"])
def test_a_value_that_no_sort_column_holds_is_rejected_however_conflicts_are_solved(
    tmp_path: Path, on_conflict: str
) -> None:
    Table.create(str(tmp_path / "t"), pa.table({"k": [1], "t": ["x"]}), "k")
    (tmp_path / "a.csv").write_text("k,t\n2,y\nword,z\n")
    assert ingest(tmp_path, str(tmp_path / "a.csv"), "--on-conflict", on_conflict) == 0
    assert keys(tmp_path) == [1, 2]
    assert [row["text"] for row in rejected(tmp_path / "bad.ndjson")] == ["word,z"]
