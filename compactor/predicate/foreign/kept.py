"""Conditions in our language that keep at least the rows that a condition of another engine keeps. Pure.

The other engine applies its own condition to the rows that are left, so these need not be exact: each part
that has no equivalent is left out. Nulls satisfy no condition, here as there. Some engines say that NaN
exceeds every number and others that it satisfies no comparison, so `>` becomes `NOT <=`, which NaN satisfies.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
from pyarrow import types as pt

from compactor.predicate.like import escaped
from compactor.predicate.tree import OPPOSITE, Op
from lsm_fragment.arrays.times import UNITS_PER_SECOND
from lsm_fragment.arrays.types import is_string
from lsm_fragment.names import in_quotes

_OR_EQUAL: Final = {Op.LT: Op.LE, Op.GT: Op.GE}
_EPOCH: Final = datetime.datetime(1970, 1, 1)


class Kept(NamedTuple):
    sql: str
    """A condition on the shown names of columns."""
    is_exact: bool
    """Whether it also drops each row that the other drops, and is null for the same rows."""


def compared(field: pa.Field, operator: Op, value: pa.Scalar) -> Kept | None:
    """Returns the comparison of a column with a value; None if their types are too different to tell."""
    literal = _literal(value, _plain(field.type))
    if literal is None:
        return None
    if not pt.is_floating(_plain(field.type)):
        return Kept(f"{_name(field)} {operator} {literal}", True)
    if value.as_py() == 0:  # Daft orders -0.0 before 0.0
        if operator is Op.NE:
            return None
        operator = _OR_EQUAL.get(operator, operator)
    if operator in (Op.NE, Op.GT, Op.GE):
        return Kept(f"NOT ({_name(field)} {OPPOSITE[operator]} {literal})", False)
    return Kept(f"{_name(field)} {operator} {literal}", False)


def among(field: pa.Field, values: Iterable[pa.Scalar]) -> Kept | None:
    """Returns whether a column has one of the values; None if one of them is null, or there is none."""
    literals = [_literal(value, _plain(field.type)) for value in values]
    known = [literal for literal in literals if literal is not None]
    if not known or len(known) < len(literals):
        return None
    # An engine may say that a null is not among them, which its negation would then keep.
    return Kept(f"{_name(field)} IN ({', '.join(known)})", False)


def begins(field: pa.Field, text: str) -> Kept | None:
    if not is_string(_plain(field.type)):
        return None
    return Kept(f"{_name(field)} LIKE {_quoted(escaped(text) + '%')}", True)


def null(field: pa.Field, *, is_null: bool) -> Kept | None:
    if isinstance(field.type, pa.BaseExtensionType):
        return None  # JSON has a null of its own
    return Kept(f"{_name(field)} IS {'' if is_null else 'NOT '}NULL", True)


def true(field: pa.Field) -> Kept | None:
    """Returns the condition that a column of booleans is."""
    return Kept(f"{_name(field)} = TRUE", True) if pt.is_boolean(field.type) else None


def both(parts: Sequence[Kept | None]) -> Kept | None:
    """Returns the conjunction of those that are known."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    is_exact = len(known) == len(parts) and all(part.is_exact for part in known)
    return Kept(_joined("AND", known), is_exact)


def either(parts: Sequence[Kept | None]) -> Kept | None:
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    return Kept(_joined("OR", known), all(part.is_exact for part in known))


def negated(part: Kept | None) -> Kept | None:
    if part is None or not part.is_exact:
        return None
    return Kept(f"NOT ({part.sql})", True)


def _joined(word: str, parts: Sequence[Kept]) -> str:
    return f" {word} ".join(f"({part.sql})" for part in parts)


def _plain(dtype: pa.DataType) -> pa.DataType:
    plain: pa.DataType = dtype.value_type if pt.is_dictionary(dtype) else dtype
    return plain


def _name(field: pa.Field) -> str:
    return in_quotes(field.name)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _literal(value: pa.Scalar, dtype: pa.DataType) -> str | None:
    """Returns the exact value in our language, if it is of the column's kind; None for null and NaN."""
    own = value.type
    if not value.is_valid:
        return None
    if pt.is_integer(own) and (pt.is_integer(dtype) or pt.is_decimal(dtype)):
        return str(value.as_py())
    if pt.is_decimal(own) and pt.is_decimal(dtype):
        return str(format(value.as_py(), "f"))
    if pt.is_floating(own) and own == dtype:
        number = value.as_py()
        return repr(number) if math.isfinite(number) else None
    if is_string(own) and is_string(dtype):
        return _quoted(value.as_py())
    if pt.is_boolean(own) and pt.is_boolean(dtype):
        return str(value.as_py()).upper()
    if pt.is_date32(own) and pt.is_date32(dtype):
        return _day(value)
    if pt.is_timestamp(own) and pt.is_timestamp(dtype) and (own.tz is None) == (dtype.tz is None):
        # Daft cuts the column to the unit of a coarser value.
        is_coarser = UNITS_PER_SECOND[own.unit] < UNITS_PER_SECOND[dtype.unit]
        return None if is_coarser else _moment(value)
    return None


def _day(value: pa.Scalar) -> str | None:
    try:
        return f"DATE '{value.as_py().isoformat()}'"
    except (OverflowError, ValueError):
        return None


def _moment(value: pa.Scalar) -> str | None:
    """Returns a literal in microseconds; None for a finer value, or a year that Python lacks."""
    ticks, per_second = value.value, UNITS_PER_SECOND[value.type.unit]
    micros, rest = divmod(ticks * 10**6, per_second)
    if rest:
        return None
    try:
        moment = _EPOCH + datetime.timedelta(microseconds=micros)
    except OverflowError:
        return None
    if value.type.tz is None:
        return f"TIMESTAMP '{moment.isoformat(' ')}'"
    return f"TIMESTAMPTZ '{moment.isoformat(' ')}+00:00'"
