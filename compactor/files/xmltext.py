"""Renders Arrow batches as XML, whole columns at a time: one element per row and per non-null value.

`<row><id>7</id><tags><item>a</item></tags></row>`. A column whose name is not an XML name becomes
`<column name="...">`. Lists have `<item>`s, structs one element per field. Maps are not supported.
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa
from pyarrow import types as pt

from compactor.files.jsontext import text_bytes
from compactor.files.plain_text import UnwritableError, plain_text
from lsm_fragment import compute as pc
from lsm_fragment.arrays.json_texts import joined, text_scalar
from lsm_fragment.arrays.moves import list_parts
from lsm_fragment.arrays.nested import build_list
from lsm_fragment.arrays.storage import to_storage
from lsm_fragment.arrays.types import is_string

HEADER: Final = b'<?xml version="1.0" encoding="UTF-8"?>\n<rows>\n'
FOOTER: Final = b"</rows>\n"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_NO_XML: Final = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x{fffe}\x{ffff}]"
_EMPTY: Final = text_scalar("")


def xml_rows(batch: pa.RecordBatch) -> bytes:
    """Returns one line per row. Raises `UnwritableError` for values that XML cannot hold."""
    if batch.num_rows == 0:
        return b""
    parts: list[pa.Array | pa.Scalar] = [text_scalar("<row>")]
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        parts.append(_element(name, column))
    return text_bytes(joined(*parts, text_scalar("</row>\n")))


def _element(name: str, array: pa.Array) -> pa.Array:
    """Returns the element of each value; empty for null."""
    array = to_storage(array)
    start, end = _tags(name)
    inside = joined(text_scalar(start), _content(array), text_scalar(end))
    return pc.if_else(array.is_valid(), inside, _EMPTY)


def _content(array: pa.Array) -> pa.Array:
    dtype = array.type
    if pt.is_dictionary(dtype):
        return _content(array.dictionary).take(array.indices).fill_null("")
    if pt.is_map(dtype):
        raise UnwritableError("XML has no place for maps")
    if pt.is_struct(dtype):
        parts = [_element(n, child) for n, child in zip(dtype.names, array.flatten(), strict=True)]
        return joined(*parts) if parts else pa.repeat(_EMPTY, len(array))
    if pt.is_nested(dtype):
        counts, items = list_parts(array)
        filled = pc.if_else(items.is_valid(), _element("item", items), text_scalar("<item/>"))
        return pc.binary_join(
            build_list(pa.large_list(pa.large_string()), counts, filled, None), _EMPTY
        )
    text = plain_text(array).fill_null("")
    if is_string(dtype):
        if pc.any(pc.match_substring_regex(text, _NO_XML)).as_py():
            raise UnwritableError("a text has a control character, which XML has no place for")
        from xml.sax.saxutils import escape

        for character in "&<>\r":
            text = pc.replace_substring(text, character, escape(character, {"\r": "&#13;"}))
    return text


def _tags(name: str) -> tuple[str, str]:
    if _NAME.fullmatch(name) and not name.lower().startswith("xml"):
        return f"<{name}>", f"</{name}>"
    from xml.sax.saxutils import quoteattr

    return f"<column name={quoteattr(name)}>", "</column>"
