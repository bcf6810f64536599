"""Names of columns as people write them in texts: options of commands and of Spark, Python's `sort_by`."""

from __future__ import annotations

import random
from collections.abc import Iterable

from compactor.cli.read import split_columns
from compactor.errors import UsageError
from compactor.settings.column_kinds import renaming
from compactor.settings.fields import names
from compactor.write.ingest.settings import IngestSettings
from lsm_fragment.keys.sort_schema import Nulls, Order, SortColumn, SortSchema, sort_text


class UnreadableError(Exception):
    """A text was read as something else than what it says."""


def written(rng: random.Random, name: str, marks: str = ',:"') -> str:
    """Returns a name in quotes, or as it is where it has none of the marks."""
    if not name or name != name.strip() or any(m in name for m in marks) or rng.random() < 0.2:
        name = '"' + name.replace('"', '""') + '"'
    return " " * (rng.random() < 0.1) + name + " " * (rng.random() < 0.1)


def sort_by_text(rng: random.Random, sort: SortSchema) -> SortSchema:
    """Returns the sort schema as it comes in by the option `--sort-by`."""
    text = ",".join(_sort_column(rng, column) for column in sort)
    for given in (text, sort_text(sort)):
        read = IngestSettings(sort_by=given).sort
        _check(read == sort, f"--sort-by {given!r} is read as {read}")
    return sort


def _sort_column(rng: random.Random, column: SortColumn) -> str:
    words = [written(rng, column.column)]
    if column.order is Order.DESC or rng.random() < 0.2:
        words.append(str(column.order))
    if column.nulls is Nulls.FIRST or rng.random() < 0.2:
        words.append(f"nulls_{column.nulls}")
    return ":".join(words)


def columns_by_text(rng: random.Random, chosen: list[str]) -> list[str]:
    """Returns the names as they come in by `--columns`, and by Spark's option of the same name."""
    text = ",".join(written(rng, name, marks=',"') for name in chosen)
    try:
        found = split_columns(text)
    except UsageError as error:
        raise UnreadableError(f"--columns {text!r}: {error}") from error
    _check(found == chosen, f"--columns {text!r} is read as {found}")
    _check(list(names(text)) == chosen, f"option columns {text!r} is read as {names(text)}")
    return chosen


def renaming_by_text(rng: random.Random, old: str, new: str) -> dict[str, str]:
    """Returns a renaming as it comes in by `--rename`."""
    text = f"{written(rng, old)}:{written(rng, new)}"
    found = renaming(text)
    _check(found == (old, new), f"--rename {text!r} is read as {found}")
    return dict([found])


def kinds_by_text(rng: random.Random, chosen: Iterable[tuple[str, str]]) -> None:
    """Checks that pairs come in by options such as `--skip-index`."""
    pairs = tuple(chosen)
    text = ",".join(f"{written(rng, name)}:{kind}" for name, kind in pairs)
    settings = IngestSettings.model_validate({"skip_index": text})
    found = tuple((name, str(kind)) for name, kind in settings.skip_index)
    _check(found == pairs, f"--skip-index {text!r} is read as {found}")


def _check(is_right: bool, what: str) -> None:
    if not is_right:
        raise UnreadableError(what)
