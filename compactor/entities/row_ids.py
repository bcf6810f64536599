"""Makes the ids of entities from the columns that the settings name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from compactor.entities.expressions import ID
from compactor.entities.properties import Properties
from compactor.entities.texts import TEXT, is_string, quoted, unquoted
from lsm_fragment import compute as pc
from lsm_fragment.arrays.json_texts import text_scalar

_INTEGER: Final = "^-?[0-9]+$"
_SEPARATOR: Final = ":"


def with_ids(columns: dict[str, Any], rows: int, names: Sequence[str]) -> dict[str, Any]:
    """Returns the columns of some rows with their `_id`: a text, or a value that can be none.

    The ids are the texts or integers of the columns `names`, by default `_id`. Those of several columns are
    joined by colons, with a backslash before each colon and backslash of a value.
    """
    dense = Properties(columns)
    parts = [_part(dense.get(name, pa.nulls(rows, TEXT))) for name in names or (ID,)]
    ids = parts[0] if len(parts) == 1 else _joined(parts)
    return {**columns, ID: ids}


def _part(texts: pa.Array) -> pa.Array:
    """Makes texts of integers."""
    if is_string(texts).all():
        return texts
    is_integer = pc.match_substring_regex(texts, _INTEGER)
    return pc.if_else(pc.fill_null(is_integer, False), quoted(texts), texts)


def _joined(parts: Sequence[pa.Array]) -> pa.Array:
    """Joins texts; a value that can be no id stands for the whole, to be found as a mistake."""
    escaped = []
    mistakes = pa.nulls(len(parts[0]), TEXT)
    is_fine = np.ones(len(mistakes), np.bool_)
    for part in parts:
        is_id = is_string(part) & np.asarray(pc.fill_null(pc.not_equal(part, '""'), False))
        mistakes = pc.if_else(pa.array(is_fine & ~is_id), part, mistakes)
        is_fine &= is_id
        plain = unquoted(pc.if_else(pa.array(is_id), part, text_scalar('""')))
        escaped.append(pc.replace_substring_regex(plain, r"([:\\])", r"\\\1"))
    ids = quoted(pc.binary_join_element_wise(*escaped, text_scalar(_SEPARATOR)))
    return pc.if_else(pa.array(is_fine), ids, mistakes)
