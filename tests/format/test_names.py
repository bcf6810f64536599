"""Names in lists are read as they were written, whatever characters they have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_fragment.errors import SchemaError
from lsm_fragment.keys.sort_schema import Nulls, Order, SortColumn, parse_sort_schema, sort_text
from lsm_fragment.names import names_text, parse_name, parse_names, quoted
from tests.support.wording import refuses

_TRICKY = st.text(st.sampled_from(",:\" \tab'\\äé\n"), max_size=6)
_NAMES = st.lists(st.one_of(_TRICKY, st.text(max_size=8)), min_size=1, max_size=5)


@given(_NAMES)
def test_a_list_of_names_is_read_as_it_was_written(names: list[str]) -> None:
    assert list(parse_names(names_text(names))) == names
    assert list(parse_names(",".join(map(quoted, names)))) == names
    assert [parse_name(quoted(name)) for name in names] == names


@given(_NAMES, st.data())
def test_a_sort_schema_is_read_as_it_was_written(names: list[str], data: st.DataObject) -> None:
    orders = st.sampled_from([Order.ASC, Order.DESC])
    nulls = st.sampled_from(Nulls)
    sort = tuple(SortColumn(name, data.draw(orders), data.draw(nulls)) for name in names)
    assert parse_sort_schema(sort_text(sort) or "") == sort


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a,b", ("a", "b")),
        (' a , "a,b" ,c', ("a", "a,b", "c")),
        ('"say ""hi"""', ('say "hi"',)),
        ('"a:b",c:d', ("a:b", "c:d")),
        ('a"b,c', ('a"b', "c")),
        ('" a "', (" a ",)),
        ('"",a', ("", "a")),
        ('"plain"', ("plain",)),
    ],
)
def test_quotes_are_those_of_sql(text: str, names: tuple[str, ...]) -> None:
    assert parse_names(text) == names


def test_names_are_quoted_only_where_they_need_it() -> None:
    names = ["a", "with space", "a.b", "a,b", "c:d", 'e"f', " g", ""]
    assert names_text(names) == 'a, with space, a.b, "a,b", "c:d", "e""f", " g", ""'


@pytest.mark.parametrize("text", ["", "a,", ",a", '"a', '"a,b', '"a"b', '"a""', '"'])
def test_what_is_no_list_of_names_is_refused(text: str) -> None:
    with refuses(ValueError):
        parse_names(text)


@pytest.mark.parametrize("text", ["a,b:c", '"a:b":up', '"a', '"a"b:desc', "a,,b"])
def test_a_sort_schema_that_is_misread_says_how_to_quote(text: str) -> None:
    with refuses(SchemaError):
        parse_sort_schema(text)
