"""The settings of text files of a pipeline."""

from __future__ import annotations

from dataclasses import replace
from typing import Self

from pydantic import model_validator

from compactor.files.names import FileFormat, FileKind
from compactor.files.text_options import PLAIN, TextOptions
from compactor.pipelines.config.model import Model
from compactor.settings.mistakes import SettingError


class _Csv(Model):
    delimiter: str = PLAIN.delimiter
    quote: str = PLAIN.quote
    header: bool = PLAIN.header

    @property
    def options(self) -> TextOptions:
        return TextOptions(**self.model_dump())

    @model_validator(mode="after")
    def _is_a_form_of_csv(self) -> Self:
        self.options  # noqa: B018 - raises `ValueError`
        return self


class WrittenCsv(_Csv):
    """The form of a CSV file that is written."""

    @model_validator(mode="after")
    def _quotes_texts(self) -> Self:
        if not self.quote:
            raise ValueError("texts are quoted: `quote` is one character")
        return self


class CsvForm(_Csv):
    """The form of a CSV file that is read.

    An empty `quote` makes quotes characters like any other. Without a header, the columns are the `fields` in
    order, or c1, c2 ...
    """

    decimal: str = PLAIN.decimal
    comment: str = PLAIN.comment
    """What begins a line that is skipped."""


def check_is_csv(kind: FileKind | None) -> None:
    """Raises `SettingError` if `csv` is given for another kind of file."""
    if kind is None or kind.format is not FileFormat.CSV:
        raise SettingError("csv", "`csv` is for CSV files")


def text_options(csv: CsvForm | None, encoding: str, names: tuple[str, ...]) -> TextOptions:
    """Returns the options of a source. names: of its `fields`."""
    form = (csv or CsvForm()).options
    return replace(form, encoding=encoding, names=() if form.header else names)
