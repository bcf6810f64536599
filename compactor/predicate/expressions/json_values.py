"""Compares the values of JSON texts: texts with texts, numbers with numbers, booleans with booleans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from compactor.predicate.expressions.comparing import compare
from compactor.predicate.expressions.kinds import is_of, kind_of
from compactor.predicate.expressions.nested import contains_of
from compactor.predicate.tree import Op
from lsm_fragment import compute as pc
from lsm_fragment.arrays.json_texts import string_values
from lsm_fragment.arrays.moves import keep, take
from lsm_fragment.arrays.storage import plain, to_storage

_TEXT: Final = pa.large_string()
_SHORT: Final = r"^-?[0-9]{1,18}$"
_LONG: Final = r"^-?[0-9]{19,38}$"
_NUMBER: Final = r"^-?[0-9]"
_lists: Final = msgspec.json.Decoder(list[msgspec.Raw])


def unwrapped(column: pa.Array) -> pa.Array:
    """Returns JSON strings as texts, and other values as their JSON; null for JSON's null."""
    texts = _texts(column)
    return pc.coalesce(string_values(texts), _where(texts, pc.not_equal(texts, "null")))


def compare_json(op: Op, column: pa.Array, other: Any) -> pa.Array:
    """Compares JSON with an array or a scalar by value.

    Values of different kinds are unequal, and none is less. JSON's null, and null, are unknown. Raises
    `pa.ArrowInvalid` if `other` is of a kind that JSON does not have.
    """
    texts = _texts(column)
    found = _compared(op, texts, other)
    if op not in (Op.EQ, Op.NE):
        return found
    is_known = pc.and_(pc.is_valid(other), pc.fill_null(pc.not_equal(texts, "null"), False))
    return pc.coalesce(found, _where(pa.repeat(op is Op.NE, len(texts)), is_known))


def compare_two(op: Op, column: pa.Array, other: pa.Array) -> pa.Array:
    """Compares two columns of JSON likewise; lists and objects by their texts."""
    texts, others = _texts(column), _texts(other)
    kinds = string_values(others), *_number_values(others)
    found = pc.coalesce(*(_compared(op, texts, values) for values in kinds))
    if op not in (Op.EQ, Op.NE):
        return found
    nulls = [pc.equal(side, "null") for side in (texts, others)]
    is_known = pc.invert(pc.or_(*nulls))
    return pc.coalesce(found, _where(compare(op, texts, others), is_known))


def json_contains(column: pa.Array, value: Any) -> pa.Array:
    """Returns whether a list of JSON has an element that equals a value; other JSON is a list of itself."""
    texts = _texts(column)
    is_list = np.asarray(pc.fill_null(pc.starts_with(texts, "["), False))
    lists = [_lists.decode(text) for text in keep(texts, is_list).to_pylist()]
    counts = np.ones(len(texts), np.int64)
    counts[is_list] = list(map(len, lists))
    rows = np.repeat(np.arange(len(texts)), counts)
    items = [str(raw, "utf-8") for each in lists for raw in map(bytes, each)]
    at = np.empty(len(rows), np.int64)
    at[is_list[rows]] = len(texts) + np.arange(len(items))
    at[~is_list[rows]] = rows[~is_list[rows]]
    elements = take(pa.concat_arrays([texts, pa.array(items, _TEXT)]), at)
    wanted = take(value, rows) if isinstance(value, pa.Array) else value
    is_equal = np.asarray(pc.fill_null(compare_json(Op.EQ, elements, wanted), False))
    return contains_of(texts, rows[is_equal], value)


def _texts(column: pa.Array) -> pa.Array:
    return pc.ascii_trim_whitespace(plain(to_storage(column)).cast(_TEXT))


def _compared(op: Op, texts: pa.Array, other: Any) -> pa.Array:
    """Compares where the kinds are the same; null elsewhere."""
    kind = kind_of(other.type)
    if kind == "null":
        return pa.nulls(len(texts), pa.bool_())
    if kind == "text":
        return compare(op, string_values(texts), other)
    if kind == "boolean":
        is_flag = pc.is_in(texts, value_set=pa.array(["true", "false"], _TEXT))
        return compare(op, _where(pc.equal(texts, "true"), is_flag), other)
    if is_of(kind, "number"):
        return pc.coalesce(*(compare(op, numbers, other) for numbers in _number_values(texts)))
    raise pa.ArrowInvalid(f"JSON has no values of {other.type}: CAST one of them")


def _number_values(texts: pa.Array) -> Sequence[pa.Array]:
    """Returns numbers in three arrays, null where another has them: short and long integers, and doubles."""
    is_short, is_long = (pc.match_substring_regex(texts, pattern) for pattern in (_SHORT, _LONG))
    is_whole = pc.or_(is_short, is_long)
    is_other = pc.and_(pc.match_substring_regex(texts, _NUMBER), pc.invert(is_whole))
    return (
        _where(texts, is_short).cast(pa.int64()),
        _where(texts, is_long).cast(pa.decimal128(38, 0)),
        _where(texts, is_other).cast(pa.float64()),
    )


def _where(values: pa.Array, mask: pa.Array) -> pa.Array:
    return pc.if_else(mask, values, pa.scalar(None, values.type))
