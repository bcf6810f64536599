"""Finds out the types of XML elements, and builds arrays of their texts.

An element with nothing but text is a value. One with attributes or elements within is a struct, with its text
as the field `#text`. An element that its parent has several times is a list; so is one that has only `item`s,
as our writer writes lists. An item without text is null.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from pyarrow import types as pt

from compactor.files.readings import Readings
from compactor.files.text_values import CellReader
from compactor.files.xml_elements import Element
from lsm_fragment import compute as pc
from lsm_fragment.arrays.cast import cast_storage
from lsm_fragment.arrays.moves import list_parts, take
from lsm_fragment.arrays.nested import build_list, build_struct, null_mask
from lsm_fragment.arrays.types import is_string

TEXT: Final = "#text"
_ITEM: Final = "item"
Group = Sequence[Element]
"""The elements of one name in one parent; at least one."""


class Shape:
    """What the elements of one place have had so far."""

    def __init__(self, candidates: tuple[pa.DataType, ...]) -> None:
        """candidates: the types that texts may have."""
        self._candidates = candidates
        self.children: dict[str, Shape] = {}
        self._is_repeated = self._has_mixed_text = self._has_blank = False
        self._readings = Readings(candidates)

    @property
    def width(self) -> int:
        """Number of values, nested ones included."""
        return 1 + sum(child.width for child in self.children.values())

    def learn(self, groups: Sequence[Group]) -> None:
        inner: dict[str, list[Group]] = defaultdict(list)
        texts = []
        for group in groups:
            self._is_repeated = self._is_repeated or len(group) > 1
            for element in group:
                text = element.text
                if element.children:
                    text = text.strip()
                    self._has_mixed_text = self._has_mixed_text or bool(text)
                    for name, children in element.children.items():
                        inner[name].append(children)
                else:
                    self._has_blank = self._has_blank or not text.strip()
                texts.append(text.strip() or None)
        self._readings.read(pa.array(texts, pa.string()))
        for name, found in inner.items():
            self.children.setdefault(name, Shape(self._candidates)).learn(found)

    def dtype(self, *, as_text: bool, is_item: bool = False) -> pa.DataType:
        """Returns the type of the elements. as_text: with strings for all values."""
        single = self._single(as_text=as_text, is_item=is_item)
        return pa.list_(single) if self._is_repeated and not is_item else single

    def _single(self, *, as_text: bool, is_item: bool) -> pa.DataType:
        outcome = self._readings.outcome
        if pt.is_null(outcome) and not is_item:
            outcome = pa.string()
        leaf = pa.string() if as_text else outcome
        if not self.children:
            return leaf
        has_text = not pt.is_null(self._readings.outcome)
        if set(self.children) == {_ITEM} and not has_text:
            return pa.list_(self.children[_ITEM].dtype(as_text=as_text, is_item=True))
        fields = [(name, child.dtype(as_text=as_text)) for name, child in self.children.items()]
        return pa.struct([*fields, *([(TEXT, leaf)] if has_text else [])])


def as_text(dtype: pa.DataType) -> pa.DataType:
    """Returns the type with strings for all values. Raises `ValueError` for maps."""
    if pt.is_map(dtype):
        raise ValueError("XML has no maps")
    if pt.is_struct(dtype):
        return pa.struct([(field.name, as_text(field.type)) for field in dtype.fields])
    if pt.is_nested(dtype):
        return pa.list_(as_text(dtype.value_type))
    return pa.string()


def texts_of(groups: Sequence[Group], dtype: pa.DataType, *, is_item: bool = False) -> pa.Array:
    """Builds an array of a type with strings for all values. Raises `ValueError` if an element has another
    form."""
    if pt.is_list(dtype):
        found = [_items(group, dtype.value_type) for group in groups]
        items = texts_of([[e] for group in found for e in group], dtype.value_type, is_item=True)
        counts = np.cumsum([0, *map(len, found)], dtype=np.int32)
        return pa.ListArray.from_arrays(pa.array(counts), items)
    if any(len(group) > 1 for group in groups):
        raise ValueError("it is there more than once")
    elements = [group[0] for group in groups]
    if pt.is_struct(dtype):
        return _structs(elements, dtype)
    if any(element.children for element in elements):
        raise ValueError("it has elements or attributes of its own")
    texts = [element.text for element in elements]
    return pa.array([text or None for text in texts] if is_item else texts, pa.string())


def _items(group: Group, dtype: pa.DataType) -> Group:
    """Returns the elements of a list: the items of a single element, or the elements themselves."""
    [first, *others] = group
    is_struct_of_item = pt.is_struct(dtype) and _ITEM in dtype.names
    if others or is_struct_of_item or not set(first.children) <= {_ITEM}:
        return group
    if first.children:
        return first.children[_ITEM]
    return group if first.text.strip() else ()


def _structs(elements: Sequence[Element], dtype: pa.DataType) -> pa.Array:
    inner: dict[str, tuple[list[int], list[Group]]] = {name: ([], []) for name in dtype.names}
    for row, element in enumerate(elements):
        pairs = element.children.items()
        text = element.text.strip()
        for name, group in [*pairs, *([(TEXT, [Element(text)])] if text else [])]:
            if name not in inner:
                raise ValueError(f"it has {name!r}, which is unknown")
            inner[name][0].append(row)
            inner[name][1].append(group)
    columns = [aligned(*inner[f.name], len(elements), f.type) for f in dtype.fields]
    if not columns:
        return pa.array([{}] * len(elements), dtype)
    return pa.StructArray.from_arrays(columns, fields=list(dtype.fields))


def aligned(
    rows: Sequence[int], groups: Sequence[Group], count: int, dtype: pa.DataType
) -> pa.Array:
    """Returns an array of `count` values with those of `groups` at `rows`."""
    values = texts_of(groups, dtype)
    if len(rows) == count:
        return values
    places = np.full(count, -1)
    places[list(rows)] = np.arange(len(rows))
    return take(values, places)


def values_of(texts: pa.Array, dtype: pa.DataType, cells: CellReader) -> pa.Array:
    """Converts texts to values of `dtype` as `cells` does. Raises one of `PROBLEMS` if one does not fit."""
    if texts.type == dtype:
        return texts
    if pt.is_struct(dtype) and pt.is_struct(texts.type):
        fields = zip(texts.flatten(), dtype.fields, strict=True)
        columns = [values_of(child, field.type, cells) for child, field in fields]
        return build_struct(dtype, len(texts), columns, null_mask(texts))
    if pt.is_list(texts.type):
        counts, items = list_parts(texts)
        is_fixed = pt.is_fixed_size_list(dtype)
        list_type = pa.list_(dtype.value_field) if is_fixed else dtype
        values = values_of(items, dtype.value_type, cells)
        lists = build_list(list_type, counts, values, null_mask(texts))
        return cast_storage(lists, dtype) if is_fixed else lists
    if not is_string(dtype):
        trimmed = pc.ascii_trim_whitespace(texts)
        texts = pc.if_else(pc.equal(trimmed, ""), None, trimmed)
    return cells.values(texts, dtype)


def children_of(elements: Sequence[Element]) -> dict[str, tuple[list[int], list[Group]]]:
    """Returns for each name of the elements' children the elements that have it, and their groups."""
    found: dict[str, tuple[list[int], list[Group]]] = {}
    for row, element in enumerate(elements):
        for name, group in element.children.items():
            rows, groups = found.setdefault(name, ([], []))
            rows.append(row)
            groups.append(group)
    return found
