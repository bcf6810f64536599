"""Writes merged entities as NDJSON."""

from __future__ import annotations

import pyarrow as pa

from compactor.entities.entities import (
    DELETED,
    KEY,
    MEMBERS,
    REPLACED,
    REPLACED_AT,
    SIGNATURE,
    SINCE,
)
from compactor.entities.texts import canonical, from_arrow, object_texts
from compactor.files.jsontext import text_bytes
from lsm_fragment import compute as pc
from lsm_fragment.arrays.json_texts import joined, text_scalar


def entity_lines(batch: pa.RecordBatch) -> bytes:
    """Returns entities as JSON lines with sorted keys.

    Leaves out missing properties and false `_deleted` and `$replaced`; keeps JSON nulls.
    """
    columns = {}
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        if name in (DELETED, REPLACED):
            columns[name] = pc.if_else(pc.fill_null(array, False), text_scalar("true"), None)
        elif isinstance(array.type, pa.JsonType):
            columns[name] = canonical(array.storage)
        elif name not in (KEY, REPLACED_AT, SIGNATURE, MEMBERS, SINCE):
            columns[name] = from_arrow(array)
    return text_bytes(joined(object_texts(columns, batch.num_rows), text_scalar("\n")))
