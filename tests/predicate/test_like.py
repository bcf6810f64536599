"""Patterns of LIKE, against DuckDB."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.errors import UsageError
from compactor.predicate.like import MAX_CHARACTERS, Wildcard, like, parts_of
from compactor.predicate.parse import parse_where
from compactor.predicate.tree import matching

TEXTS = st.text(alphabet="ab\\\\%_\n.äÄ", max_size=5)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@settings(max_examples=300, deadline=None)
@given(
    st.lists(TEXTS, min_size=1, max_size=20),
    TEXTS,
    st.sampled_from(["\\", "#", "%", "_", "a", "'"]),
    st.sampled_from(["LIKE", "ILIKE"]),
)
def test_texts_are_like_a_pattern_where_duckdb_says_so(
    texts: list[str], pattern: str, escape: str, word: str
) -> None:
    rows = pa.table({"s": [*texts, pattern, None]})
    condition = f"s {word} {quoted(pattern)} ESCAPE {quoted(escape)}"
    try:
        parts_of(pattern, escape)
    except ValueError:  # DuckDB notices only where a text is compared up to the pattern's end
        with pytest.raises(UsageError, match="ends in its escape character"):
            parse_where(condition, rows.schema)
        return
    found = duckdb.from_arrow(rows).project(f"{condition} AS k").fetchall()
    expected = [holds for (holds,) in found]
    arrays = {"s": rows["s"].combine_chunks()}
    holds = matching(parse_where(condition, rows.schema), arrays, len(rows))
    assert holds.to_pylist() == expected


@pytest.mark.parametrize(
    ("pattern", "found"),
    {
        r"%\\": ["\\", "a\\"],
        r"%a\\": ["a\\"],
        r"a\\b%": ["a\\b", "a\\bc"],
        r"%\%%": ["a%b"],
        r"\a%": ["a\\", "a\\b", "a\\bc", "a%b", "a\nb"],
        "a_b": ["a\\b", "a%b", "a\nb"],
        "": [""],
    }.items(),
)
def test_an_escape_character_is_no_letter_of_a_plain_beginning_or_end(
    pattern: str, found: list[str]
) -> None:
    texts = pa.array(["", "\\", "a\\", "a\\b", "a\\bc", "a%b", "a\nb", "b"])
    assert texts.filter(like(texts, pattern, ignores_case=False)).to_pylist() == found


def test_a_pattern_is_texts_and_wildcards() -> None:
    assert parts_of(r"a\%%%_b") == ("a%", Wildcard.TEXT, Wildcard.CHARACTER, "b")
    assert parts_of("") == ()


def test_patterns_of_the_greatest_length_can_be_looked_for() -> None:
    for piece in ("_", "%a", "%_", "ä_"):
        pattern = (piece * MAX_CHARACTERS)[:MAX_CHARACTERS]
        for ignores_case in (False, True):
            assert len(like(pa.array(["x"]), pattern, ignores_case=ignores_case)) == 1


@settings(max_examples=500, deadline=None)
@given(
    st.lists(st.none() | st.text(alphabet="ab\x00ä", max_size=30), max_size=20),
    st.text(alphabet="ab\x00ä", max_size=9),
    st.sampled_from([pa.string(), pa.large_string()]),
    st.integers(0, 20),
)
def test_a_word_is_found_wherever_it_is(
    values: list[str | None], word: str, dtype: pa.DataType, start: int
) -> None:
    texts = pa.array(values, dtype).slice(min(start, len(values)))
    pattern = f"%{word}%"
    found = like(texts, pattern, ignores_case=False).to_pylist()
    assert found == [None if text is None else word in text for text in texts.to_pylist()]
