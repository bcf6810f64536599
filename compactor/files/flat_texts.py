"""Finds the types of columns of texts, and converts them, for lines, columns of fixed width and XML."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from compactor.files.problems import PROBLEMS
from compactor.files.records import Records
from compactor.files.source import Ordinals, Piece
from compactor.files.typed_texts import TypedTexts
from lsm_fragment.arrays.moves import keep
from lsm_fragment.failing import failing_rows


class TextRows(NamedTuple):
    """Rows of a block; empty texts are null."""

    ordinals: Ordinals
    lines: Ordinals
    columns: list[pa.Array]
    bad: list[tuple[int, str]]
    """Ordinals and reasons of the records that are no rows."""


class FlatTextBatches(TypedTexts[TextRows]):
    """An open file whose rows are texts by column."""

    @abstractmethod
    def _columns(self) -> Mapping[str, pa.DataType | None]:
        """Returns the columns with the types that the layout gives them."""

    def _begin(self, known: pa.Schema | None) -> None:
        own = {name: dtype for name, dtype in self._columns().items() if dtype is not None}
        given = {name: pa.field(name, dtype) for name, dtype in own.items()}
        self._set_types(self._columns(), given | {field.name: field for field in known or ()})

    def _names_read(self) -> Collection[str]:
        return self._columns()

    def _learned(self, block: TextRows) -> Iterator[Piece]:
        for ordinal, reason in block.bad:
            self._note(ordinal, reason)
        self._rows += len(block.ordinals)
        found = {}
        for name, column in zip(self._columns(), block.columns, strict=True):
            given = self._given.get(name)
            found[name] = (
                self._read(name, column)
                if given is None
                else self._checked(column, given, block.ordinals, partial(self._line_at, block))
            )
        if self._bad and self._kept_column in found:
            kept = block.columns[list(found).index(self._kept_column)]
            if pt.is_string(kept.type):
                self._keep(block.ordinals, kept)
        yield self._fit(block, list(found.values()))

    def _parsed(self, block: TextRows) -> Iterator[Piece]:
        yield self._fit(block, block.columns)

    def _sound(self, records: Records) -> tuple[npt.NDArray[np.bool_], list[tuple[int, str]]]:
        """Returns which records are UTF-8, and the ordinals and reasons of the others."""
        is_sound = np.ones(len(records.texts), dtype=np.bool_)
        try:
            records.texts.validate(full=True)
        except PROBLEMS:
            failing = failing_rows(
                len(records.texts),
                lambda start, stop: records.texts[start:stop].validate(full=True),
                PROBLEMS,
            )
            is_sound[[row for row, _ in failing]] = False
        bad = [
            (
                int(records.ordinals[row]),
                f"{self.path}, line {records.lines[row]:,}: is not valid UTF-8: save the file as UTF-8",
            )
            for row in np.flatnonzero(~is_sound)
        ]
        return is_sound, bad

    def _line_at(self, block: TextRows, row: int) -> str:
        return f"{self.path}, line {block.lines[row]:,}"

    def _fit(self, block: TextRows, columns: list[pa.Array]) -> Piece:
        is_fit = self._are_fit(block.ordinals)
        if not is_fit.all():
            columns = [keep(column, is_fit) for column in columns]
        return Piece(int(is_fit.sum()), dict(zip(self._columns(), columns, strict=True)))
