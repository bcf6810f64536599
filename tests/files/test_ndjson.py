"""NDJSON: types by the whole file, and every mistake named by its line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compactor.errors import InputError
from compactor.files import json_arrays, json_mistakes, ndjson
from compactor.files.json_columns import JsonColumns
from compactor.files.read import open_table_file
from tests.files.reading import put, refusal, schema, table_of
from tests.support.wording import refuses

UTC = pa.timestamp("us", "UTC")


def nested_list(depth: int) -> pa.DataType:
    return pa.list_(nested_list(depth - 1)) if depth else pa.int64()


TINY_BLOCKS = 8
WHOLE = 8 << 20
every_block_size = pytest.mark.parametrize("batch_bytes", [TINY_BLOCKS, 40, WHOLE])


@every_block_size
@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["null", "1", "2.5"], pa.float64()),
        (["1", "null"], pa.int64()),
        (["null", "null"], pa.null()),
        (["true", "null"], pa.bool_()),
        (["1", "18446744073709551615"], pa.uint64()),
        (["18446744073709551615", "1"], pa.uint64()),
        (["1e20", "-1"], pa.float64()),
        (["9007199254740992", "0.5"], pa.float64()),
        (["-9223372036854775808", "0.5"], pa.float64()),
        (["0.1000000000000000055511", "1"], pa.float64()),
        (['" 2024-01-01"', '"2024-01-01"'], pa.string()),
        (["[" * 63 + "1" + "]" * 63], nested_list(63)),
        (['"2024-01-01"', '"2024-02-29"'], pa.date32()),
        (['"2024-01-01"', '"2024-01-01 10:00:00"'], pa.timestamp("us")),
        (['"2024-01-01T00:00:00"', '"2024-01-01T00:00:00.123456"'], pa.timestamp("us")),
        (['"2024-01-01T00:00:00Z"', "null", '"2024-01-01T00:00:00.5+02:00"'], UTC),
        (['"2024-01-01T00:00:00.123456789Z"'], pa.timestamp("ns", "UTC")),
        (['"9999-12-31T00:00:00"', '"2024-01-01T00:00:00.123456789"'], pa.string()),
        (['"2024-01-01T00:00:00Z"', '"2024-01-01T00:00:00"'], pa.string()),
        (['"2024-01-01T00:00:00Z"', '"soon"'], pa.string()),
        (['"2024-13-01"'], pa.string()),
        (["[]", "[1]", "[null, 2.5]"], pa.list_(pa.float64())),
        (["[]", "null"], pa.list_(pa.null())),
        (["[null]", "[null, null]"], pa.list_(pa.null())),
        (["[null, 1]", "null", "[null, null, 2.5]"], pa.list_(pa.float64())),
        (['{"b": [null]}', '{"b": [null, "x"]}'], pa.struct([("b", pa.list_(pa.string()))])),
        (['{"b": 1}', '{"c": "x"}'], pa.struct([("b", pa.int64()), ("c", pa.string())])),
        (['[{"t": "2024-01-01T00:00:00Z"}]'], pa.list_(pa.struct([("t", UTC)]))),
    ],
)
def test_a_type_holds_all_values_of_the_file_wherever_blocks_end(
    tmp_path: Path, lines: list[str], expected: pa.DataType, batch_bytes: int
) -> None:
    path = put(tmp_path, "a.ndjson", "".join(f'{{"a": {value}}}\n' for value in lines))
    table = table_of(path, batch_bytes=batch_bytes)
    assert table.schema == schema(a=expected)
    assert len(table) == len(lines)
    table.validate(full=True)


@st.composite
def rows_of_one_shape(draw: st.DrawFn) -> list[dict[str, object]]:
    """Rows whose fields are each of one type, nested at will, with nulls anywhere."""
    scalars = st.sampled_from([st.integers(-9, 9), st.text(max_size=3), st.booleans()])
    values = st.recursive(
        scalars.map(lambda values: values | st.none()),
        lambda inner: st.one_of(
            inner.map(lambda items: st.lists(items, max_size=3) | st.none()),
            st.dictionaries(st.sampled_from("pq"), inner, min_size=1).map(
                lambda fields: st.fixed_dictionaries(fields) | st.none()
            ),
        ),
        max_leaves=4,
    )
    fields = {"k": st.just(0), "a": draw(values), "b": draw(values)}
    return draw(st.lists(st.fixed_dictionaries(fields), min_size=1, max_size=6))


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=rows_of_one_shape(), batch_bytes=st.sampled_from([TINY_BLOCKS, WHOLE]))
def test_what_the_standard_library_reads_is_what_is_read(
    tmp_path: Path, rows: list[dict[str, object]], batch_bytes: int
) -> None:
    path = put(tmp_path, "a.ndjson", "".join(json.dumps(row) + "\n" for row in rows))
    table = table_of(path, batch_bytes=batch_bytes)
    table.validate(full=True)
    assert table.to_pylist() == rows


def test_integers_are_exact_up_to_64_bits(tmp_path: Path) -> None:
    values = [9223372036854775807, 9223372036854775809, 18446744073709551615]
    path = put(tmp_path, "a.ndjson", "".join(f'{{"a": [{{"b": {v}}}]}}\n' for v in values))
    assert table_of(path)["a"].to_pylist() == [[{"b": value}] for value in values]


def test_offsets_are_applied_and_fractions_kept(tmp_path: Path) -> None:
    path = put(tmp_path, "a.ndjson", '{"t": "2024-01-01T02:00:00.25+02:00"}\n')
    assert table_of(path)["t"].cast(pa.int64()).to_pylist() == [1704067200250000]


@every_block_size
@pytest.mark.parametrize(
    ("lines", "place"),
    [
        (['{"a":1}', '{"a":"x"}'], 2),
        (['{"a":"x"}', '{"a":1}'], 2),
        (['{"a":1}', "", '{"a":{"b":1}}'], 3),
        (['{"a":true}', '{"a":1}'], 2),
        (['{"a":{"b":1}}', '{"a":{"b":[]}}'], 2),
        (['{"a":[1]}', '{"a":["x"]}'], 2),
        (['{"o":{"a":[1,{}]}}'], 1),
        (['{"o":{"a":[]}}', '{"o":{"a":[1,{}]}}'], 2),
        (['{"b":1}', '{"a":[{"b":1},{"b":"x"}]}'], 2),
        (['{"a":18446744073709551615}', '{"a":-1}'], 2),
        (['{"a":-1}', '{"a":18446744073709551615}'], 2),
        (['{"a":0.5}', '{"a":9223372036854775808}'], 2),
        (['{"a":18446744073709551615}', '{"a":0.5}'], 2),
        (['{"a":1}', '{"a":18446744073709551616}'], 2),
        (['{"a":9007199254740993}', '{"a":0.5}'], 2),
        (['{"a":0.5}', '{"a":9007199254740993}'], 2),
        (['{"a":[{"b":0.5}]}', '{"a":[{"b":-9007199254740993}]}'], 2),
        (['{"a":0.5}', '{"a":1e-400}'], 2),
        (['{"a":0.5}', '{"a":33.3333333333333333}'], 2),
        (['{"a":0.5}', '{"a":-0.' + "0" * 400 + "1}"], 2),
        (['{"a":0.5}', '{"a":1234567890123456789e-5}'], 2),
        (['{"b":1}', '{"a":' + "[" * 64 + "]" * 64 + "}"], 2),
        (['{"a":[{"b":1}]}', '{"a":[{"b":-18446744073709551616}]}'], 2),
        (['{"a":1}', '{"a":1,"a":2}'], 2),
        (['{"a":1}', "nonsense", '{"a":1}'], 2),
        (['{"a":1}', '{"a":1} {"a":2}'], 2),
        (["{", '"a":1', "}"], 1),
        (["[1, 2]"], 1),
        (['{"a":1}', "3"], 2),
        (["", " null", '{"a":1}'], 2),
        (['{"a":1}', "null"], 2),
        (['{"a":1}', '{"a":"\\ud800"}'], 2),
        (['{"a":1}', '{"a":"\\udc00"}'], 2),
        (['{"a":1}', '{"a":\x001}'], 2),
        (['{"b":1}', '{"a":' + "[" * 101 + "]" * 101 + "}"], 2),
        (['{"b":1}', '{"a":' + "[" * 200_000 + "]" * 200_000 + "}"], 2),
    ],
)
def test_a_mistake_is_named_by_its_line_wherever_blocks_end(
    tmp_path: Path, lines: list[str], place: int, batch_bytes: int
) -> None:
    if len(lines[-1]) > 100_000:
        batch_bytes = WHOLE
    path = put(tmp_path, "a.ndjson", "\n".join(lines) + "\n")
    assert refusal(path, batch_bytes=batch_bytes).startswith(f"a.ndjson, line {place}: ")


def test_a_line_far_into_the_file_is_counted_with_blank_lines(tmp_path: Path) -> None:
    path = put(tmp_path, "a.ndjson", '\n{"a":1}\r\n' * 60_000 + '{"a":[]}\n')
    refusal(path, batch_bytes=1 << 16)


def test_invalid_utf8_is_named_by_its_line(tmp_path: Path) -> None:
    path = put(tmp_path, "a.ndjson", b'{"a":"x"}\n{"a":"\xff\xfe"}\n')
    refusal(path)


@every_block_size
def test_a_last_line_cut_off_is_refused(tmp_path: Path, batch_bytes: int) -> None:
    path = put(tmp_path, "a.ndjson", '{"a":1}\n{"a":2')
    refusal(path, batch_bytes=batch_bytes)


@every_block_size
def test_byte_order_mark_crlf_blank_lines_and_a_missing_last_newline_are_read_over(
    tmp_path: Path, batch_bytes: int
) -> None:
    content = b'\xef\xbb\xbf{"a":"\xc3\xa9"}\r\n\r\n   \n{"a":"\xf0\x9f\x98\x80"}'
    path = put(tmp_path, "a.jsonl", content)
    assert table_of(path, batch_bytes=batch_bytes)["a"].to_pylist() == ["é", "😀"]


@pytest.mark.parametrize("content", ["", "\n\n", "\ufeff"])
def test_an_empty_file_is_refused_unless_the_table_is_known(tmp_path: Path, content: str) -> None:
    path = put(tmp_path, "a.ndjson", content)
    assert "has no rows, so its columns are unknown" in refusal(path)
    known = schema(a=pa.int64())
    assert table_of(path, known).equals(known.empty_table())


def test_rows_without_any_field_are_refused(tmp_path: Path) -> None:
    assert "none of its rows has a value" in refusal(put(tmp_path, "a.ndjson", "{}\n{}\n"))


def test_a_line_longer_than_a_block_is_read_and_beyond_the_bound_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ndjson, "MAX_LINE_BYTES", 1 << 20)
    path = put(tmp_path, "a.ndjson", '{"a":1}\n{"a":2,"b":"%s"}\n' % ("x" * 900_000))
    assert table_of(path, batch_bytes=10_000)["a"].to_pylist() == [1, 2]
    path = put(tmp_path, "a.ndjson", '{"a":1}\n{"a":2,"b":"%s"}\n' % ("x" * 1_100_000))
    assert refusal(path, batch_bytes=10_000).startswith("a.ndjson, line 2: is longer than 1 MiB")


def test_brackets_within_strings_are_not_nesting(tmp_path: Path) -> None:
    text, lists = '[{\\"' * 3000, "[1]," * 3000 + "[]"
    path = put(tmp_path, "a.ndjson", f'{{"a":"{text}","b":[{lists}]}}\n')
    assert len(table_of(path)["b"][0]) == 3001


def test_columns_keep_the_order_of_their_first_appearance(tmp_path: Path) -> None:
    path = put(tmp_path, "a.ndjson", '{"z":"t","b":1}\n{"a":1}\n')
    assert table_of(path, batch_bytes=TINY_BLOCKS).schema.names == ["z", "b", "a"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xy"), inner),
    max_leaves=4,
)


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    rows=st.lists(st.dictionaries(st.sampled_from("ab"), json_values), max_size=6), data=st.data()
)
def test_what_is_read_or_refused_does_not_depend_on_where_blocks_end(
    tmp_path: Path, rows: list[dict[str, object]], data: st.DataObject
) -> None:
    path = put(tmp_path, "a.ndjson", "".join(json.dumps(row) + "\n" for row in rows))
    size = data.draw(st.integers(1, 60))
    assert _outcome(path, size) == _outcome(path, WHOLE)


def _outcome(path: str, batch_bytes: int) -> object:
    try:
        table = table_of(path, batch_bytes=batch_bytes)
    except InputError as error:
        # Of two mistakes in one line, either may be named.
        return str(error).split(": ")[0]
    return table.schema, table.to_pylist()


def test_keys_that_vary_take_no_memory_by_the_square_of_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_arrays, "MAX_CELLS", 20_000)
    rows = [{f"k{n}": n, "same": "x"} for n in range(400)]
    path = tmp_path / "a.ndjson"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    parsed: list[tuple[int, int]] = []
    original = JsonColumns.parsed

    def counted(columns: JsonColumns) -> Any:
        found = original(columns)
        parsed.append((columns.arrays.rows.rows, len(found[0])))
        return found

    monkeypatch.setattr(JsonColumns, "parsed", counted)
    with open_table_file(str(path)) as file:
        read = [row for batch in file for row in batch.to_pylist()]
    found = [{k: v for k, v in row.items() if v is not None} for row in read]
    assert found == rows
    assert max(rows * columns for rows, columns in parsed) <= 20_000


@pytest.mark.parametrize("leaves_out", [False, True])
@pytest.mark.parametrize(
    ("wrap", "key"),
    [
        (lambda row: row, "k50"),
        (lambda row: {"in": row}, "in.k49"),
        (lambda row: {"in": [row, row]}, "in[].k48"),
    ],
)
def test_a_key_too_many_is_named_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrap: Any, key: str, leaves_out: bool
) -> None:
    for module in (json_arrays, json_mistakes):
        monkeypatch.setattr(module, "MAX_COLUMNS", 50)
    path = tmp_path / "a.ndjson"
    path.write_text("".join(json.dumps(wrap({f"k{n}": n})) + "\n" for n in range(80)))
    line = int(key.rpartition("k")[2]) + 1
    with refuses(InputError, line, key):
        open_table_file(str(path), leaves_out_bad_rows=leaves_out)


def test_one_line_of_too_many_keys_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.ndjson"
    path.write_text(json.dumps({f"k{n}": n for n in range(70_000)}))
    with refuses(InputError):
        open_table_file(str(path))


def test_objects_of_a_list_that_have_other_keys_each_are_refused_before_columns_are_made(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.ndjson"
    wide = json.dumps({"a": [{f"k{n}": 1} for n in range(9_000)]})
    path.write_text('{"b":1}\n' * 5 + wide + "\n" + wide)
    with refuses(InputError):
        table_of(str(path))


def test_empty_objects_of_a_list_of_many_fields_are_refused_in_the_second_pass_too(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.ndjson"
    wide = json.dumps({"a": [{f"k{n}": 1 for n in range(1_000)}]})
    for lines in ([wide, '{"a":[' + ",".join(["{}"] * 20_000) + "]}"], ["{}"]):
        path.write_text("\n".join([*lines, wide]))
        if len(lines) == 1:
            assert table_of(str(path)).num_rows == 2
            continue
        with refuses(InputError):
            table_of(str(path))


def test_lists_of_many_objects_of_the_same_fields_are_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.ndjson"
    line = json.dumps(
        {"text": "{" * 1_000, "a": [{"x": n, "y": "b", "z": 1} for n in range(3_000)]}
    )
    path.write_text("\n".join([line] * 30))
    table = table_of(str(path))
    assert (table.num_rows, len(table["a"].combine_chunks().flatten())) == (30, 90_000)


def test_json_within_a_text_that_is_cut_off_is_refused_after_one_look_at_it(tmp_path: Path) -> None:
    path = put(tmp_path, "a.ndjson", '{"k":1,"a":"' + '{\\"' * 1_500_000)
    assert "line 1: " in refusal(path)


# --- fields with values of several kinds ---

MIXED = '{"q": [1, 2]}'


@every_block_size
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", '"a\\u00e4"'], ["1", "a\u00e4"]),
        (['"2024-01-01"', "2", "null"], ["2024-01-01", "2", None]),
        (["true", "1.50", MIXED], ["true", "1.50", MIXED]),
        (["[1,2]", '[1, "b", null, false]'], [["1", "2"], ["1", "b", None, "false"]]),
        (['{"x":1}', '{"x":"t"}', '{"y":2}'], [{"x": "1"}, {"x": "t"}, {"x": None}]),
        (['[[1], ["a"]]', "[[[2]]]"], [[["1"], ["a"]], [["[2]"]]]),
        (["1", "123456789012345678901234"], ["1", "123456789012345678901234"]),
        (["0.5", "9007199254740993"], ["0.5", "9007199254740993"]),
        (["null", "[]", '[{"a": 1}, 2]'], [None, [], ['{"a": 1}', "2"]]),
    ],
)
def test_a_field_of_several_kinds_is_text_if_that_is_asked_for(
    tmp_path: Path, batch_bytes: int, values: list[str], expected: list[Any]
) -> None:
    lines = [f'{{"first":{n},"v":{value},"last":1}}' for n, value in enumerate(values)]
    path = put(tmp_path, "a.ndjson", "\n".join(lines))
    table = table_of(path, mixes_kinds=True, batch_bytes=batch_bytes)
    assert table.column_names == ["first", "v", "last"]
    found = table["v"].to_pylist()
    assert [
        _with_all_of(value, wanted) for value, wanted in zip(found, expected, strict=True)
    ] == expected


def _with_all_of(value: Any, wanted: Any) -> Any:
    """Leaves out the fields that other rows have."""
    return {name: value[name] for name in wanted} if isinstance(wanted, dict) else value


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


@settings(
    deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    values=st.lists(JSON, min_size=1, max_size=6), batch_bytes=st.sampled_from([TINY_BLOCKS, WHOLE])
)
def test_whatever_is_in_a_field_its_text_can_be_asked_for(
    tmp_path: Path, values: list[Any], batch_bytes: int
) -> None:
    path = put(
        tmp_path, "a.ndjson", "".join(f'{{"k":1,"v":{json.dumps(v)}}}\n' for v in [*values, "x", 1])
    )
    texts = table_of(path, mixes_kinds=True, batch_bytes=batch_bytes)["v"]
    assert texts.type == pa.string()
    assert texts.to_pylist() == [
        v if v is None or isinstance(v, str) else json.dumps(v) for v in [*values, "x", 1]
    ]


def test_a_text_column_of_the_table_takes_values_of_other_kinds_if_that_is_asked_for(
    tmp_path: Path,
) -> None:
    path = put(tmp_path, "a.ndjson", '{"v":1.50}\n{"v":"\\n"}\n{"v":{"a" : 1}}\n{"v":null}\n')
    known = schema(v=pa.string(), n=pa.int64())
    assert refusal(path, known) == (
        "a.ndjson, line 1: column 'v': 1.50 can't be read as string (it is a number): correct the value or "
        "leave it out"
    )
    table = table_of(path, known, text_holds_all=True)
    assert table["v"].to_pylist() == ["1.50", "\n", '{"a" : 1}', None]


def test_too_many_fields_of_several_kinds_are_refused(tmp_path: Path) -> None:
    fields = range(ndjson._MAX_MIXED + 1)
    lines = [json.dumps({f"f{n}": value for n in fields}) for value in (1, "a")]
    path = put(tmp_path, "a.ndjson", "\n".join(lines))
    assert f"field 'f{ndjson._MAX_MIXED}' is a string here" in refusal(path, mixes_kinds=True)


@pytest.mark.parametrize("bad", ['{"v":nul}', '{"v":[1}', '{"v":01}', '{"v":"\\x"}', '{"v":1 2}'])
def test_a_value_that_is_no_json_is_refused_in_a_field_of_several_kinds(
    tmp_path: Path, bad: str
) -> None:
    path = put(tmp_path, "a.ndjson", '{"v":1}\n{"v":"a"}\n' + bad + "\n")
    assert refusal(path, mixes_kinds=True).startswith("a.ndjson, line 3: is not one JSON object")
