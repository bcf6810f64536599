"""Keeps the state of an entity merge in its table's metadata, so that rows and state change in one
commit."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self

from msgspec import structs

from compactor.common.plain_values import plain_dict
from compactor.entities.entities import RESERVED, WRITTEN
from compactor.entities.expressions import ID
from compactor.entities.spec import Dataset
from compactor.errors import CompactorError, DataError, UsageError
from compactor.rows.bounded_keys import KEY_OF
from compactor.table.metadata import COUNTER, NEEDED_COLUMNS, TableMetadata
from lsm_fragment.errors import cause_of
from lsm_fragment.names import names_text

_NAME: Final = "entity_merge"
_NEXT: Final = f"{COUNTER}{_NAME}"
"""The next numbers of updates and datasets, apart from the rest: followers know those that were given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """State for the next run."""

    datasets: tuple[Dataset, ...] = ()
    """Datasets in the order of their offsets in composite ids."""
    found: tuple[str, ...] = ()
    """Names of the datasets that existed."""
    next_updated: int = 0
    """`_updated` of the next entity to be written."""
    numbers: tuple[int, ...] = ()
    """Number of each dataset, which it keeps wherever it stands, and which no other dataset ever gets."""
    next_number: int = 0
    columns: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Stored name of each column that rows have been written with since the last full run."""
    report: tuple[str, ...] = field(default=(), compare=False)
    """Lines about the last run that committed, which `compactor report` shows."""

    @classmethod
    def of(cls, metadata: TableMetadata | None, url: str) -> Self | None:
        """Returns the table's state; None without a table.

        Raises `UsageError` for a table that no entity merge wrote, `DataError` for damaged state.
        """
        if metadata is None:
            return None
        remembered = dict(metadata.remembered)
        text = remembered.get(_NAME)
        missing = [name for name in WRITTEN if metadata.stored_name(name) is None]
        if text is None or missing:
            cause = f"it has no column {missing[0]!r}" if missing else "it was made otherwise"
            again = "name renamed columns as before, or " if text is not None else ""
            raise UsageError(
                f"{url}: is not a table of an entity merge ({cause}): {again}name another --output"
            )
        try:
            value, following = json.loads(text), json.loads(remembered[_NEXT])
            return cls(
                datasets=tuple(Dataset(*d) for d in value["datasets"]),
                found=tuple(map(str, value["found"])),
                next_updated=int(following["updated"]),
                numbers=tuple(map(int, value["numbers"])),
                next_number=int(following["number"]),
                columns=dict(value["columns"]),
                report=tuple(map(str, value["report"])),
            )
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(
                f"{url}: the state of the entity merge is damaged ({cause_of(error)})"
            ) from error

    @classmethod
    def report_in(cls, metadata: TableMetadata | None) -> tuple[str, ...]:
        """Returns the lines about the last run into a table; none if no entity merge wrote it."""
        try:
            state = cls.of(metadata, "")
        except CompactorError:
            return ()
        return () if state is None else state.report

    def put_into(self, metadata: TableMetadata, written: Iterable[str] = ()) -> TableMetadata:
        """Returns the metadata with this state. written: columns of the rows that come with it."""
        stored = metadata.stored_names
        columns = {**self.columns, **{name: stored[name] for name in written}}
        value = plain_dict(replace(self, columns=columns))
        following = {name: value.pop(f"next_{name}") for name in ("updated", "number")}
        mine = {
            _NAME: json.dumps(value),
            _NEXT: json.dumps(following),
            KEY_OF: ID,
            NEEDED_COLUMNS: json.dumps([stored[name] for name in RESERVED if name in stored]),
        }
        remembered = {**dict(metadata.remembered), **mine}
        return structs.replace(metadata, remembered=tuple(remembered.items()))


def numbers_of(
    before: State | None, now: Sequence[Dataset], *, full: bool
) -> tuple[tuple[int, ...], int]:
    """Returns the number of each dataset, and the next number.

    full: datasets are known by name; else by position, because the name of one may have changed.
    """
    known: dict[str, int] = {}
    following = 0
    if before is not None:
        names = before.datasets if full else now
        known = {d.name: number for d, number in zip(names, before.numbers, strict=False)}
        following = before.next_number
    numbers = []
    for dataset in now:
        if dataset.name not in known:
            known[dataset.name] = following
            following += 1
        numbers.append(known[dataset.name])
    return tuple(numbers), following


def check_datasets(before: Sequence[Dataset], now: Sequence[Dataset], url: str) -> None:
    """Raises `UsageError` if ids in the table would change their meaning.

    Ids contain dataset offsets, so datasets keep their positions and new ones go last. A dataset may change
    its alias, and its name to one that no dataset had.
    """
    places = {dataset.name: place for place, dataset in enumerate(before)}
    if len(now) < len(before):
        raise _refused(url, f"{before[len(now)].name!r} of the last run is gone")
    for place, new in enumerate(now):
        if places.get(new.name, place) != place:
            old = repr(before[place].name) if place < len(before) else "none"
            raise _refused(url, f"{new.name!r} stands where {old} was in the last run")


def check_columns(before: State, metadata: TableMetadata, url: str, *, full: bool) -> None:
    """Raises `UsageError` if the run would read other columns than were written, or if rows written now would
    have other columns than those that stay as they are: none stay in a full run."""
    stored = metadata.stored_names
    changed = [name for name, known in before.columns.items() if stored.get(name) != known]
    renamed = {*stored.values()}.intersection(before.columns[name] for name in changed)
    if own := [name for name in changed if name in RESERVED and before.columns[name] in renamed]:
        raise UsageError(
            f"{url}: columns that the entity merge itself needs were renamed: {names_text(own)}: name "
            "them as before"
        )
    if changed and not full:
        raise UsageError(
            f"{url}: columns that a run wrote were renamed, dropped or redacted since: "
            f"{names_text(changed)}; rows of new and changed entities would have them, and others not: name "
            "renamed columns as before, or run with --full, which writes every entity anew, with all "
            "properties"
        )


def _refused(url: str, what: str) -> UsageError:
    return UsageError(
        f"datasets: {what}; the ids in {url} go by the order of the datasets: keep that order and add new "
        "ones at the end, or run with --full, which writes every entity anew"
    )
