"""The entities of a dataset as columns, sorted by id."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from compactor.entities.expressions import ID, IDS
from compactor.entities.properties import (
    Column,
    Properties,
    Sparse,
    end_to_end,
    sparse_if_rare,
    stored,
    taken,
)
from compactor.entities.texts import (
    I64,
    TEXT,
    elements,
    is_list,
    is_null,
    is_string,
    list_texts,
    quoted,
    unquoted,
)
from compactor.errors import InputError
from lsm_fragment import compute as pc
from lsm_fragment.arrays.hashing import add_column, mix
from lsm_fragment.arrays.json_texts import joined, text_scalar

DELETED: Final = "_deleted"
REPLACED: Final = "$replaced"
REPLACED_AT: Final = "$replaced_at"
"""When a run wrote that an id names no entity any more; null in all other rows."""
UPDATED: Final = "_updated"
SIGNATURE: Final = "$signature"
KEY: Final = "$key"
MEMBERS: Final = "$members"
SINCE: Final = "$since"
WRITTEN: Final = (ID, KEY, IDS, DELETED, REPLACED, REPLACED_AT, UPDATED, SIGNATURE)
"""Columns of every table of an entity merge, beside properties."""
RESERVED: Final = (*WRITTEN, MEMBERS, SINCE)
"""Columns that an entity merge writes itself, never properties."""
FLAGS: Final = (DELETED, REPLACED)
_TRUE: Final = pa.array(["true"], TEXT)
_FLAGS: Final = pa.array(["true", "false", "null"], TEXT)
_FLAGS_AS_TEXTS: Final = pa.array(['"true"', '"false"'], TEXT)
"""Flags in lower-case, as files without booleans have them."""

U64 = npt.NDArray[np.uint64]
Columns = Mapping[str, pa.Array]
"""Properties by name, as canonical JSON texts; null if missing."""


class Entities(Struct, frozen=True, dict=True):
    """The entities of one dataset, sorted by unique id."""

    ids: pa.Array
    """Large strings, no nulls."""
    deleted: npt.NDArray[np.bool_]
    carried: pa.Array | None
    """Texts of `$ids`, null if missing; None if all are missing."""
    properties: Columns

    @property
    def rows(self) -> int:
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        """Approximate size of the columns."""
        return int(
            self.ids.nbytes
            + (0 if self.carried is None else self.carried.nbytes)
            + sum(column.nbytes for column in stored(self.properties).values())
        )

    def take(self, rows: I64) -> Entities:
        """Takes rows in this order, none twice."""
        indices = pa.array(rows)
        return Entities(
            self.ids.take(indices),
            self.deleted[rows],
            None if self.carried is None else self.carried.take(indices),
            taken(self.properties, rows, self.rows),
        )

    @cached_property
    def original_ids(self) -> tuple[I64, pa.Array]:
        """The number of original ids per entity, and all of them, as large strings.

        They are those of `$ids`, or else the entity's own id.
        """
        if self.carried is None:
            return np.ones(self.rows, np.int64), self.ids
        own = quoted(self.ids)
        is_given = self.carried.is_valid()
        counts, texts = elements(pc.if_else(is_given, self.carried, own))
        return counts, unquoted(texts)

    def as_texts(self, name: str) -> pa.Array | None:
        """Returns a property, `_id` or `$ids` as rules see it; None if no entity has it."""
        if name == ID:
            return quoted(self.ids)
        if name == IDS:
            counts, ids = self.original_ids
            return list_texts(counts, quoted(ids))
        return self.properties.get(name)

    def hashes(self) -> U64:
        """Hashes each entity's values, independent of its position. Shape (rows,)."""
        total = self.deleted.astype(np.uint64) << np.uint64(1)
        columns: dict[str, Column] = {ID: self.ids, **stored(self.properties)}
        if self.carried is not None:
            columns[IDS] = self.carried
        for name, column in columns.items():
            if isinstance(column, Sparse):
                some = np.zeros(len(column.rows), np.uint64)
                add_column(name, column.texts, some)
                total[column.rows] += some
            else:
                add_column(name, column, total)
        return mix(total)


def names_of(datasets: I64, ids: pa.Array) -> pa.Array:
    """Returns names that entities of different datasets do not share: the number of each one's dataset and
    its id."""
    return pc.binary_join_element_wise(pa.array(datasets).cast(TEXT), ids, text_scalar("|"))


def row_number(row: int) -> str:
    """Returns the place of a row, from 0, in a source without a header."""
    return f"row {row + 1:,}"


class RowSource(NamedTuple):
    """Where rows come from, for errors."""

    name: str
    """The dataset's name."""
    place_of: Callable[[int], str] = row_number
    """Returns the place of a row."""
    id_columns: Sequence[str] = ()
    """Columns with the id; empty for `_id`."""


def entities_of(
    batches: Sequence[dict[str, Any]], rows: Sequence[int], source: RowSource
) -> Entities:
    """Builds entities from batches of columns, including `_id`; properties may be sparse.

    rows: row count of each batch.

    Empties the batches, so that each column is there twice only while its rows are put in order.
    The last row of an id wins; if it is marked as replaced, the id has no entity.
    Raises `InputError` for an invalid `_id`, `$ids` or flag.
    """
    return ordered_entities(batches, rows, source)[0]


def ordered_entities(
    batches: Sequence[dict[str, Any]], rows: Sequence[int], source: RowSource
) -> tuple[Entities, I64]:
    """Does what `entities_of` does. Returns also the row of each entity."""
    names = dict.fromkeys(column for batch in batches for column in batch)
    columns: dict[str, pa.Array] = {n: _taken_out(n, batches, rows) for n in RESERVED if n in names}
    total = sum(rows)
    if (mistake := first_mistake(columns, total, source.id_columns)) is not None:
        raise no_entity(source.name, source.place_of(mistake[0]), mistake[1])
    ids = unquoted(columns.pop(ID, pa.nulls(0, TEXT)))
    is_deleted = _is_true(columns.pop(DELETED, pa.nulls(total, TEXT)))
    carried = _carried(columns.pop(IDS, None), ids, source.name)
    last = _last_of_each(ids)
    if REPLACED in columns:
        last = last[~_is_true(columns[REPLACED])[last]]
    properties: dict[str, Column] = {}
    for one in names:
        if one not in RESERVED:
            column = {one: sparse_if_rare(_column(one, batches, rows))}
            properties |= taken(Properties(column), last, total).stored
    found = Entities(ids, is_deleted, carried, {}).take(last)
    return replace(found, properties=Properties(properties)), last


def _taken_out(name: str, batches: Sequence[dict[str, Any]], rows: Sequence[int]) -> pa.Array:
    return Properties({name: _column(name, batches, rows)})[name]


def _column(name: str, batches: Sequence[dict[str, Any]], rows: Sequence[int]) -> Column:
    """Returns a column of all batches, and takes it out of them."""
    return end_to_end([batch.pop(name, None) for batch in batches], rows)


def _last_of_each(ids: pa.Array) -> I64:
    """Returns row positions in id order, keeping the last row of each id."""
    order: I64 = pc.sort_indices(ids).to_numpy().astype(np.int64)
    if len(order) < 2:
        return order
    in_order = ids.take(pa.array(order))
    differs = np.asarray(pc.not_equal(in_order.slice(1), in_order.slice(0, len(order) - 1)))
    last: I64 = order[np.append(differs, True)]
    return last


def first_mistake(
    columns: Columns, rows: int, id_columns: Sequence[str] = ()
) -> tuple[int, str] | None:
    """Returns the first invalid row and the reason: a bad `_id`, or a flag that is neither true nor false."""
    texts = columns.get(ID, pa.nulls(rows, TEXT))
    is_empty = np.asarray(pc.fill_null(pc.equal(texts, '""'), False))
    bad = np.flatnonzero(~is_string(texts) | is_empty)
    found = []
    if len(bad):
        names = " or ".join(f"`{name}`" for name in id_columns or (ID,))
        why = "every entity needs an id, a text that is not empty or an integer"
        found.append((int(bad[0]), f"{names} is {_said(texts[bad[0]])}: {why}"))
    for name in FLAGS:
        if name in columns:
            texts = columns[name]
            bad = np.flatnonzero(~_is_one_of(texts, _FLAGS) & np.asarray(texts.is_valid()))
            if len(bad):
                why = "it has to be the boolean true or false; correct it, or leave it out"
                found.append((int(bad[0]), f"`{name}` is {_said(texts[bad[0]])}: {why}"))
    return min(found, default=None)


def no_entity(name: str, place: str, why: str) -> InputError:
    """Returns the error naming a place in dataset `name`."""
    return InputError(f"dataset {name}, {place}: {why}")


def _is_true(texts: pa.Array) -> npt.NDArray[np.bool_]:
    return _is_one_of(texts, _TRUE)


def _is_one_of(texts: pa.Array, values: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.is_in(texts, values))


def flags_of_texts(texts: pa.Array) -> pa.Array:
    """Returns flags of a file without booleans as booleans, empty ones as null; others stay as they are."""
    lower = pc.ascii_lower(texts)
    texts = pc.if_else(pc.equal(texts, '""'), None, texts)
    return pc.if_else(
        pc.is_in(lower, _FLAGS_AS_TEXTS), pc.utf8_slice_codeunits(lower, 1, -1), texts
    )


def _carried(texts: pa.Array | None, ids: pa.Array, name: str) -> pa.Array | None:
    if texts is None:
        return None
    texts = pc.if_else(pa.array(is_null(texts)), pa.scalar(None, TEXT), texts)
    given = texts.drop_null()
    counts, items = elements(given)
    bad = np.flatnonzero(~is_string(items))
    if len(bad):
        number = np.searchsorted(np.cumsum(counts), bad[0], "right")
        row = int(np.flatnonzero(np.asarray(texts.is_valid()))[number])
        raise InputError(
            f"dataset {name}, entity {ids[row]}: `$ids` is {_said(texts[row])}: it has to be a list of texts"
        )
    if not len(given):
        return None
    in_list = joined(text_scalar("["), texts, text_scalar("]"))
    return pc.if_else(pa.array(is_list(texts)), texts, in_list)


def _said(text: pa.Scalar) -> str:
    value = text.as_py()
    return "missing" if value is None else value if len(value) <= 40 else f"{value[:40]}..."
