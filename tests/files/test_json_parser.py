"""The native parser of JSON takes the lines that Python's standard library takes, with the same values."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from compactor.errors import InputError
from compactor.files.json_arrays import JsonArrays
from compactor.files.read import open_table_file

_NUMBERS = [
    "0",
    "-0",
    "1.5",
    "1e5",
    "-1",
    "01",
    "1.",
    ".5",
    "9223372036854775808",
    "--1",
    "1e",
    "+1",
]
_TEXTS = [
    '"a"',
    '""',
    '"\\ud800"',
    '"\\u0000"',
    '"\t"',
    '"\\x"',
    '"1',
    '"\\ud83d\\ude00\\n\\u00e9"',
    '"\\u12"',
]
_scalars = st.sampled_from([*_NUMBERS, *_TEXTS, "true", "false", "null", "nul", "True", "nan"])
_names = st.sampled_from(['"a"', '"b"', '"\\u0061"', '"\\""', "a"])


def _object(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.lists(st.tuples(_names, values).map(" : ".join), max_size=3)
    return pairs.map(lambda pairs: f"{{{', '.join(pairs)}}}")


_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3).map(lambda v: f"[{','.join(v)}]") | _object(inner),
    max_leaves=4,
)
_other_lines = st.sampled_from(
    [
        "\x0b",
        "\x0c",
        "\x1c",
        "\xa0",
        "\ufeff{}",
        "{}{}",
        "[]",
        "1",
        "{a:1}",
        '{"a":1}\r',
        '{"a":1,}',
        "{,}",
    ]
)


def _outcome(path: Path, **options: Any) -> tuple[list[dict[str, Any]], list[int]] | None:
    try:
        with open_table_file(str(path), **options) as file:
            rows = [row for batch in file for row in batch.to_pylist()]
            return rows, [row.ordinal for row in file.bad_rows]
    except InputError:
        return None


def _of_python(line: str) -> dict[str, Any] | None:
    """Returns the object of a line, or None if it has none, or one of a name twice or half of a pair."""

    def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError
        return dict(pairs)

    try:
        value = json.loads(line, object_pairs_hook=object_of)
        json.dumps(value, ensure_ascii=False).encode()
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


@given(_object(_values) | _object(_scalars) | _other_lines)
@example('{"a":{"b":1,"b":2}}')
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_line_is_taken_if_the_standard_library_takes_it(tmp_path: Path, line: str) -> None:
    path = tmp_path / "a.ndjson"
    path.write_bytes(f'{{"k":0}}\n{line}\n{{"k":0}}\n'.encode())
    expected, found = _of_python(line), _outcome(path, leaves_out_bad_rows=True)
    assert found is not None
    rows, bad = found
    if expected is None or len(rows) == 2:
        # One line may have values of kinds that no type holds together.
        assert (len(rows), bad) == (2, [1])
        assert expected is None or _is_mixed(expected)
    else:
        assert _without_nulls(rows[1]) == _without_nulls(expected)


_LONG_PIECES = [
    "x" * 63,
    "y" * 15,
    "abcdefg",
    "z",
    "\u00e9",
    '\\"',
    "\\\\",
    "\\n",
    '\\"' * 40,
    "\\u00e9",
]
_RARE_PIECES = ["\\ud83d\\ude00", "\\ud800", "\\x", "\\u12", "\x1f", '"', "\\"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from(_LONG_PIECES), max_size=30),
    st.lists(st.sampled_from(_LONG_PIECES), max_size=4),
    st.sampled_from(["", "", *_RARE_PIECES]),
)
def test_escapes_of_long_texts_are_found_at_every_distance(
    tmp_path: Path, start: list[str], end: list[str], rare: str
) -> None:
    line = '{"a":"' + "".join([*start, rare, *end]) + '"}'
    path = tmp_path / "a.ndjson"
    path.write_text('{"a":"first"}\n' + line + "\n")
    expected = _of_python(line)
    if expected is None:
        assert _outcome(path) is None
    else:
        assert _outcome(path) == ([{"a": "first"}, expected], [])


@given(_object(_values) | _object(_scalars) | _other_lines)
@example('{"a":{"b":1,"b":2}}')
@example('{"a":[1,"x",{"y":01}]}')
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_of_unused_fields_the_syntax_is_checked_and_nothing_else(tmp_path: Path, line: str) -> None:
    path = tmp_path / "a.ndjson"
    path.write_bytes(f'{{"k":0,"a":true}}\n{line}\n{{"a":[{{}}],"k":1}}\n'.encode())
    found = _outcome(path, leaves_out_bad_rows=True, columns={"k"})
    if _is_sound(line):
        assert found == ([{"k": 0}, {"k": None}, {"k": 1}], [])
    else:
        assert found == ([{"k": 0}, {"k": 1}], [1])


def _is_sound(line: str) -> bool:
    """Returns whether a line is an object that gives each of its own fields once."""
    try:
        value = json.loads(line, object_pairs_hook=tuple)
        json.dumps(value, ensure_ascii=False).encode()
    except ValueError:
        return False
    return isinstance(value, tuple) and len({name for name, _ in value}) == len(value)


@pytest.mark.parametrize("in_one_pass", [False, True])
def test_unused_fields_may_be_of_different_types(tmp_path: Path, in_one_pass: bool) -> None:
    path = tmp_path / "a.ndjson"
    values = ["1", '"x"', "[1]", '{"b":[{}]}', "18446744073709551616", "1e400", "null", "-0.5e-7"]
    path.write_text("".join(f'{{"b":{v},"k":{n},"c":{v}}}\n' for n, v in enumerate(values)))
    known = pa.schema([("k", pa.int16()), ("b", pa.bool_())]) if in_one_pass else None
    options = {"known_schema": known, "columns": {"k"}, "in_one_pass": in_one_pass}
    assert _outcome(path, **options) == ([{"k": n} for n in range(len(values))], [])
    options["columns"] = {"z"}
    assert _outcome(path, **options) == ([{"b": None}] * len(values), [])


def test_what_is_within_unused_fields_is_no_column(tmp_path: Path) -> None:
    path = tmp_path / "a.ndjson"
    inner = [f'{{"k":{n},"b":{{"x{n}":{{"y":1}}}}}}' for n in range(12_000)]
    path.write_text("\n".join(inner))
    found = _outcome(path, columns={"k"})
    assert found is not None and len(found[0]) == 12_000
    assert _outcome(path) is None


@pytest.mark.parametrize(("levels", "is_read"), [(63, True), (64, False)])
@pytest.mark.parametrize("pair", ["[]", '{"x":}'])
def test_unused_fields_are_nested_as_deep_as_others(
    tmp_path: Path, levels: int, is_read: bool, pair: str
) -> None:
    path = tmp_path / "a.ndjson"
    value = pair[:-1] * levels + ("0" if pair != "[]" else "") + pair[-1] * levels
    path.write_text(f'{{"k":1,"b":{value}}}\n')
    assert (_outcome(path, columns={"k"}) is not None) == is_read
    assert (_outcome(path) is not None) == is_read


def _is_mixed(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_is_mixed, value.values()))
    return isinstance(value, list) and (len(value) > 1 or any(map(_is_mixed, value)))


def _without_nulls(value: Any) -> Any:
    """Without the fields that other objects of a list have."""
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


def test_a_byte_order_mark_between_lines_makes_one_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "a.ndjson"
    path.write_bytes('\ufeff{"a":1}\n\ufeff{"a":2}\n{"a":3}\n'.encode())
    assert _outcome(path, leaves_out_bad_rows=True) == ([{"a": 1}, {"a": 3}], [1])


@pytest.mark.parametrize("constant", ["NaN", "-NaN", "Inf", "-Inf", "Infinity", "-Infinity"])
def test_numbers_that_are_not_finite_are_read_as_many_writers_write_them(
    tmp_path: Path, constant: str
) -> None:
    path = tmp_path / "a.ndjson"
    path.write_text(f'{{"a":[{constant},1]}}\n')
    found = _outcome(path)
    assert found is not None
    assert repr(found[0][0]["a"][0]).lstrip("-") == repr(abs(float(constant)))


def test_every_double_is_the_one_nearest_to_its_digits() -> None:
    r = random.Random(7)
    texts = [repr(struct.unpack("d", struct.pack("Q", r.getrandbits(64)))[0]) for _ in range(3000)]
    texts += [repr(r.random() * 10 ** r.randint(-9, 9)) for _ in range(20_000)]
    texts += [f"{r.randrange(10**17)}e{r.randint(-45, 40)}" for _ in range(20_000)]
    texts += [f"{r.randrange(1 << 53, 1 << 56) | 1}e-{r.randint(1, 27)}" for _ in range(20_000)]
    texts = [text for text in texts if "n" not in text]
    arrays = JsonArrays()
    lines = "".join(f'{{"v":{text}}}\n' for text in texts).encode()
    assert arrays.rows.parse(lines, 0) == len(lines)
    [(node, _)] = arrays.rows.children(0)
    found = arrays.array(node).to_pylist()
    assert not arrays.misfits
    assert found == [float(text) for text in texts]


def test_what_a_bad_line_would_have_told_of_types_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "a.ndjson"
    bad = ['{"a":"x","new":1,"l":[{"p":1}]} x', '{"b":{"c":[0.5,true]}}', '{"a":1.5,"a":1}']
    lines = [*bad, '{"a":1,"l":[]}', bad[0], '{"a":2,"b":{"c":["t"]},"l":[{"q":1},null]}', *bad]
    path.write_text("\n".join(lines))
    for batch_bytes in (8, 1 << 20):
        rows, places = _outcome(path, leaves_out_bad_rows=True, batch_bytes=batch_bytes) or ([], [])
        assert rows == [
            {"a": 1, "l": [], "b": None},
            {"a": 2, "l": [{"q": 1}, None], "b": {"c": ["t"]}},
        ]
        assert places == [0, 1, 2, 4, 6, 7, 8]


_FIRST_KEYS = ['a":1,"b', 'a":"1","b', 'a"b', "a\nb", "a\tb", "a\\b", "a\x00b"]


@pytest.mark.parametrize("key", _FIRST_KEYS)
@pytest.mark.parametrize("is_nested", [False, True])
def test_a_key_with_escapes_is_not_found_in_text_that_looks_like_it(
    tmp_path: Path, key: str, is_nested: bool
) -> None:
    """The next line has the bytes of the name as it is without escapes."""

    def line(fields: str) -> str:
        return f'{{"o":{{{fields}}}}}' if is_nested else f"{{{fields}}}"

    following = line(f'"{key}":2,"id":2')
    path = tmp_path / "a.ndjson"
    path.write_bytes(f"{line(f'{json.dumps(key)}:5')}\n{following}\n".encode())
    found = _outcome(path, leaves_out_bad_rows=True)
    assert found is not None
    rows, bad = found
    expected = _of_python(following)
    assert bool(bad) == (expected is None)
    if expected is not None:
        assert _without_nulls(rows[1]) == expected
