"""Bad records, their groups, and fields that nobody declared."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.errors import ConfigError, DataError, InputError
from compactor.files.read import open_table_file
from compactor.pipelines.binding import UnserializableMapValue
from compactor.pipelines.dead_letters import DeadLetters
from compactor.pipelines.provenance import numbered as with_origin
from compactor.pipelines.run_report import RunReport
from tests.pipelines.support import lines_of, numbered, run_of, sources
from tests.pipelines.test_documents import run_files
from tests.support.wording import refuses


def source_of(path: Path, **more: Any) -> dict[str, Any]:
    return {"s": {"source": {"path": str(path), **more}}}


def output_of(path: Path, node: str = "s", **more: Any) -> dict[str, Any]:
    return {"out": {"output": {"input": node, "path": str(path), **more}}}


def tolerant(tmp_path: Path) -> dict[str, Any]:
    return {"on_error": "continue", "dead_letter": str(tmp_path / "bad.ndjson")}


@given(st.data())
@settings(max_examples=25)
def test_lines_that_are_no_records_are_put_aside_with_their_rows(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("bad")
    lines: list[bytes] = []
    good: list[int] = []
    bad: list[int] = []
    kinds = data.draw(
        st.lists(st.sampled_from(["good", "cut", "list", "text", "blank", "utf8"]), max_size=60)
    )
    for kind in ["good", *kinds]:
        row = len(good) + len(bad)
        match kind:
            case "good":
                lines.append(b'{"n": %d}' % row)
                good.append(row)
                continue
            case "blank":
                lines.append(b"  ")
                continue
            case "cut":
                lines.append(b'{"n": ')
            case "list":
                lines.append(b"[1]")
            case "text":
                lines.append(b'{"n": "x"}')
            case "utf8":
                lines.append(b'{"n": "\xff"}')
        bad.append(row)
    (folder / "a.ndjson").write_bytes(b"\n".join(lines))
    nodes = {**source_of(folder / "a.ndjson"), **output_of(folder / "o.ndjson")}
    report = run_files(nodes, **tolerant(folder)).run()
    assert [row["n"] for row in lines_of(folder / "o.ndjson")] == good
    letters = lines_of(folder / "bad.ndjson")
    assert [letter["row"] - 1 for letter in letters] == bad
    assert all(letter["source"] == "s" and "line" in letter["reason"] for letter in letters)
    assert (report.dlq_count, report.records_read) == (len(bad), {"s": len(good) + len(bad)})


def test_rows_of_csv_that_do_not_fit_are_put_aside(tmp_path: Path) -> None:
    rng = random.Random(3)
    lines = ["n,m"]
    good: list[int] = []
    bad: list[int] = []
    for row in range(3000):
        kind = rng.choice(["1,2,3", "x,1", "1"]) if rng.random() < 0.05 else f"{row},1"
        lines.append(kind)
        (good if kind == f"{row},1" else bad).append(row)
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    nodes = {
        **source_of(path, fields={"n": "bigint", "m": "int"}),
        "t": {"transform": {"input": "s", "columns": {"n": "n", "q": "1 / (n - 10)"}}},
        **output_of(tmp_path / "o.ndjson", "t"),
    }
    report = run_files(nodes, **tolerant(tmp_path)).run()
    assert [row["n"] for row in lines_of(tmp_path / "o.ndjson")] == [n for n in good if n != 10]
    letters = lines_of(tmp_path / "bad.ndjson")
    # A row's number is its place among all rows of the file, bad ones included.
    assert sorted(letter["row"] - 1 for letter in letters) == sorted([*bad, *({10} & set(good))])
    assert report.dlq_count == len(letters)


@pytest.mark.parametrize("has_header", [True, False])
def test_rows_are_numbered_alike_wherever_they_turn_out_to_be_bad(
    tmp_path: Path, has_header: bool
) -> None:
    header = b"n,text\n" if has_header else b""
    rows = [
        b'1,"two\nlines"',
        b"2,a,b",
        b"# no row",
        b"0,c",
        b"",
        b'4,"d\n\n# text"',
        b"x,e",
        b"0,f",
    ]
    for name in ("1.csv", "2.csv"):
        (tmp_path / name).write_bytes(b"# a comment\n\n" + header + b"\n".join(rows))
    csv = {"comment": "#", "header": has_header}
    nodes = {
        **source_of(tmp_path / "?.csv", csv=csv, fields={"n": "BIGINT", "text": "TEXT"}),
        "t": {"transform": {"input": "s", "columns": {"q": "4 / n"}}},
        **output_of(tmp_path / "o.ndjson", "t"),
    }
    run_files(nodes, **tolerant(tmp_path)).run()
    letters = sorted(lines_of(tmp_path / "bad.ndjson"), key=lambda letter: int(letter["row"]))
    assert [(letter["row"], letter["node"]) for letter in letters] == [
        (2, "s"), (3, "t"), (5, "s"), (6, "t"), (8, "s"), (9, "t"), (11, "s"), (12, "t"),
    ]  # fmt: skip
    reasons = [letter["reason"] for letter in letters if letter["node"] == "s"]
    places = [reason.partition(":")[0].removeprefix(f"{tmp_path}/") for reason in reasons]
    assert places == ["1.csv, row 2", "1.csv, row 5", "2.csv, row 2", "2.csv, row 5"]
    (tmp_path / "1.csv").write_bytes(header + b"\n".join(rows[:1] * 2))
    (tmp_path / "2.csv").write_bytes(header + b"\n".join([rows[0], *rows[2:4]]))
    with pytest.raises(DataError, match=r"row 4 of 's' \(row 2 of .*2\.csv\)"):
        run_files(nodes).run()


def bad_in(path: Path, **more: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of a file that a pipeline writes, and the dead letters."""
    nodes = {**source_of(path, **more), **output_of(path.parent / "o.ndjson")}
    run_files(nodes, **tolerant(path.parent)).run()
    return lines_of(path.parent / "o.ndjson"), lines_of(path.parent / "bad.ndjson")


def test_of_a_csv_whose_rows_are_all_bad_the_columns_are_texts(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2,3\n4\n")
    with open_table_file(str(tmp_path / "a.csv"), leaves_out_bad_rows=True) as file:
        assert list(file) == []
        assert file.schema == pa.schema([("a", pa.string()), ("b", pa.string())])
        assert [row.ordinal for row in file.bad_rows] == [0, 1]
    rows, letters = bad_in(tmp_path / "a.csv")
    assert (rows, [letter["row"] for letter in letters]) == ([], [1, 2])


@given(st.lists(st.sampled_from([b"1,\xff", b"\xe2\x82,x,y", b"1", b"7,\xc3\xa9", b"8,\x1a"])))
@settings(max_examples=25)
def test_rows_of_csv_that_are_not_utf8_are_put_aside(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]
) -> None:
    folder = tmp_path_factory.mktemp("utf8")
    lines = [b"0,first", *lines]
    (folder / "a.csv").write_bytes(b"n,s\n" + b"\n".join(lines))
    rows, letters = bad_in(folder / "a.csv", fields={"n": "bigint", "s": "text"})
    good = [line for line in lines if line[:2] in (b"0,", b"7,", b"8,")]
    assert [f"{row['n']},{row['s']}".encode() for row in rows] == good
    assert [n - 1 for n in (letter["row"] for letter in letters)] == [
        n for n, line in enumerate(lines) if line not in good
    ]
    for letter in letters:
        cause = (
            "column 's' is not valid UTF-8"
            if lines[letter["row"] - 1][1:2] == b","
            else "expected 2"
        )
        assert f"row {letter['row']}: {cause}" in letter["reason"]


@pytest.mark.parametrize("last", [b'2,"open\n3,4\n', b'2,3,"open\n3,4\n', b'"' + b"x\n" * 90_000])
def test_a_quote_that_is_never_closed_is_an_error_among_bad_rows_too(
    tmp_path: Path, last: bytes
) -> None:
    (tmp_path / "a.csv").write_bytes(b"n,s\n1,2,3\n1,2\n" + last)
    with refuses(InputError):
        bad_in(tmp_path / "a.csv")
    assert not (tmp_path / "o.ndjson").exists()


@given(st.lists(st.sampled_from([0, 0, 1, 2, 5]), min_size=1, max_size=400), st.integers(1, 300))
@settings(max_examples=25)
def test_letters_of_a_batch_are_written_together_in_the_order_of_rows(
    divisors: list[int], batch_rows: int
) -> None:
    written: list[pa.RecordBatch] = []

    class Sink:
        write = staticmethod(written.append)

    letters = DeadLetters(["a", "t"], report := RunReport(), Sink())
    batch = full_rows(pa.RecordBatch.from_pydict({"d": divisors}))

    def make(rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows.set_column(0, "d", pc.divide_checked(10, rows.column("d")))

    made: list[int] = []
    for start in range(0, len(divisors), batch_rows):
        before = len(written)
        for rows in letters.made(make, batch.slice(start, batch_rows), "t"):
            made += rows.column("d").to_pylist()
        assert len(written) <= before + 1
    assert made == [10 // d for d in divisors if d]
    bad = [row for found in written for row in found.to_pylist()]
    assert [row["row"] for row in bad] == [n for n, d in enumerate(divisors, 1) if d == 0]
    assert {(row["source"], row["node"], row["reason"]) for row in bad} <= {
        ("a", "t", "divide by zero")
    }
    assert report.dlq_count == len(bad)


def full_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    return with_origin(batch, 0, 0, None)


def test_good_rows_that_do_not_fit_into_one_batch_come_in_several() -> None:
    letters = DeadLetters(["a", "t"], RunReport(), None)

    def make(rows: pa.RecordBatch) -> pa.RecordBatch:
        if rows.num_rows > 10:
            raise pa.ArrowCapacityError("too long")
        return rows

    batch = full_rows(pa.RecordBatch.from_pydict({"n": range(100)}))
    made = list(letters.made(make, batch, "t"))
    assert pa.Table.from_batches(made).column("n").to_pylist() == list(range(100))


def test_without_continue_the_first_bad_line_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_text('{"n": 1}\n{"n": \n')
    nodes = {**source_of(tmp_path / "a.ndjson"), **output_of(tmp_path / "o.ndjson")}
    with refuses(InputError):
        run_files(nodes).run()
    assert not (tmp_path / "o.ndjson").exists()


@pytest.mark.parametrize("pattern", ["a.ndjson", "a.json", "?.ndjson"])
def test_of_lines_that_are_all_bad_the_first_reason_is_told(tmp_path: Path, pattern: str) -> None:
    for name in ("a.ndjson", "a.json", "b.ndjson"):
        (tmp_path / name).write_text("x\ny\n")
    nodes = {**source_of(tmp_path / pattern), **output_of(tmp_path / "o.ndjson")}
    with refuses(InputError, "4 rows" if "?" in pattern else "2 rows", "line 1"):
        run_files(nodes, **tolerant(tmp_path))
    nodes["s"]["source"]["fields"] = {"n": "INT"}
    report = run_files(nodes, **tolerant(tmp_path)).run()
    assert (
        report.dlq_count == len(lines_of(tmp_path / "bad.ndjson")) == (4 if "?" in pattern else 2)
    )


# --- correlation keys ---


def orders(seed: int, rows: int) -> pa.Table:
    rng = random.Random(seed)
    return pa.table(
        {
            "order": [rng.choice([None, *(f"o{n}" for n in range(rows // 4))]) for _ in range(rows)],
            "n": [0 if rng.random() < 0.02 else rng.randrange(1, 100) for _ in range(rows)],
        }
    )  # fmt: skip


def correlated(tmp_path: Path) -> dict[str, Any]:
    keyed = {name: {"source": {"path": name, "correlation_key": "order"}} for name in ("a", "b")}
    return {
        **keyed,
        **sources("c"),
        "t": {"transform": {"input": "a", "columns": {"order": "order", "n": "100 / n"}}},
        "m": {"merge": {"inputs": ["t", "b", "c"]}},
        "r": {"route": {"input": "m", "branches": {"low": "n < 10"}, "otherwise": "rest"}},
        "low": {"output": {"input": "r.low", "path": str(tmp_path / "low.ndjson")}},
        "rest": {"output": {"input": "r.rest", "path": str(tmp_path / "rest.ndjson")}},
        "all": {"output": {"input": "m", "path": str(tmp_path / "all.csv")}},
    }  # fmt: skip


@pytest.mark.parametrize("limit", ["256MiB", "1MiB"])
def test_a_group_with_a_bad_record_is_put_aside_whole(tmp_path: Path, limit: str) -> None:
    tables = {name: orders(seed, 4000) for seed, name in enumerate("abc")}
    run = run_of(
        correlated(tmp_path), tables, memory={"limit": limit}, batch_size=100, **tolerant(tmp_path)
    )
    report = run.run()
    assert (report.spills > 0) == (limit == "1MiB")
    rows = {name: table.to_pylist() for name, table in tables.items()}
    bad = {row["order"] for row in rows["a"] if row["n"] == 0} - {None}
    assert 0 < len(bad) < 1000
    kept: Counter[Any] = Counter()
    letters: Counter[Any] = Counter()
    for name in "abc":
        for number, row in enumerate(rows[name]):
            shown = {"order": row["order"], "n": row["n"]}
            if name == "a" and row["n"] == 0:
                letters[name, number + 1] += 1
                continue
            if name == "a":
                shown["n"] = 100 // row["n"]
            if name != "c" and row["order"] in bad:
                letters[name, number + 1] += 1
            else:
                kept[json.dumps(shown)] += 1
    written = lines_of(tmp_path / "low.ndjson") + lines_of(tmp_path / "rest.ndjson")
    assert Counter(json.dumps(row) for row in written) == kept
    found = lines_of(tmp_path / "bad.ndjson")
    # Once each, though rows were on their way to two outputs.
    assert Counter((letter["source"], letter["row"]) for letter in found) == letters
    assert report.dlq_count == sum(letters.values())
    assert report.outputs["all"].records_written == sum(kept.values())
    reasons = {letter["reason"] for letter in found}
    assert any(reason.endswith(": divide by zero") for reason in reasons)
    assert any(text.startswith("another record of its group 'o") for text in reasons)


def test_a_bad_record_that_goes_another_way_too_is_one_dead_letter(tmp_path: Path) -> None:
    nodes = {
        "a": {"source": {"path": "a", "correlation_key": "g"}},
        "t": {"transform": {"input": "a", "columns": {"w": "10 / v"}}},
        **output_of(tmp_path / "o.ndjson", "t"),
        "p": {"output": {"input": "a", "path": str(tmp_path / "p.ndjson")}},
    }
    table = pa.table({"g": ["x", "x", "y"], "v": [1, 0, 5]})
    report = run_of(nodes, {"a": table}, **tolerant(tmp_path)).run()
    letters = {each["row"]: each["reason"] for each in lines_of(tmp_path / "bad.ndjson")}
    assert letters == {2: "column 'w': divide by zero", 1: "another record of its group 'x' is bad"}
    assert report.dlq_count == 2
    assert lines_of(tmp_path / "p.ndjson") == [{"g": "y", "v": 5}]


GROUPED = [
    ("007", "1"),
    ("7", "x"),
    ("8", "1"),
    ("9", "x"),
    ("8", "2"),
    ("z", "3"),
    ("", "x"),
    ("", "5"),
]


@pytest.mark.parametrize("kind", ["csv", "ndjson"])
@pytest.mark.parametrize("dtype", ["BIGINT", "TEXT"])
def test_bad_lines_whose_key_is_readable_fail_their_groups(
    tmp_path: Path, kind: str, dtype: str
) -> None:
    if kind == "csv":
        lines = ["k,n", *(f"{k},{n}" for k, n in GROUPED), "8,1,1"]
    else:
        as_text = str if dtype == "BIGINT" else json.dumps
        keys = [
            as_text(k.lstrip("0")) if k.isdigit() else json.dumps(k or None) for k, _ in GROUPED
        ]
        values = [n if n.isdigit() else '"x"' for _, n in GROUPED]
        lines = [f'{{"k": {k}, "n": {n}}}' for k, n in zip(keys, values, strict=True)]
        lines.append('{"k": 8, "n"')
    (tmp_path / f"a.{kind}").write_text("\n".join(lines) + "\n")
    more = {"fields": {"k": dtype, "n": "INT"}, "correlation_key": "k"}
    rows, letters = bad_in(tmp_path / f"a.{kind}", **more)
    # 007 is 7 where keys are numbers, and in NDJSON, which has no such number.
    good = {
        "csvTEXT": [1, 1, 2, 3, 5],
        "csvBIGINT": [1, 2, 5],
        "ndjsonTEXT": [1, 2, 3, 5],
        "ndjsonBIGINT": [1, 2, 5],
    }
    assert [row["n"] for row in rows] == good[kind + dtype]
    assert len(letters) == 9 - len(rows)


def test_the_key_of_a_row_that_is_not_utf8_fails_its_group(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"k,s\n1,x\n1,\xff\n2,y\n\xff,z\n")
    rows, letters = bad_in(tmp_path / "a.csv", correlation_key="k")
    assert [row["s"] for row in rows] == ["y"]
    assert sorted(letter["row"] for letter in letters) == [1, 2, 4]


def test_without_bad_records_all_groups_are_written_in_order(tmp_path: Path) -> None:
    table = pa.table({"order": [1, 2, 1, None], "n": [1, 2, 3, 4]})
    nodes = {
        "a": {"source": {"path": "a", "correlation_key": "order"}},
        "o": {"output": {"input": "a", "path": str(tmp_path / "o.ndjson")}},
    }
    report = run_of(nodes, {"a": table}).run()
    assert lines_of(tmp_path / "o.ndjson") == table.to_pylist()
    assert (report.outputs["o"].ok_count, report.outputs["o"].documents) == (4, 1)


def test_a_group_of_more_than_max_group_buffer_is_given_up(tmp_path: Path) -> None:
    table = pa.table({"k": ["big"] * 11 + ["small"] * 10 + [None] * 20, "n": range(41)})
    nodes = {
        "a": {"source": {"path": "a", "correlation_key": "k"}},
        "o": {"output": {"input": "a", "path": str(tmp_path / "o.ndjson")}},
    }
    report = run_of(nodes, {"a": table}, max_group_buffer=10, **tolerant(tmp_path)).run()
    assert [row["n"] for row in lines_of(tmp_path / "o.ndjson")] == list(range(11, 41))
    assert report.dlq_count == 11
    [reason] = {letter["reason"] for letter in lines_of(tmp_path / "bad.ndjson")}
    assert reason == "group 'big' has more than max_group_buffer (10) records"
    with refuses(DataError):
        run_of(nodes, {"a": table}, max_group_buffer=10).run()


def test_groups_that_were_not_held_live_make_the_same_counters(tmp_path: Path) -> None:
    tables = {name: numbered(name, 10) for name in "ab"}
    counters = []
    for key in (None, "n"):
        more = {} if key is None else {"correlation_key": key}
        nodes = {
            **{name: {"source": {"path": name, **more}} for name in tables},
            "x": {"merge": {"inputs": ["a", "b"], "mode": "interleave"}},
            "o": {"output": {"input": "x", "path": str(tmp_path / "o.ndjson")}},
        }
        output = run_of(nodes, tables).run().outputs["o"]
        assert output.live == (key is None)
        counters.append((output.records_written, output.ok_count, output.documents))
    assert counters == [(20, 20, 1)] * 2


@pytest.mark.parametrize(
    "nodes",
    [
        {"a": {"source": {"path": "a", "correlation_key": "x"}}},
        {"a": {"source": {"path": "l", "correlation_key": "l"}}},
        {"c": {"source": {"path": "a", "correlation_key": "n"}},
             "a": {"aggregate": {"input": "c", "group_by": ["n"], "columns": {"x": "count"}}}},
        {"c": {"source": {"path": "a", "correlation_key": "n"}},
             "d": {"source": {"path": "a", "correlation_key": "from"}},
             "a": {"merge": {"inputs": ["c", "d"]}}},
    ],
)  # fmt: skip
def test_mistakes_of_correlation_keys_are_named(nodes: dict[str, Any]) -> None:
    tables = {"a": numbered("a", 3), "l": pa.table({"l": [[1]]})}
    with refuses(ConfigError):
        run_of({**nodes, "o": {"output": {"input": "a", "path": "o.csv"}}}, tables)


# --- fields that nobody declared ---


def drifting(tmp_path: Path) -> Path:
    (tmp_path / "a-1.ndjson").write_text('{"n": 1, "s": "x"}\n{"n": 2, "s": null}\n')
    (tmp_path / "a-2.ndjson").write_text(
        '{"n": 3, "new": "q\\"", "deep": {"x": [1, null]}}\n{"n": 4, "s": "y", "new": null}\n'
    )
    return tmp_path / "a-*.ndjson"


def test_unknown_fields_travel_in_one_map_that_ndjson_expands(tmp_path: Path) -> None:
    nodes = {
        **source_of(drifting(tmp_path)),
        "t": {"transform": {"input": "s", "filter": "n <> 2"}},
        "m": {"merge": {"inputs": ["t", "p"]}},
        "p": {"source": {"path": str(tmp_path / "a-1.ndjson")}},
        **output_of(tmp_path / "o.ndjson", "m"),
    }
    run = run_files(nodes)
    assert run.schemas["s"].names == ["n", "s", "$widened"]
    run.run()
    assert lines_of(tmp_path / "o.ndjson") == [
        {"n": 1, "s": "x"},
        {"n": 3, "s": None, "new": 'q"', "deep": {"x": [1, None]}},
        {"n": 4, "s": "y"},
        {"n": 1, "s": "x"},
        {"n": 2, "s": None},
    ]


def test_only_fields_are_columns_if_told_so(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_text('{"n": 1, "x": 2.5}\n{"n": 2, "y": [true]}\n{"s": "z"}\n')
    fields = {"s": "TEXT", "n": "DOUBLE"}
    nodes = {
        **source_of(tmp_path / "a.ndjson", fields=fields, only_fields=True),
        **output_of(tmp_path / "o.ndjson"),
    }
    run_files(nodes).run()
    assert lines_of(tmp_path / "o.ndjson") == [
        {"s": None, "n": 1.0, "x": 2.5},
        {"s": None, "n": 2.0, "y": [True]},
        {"s": "z", "n": None},
    ]


@pytest.mark.parametrize("name", ["o.csv", "o.xml", "o.parquet", "o.arrow", "o.frag", "table"])
def test_other_writers_refuse_unknown_fields_unless_told_to_drop_them(
    tmp_path: Path, name: str
) -> None:
    drifting(tmp_path)
    place = {"table" if name == "table" else "path": str(tmp_path / name)}
    if name in ("table", "o.frag"):
        place["sort_by"] = "n"
    nodes = {**source_of(tmp_path / "a-*.ndjson"), "out": {"output": {"input": "s", **place}}}
    with refuses((ConfigError, UnserializableMapValue), "$widened", "drop_widened"):
        run_files(nodes)
    nodes["out"]["output"]["drop_widened"] = True
    report = run_files(nodes).run()
    assert report.outputs["out"].records_written == 4
    assert (tmp_path / name).exists()


def test_a_field_that_is_a_column_too_is_an_error(tmp_path: Path) -> None:
    nodes = {
        **source_of(drifting(tmp_path)),
        "t": {"transform": {"input": "s", "columns": {"new": "n", "$widened": '"$widened"'}}},
        **output_of(tmp_path / "o.ndjson", "t"),
    }
    with refuses(InputError):
        run_files(nodes).run()
    assert not (tmp_path / "o.ndjson").exists()


def test_columns_chosen_by_name_may_be_such_that_only_some_files_have(tmp_path: Path) -> None:
    nodes = {
        **source_of(drifting(tmp_path), columns=["new", "n"]),
        **output_of(tmp_path / "o.ndjson"),
    }
    run_files(nodes).run()
    assert lines_of(tmp_path / "o.ndjson")[2] == {"new": 'q"', "n": 3}


@pytest.mark.parametrize(
    "fields",
    [
        {"n": "NUMBER"},
        {},
        {"n": "BOOLEAN"},
    ],
)
def test_mistakes_of_fields_are_named(tmp_path: Path, fields: Any) -> None:
    drifting(tmp_path)
    with refuses((ConfigError, InputError)):
        run_files(
            {**source_of(tmp_path / "a-*.ndjson", fields=fields), **output_of(tmp_path / "o.csv")}
        )


def test_declared_types_that_a_typed_file_cannot_be_read_as_are_an_error(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"n": ["1", "x"]}), tmp_path / "a.parquet")
    nodes = {
        **source_of(tmp_path / "a.parquet", fields={"n": "INT"}),
        **output_of(tmp_path / "o.csv"),
    }
    with refuses(DataError):
        run_files(nodes).run()
    assert not (tmp_path / "o.csv").exists()
