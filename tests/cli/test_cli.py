"""The command line as a user meets it: results, errors as one line, exit codes."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
import zstandard
from rich.cells import cell_len

from compactor import IngestOptions, Table, WriterOptions
from compactor.cli.main import run
from compactor.common.escaping import one_line
from compactor.errors import UnknownOutcomeError
from compactor.files.read import open_table_file
from compactor.stores.local import LocalStore
from compactor.table.commit_log import CommitLog
from compactor.table.fragment_ids import short_ids
from tests.support.oracle import stable_sorted
from tests.support.tables import SORT, log_rows
from tests.support.wording import says

SORT_BY = ["--sort-by", "service,ts:desc"]


class Cli:
    """Runs commands in this process; the last one's output."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd
        self.out = self.err = ""

    def __call__(self, *arguments: object, code: int | None = 0) -> str:
        self._capfd.readouterr()
        exit_code = run([str(argument) for argument in arguments])
        self.out, self.err = self._capfd.readouterr()
        assert exit_code == code or (code is None and exit_code), (self.out, self.err)
        assert "Traceback" not in self.err
        return self.out

    def fails(self, code: int, *arguments: object) -> str:
        """Asserts that there is one line on stderr, with the known wording, and returns it."""
        self(*arguments, code=code)
        assert self.out == ""
        lines = self.err.splitlines()
        assert len(lines) == 1, lines
        assert lines[0].startswith("compactor: error: ")
        says(lines[0])
        return lines[0]


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capfd)


def write_parquet(folder: Path, name: str, table: pa.Table) -> Path:
    path = folder / name
    pq.write_table(table, path)
    return path


@pytest.fixture
def table_path(cli: Cli, tmp_path: Path) -> Path:
    """A table of three overlapping fragments, each of a version of its own."""
    for number in range(3):
        file = write_parquet(tmp_path, f"{number}.parquet", log_rows(100, number))
        cli("ingest", tmp_path / "t", file, *SORT_BY)
    return tmp_path / "t"


def test_head_reads_the_row_groups_that_it_shows_and_no_other(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.table({"k": range(2_000), "v": [f"value {n}" for n in range(2_000)]})
    options = IngestOptions(writer=WriterOptions(max_rows=100))
    Table.create(tmp_path / "t", rows, "k", options)
    read: list[int] = []

    def reading(store: LocalStore, key: str, start: int, length: int, **more: Any) -> bytes:
        read.append(length)
        return read_range(store, key, start, length, **more)

    read_range = LocalStore.read_range
    monkeypatch.setattr(LocalStore, "read_range", reading)
    requests = {}
    for count in (1, 100, 101, 450):
        read.clear()
        assert len(cli("head", tmp_path / "t", "-n", count).splitlines()) == count
        requests[count] = len(read)
    # One request opens the fragment, two columns take one each for a row group.
    assert requests == {1: 1 + 2, 100: 1 + 2, 101: 1 + 4, 450: 1 + 10}
    read.clear()
    cli("query", tmp_path / "t", "-n", 5, "--threads", 4)
    assert len(read) == 1 + 2


def test_ingest_compact_verify_export_and_head_agree(
    cli: Cli, table_url: str, tmp_path: Path
) -> None:
    tables = [log_rows(200, n) for n in range(4)]
    files = [write_parquet(tmp_path, f"{n}.parquet", table) for n, table in enumerate(tables)]
    report = json.loads(
        cli("ingest", table_url, *files, *SORT_BY, "--rows-per-fragment", 80, "--json")
    )
    assert report == {"version": 1, "files": 4, "rows": 800, "fragments": 12,
                      "superseded_rows": 0, "rejected_rows": 0, "bytes_written": report["bytes_written"],
                      "sort_of_file": None, "replaced_rows": 0}  # fmt: skip
    report = json.loads(
        cli("compact", table_url, "--strategy", "full", "--master", "in-process", "--json")
    )
    assert list(report) == [
        "version", "tasks", "input_fragments", "output_fragments", "rows_in", "rows_out", "bytes_in",
        "bytes_out", "gets", "puts", "resumed_gets", "restarts", "replayed_inputs", "spilled_bytes",
        "copied_rows",
        "dropped_rows", "dropped_by_reason",
        "stage_seconds", "cpu_seconds", "task_seconds", "peak_rss_bytes", "peak_charged_bytes", "seconds",
        "predicted",
        "void", "failures",
    ]  # fmt: skip
    figures = (
        "version",
        "tasks",
        "input_fragments",
        "output_fragments",
        "rows_in",
        "rows_out",
        "gets",
    )
    assert [report[name] for name in figures] == [3, 1, 12, 1, 800, 800, 12]
    assert (report["predicted"]["gets"], report["predicted"]["rows"]) == (12, 800)
    verdict = json.loads(cli("verify", table_url, "--json"))
    assert (verdict["ok"], verdict["rows"], verdict["faults"]) == (True, 800, [])
    expected = stable_sorted(pa.concat_tables(tables), SORT)
    cli("export", table_url, tmp_path / "all.parquet")
    assert pq.read_table(tmp_path / "all.parquet").to_pylist() == expected.to_pylist()
    head = [json.loads(line) for line in cli("head", table_url, "-n", 7).splitlines()]
    assert [row["id"] for row in head] == expected["id"].to_pylist()[:7]


def test_files_of_one_commit_are_added_together_or_not_at_all(cli: Cli, tmp_path: Path) -> None:
    files = [tmp_path / f"{n}.ndjson" for n in range(3)]
    for number, file in enumerate(files):
        file.write_text(f'{{"k": {number}}}\n')
    said = cli("ingest", tmp_path / "t", *files, "--sort-by", "k", "--one-commit")
    assert said.startswith(f"{files[0]} to {files[2]} (3 files): 3 rows in 1 fragment, ")
    assert said.endswith(", version 1\n")
    files[1].write_text('{"other": 1}\n')
    assert "none of the files was added" in cli.fails(
        3, "ingest", tmp_path / "t", *files, "--one-commit"
    )
    report = json.loads(cli("ingest", tmp_path / "t", files[0], "--one-commit", "--json"))
    assert (report["version"], report["rows"]) == (2, 1)


def test_files_before_a_bad_one_are_added_and_said_to_be(cli: Cli, tmp_path: Path) -> None:
    files = [tmp_path / f"{n}.ndjson" for n in range(4)]
    for number, file in enumerate(files):
        file.write_text(f'{{"k": {number}}}\n')
    files[2].write_text('{"other": 1}\n')
    cli("ingest", tmp_path / "t", *files, "--sort-by", "k", code=3)
    assert "2.ndjson" in cli.err
    assert "the 2 files before are in the table, version 1" in cli.err
    assert len(cli("query", tmp_path / "t").splitlines()) == 2


def test_files_of_one_call_agree_on_the_types_of_a_new_table(cli: Cli, tmp_path: Path) -> None:
    files = [tmp_path / f"{n}.csv" for n in range(2)]
    for file, value in zip(files, ("1", "1.5"), strict=True):
        file.write_text(f"k,v\n{value},{value}\n")
    cli("ingest", tmp_path / "t", *files, "--sort-by", "k")
    assert cli("query", tmp_path / "t").splitlines() == ['{"k":1.0,"v":1.0}', '{"k":1.5,"v":1.5}']


def test_files_of_one_commit_whose_outcome_is_unknown_may_be_in_the_table(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / f"{n}.ndjson" for n in range(2)]
    for number, file in enumerate(files):
        file.write_text(f'{{"k": {number}}}\n')
    publish = CommitLog._publish

    def unknown(self: CommitLog, *given: Any, **named: Any) -> Any:
        publish(self, *given, **named)
        raise UnknownOutcomeError("version 1 may be committed")

    monkeypatch.setattr(CommitLog, "_publish", unknown)
    cli("ingest", tmp_path / "t", *files, "--sort-by", "k", "--one-commit", code=4)
    assert "version 1 may be committed" in cli.err
    assert "none of the files" not in cli.err
    assert len(cli("query", tmp_path / "t").splitlines()) == 2


@pytest.mark.parametrize(
    "ending", ["parquet", "arrow", "ndjson", "ndjson.zst", "ndjson.gz", "csv", "csv.gz"]
)
def test_export_and_ingest_again_in_every_format(
    cli: Cli, table_path: Path, tmp_path: Path, ending: str
) -> None:
    out = tmp_path / f"out.{ending}"
    cli("export", table_path, out)
    again = tmp_path / "again"
    cli("ingest", again, out, *SORT_BY)
    assert json_rows(cli("head", again, "-n", 1000)) == json_rows(
        cli("head", table_path, "-n", 1000)
    )


def json_rows(text: str) -> list[dict[str, object]]:
    """Rows with their times as times: text files have no milliseconds type."""
    rows = [json.loads(line) for line in text.splitlines()]
    return [row | {"ts": dt.datetime.fromisoformat(row["ts"])} for row in rows]


def test_export_of_an_uncompacted_table_is_sorted_and_may_project(
    cli: Cli, table_path: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.arrow"
    cli("export", table_path, out, "--columns", "id,service")
    expected = stable_sorted(pa.concat_tables([log_rows(100, n) for n in range(3)]), SORT)
    with open_table_file(str(out)) as file:
        actual = pa.Table.from_batches(file)
    assert actual.column_names == ["id", "service"]
    assert actual["id"].to_pylist() == expected["id"].to_pylist()


def test_a_query_prints_the_rows_that_fulfil_the_condition_and_says_what_it_skipped(
    cli: Cli, table_path: Path
) -> None:
    everything = [json.loads(line) for line in cli("head", table_path, "-n", 300).splitlines()]
    condition = "service = 'service-2' AND ts IS NOT NULL"
    expected = [
        row for row in everything if row["service"] == "service-2" and row["ts"] is not None
    ]
    assert 0 < len(expected) < len(everything)
    out = cli("query", table_path, "--where", condition)
    assert [json.loads(line) for line in out.splitlines()] == expected
    assert re.search(r"^\d+ of \d+ rows read; skipped \d+ of 3 fragments and ", cli.err)
    out = cli("query", table_path, "--where", condition, "--columns", "ts", "-n", 2)
    assert [json.loads(line) for line in out.splitlines()] == [
        {"ts": row["ts"]} for row in expected[:2]
    ]
    assert cli("query", table_path, "--where", condition, "--count") == f"{len(expected)}\n"
    report = json.loads(cli("query", table_path, "--where", condition, "--count", "--json"))
    assert report["rows"] == len(expected) and report["fragments"] == 3
    assert cli.err == ""
    assert len(cli("query", table_path).splitlines()) == 300


def test_an_export_may_be_of_some_rows(cli: Cli, table_path: Path, tmp_path: Path) -> None:
    cli("export", table_path, tmp_path / "out.parquet", "--where", "service = 'service-2'")
    assert set(pq.read_table(tmp_path / "out.parquet")["service"].to_pylist()) == {"service-2"}
    assert "rows read; skipped" in cli.err


def test_deleted_rows_are_gone_and_after_compaction_and_vacuum_from_storage_too(
    cli: Cli, table_path: Path
) -> None:
    condition = "service = 'service-2'"
    count = int(cli("query", table_path, "--where", condition, "--count"))
    assert "would be deleted" in cli("delete", table_path, "--where", condition, "--dry-run")
    assert int(cli("query", table_path, "--where", condition, "--count")) == count > 0
    out = cli("delete", table_path, "--where", condition)
    assert out.startswith(f"{count} rows of 3 fragments deleted") and "--strategy", "full" in out
    assert cli("query", table_path, "--where", condition, "--count") == "0\n"
    assert f"{300 - count} rows and {count} deleted ones" in cli("inspect", table_path)
    assert f"{300 - count} rows" in cli("verify", table_path)
    out = cli("compact", table_path, "--strategy", "full", "--master", "in-process")
    assert f"{count} rows left out ({count} deleted)" in out
    cli("vacuum", table_path, "--grace", "0", "--retain", "0")
    proof = json.loads(cli("delete", table_path, "--where", condition, "--json"))
    assert (proof["rows"], proof["waiting"]) == (0, [])
    assert not list((table_path / "data").glob("*.deletes"))
    cli.fails(2, "delete", table_path)
    cli.fails(2, "delete", table_path, "--where", " ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--where", "service ="],
        ["--where", "servcie = 'a'"],
        ["--where", "service = 1"],
        ["--columns", "nope"],
        ["--count", "--columns", "ts"],
        ["--json"],
    ],
    ids=" ".join,
)
def test_a_query_that_cannot_be_is_refused_in_one_line(
    cli: Cli, table_path: Path, arguments: list[str]
) -> None:
    cli.fails(2, "query", table_path, *arguments)


def test_exported_parquet_says_how_it_is_sorted(cli: Cli, table_path: Path, tmp_path: Path) -> None:
    cli("export", table_path, tmp_path / "o.parquet")
    sorting = pq.ParquetFile(tmp_path / "o.parquet").metadata.row_group(0).sorting_columns
    found = [(s.column_index, s.descending, s.nulls_first) for s in sorting]
    assert found == [(0, False, False), (1, True, False)]


def test_inspect_shows_a_table_and_a_fragment(cli: Cli, table_path: Path) -> None:
    shown = cli("inspect", table_path)
    assert "sorted by service, ts:desc" in shown
    assert "3 fragments, 300 rows" in shown
    assert "3 overlapping pairs" in shown
    document = json.loads(cli("inspect", table_path, "--json"))
    assert (document["rows"], len(document["fragments"])) == (300, 3)
    fragment = table_path / document["fragments"][0]["key"]
    assert "columns, in file order" in cli("inspect", fragment)
    detail = json.loads(cli("inspect", fragment, "--json"))
    assert [column["name"] for column in detail["columns"]] == ["service", "ts", "id", "value"]


def test_inspect_lists_short_ids_in_80_columns(cli: Cli, table_path: Path) -> None:
    listed = cli("inspect", table_path).partition("\nfragments\n")[2].splitlines()
    assert len(listed) == 4
    assert max(map(len, listed)) <= 80
    keys = [f["key"] for f in json.loads(cli("inspect", table_path, "--json"))["fragments"]]
    for name in [line.split()[5] for line in listed[1:]]:
        detail = json.loads(cli("inspect", table_path, name, "--json"))
        assert sum(detail["fragment"].endswith(key) for key in keys) == 1
    assert all(key in cli("inspect", table_path, "--wide") for key in keys)
    assert cli("inspect", table_path, "--level", 0).endswith("\n".join(listed) + "\n")
    below = cli("inspect", table_path, "--level", 1).partition("last key\n")[2]
    assert below == "no fragment is at level 1\n"
    cli.fails(2, "inspect", table_path, "abcd-7")
    cli.fails(2, "inspect", table_path / keys[0], "abcd-7")


def test_inspect_cuts_long_names_and_types_of_columns_to_80_columns(
    cli: Cli, tmp_path: Path
) -> None:
    request = {"method": "GET", "path": "/", "status": 200, "bytes": 5, "referrer": "-"}
    rows = pa.table({"k": [1], "request": [request], f"measured_{'value_' * 12}": [request]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    cli("ingest", tmp_path / "t", tmp_path / "rows.parquet", "--sort-by", "k")
    shown = cli("inspect", tmp_path / "t")
    assert max(map(len, shown.partition("\ncolumns\n")[2].splitlines())) <= 80
    assert "\nk " in shown
    assert "int64" in shown
    wide = cli("inspect", tmp_path / "t", "--wide")
    assert all(field.name in wide and str(field.type) in wide for field in rows.schema)


def test_inspect_does_not_cut_what_fits_though_it_has_more_characters(
    cli: Cli, tmp_path: Path
) -> None:
    name = "e\u0301" * 30
    pq.write_table(pa.table({name: [1]}), tmp_path / "rows.parquet")
    cli("ingest", tmp_path / "t", tmp_path / "rows.parquet", "--sort-by", name)
    assert name in cli("inspect", tmp_path / "t").partition("\ncolumns\n")[2]


@pytest.mark.parametrize("name", ["東京都" * 12, "a\n" * 24], ids=["wide", "escaped"])
def test_inspect_measures_names_and_keys_in_cells_of_a_terminal(
    cli: Cli, tmp_path: Path, name: str
) -> None:
    rows = pa.table({name: [name, name + "z"], "request": [{"method": "GET", "path": "/"}] * 2})
    pq.write_table(rows, tmp_path / "rows.parquet")
    sort = '"' + name + '"'
    cli("ingest", tmp_path / "t", tmp_path / "rows.parquet", "--sort-by", sort)
    tables = cli("inspect", tmp_path / "t").partition("\ncolumns\n")[2].splitlines()
    assert len(tables) == 7
    assert max(map(cell_len, tables)) <= 80
    of_fragment = cli("inspect", tmp_path / "t", tables[-1].split()[5]).splitlines()
    assert one_line(name) in of_fragment[1]


def test_keys_with_line_breaks_stay_in_the_line_about_a_dropped_fragment(
    cli: Cli, tmp_path: Path
) -> None:
    pq.write_table(pa.table({"k": ["a\nb"]}), tmp_path / "rows.parquet")
    cli("ingest", tmp_path / "t", tmp_path / "rows.parquet", "--sort-by", "k")
    [fragment] = (tmp_path / "t" / "data").glob("*.frag")
    fragment.unlink()
    dropped = cli("drop-fragment", tmp_path / "t", f"data/{fragment.name}", "--lose-rows")
    assert r"from a\nb to a\nb" in dropped.splitlines()[0]


def test_head_and_export_print_one_object(cli: Cli, table_path: Path, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in cli("head", table_path, "-n", 3).splitlines()]
    said = json.loads(cli("head", table_path, "-n", 3, "--json"))
    assert said == {"version": 3, "rows": lines}
    assert json.loads(cli("head", table_path, "-n", 0, "--json")) == {"version": 3, "rows": []}
    done = json.loads(cli("export", table_path, tmp_path / "o.csv", "--json"))
    assert (done["rows"], done["version"], done["scan"]["rows"]) == (300, 3, 300)


def test_compacting_a_disjoint_table_says_there_is_nothing_to_do(
    cli: Cli, table_path: Path
) -> None:
    cli("compact", table_path, "--master", "in-process")
    assert "nothing to compact" in cli("compact", table_path, "--master", "in-process")


def test_files_of_other_columns_join_the_table(cli: Cli, table_path: Path, tmp_path: Path) -> None:
    extra = (
        log_rows(50, 9).drop_columns(["value"]).append_column("new", pa.array(range(50), pa.int8()))
    )
    cli("ingest", table_path, write_parquet(tmp_path, "extra.parquet", extra))
    cli("compact", table_path, "--master", "in-process")
    rows = [json.loads(line) for line in cli("head", table_path, "-n", 1000).splitlines()]
    assert len(rows) == 350
    assert sum(row["new"] is not None for row in rows) == 50
    assert all((row["value"] is None) or (row["new"] is None) for row in rows)
    assert json.loads(cli("verify", table_path, "--json"))["ok"]


def test_ndjson_types_come_from_the_whole_file_and_fit_the_tables(cli: Cli, tmp_path: Path) -> None:
    first = tmp_path / "a.ndjson"
    first.write_text(
        '{"k":1,"v":null}\n{"k":2,"v":3}\n\n{"k":3,"v":0.5,"t":"2024-01-01T00:00:00.5Z"}\n'
    )
    cli("ingest", tmp_path / "t", first, "--sort-by", "k")
    second = tmp_path / "b.ndjson.zst"
    second.write_bytes(zstandard.compress(b'{"k":0,"v":7,"t":"2023-01-01T00:00:00+01:00"}\n'))
    cli("ingest", tmp_path / "t", second)
    rows = [json.loads(line) for line in cli("head", tmp_path / "t").splitlines()]
    assert rows[0] == {"k": 0, "v": 7.0, "t": "2022-12-31T23:00:00.000000Z"}
    assert [row["v"] for row in rows] == [7.0, None, 3.0, 0.5]


def test_a_column_without_values_takes_the_type_of_its_first_ones(cli: Cli, tmp_path: Path) -> None:
    for n, text in enumerate(("k,s,v\n1,,\n", "k,s,v\n2,b,0.5\n", "k,s,v\n0,a,\n")):
        (tmp_path / f"{n}.csv").write_text(text)
        cli("ingest", tmp_path / "t", tmp_path / f"{n}.csv", "--sort-by", "s:nulls_first,k")
    expected = [
        {"k": 1, "s": None, "v": None},
        {"k": 0, "s": "a", "v": None},
        {"k": 2, "s": "b", "v": 0.5},
    ]
    assert [json.loads(line) for line in cli("head", tmp_path / "t").splitlines()] == expected
    assert json.loads(cli("verify", tmp_path / "t", "--json"))["ok"]
    cli("compact", tmp_path / "t", "--strategy", "full", "--master", "in-process")
    assert [json.loads(line) for line in cli("head", tmp_path / "t").splitlines()] == expected
    assert json.loads(cli("verify", tmp_path / "t", "--json"))["ok"]


def test_integers_too_long_for_64_bits_are_never_rounded(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k,id\n1,18446744073709551617\n2,5\n")
    cli("ingest", tmp_path / "c", tmp_path / "a.csv", "--sort-by", "k")
    assert json.loads(cli("head", tmp_path / "c", "-n", 1))["id"] == "18446744073709551617"
    (tmp_path / "a.ndjson").write_text('{"k":1,"id":18446744073709551617}\n')
    cli.fails(3, "ingest", tmp_path / "n", tmp_path / "a.ndjson", "--sort-by", "k")


def test_maps_and_lists_come_back_through_parquet_into_the_same_table(
    cli: Cli, tmp_path: Path
) -> None:
    rows = [{"k": 1, "m": [("a", "b")], "l": [1, None]}, {"k": 2, "m": None, "l": []}]
    types = [
        ("k", pa.int64()),
        ("m", pa.map_(pa.string(), pa.string())),
        ("l", pa.list_(pa.int8())),
    ]
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as file:
        table = pa.Table.from_pylist(rows, pa.schema(types))
        with pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    cli("ingest", tmp_path / "t", tmp_path / "a.arrow", "--sort-by", "k")
    cli("export", tmp_path / "t", tmp_path / "o.parquet")
    cli("ingest", tmp_path / "t", tmp_path / "o.parquet")
    cli("compact", tmp_path / "t", "--master", "in-process")
    shown = [json.loads(line) for line in cli("head", tmp_path / "t").splitlines()]
    assert (
        shown
        == [{"k": 1, "m": {"a": "b"}, "l": [1, None]}] * 2 + [{"k": 2, "m": None, "l": []}] * 2
    )


# --- errors ---------------------------------------------------------------------------------


def test_a_missing_table_file_or_column_is_one_clear_line(
    cli: Cli, table_path: Path, tmp_path: Path
) -> None:
    cli.fails(5, "compact", tmp_path / "none", "--master", "in-process")
    cli.fails(3, "ingest", table_path, tmp_path / "none.csv")
    cli.fails(2, "head", table_path, "--columns", "nope")
    cli.fails(2, "export", table_path, tmp_path / "out.xls")
    cli.fails(2, "export", table_path, tmp_path / "no" / "o.csv")


def test_what_is_no_file_to_ingest_or_to_write_is_told_with_what_to_do(
    cli: Cli, table_path: Path
) -> None:
    cli.fails(3, "ingest", table_path, "-")
    cli.fails(3, "ingest", table_path, "/dev/null")
    cli.fails(3, "ingest", table_path, table_path)
    cli.fails(2, "ingest", table_path, "s3://bucket/a.csv")
    cli.fails(2, "export", table_path, table_path / "o.csv")


def test_creating_a_table_needs_its_sort_schema(cli: Cli, tmp_path: Path) -> None:
    file = write_parquet(tmp_path, "a.parquet", log_rows(3, 0))
    cli.fails(5, "ingest", tmp_path / "t", file)
    cli.fails(2, "ingest", tmp_path / "t", file, "--sort-by", "nope")
    cli.fails(2, "ingest", tmp_path / "t", file, "--sort-by", "id:up")
    assert not (tmp_path / "t" / "_log").exists()


def test_another_sort_schema_than_the_tables_is_refused(
    cli: Cli, table_path: Path, tmp_path: Path
) -> None:
    file = write_parquet(tmp_path, "a.parquet", log_rows(3, 0))
    cli.fails(2, "ingest", table_path, file, "--sort-by", "ts")


def test_a_type_conflict_names_file_column_and_both_types(
    cli: Cli, table_path: Path, tmp_path: Path
) -> None:
    file = write_parquet(
        tmp_path, "bad.parquet", log_rows(3, 0).set_column(3, "value", pa.array(["x"] * 3))
    )
    cli.fails(3, "ingest", table_path, file)
    assert json.loads(cli("verify", table_path, "--json"))["version"] == 3


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.ndjson", b'{"k":1}\n{"k":\n'),
        ("a.ndjson", b'{"k":1}\n{"k":"x"}\n'),
        ("a.ndjson", b'{"k":"\xff"}\n'),
        ("a.ndjson", b""),
        ("a.csv", b""),
        ("a.csv", b"k,k\n1,2\n"),
        ("a.csv", b"k,v\n1\n"),
        ("a.csv.gz", gzip.compress(b"k\n1\n" * 999)[:-10]),
        ("a.csv.zst", zstandard.compress(b"k\n1\n" * 999)[:-10]),
        ("a.parquet", b"PAR1 not really"),
        ("a.arrow", b"nonsense"),
        ("a.txt", b"hello"),
    ],
    ids=[
        "a line cut off",
        "another type",
        "not UTF-8",
        "nothing",
        "no header",
        "a name twice",
        "a cell missing",
        "gzip cut off",
        "zstd cut off",
        "not Parquet",
        "not Arrow",
        "of no known kind",
    ],
)
def test_bad_files_are_named_and_leave_nothing(
    cli: Cli, tmp_path: Path, name: str, data: bytes
) -> None:
    (tmp_path / name).write_bytes(data)
    assert name in cli.fails(3, "ingest", tmp_path / "t", tmp_path / name, "--sort-by", "k")
    assert not (tmp_path / "t" / "_log").exists()


def test_a_damaged_fragment_is_reported_with_its_place(cli: Cli, table_path: Path) -> None:
    fragments = sorted((table_path / "data").iterdir())
    flipped, cut, gone = fragments
    data = bytearray(flipped.read_bytes())
    data[len(data) // 2] ^= 1
    flipped.write_bytes(data)
    cut.write_bytes(cut.read_bytes()[:-100])
    whole = gone.read_bytes()
    gone.unlink()
    verdict = json.loads(cli("verify", table_path, "--json", code=1))
    assert len(verdict["faults"]) == 3
    for path, cause in ((flipped, "checksum"), (cut, "truncated"), (gone, "no such object")):
        assert any(str(path) in fault and cause in fault for fault in verdict["faults"]), cause
    told = cli("verify", table_path, code=1)
    assert "FAULTS" in told
    assert "--skip-missing" in told
    cli("compact", table_path, "--master", "in-process", "--strategy", "full", code=1)
    says(cli.err.splitlines()[-1])
    assert "in quarantine: " in cli("inspect", table_path)
    gone.write_bytes(whole)
    assert "held up" in cli(
        "compact", table_path, "--master", "in-process", "--strategy", "full", code=1
    )
    says(cli.err.splitlines()[-1])
    assert "1 fragment released" in cli("release", table_path, "--all")
    assert json.loads(cli("inspect", table_path, "--json"))["quarantine"] == []
    cli("export", table_path, table_path.parent / "out.csv", code=None)
    assert cli.out == ""
    assert not (table_path.parent / "out.csv").exists()
    cli.fails(3, "inspect", cut)


def test_a_fragment_that_is_gone_is_named_left_out_and_given_up(cli: Cli, table_path: Path) -> None:
    gone = sorted((table_path / "data").iterdir())[1]
    key = f"data/{gone.name}"
    gone.unlink()
    out = table_path.parent / "out.csv"
    for command in (["query"], ["export", out], ["head"], ["templates", "id"]):
        cli.fails(4, command[0], table_path, *command[1:])
    cli.fails(4, "delete", table_path, "--where", "value > 2")
    assert not out.exists()
    assert "1 fragment put in quarantine, version 4" in cli("quarantine", table_path, key)
    assert json.loads(cli("quarantine", table_path, key, "--json"))["quarantined"] == []
    cli("compact", table_path, "--master", "in-process", code=1)
    short = short_ids([key])[key]
    assert f"in quarantine: {short}: " in cli("inspect", table_path)
    assert json.loads(cli("release", table_path, short, "--json"))["released"] == [key]
    assert json.loads(cli("quarantine", table_path, short, "--json"))["quarantined"] == [key]
    left_out = "warning: left out 1 fragment, gone or in quarantine, with 100 rows"
    for command in (["query", "--count"], ["export", out], ["head"], ["templates", "id"]):
        cli(command[0], table_path, *command[1:], "--skip-missing")
        assert left_out in cli.err
    counted = json.loads(cli("query", table_path, "--count", "--json", "--skip-missing"))
    assert (counted["rows"], counted["fragments_left_out"], counted["rows_left_out"]) == (
        200,
        1,
        100,
    )
    where = ["--where", "value > 2", "--skip-missing"]
    deleted = json.loads(cli("delete", table_path, *where, "--json"))
    assert (deleted["fragments_left_out"], deleted["rows_left_out"]) == (1, 100)
    assert left_out in cli.err
    cli.fails(2, "drop-fragment", table_path, key)
    dropped = cli("drop-fragment", table_path, short, "--lose-rows")
    assert re.search(r": 100 rows lost, from .+ to .+; version 7$", dropped)
    assert "100 rows lost with dropped fragments" in cli("inspect", table_path)
    cli.fails(2, "drop-fragment", table_path, key, "--lose-rows")
    cli("compact", table_path, "--master", "in-process", "--strategy", "full")
    assert "ok: 1 fragment, 200 rows" in cli("verify", table_path)


def test_what_looks_at_samples_of_a_table_goes_on_without_a_fragment_that_is_gone(
    cli: Cli, table_path: Path
) -> None:
    sorted((table_path / "data").iterdir())[1].unlink()
    assert "3 fragments, 300 rows" in cli("inspect", table_path)
    cli("report", table_path, "-o", table_path.parent / "report.html")


def test_repair_gives_up_a_version_in_whose_place_is_another(cli: Cli, table_path: Path) -> None:
    log = table_path / "_log"
    (log / f"{3:020d}.json").write_bytes((log / f"{2:020d}.json").read_bytes())
    cli.fails(3, "query", table_path)
    shown = cli("repair", table_path, code=1)
    assert "give up the rest by --end-at 2" in shown and "look at the log" not in shown
    cli("repair", table_path, "--end-at", 2, "--apply")
    assert "what followed version 2" not in cli.out
    assert len(cli("query", table_path).splitlines()) == 200


def test_repair_tells_of_objects_that_a_newest_version_gone_may_have_named(
    cli: Cli, table_path: Path
) -> None:
    newest = sorted((table_path / "_log").glob("0*.json"))[-1]
    assert json.loads(cli("repair", table_path, "--json"))["unnamed_objects"] == 0
    newest.unlink()
    said = cli("repair", table_path)
    end = int(newest.stem) - 1
    assert f"of base version {end} that no version names: a writer is at work or was killed" in said
    assert json.loads(cli("repair", table_path, "--json"))["unnamed_objects"] > 0


def test_repair_tells_of_a_newest_version_that_is_gone(cli: Cli, table_path: Path) -> None:
    (table_path / "data" / f"{3:020d}-attempt-00000.frag").write_bytes(b"of a running attempt")
    (table_path / "_log" / f"{3:020d}.json").unlink()
    shown = cli("repair", table_path, code=1)
    assert f"_log/{3:020d}.json: the log file is missing" in shown
    assert "give up the rest by --end-at 2" in shown
    assert "the log file is missing" in cli("verify", table_path, code=1)
    assert "up to version 3: would be given up" in cli("repair", table_path, "--end-at", 2)
    assert "up to version 3: given up" in cli("repair", table_path, "--end-at", 2, "--apply")
    assert "nothing is wrong" in cli("repair", table_path)


def test_a_log_that_says_other_than_its_fragments_is_reported(cli: Cli, table_path: Path) -> None:
    entry = table_path / "_log" / "00000000000000000002.json"
    original = entry.read_bytes()
    rewrite_log_file(entry, b'"first_key":["service-0"', b'"first_key":["service-3"')
    faults = json.loads(cli("verify", table_path, "--json", code=1))["faults"]
    assert len(faults) == 1
    assert "disagree on first_key" in faults[0]
    rewrite_log_file(entry, b'"rows":100', b'"rows":"100"')
    cli.fails(3, "verify", table_path)
    entry.write_bytes(original.replace(b'"rows":100', b'"rows":101'))
    cli.fails(3, "verify", table_path)


def rewrite_log_file(path: Path, old: bytes, new: bytes) -> None:
    text = path.read_bytes().split(b"\n")[0]
    assert old in text
    text = text.replace(old, new)
    path.write_bytes(text + b"\n" + xxhash.xxh3_64_hexdigest(text).encode() + b"\n")


def test_a_later_files_failure_says_what_is_in_the_table(cli: Cli, tmp_path: Path) -> None:
    good = write_parquet(tmp_path, "good.parquet", log_rows(5, 0))
    bad = tmp_path / "bad.parquet"
    bad.write_text("PAR1")
    cli.fails(3, "ingest", tmp_path / "t", good, tmp_path / "none.parquet", *SORT_BY)
    cli("ingest", tmp_path / "t", good, bad, *SORT_BY, code=3)
    says(cli.err)


def test_sorting_columns_of_an_export_count_parquets_leaves(cli: Cli, tmp_path: Path) -> None:
    nested = pa.table({"st": [{"a": 1, "b": 2}], "k": [1]})
    cli("ingest", tmp_path / "t", write_parquet(tmp_path, "n.parquet", nested), "--sort-by", "k")
    cli("export", tmp_path / "t", tmp_path / "o.parquet")
    group = pq.ParquetFile(tmp_path / "o.parquet").metadata.row_group(0)
    assert group.column(group.sorting_columns[0].column_index).path_in_schema == "k"


def test_a_file_without_a_sort_column_is_refused_by_the_table(
    cli: Cli, table_path: Path, tmp_path: Path
) -> None:
    file = write_parquet(tmp_path, "less.parquet", log_rows(5, 0).drop_columns(["ts"]))
    cli.fails(3, "ingest", table_path, file)


def test_not_a_fragment_is_said(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "x.frag").write_text("hello")
    cli.fails(3, "inspect", tmp_path / "x.frag")
    cli.fails(5, "inspect", tmp_path / "none.frag")


@pytest.mark.parametrize("address", ["hdfs://host/x", "s3://", "s3:/bucket/x", "http://host/x"])
def test_addresses_of_other_kinds_are_refused(cli: Cli, address: str) -> None:
    cli.fails(2, "compact", address)


def test_an_unreachable_or_missing_store_is_one_clear_line(
    cli: Cli, s3_bucket: str, monkeypatch
) -> None:
    cli.fails(4, "inspect", "s3://not-there/t")
    cli.fails(5, "inspect", f"s3://{s3_bucket}/t")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    cli.fails(4, "verify", f"s3://{s3_bucket}/t")


def test_settings_out_of_range_are_named(cli: Cli, table_path: Path) -> None:
    cli.fails(2, "compact", table_path, "--compression-level", 99)
    cli.fails(2, "compact", table_path, "--target-fragment-bytes", 0)
    cli.fails(2, "compact", table_path, "--master", "nonsense")


def test_wrong_calls_name_the_command_and_what_to_do_in_one_line(cli: Cli) -> None:
    cli.fails(2, "compact")
    cli.fails(2, "compct", "t")
    cli.fails(2, "ingest", "t")
    cli.fails(2, "ingest", "t", "f", "--bogus")
    cli.fails(2, "compact", "t", "--dry")
    cli.fails(2, "compact", "t", "--strategy", "best")
    cli.fails(2, "compact", "t", "--json=3")
    cli.fails(2, "head", "t", "-n", "few")
    cli.fails(2, "head", "t", "--rows")
    cli.fails(2, "--bogus", "head")


COMMANDS = ["ingest", "compact", "watch", "export", "head", "inspect", "verify", "vacuum",
            "release", "simulate"]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_teaches_by_examples(cli: Cli, command: str) -> None:
    shown = cli(command, "--help")
    assert "Examples:" in shown
    assert f"compactor {command}" in shown


def test_a_reader_that_stops_early_is_no_error(table_path: Path) -> None:
    command = f"{sys.executable} -m compactor.cli.main head {table_path} -n 300 | head -n 1"
    shell = ["bash", "-o", "pipefail", "-c", command]
    done = subprocess.run(shell, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1


def test_a_plan_says_what_why_and_at_what_cost_and_changes_nothing(
    cli: Cli, table_path: Path
) -> None:
    plan = json.loads(
        cli("compact", table_path, "--dry-run", "--strategy", "overlapping", "--json")
    )
    (compaction,) = plan["compactions"]
    assert compaction["reason"] == "3 fragments of 3 runs overlap"
    assert (compaction["predicted"]["gets"], compaction["predicted"]["rows"]) == (3, 300)
    resident = compaction["predicted"]["resident_bytes"]
    assert 1 << 20 < resident["low"] < resident["likely"] < resident["high"]
    shown = cli("compact", table_path, "--dry-run", "--strategy", "overlapping")
    assert "3 fragments of 3 runs overlap" in shown
    assert "3 sorted runs at level 0, 4 of like size" in cli("compact", table_path, "--dry-run")
    assert json.loads(cli("inspect", table_path, "--json"))["version"] == 3


def test_what_a_compaction_cost_stands_beside_what_was_predicted(
    cli: Cli, table_path: Path
) -> None:
    shown = cli("compact", table_path, "--strategy", "full", "--master", "in-process")
    lines = [line.split() for line in shown.splitlines()]
    assert ["predicted", "actual"] in lines
    assert ["GETs", "3", "3"] in lines
    assert ["rows", "read", "300", "300"] in lines


def test_earlier_versions_are_read_by_number_and_by_time(
    cli: Cli, table_path: Path, tmp_path: Path
) -> None:
    cli("compact", table_path, "--strategy", "full", "--master", "in-process")
    assert len(cli("head", table_path, "-n", 999, "--version", 1).splitlines()) == 100
    assert len(cli("head", table_path, "-n", 999, "--as-of", "0s").splitlines()) == 300
    assert json.loads(cli("verify", table_path, "--version", 2, "--json"))["fragments"] == 2
    cli.fails(5, "head", table_path, "--version", 9)
    cli.fails(5, "head", table_path, "--as-of", "2020-01-01")
    cli.fails(2, "head", table_path, "--as-of", "yesterday")
    for text in ("9" * 30 + "d", "9" * 400 + "d", "1000000d", "0001-01-01T00:00:00+14:00"):
        said = cli.fails(2, "head", table_path, "--as-of", text)
        assert len(said) < 300
    cli.fails(5, "head", table_path, "--version", "9" * 400)


def test_vacuum_removes_what_was_compacted_away(cli: Cli, table_path: Path) -> None:
    cli("compact", table_path, "--strategy", "full", "--master", "in-process")
    assert "3 fragments" not in cli("vacuum", table_path)
    shown = cli("vacuum", table_path, "--grace", 0, "--retain", 0, "--dry-run")
    assert "3 fragments of" in shown
    assert "would be removed" in shown
    assert len(list((table_path / "data").iterdir())) == 4
    report = json.loads(cli("vacuum", table_path, "--grace", 0, "--retain", 0, "--json"))
    assert report["fragments"] == 3
    assert len(list((table_path / "data").iterdir())) == 1
    assert json.loads(cli("verify", table_path, "--json"))["rows"] == 300
    cli.fails(5, "verify", table_path, "--version", 2)
    cli.fails(2, "vacuum", table_path, "--grace", "soon")


def test_vacuum_says_which_versions_can_be_read(cli: Cli, table_path: Path) -> None:
    cli("tag", table_path, "first", "--version", 1)
    cli("compact", table_path, "--strategy", "full", "--master", "in-process")
    said = cli("vacuum", table_path, "--grace", 0, "--retain", 0)
    newest = Table.open(str(table_path)).version
    assert (
        f"; versions from {newest - 1} to {newest} can be read, and version 1 by tag 'first'"
        in said
    )
    again = json.loads(cli("vacuum", table_path, "--grace", 0, "--retain", 0, "--json"))
    assert (again["oldest_version"], again["tagged_versions"]) == (newest - 1, {"first": 1})


def test_only_what_is_in_quarantine_can_be_released(cli: Cli, table_path: Path) -> None:
    assert "nothing is in quarantine" in cli("release", table_path, "--all")
    cli.fails(2, "release", table_path, "data/x.frag")
    cli.fails(2, "release", table_path)


def test_time_windows_divide_a_table_and_are_dropped_when_old(cli: Cli, tmp_path: Path) -> None:
    now = dt.datetime.now(dt.UTC)
    times = [now - dt.timedelta(days=days) for days in (0, 0, 1, 9)]
    table = pa.table({"ts": pa.array(times, pa.timestamp("ms", "UTC")), "n": [0, 1, 2, 3]})
    file = write_parquet(tmp_path, "a.parquet", table)
    windows = ["--sort-by", "ts", "--time-column", "ts", "--time-window", "1d", "--retention", "7d"]
    cli("ingest", tmp_path / "t", file, *windows)
    assert len(json.loads(cli("inspect", tmp_path / "t", "--json"))["fragments"]) == 3
    cli("ingest", tmp_path / "t", file)
    assert json.loads(cli("compact", tmp_path / "t", "--dry-run", "--json"))["expired"]
    assert "drop 2 fragments of time windows past retention" in cli(
        "compact", tmp_path / "t", "--dry-run"
    )
    cli("compact", tmp_path / "t", "--strategy", "full", "--master", "in-process")
    assert len(cli("head", tmp_path / "t").splitlines()) == 6
    assert json.loads(cli("verify", tmp_path / "t", "--json"))["ok"]
    cli.fails(2, "ingest", tmp_path / "t", file, "--time-column", "ts", "--time-window", "1h")
    cli.fails(2, "ingest", tmp_path / "t", file, "--retention", "1d")


@pytest.mark.parametrize("unit", ["s", "ns"])
def test_windows_beyond_292_years_are_refused_by_their_option(
    cli: Cli, tmp_path: Path, unit: str
) -> None:
    file = write_parquet(tmp_path, "a.parquet", pa.table({"ts": pa.array([1], pa.timestamp(unit))}))
    windows = ["--sort-by", "ts", "--time-column", "ts", "--time-window"]
    said = cli.fails(2, "ingest", tmp_path / "t", file, *windows, "106752d")
    assert "--time-window" in said
    assert "106751d at most" in said
    assert "--time-window" in cli.fails(2, "simulate", "--time-window", "106752d")
    assert not (tmp_path / "t").exists()
    cli("ingest", tmp_path / "t", file, *windows, "106751d")


@pytest.mark.parametrize("unit", ["ms", "us"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Vienna"])
def test_times_of_any_year_are_shown_and_read_again(
    cli: Cli, tmp_path: Path, unit: str, zone: str | None
) -> None:
    per_second = {"ms": 10**3, "us": 10**6}[unit]
    seconds = [-62_167_219_201, -62_167_219_200, 253_402_300_799, 253_402_300_800]
    times = pa.array([second * per_second for second in seconds]).view(pa.timestamp(unit, zone))
    file = write_parquet(tmp_path, "a.parquet", pa.table({"k": [1, 2, 3, 4], "t": times}))
    cli("ingest", tmp_path / "t", file, "--sort-by", "t")
    end = {"ms": ".000", "us": ".000000"}[unit] + ("Z" if zone else "")
    shown = [
        f"{day}{end}"
        for day in (
            "-0001-12-31T23:59:59", "0000-01-01T00:00:00", "9999-12-31T23:59:59", "+10000-01-01T00:00:00",
        )
    ]  # fmt: skip
    for command in ("query", "head"):
        lines = cli(command, tmp_path / "t").splitlines()
        assert [json.loads(line)["t"] for line in lines if line.startswith("{")] == shown
    assert (
        cli("query", tmp_path / "t", "--count", "--where", f"t <= '{shown[0]}'").split()[0] == "1"
    )
    assert (
        cli("query", tmp_path / "t", "--count", "--where", f"t >= '{shown[3]}'").split()[0] == "1"
    )
    for ending in ("csv", "ndjson", "xml"):
        out = tmp_path / f"a.{ending}"
        cli("export", tmp_path / "t", out)
        assert all(text in out.read_text() for text in shown)
        if ending != "xml":
            cli("ingest", tmp_path / ending, out, "--sort-by", "k")
            lines = cli("query", tmp_path / ending).splitlines()
            again = [json.loads(line)["t"] for line in lines if line.startswith("{")]
            assert [text.rstrip("Z").partition(".")[0] for text in again] == [
                text.rstrip("Z").partition(".")[0] for text in shown
            ]


def test_writers_are_told_when_compactions_lag_behind(cli: Cli, tmp_path: Path) -> None:
    files = [write_parquet(tmp_path, f"{n}.parquet", log_rows(3, n)) for n in range(21)]
    cli("ingest", tmp_path / "t", *files[:20], *SORT_BY, "--rows-per-fragment", 3)
    assert "warning" not in cli.err
    cli("ingest", tmp_path / "t", files[20])
    assert "writers should slow down): 20 sorted runs at level 0" in cli.err
    cli("ingest", tmp_path / "t", files[20], "--back-pressure", "off")
    assert cli.err == ""


def test_writers_are_told_once_of_files_that_share_a_commit(cli: Cli, tmp_path: Path) -> None:
    first = write_parquet(tmp_path, "0.parquet", pa.table({"k": [1], "v": [1]}))
    stops = ["--set", "level0_trigger_runs=2", "--set", "slow_runs=2", "--set", "stop_runs=3"]
    for _ in range(3):
        cli("ingest", tmp_path / "t", first, "--sort-by", "k", *stops)
    files = [tmp_path / "1.csv", tmp_path / "2.csv"]
    for path in files:
        path.write_text("k,w\n1,1\n")
    cli("ingest", tmp_path / "t", *files)
    assert cli.err.count("writers should stop): 3 sorted runs at level 0") == 1
    assert len(cli("query", tmp_path / "t", "--where", "w = 1").splitlines()) == 2


def overlapping_table(cli: Cli, table_url: str, tmp_path: Path) -> None:
    files = [write_parquet(tmp_path, f"{n}.parquet", log_rows(200, n)) for n in range(4)]
    cli("ingest", table_url, *files, *SORT_BY, "--rows-per-fragment", 200)


def test_explain_shows_the_plan_that_the_task_follows_and_changes_nothing(
    cli: Cli, table_url: str, tmp_path: Path
) -> None:
    overlapping_table(cli, table_url, tmp_path)
    plan = json.loads(
        cli("compact", table_url, "--strategy", "full", "--explain", "--format", "json")
    )
    (compaction,) = plan["compactions"]
    assert compaction["inputs"] == 4
    assert compaction["need_bytes"] < compaction["memory_limit_bytes"] == 512 << 20
    stages = {stage["stage"]: stage for stage in compaction["stages"]}
    assert {stage["buffer"] for stage in stages.values()} == {"streaming", "materialized"}
    assert stages["upload"]["applies_back_pressure"]
    assert stages["row order"]["spill_priority"] == 0
    text = cli("compact", table_url, "--strategy", "full", "--explain", "--memory-limit", "64MiB")
    assert "memory limit 64 MiB" in text
    assert all(f"  {name} " in text for name in stages)
    assert json.loads(cli("inspect", table_url, "--json"))["version"] == 1
    printed = cli("compact", table_url, "--strategy", "full", "--master", "in-process", "--json")
    assert json.loads(printed)["tasks"] == 1
    assert "no compaction is due" in cli("compact", table_url, "--strategy", "full", "--explain")


def test_a_memory_limit_that_is_too_low_names_the_one_that_would_do(
    cli: Cli, table_url: str, tmp_path: Path
) -> None:
    few = log_rows(2, 1)
    names = few.schema.names
    rows = pa.table({**{n: few[n] for n in names}, "message": ["x" * 12_000_000, "y"]})
    for n in range(2):
        cli("ingest", table_url, write_parquet(tmp_path, f"{n}.parquet", rows), *SORT_BY)
    command = ["compact", table_url, "--strategy", "full", "--master", "in-process"]
    error = cli.fails(2, *command, "--memory-limit", "32MiB")
    needed = re.search(r"raise --memory-limit to (\d+)MiB", error)
    assert needed is not None
    below = int(needed[1]) - 1
    cli.fails(2, *command, "--memory-limit", f"{below}MiB")
    refused = json.loads(cli(*command, "--memory-limit", f"{below}MiB", "--explain", "--json"))
    assert refused["compactions"] == []
    assert len(refused["refused"]) == 1
    assert "4 rows" in cli(*command, "--memory-limit", f"{needed[1]}MiB")
    assert "peak" in cli.out


@pytest.mark.parametrize(
    "options",
    [
        ["--batch-size", "0"],
        ["--memory-limit", "lots"],
        ["--memory-limit", "1MiB"],
        ["--spool-directory", "/no/such/folder"],
        ["--format", "json"],
    ],
    ids=" ".join,
)
def test_memory_options_that_make_no_sense_are_refused(
    cli: Cli, table_url: str, tmp_path: Path, options: list[str]
) -> None:
    overlapping_table(cli, table_url, tmp_path)
    cli.fails(2, "compact", table_url, "--strategy", "full", *options)


def test_batch_size_and_memory_limit_change_no_byte_of_the_output(cli: Cli, tmp_path: Path) -> None:
    contents = []
    for number, options in enumerate(([], ["--batch-size", "1"], ["--memory-limit", "120MiB"])):
        table = str(tmp_path / f"t{number}")
        overlapping_table(cli, table, tmp_path)
        before = set((Path(table) / "data").rglob("*.frag"))
        cli(
            "compact",
            table,
            *("--strategy", "full", "--master", "in-process"),
            *("--target-row-group-bytes", "1MiB"),  # of which the default follows the memory limit
            *options,
        )
        outputs = set((Path(table) / "data").rglob("*.frag")) - before
        # The header names the inputs, which have names of their own; what follows must be the same.
        contents.append(
            [p.read_bytes().partition(b'"sources"')[2].partition(b"]")[2] for p in outputs]
        )
    assert len(contents[0][0]) > 5_000
    assert contents[0] == contents[1] == contents[2]


def test_profile_says_where_the_seconds_went(cli: Cli, table_url: str, tmp_path: Path) -> None:
    files = [write_parquet(tmp_path, f"{n}.parquet", log_rows(200, n)) for n in range(2)]
    cli("ingest", table_url, *files, *SORT_BY, "--rows-per-fragment", 200)
    printed = cli("compact", table_url, "--strategy", "full", "--master", "in-process", "--profile")
    stages = ["fetch wait", "decode", "order", "gather", "hash", "encode", "pass on", "upload wait"]
    assert all(f"\n{stage}" in printed for stage in [*stages, "other"])
    assert "of 400 rows went out as they came in" in printed


def test_a_table_of_newest_rows_through_ingest_query_compact_and_alter(
    cli: Cli, tmp_path: Path
) -> None:
    table = tmp_path / "users"
    first, second = tmp_path / "a.ndjson", tmp_path / "b.ndjson"
    first.write_text(
        '{"id":1,"v":1,"name":"a"}\n{"id":2,"v":1,"name":"b"}\n{"id":1,"v":3,"name":"c"}\n'
    )
    second.write_text('{"id":1,"v":2,"name":"late"}\n{"id":2,"v":2,"gone":true}\n')
    options = (
        "--sort-by",
        "id",
        "--row-policy",
        "last",
        "--sequence",
        "v",
        "--delete-marker",
        "gone",
    )
    assert "3 rows (1 merged into others of their key)" in cli("ingest", table, first, *options)
    cli("ingest", table, second)
    expected = [{"id": 1, "v": 3, "name": "c", "gone": None}]
    assert [json.loads(line) for line in cli("query", table).splitlines()] == expected
    assert "(2 superseded)" in cli("compact", table, "--strategy", "full", "--master", "in-process")
    assert [json.loads(line) for line in cli("query", table).splitlines()] == expected
    out = cli("inspect", table)
    assert "row policy last by v with tombstones where gone (kept); 1 tombstone" in out
    assert "sorted by id, v:nulls_first, gone:none" in out
    document = json.loads(cli("inspect", table, "--json"))
    assert document["row_policy"]["sequence"] == "v" and document["rows"] == 2
    out = cli("alter", table, "--rename", "name:nick", "--order", "nick,id")
    assert out.startswith("columns: nick, id, v, gone; version")
    assert cli("query", table, "--where", "nick = 'c'", "--columns", "nick") == '{"nick":"c"}\n'
    out = cli("alter", table, "--drop", "nick")
    assert "1 fragment holds dropped columns" in out
    cli("compact", table, "--strategy", "full", "--master", "in-process")
    assert "ok" in cli("verify", table)
    assert json.loads(cli("alter", table, "--rename", "v:w", "--json"))["waiting"] == []


@pytest.mark.parametrize(
    "options",
    [
        ("--sequence", "v"),
        ("--row-policy", "aggregate", "--aggregate", "v"),
        ("--row-policy", "aggregate", "--aggregate", "v:mean"),
        ("--row-policy", "aggregate", "--aggregate", "v:sum", "--aggregate", "v:max"),
        ("--ttl", "1d"),
        ("--ttl", "1d", "--ttl-column", "v"),
        ("--row-policy", "last", "--delete-marker", "v"),
    ],
    ids=" ".join,
)
def test_options_on_rows_that_do_not_fit_are_refused_in_one_line(
    cli: Cli, tmp_path: Path, options: tuple[str, ...]
) -> None:
    file = tmp_path / "a.ndjson"
    file.write_text('{"id":1,"v":1}\n')
    cli.fails(2, "ingest", tmp_path / "t", file, "--sort-by", "id", *options)
    assert not (tmp_path / "t" / "_log").exists()


def test_columns_that_cannot_be_altered_are_said_in_one_line(cli: Cli, table_path: Path) -> None:
    cli.fails(2, "alter", table_path, "--drop", "nope")
    cli.fails(2, "alter", table_path, "--drop", "service")
    cli.fails(2, "alter", table_path)
    cli.fails(2, "alter", table_path, "--rename", "id")
    for kind in ("id", "id:tree"):
        cli.fails(2, "alter", table_path, "--skip-index", kind)


def test_repair_shows_strays_and_puts_them_aside(cli: Cli, table_path: Path) -> None:
    newest = json.loads(cli("inspect", table_path, "--json"))["version"]
    assert "nothing is wrong with the log" in cli("repair", table_path)
    stray = table_path / "_log" / f"{newest + 50:020d}.json"
    stray.write_text("stray")
    forged = table_path / "_checkpoint" / f"{10**20 - 1 - newest - 50:020d}.arrow"
    forged.parent.mkdir(exist_ok=True)
    forged.write_text("forged")
    assert "2 FAULTS" in cli("verify", table_path, code=1)
    report = json.loads(cli("repair", table_path, "--json"))
    assert report["now"] == report["after"]
    assert report["now"]["version"] == newest
    assert {finding["goes_aside"] for finding in report["findings"]} == {True}
    assert "nothing was changed" in cli("repair", table_path)
    assert stray.exists()
    report = json.loads(cli("repair", table_path, "--apply", "--json"))
    assert (table_path / report["aside"] / "_log" / stray.name).read_text() == "stray"
    assert (table_path / report["aside"] / "_checkpoint" / forged.name).read_text() == "forged"
    assert not stray.exists()
    cli("verify", table_path)


def test_repair_says_where_a_log_with_a_gap_is_whole(cli: Cli, table_path: Path) -> None:
    newest = json.loads(cli("inspect", table_path, "--json"))["version"]
    assert newest >= 3
    (table_path / "_log" / f"{newest - 1:020d}.json").unlink()
    cli.fails(3, "inspect", table_path)
    assert f"--end-at {newest - 2}" in cli("repair", table_path, code=1)
    cli.fails(2, "repair", table_path, "--end-at", newest, "--apply")
    cli("repair", table_path, "--end-at", newest - 2, "--apply")
    cli("verify", table_path)


def test_names_with_marks_stand_in_quotes_and_what_is_printed_is_read_again(
    cli: Cli, tmp_path: Path
) -> None:
    file, table = tmp_path / "n.csv", tmp_path / "t"
    file.write_text('"a,b",c:d,"e""f",g,"h,"\n1,2,3,4,8\n1,5,6,7,9\n')
    policy = ("--row-policy", "aggregate", "--aggregate", '"e""f":sum,g:max')
    cli("ingest", table, file, "--sort-by", '"a,b":desc,"c:d"', *policy)
    shown = cli("inspect", table)
    [sort] = [line for line in shown.splitlines() if line.startswith("sorted by ")]
    assert sort == 'sorted by "a,b":desc, "c:d"'
    assert 'aggregate of "e""f":sum, g:max' in shown
    cli("ingest", tmp_path / "again", file, "--sort-by", sort.removeprefix("sorted by "))
    error = cli.fails(2, "query", table, "--columns", "a")
    names = error.rpartition("columns are: ")[2]
    assert names == '"a,b", "c:d", "e""f", g, "h,"'
    assert (
        cli("head", table, "-n", 1, "--columns", names)
        == '{"a,b":1,"c:d":2,"e\\"f":3,"g":4,"h,":8}\n'
    )
    cli("export", table, tmp_path / "out.csv", "--columns", '"c:d",g')
    assert (tmp_path / "out.csv").read_text() == '"c:d","g"\n2,4\n5,7\n'
    assert cli("query", table, "--where", '"c:d" = 5', "--columns", '"e""f"') == '{"e\\"f":6}\n'
    told = cli(
        "alter", table, "--rename", '"e""f":"x:y"', "--rename", "g:plain", "--order", '"x:y"'
    )
    assert told.splitlines()[0] == 'columns: "x:y", "a,b", "c:d", plain, "h,"; version 2'
    cli("alter", table, "--drop", '"h,"')
    cli.fails(2, "alter", table, "--rename", "c:d:e")
    cli.fails(2, "ingest", tmp_path / "other", file, "--sort-by", "c:d")
    cli.fails(2, "ingest", tmp_path / "other", file, "--sort-by", '"a,b')
    cli.fails(2, "head", table, "--columns", '"a,b')
    cli.fails(2, "alter", table, "--drop", '"a,b')


def test_a_name_of_several_lines_makes_no_line_of_its_own(cli: Cli, tmp_path: Path) -> None:
    name = "k\ncompactor: error: \x1b[2J"
    source, table = tmp_path / "a\nb.parquet", tmp_path / "t"
    pq.write_table(pa.table({name: [1, 2], "n": [1, 2]}), source)
    sort_by = f'"{name}"'
    for call in (
        ("ingest", table, source, "--sort-by", sort_by),
        ("inspect", table),
        ("alter", table, "--order", sort_by),
        ("export", table, tmp_path / "c\nd.csv"),
        ("query", table, "--where", f"{sort_by} = 1"),
    ):
        told = cli(*call) + cli.err
        assert "\x1b" not in told
        assert not any(
            line.startswith(("compactor: error", "b.parquet", "d.csv")) for line in told.split("\n")
        )


def test_ingest_takes_csv_of_other_marks_and_encodings(cli: Cli, tmp_path: Path) -> None:
    path, table = tmp_path / "a.csv", tmp_path / "t"
    path.write_bytes("# Export\n1\t'Müller\t'\t1,5\n".encode("cp1252"))
    marks = ["--delimiter", "\\t", "--quote", "'", "--decimal", ",", "--comment", "#"]
    given = [*marks, "--no-header", "--encoding", "cp1252"]
    cli("ingest", table, path, *given, "--sort-by", "c1")
    cli("export", table, tmp_path / "o.ndjson")
    row = json.loads((tmp_path / "o.ndjson").read_text())
    assert row == {"c1": 1, "c2": "Müller\t", "c3": 1.5}
    cli.fails(2, "ingest", table, path, "--delimiter", ";;")
