"""Inputs of equal schemas share what is known of them; types that the table cannot read are refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from compactor.merge.errors import InputMismatchError
from compactor.merge.inputs.schemas import InputSchemas
from lsm_fragment.container.header import FragmentHeader
from lsm_fragment.keys.sort_schema import SortColumn

TABLE = pa.schema([("k", pa.int64()), ("v", pa.string_view()), ("w", pa.string())])


def header(
    *columns: tuple[str, pa.DataType], metadata: dict[str, str] | None = None
) -> FragmentHeader:
    return FragmentHeader(
        schema=pa.schema(columns, metadata=metadata), sort=(SortColumn("k"),), max_rows=10
    )


def test_equal_schemas_are_one() -> None:
    schemas = InputSchemas(TABLE)
    first = schemas.of(header(("k", pa.int64()), ("v", pa.string())), "a")
    assert schemas.of(header(("k", pa.int64()), ("v", pa.string())), "b") is first
    other = schemas.of(header(("k", pa.int64()), ("w", pa.string())), "c")
    marked = schemas.of(header(("k", pa.int64()), ("v", pa.string()), metadata={"a": "b"}), "d")
    assert len({id(schema) for schema in (first, other, marked)}) == 3
    assert schemas.column_names() == {"k", "v", "w"}


@pytest.mark.parametrize(
    ("columns", "is_as_wide", "is_converted"),
    [
        ([("k", pa.int64())], True, False),
        ([("k", pa.int64()), ("v", pa.string())], True, False),  # a view is stored as a string
        ([("k", pa.int32())], False, False),  # widened: the row hash stays
        ([("k", pa.int64()), ("w", pa.int8())], False, True),
        ([("k", pa.int64()), ("gone", pa.int8())], False, True),
        ([("k", pa.int64()), ("v", pa.null())], False, False),
    ],
)
def test_what_becomes_of_columns(
    columns: list[tuple[str, pa.DataType]], is_as_wide: bool, is_converted: bool
) -> None:
    found = InputSchemas(TABLE).of(header(*columns), "a")
    assert (found.is_as_wide, found.is_converted) == (is_as_wide, is_converted)


def test_a_type_that_the_table_cannot_read_is_refused_for_each_input() -> None:
    schemas = InputSchemas(TABLE)
    for name in ("a", "b"):
        with pytest.raises(InputMismatchError) as caught:
            schemas.of(header(("k", pa.string())), name)
        assert caught.value.name == name
