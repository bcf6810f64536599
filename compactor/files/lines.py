"""Reads lines of plain text, or records of several lines, by a pattern.

A record has to match from its beginning to its end. A group that is empty, or has no part in the match, is
null.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from compactor.files.csv_rows import SHOWN_CHARACTERS
from compactor.files.flat_texts import FlatTextBatches, TextRows
from compactor.files.layouts import LineLayout
from compactor.files.records import Records, cut_records
from lsm_fragment import compute as pc
from lsm_fragment.arrays.moves import keep


class LineBatches(FlatTextBatches):
    """An open file of lines; see `compactor.files.read.open_table_file`."""

    def __init__(self, layout: LineLayout, *settings: Any, **options: Any) -> None:
        """settings, options: those of `TextBatches`."""
        self._layout = layout
        super().__init__(*settings, **options)

    def _columns(self) -> Mapping[str, pa.DataType | None]:
        pattern = self._layout.pattern
        return dict(zip(pattern.names, pattern.types, strict=True))

    def _blocks(self) -> Iterator[TextRows]:
        for records in cut_records(self.path, self._source, self._layout.starts_with):
            yield self._matched(records)

    def _matched(self, records: Records) -> TextRows:
        is_sound, bad = self._sound(records)
        texts = pc.if_else(pa.array(is_sound), records.texts, None)
        found = pc.extract_regex(texts, self._layout.pattern.regex)
        is_match = np.asarray(found.is_valid())
        for row in np.flatnonzero(is_sound & ~is_match):
            shown = records.texts[int(row)].as_py()[:SHOWN_CHARACTERS]
            reason = (
                f"{self.path}, line {records.lines[row]:,}: {shown!r} does not match the pattern: widen the "
                "pattern, or correct the line"
            )
            bad.append((int(records.ordinals[row]), reason))
        columns = found.flatten()
        if not is_match.all():
            columns = [keep(column, is_match) for column in columns]
        columns = [pc.if_else(pc.equal(column, ""), None, column) for column in columns]
        return TextRows(records.ordinals[is_match], records.lines[is_match], columns, sorted(bad))
