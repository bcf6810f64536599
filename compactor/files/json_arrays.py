"""Makes Arrow arrays of lines of JSON, which native code has parsed.

Numbers are exact or refused: an integer must be within 64 bits, and a fraction must be the double that its
digits say (see `number_text`). A declared field takes only the kinds of values that its type has a form for
(see `text_values`); other fields take all values that one type can hold.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from compactor.files.jsontext import checked_json
from compactor.files.number_text import float_holds
from compactor.files.problems import PROBLEMS
from lsm_fragment.arrays.buffers import pack_bits, validity_buffer
from lsm_fragment.arrays.decimals import has_odd_scale
from lsm_fragment.arrays.types import MAX_NESTING, is_bytes, is_string, storage_type
from lsm_fragment.failing import failing_rows
from lsm_fragment.native.arrays.json_rows import Form, JsonRows, Kind, Trait

MAX_COLUMNS: Final = 10_000
"""Maximum columns of a text file, nested fields included."""
MAX_CELLS: Final = 16 << 20
"""Maximum values parsed at a time, missing ones included: a value takes 9 bytes, there or not."""

FieldPath = tuple[str | None, ...]
"""The names of the fields around a field, and its own; None for the items of a list."""
_INTEGERS: Final = Trait.IS_NEGATIVE | Trait.IS_INEXACT | Trait.IS_INT | Trait.IS_UINT
_ALL_TRAITS: Final = (
    _INTEGERS | Trait.IS_DOUBLE | Trait.IS_BOOL | Trait.IS_TEXT | Trait.IS_LIST | Trait.IS_OBJECT
)


class UnreadableTypeError(ValueError):
    """Text cannot be read as this type."""


class Misfit(NamedTuple):
    """A value that its type cannot hold."""

    row: int
    node: int
    cause: str
    number: str = ""
    """The number as written, if it is one."""
    error: BaseException | None = None


class JsonArrays:
    """The fields of a file, with the rows of the lines parsed last."""

    def __init__(
        self,
        wanted: Collection[str] | None = None,
        mixed: Collection[FieldPath] = (),
        *,
        text_holds_all: bool = False,
    ) -> None:
        """wanted: fields to make columns of; the syntax of others is checked. None for all. mixed: undeclared
        fields that are text: strings as they are, values of other kinds as the file has them.
        text_holds_all: whether declared fields of text take values of other kinds so, too.
        """
        self._text_holds_all = text_holds_all
        self.mixed = frozenset(mixed)
        self.rows = JsonRows(MAX_COLUMNS, MAX_CELLS, MAX_NESTING, wanted, mixed)
        self.misfits: list[Misfit] = []
        """Values of the arrays made that their types do not hold. They are null there."""
        self._floats: dict[int, pa.DataType] = {}
        self._spans: set[int] = set()
        """Nodes of decimals and of JSON, whose values stay text."""
        self._json: set[int] = set()

    def declare(self, name: str, dtype: pa.DataType) -> int:
        """Adds a column of a known type, and returns its node. Raises `UnreadableTypeError`."""
        return self._declare(0, name, dtype, is_in_list=False)

    def is_mixed(self, node: int) -> bool:
        return bool(self.mixed) and self.rows.names(node) in self.mixed

    def array(self, node: int) -> pa.Array:
        """Returns the values of a field as booleans, int64, uint64, doubles, strings, lists or structs; null
        if there has never been a value. Adds to `misfits`."""
        length, traits = self.rows.fill(node), self.rows.traits(node)
        if node in self._spans:
            return self._strings(node)
        if not traits:
            return pa.nulls(length)
        if traits & Trait.IS_TEXT:
            return self._strings(node)
        kinds, values = self.rows.kinds(node), self.rows.values(node)
        valid = validity_buffer(kinds != Kind.NULL_)
        if traits & Trait.IS_OBJECT:
            children = [(name, self.array(child)) for child, name in self.rows.children(node)]
            dtype = pa.struct([(name, child.type) for name, child in children])
            return pa.Array.from_buffers(
                dtype, length, [valid], children=[child for _, child in children]
            )
        if traits & Trait.IS_LIST:
            [(item, _)] = self.rows.children(node)
            items = self.array(item)
            offsets = np.concatenate([[0], values]).astype(np.int32)
            return pa.Array.from_buffers(
                pa.list_(items.type), length, [valid, pa.py_buffer(offsets)], children=[items]
            )
        if traits & Trait.IS_BOOL:
            bits = pack_bits(values.astype(np.bool_))
            return pa.Array.from_buffers(pa.bool_(), length, [valid, pa.py_buffer(bits)])
        dtype = pa.uint64() if traits & Trait.IS_UINT else pa.int64()
        if traits & Trait.IS_DOUBLE:
            dtype = pa.float64()
            self._set_doubles(node, kinds, values)
        else:
            values[kinds == Kind.NUMBER] = 0  # written as -0
        return pa.Array.from_buffers(dtype, length, [valid, pa.py_buffer(values)])

    def _strings(self, node: int) -> pa.Array:
        offsets, data = self.rows.texts(node)
        valid = validity_buffer(self.rows.kinds(node) != Kind.NULL_)
        buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(data)]
        array = pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)
        if node in self._json:
            self._check_json(node, array)
        return array

    def _check_json(self, node: int, array: pa.Array) -> None:
        problems = (*PROBLEMS, RecursionError)
        try:
            checked_json(array)
        except problems:
            failing = failing_rows(
                len(array), lambda start, stop: checked_json(array[start:stop]), problems
            )
            self.misfits += [
                Misfit(self.rows.row_of(node, n), node, "it is not JSON") for n, _ in failing
            ]

    def _set_doubles(
        self, node: int, kinds: npt.NDArray[np.uint8], values: npt.NDArray[np.int64]
    ) -> None:
        """Replaces integers and texts of numbers in `values` by doubles."""
        doubles, dtype = values.view(np.float64), self._floats.get(node, pa.float64())
        whole = np.flatnonzero(kinds == Kind.INT)
        if len(whole):
            numbers = values[whole]
            doubles[whole] = numbers
            with np.errstate(over="ignore"):
                is_lost = doubles[whole].astype(dtype.to_pandas_dtype()) != doubles[whole]
            self._note(node, whole[is_lost], [str(n) for n in numbers[is_lost].tolist()])
        for slot in np.flatnonzero(kinds == Kind.NUMBER).tolist():
            text = self.rows.number(node, slot)
            if float_holds(text, dtype):
                doubles[slot] = float(text)
            else:
                self._note(node, [slot], [text])

    def _note(self, node: int, slots: npt.NDArray[np.int64] | list[int], texts: list[str]) -> None:
        for slot, text in zip(slots, texts, strict=True):
            row = self.rows.row_of(node, slot)
            self.misfits.append(Misfit(row, node, "it does not hold it exactly", text))

    def _declare(
        self, parent: int, name: str | None, dtype: pa.DataType, *, is_in_list: bool
    ) -> int:
        is_json = isinstance(dtype, pa.JsonType) and not is_in_list
        stored = storage_type(dtype)
        form, allowed, traits = _form_of(stored)
        if self._text_holds_all and is_string(stored):
            form, allowed, traits = Form.AS_TEXT, _ALL_TRAITS, Trait.IS_TEXT
        node = self.rows.declare(parent, name, Form.AS_JSON if is_json else form, allowed, traits)
        if is_json or form == Form.DECIMAL:
            self._spans.add(node)
        if is_json:
            self._json.add(node)
        if pt.is_floating(stored):
            self._floats[node] = stored
        elif pt.is_struct(stored):
            fields = dtype.fields if pt.is_struct(dtype) else stored.fields
            for field in fields:
                self._declare(node, field.name, field.type, is_in_list=is_in_list)
        elif pt.is_map(stored):
            item = self.rows.declare(node, None, Form.GIVEN, Trait.IS_OBJECT, Trait.IS_OBJECT)
            for key, inner in (("key", stored.key_type), ("value", stored.item_type)):
                self._declare(item, key, inner, is_in_list=True)
        elif pt.is_nested(stored):
            self._declare(node, None, stored.value_type, is_in_list=True)
        return node


def check_readable(dtype: pa.DataType) -> None:
    """Raises `UnreadableTypeError` for a type that text has no form for."""
    JsonArrays().declare("", dtype)


def _form_of(dtype: pa.DataType) -> tuple[int, int, int]:
    """Returns the form of a type in JSON, the traits that its values may have, and those that it has before
    its first value."""
    if pt.is_floating(dtype):
        return Form.GIVEN, _INTEGERS | Trait.IS_DOUBLE, Trait.IS_DOUBLE
    if pt.is_integer(dtype) or pt.is_duration(dtype):
        return Form.GIVEN, _INTEGERS, 0
    if pt.is_decimal(dtype):
        return (
            (Form.GIVEN, Trait.IS_TEXT, 0)
            if has_odd_scale(dtype)
            else (Form.DECIMAL, Trait.IS_TEXT, 0)
        )
    if pt.is_boolean(dtype):
        return Form.GIVEN, Trait.IS_BOOL, 0
    if pt.is_null(dtype):
        return Form.GIVEN, 0, 0
    if pt.is_struct(dtype):
        return Form.GIVEN, Trait.IS_OBJECT, 0
    if (
        pt.is_map(dtype)
        or pt.is_list(dtype)
        or pt.is_large_list(dtype)
        or pt.is_fixed_size_list(dtype)
    ):
        return Form.GIVEN, Trait.IS_LIST, 0
    if is_string(dtype) or is_bytes(dtype) or (pt.is_temporal(dtype) and not pt.is_interval(dtype)):
        return Form.GIVEN, Trait.IS_TEXT, 0
    raise UnreadableTypeError(f"text can't hold {dtype}")
