"""Pairs of entities that must be one (`always`), or must not (`never`), whatever the rules say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from msgspec import Struct

from compactor.entities.entities import Entities
from compactor.entities.matching import starts_of
from compactor.entities.spec import EntityMergeSpec
from compactor.entities.texts import TEXT
from compactor.errors import InputError, UsageError
from compactor.files.read import open_table_file
from compactor.files.text_options import PlainTextOnly
from lsm_fragment import compute as pc

ALWAYS: Final = "always"
NEVER: Final = "never"


class Found(NamedTuple):
    """An entity that a pair names."""

    number: int
    is_living: bool
    name: str
    """Dataset and id."""


Names = Mapping[str, Sequence[Found]]
"""The entities that each text of a pair may mean."""


class Pairs(Struct, frozen=True):
    """Pairs of living entities, by number."""

    always: tuple[tuple[int, int], ...] = ()
    never: tuple[tuple[int, int], ...] = ()
    warnings: tuple[str, ...] = ()


class PairTexts(Struct, frozen=True):
    """The pairs as users write them."""

    always: tuple[tuple[str, str], ...] = ()
    never: tuple[tuple[str, str], ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        both = (*self.always, *self.never)
        return tuple(dict.fromkeys(text for pair in both for text in pair))


def read_pairs(spec: EntityMergeSpec) -> PairTexts:
    """Reads the pairs of a spec, and those in files. Raises `InputError` for unreadable files."""
    found = (
        tuple(_pairs(each, what)) for what, each in ((ALWAYS, spec.always), (NEVER, spec.never))
    )
    return PairTexts(*found)


def _pairs(given: tuple[tuple[str, str], ...] | str, what: str) -> Iterator[tuple[str, str]]:
    if not isinstance(given, str):
        yield from given
        return
    options = PlainTextOnly()
    with open_table_file(given, options=options, may_be_empty=True, infers_types=False) as file:
        if len(file.schema) < 2:
            raise InputError(f"{what}: {given}: a pair is a row of two columns, with an id in each")
        row = 0
        for batch in file:
            columns = [batch.column(n).cast(pa.string()).to_pylist() for n in (0, 1)]
            for one, other in zip(*columns, strict=True):
                row += 1
                if one is None or other is None:
                    raise InputError(
                        f"{what}: {given}, row {row:,}: lacks an id: fill it in, or leave the row out"
                    )
                yield one, other


def names_in(
    spec: EntityMergeSpec, datasets: Sequence[Entities], texts: Sequence[str]
) -> dict[str, list[Found]]:
    """Finds the entities that texts may mean: `id`, `dataset/id` or `alias/id`."""
    found: dict[str, list[Found]] = {text: [] for text in texts}
    starts = starts_of(datasets)
    for number, dataset in enumerate(datasets if texts else ()):
        asked = [(text, id_) for text in texts for id_ in _ids_in(spec, number, text)]
        ids = pa.array([id_ for _, id_ in asked], TEXT)
        places = np.asarray(pc.fill_null(pc.index_in(ids, value_set=dataset.ids), -1))
        for (text, id_), place in zip(asked, places.tolist(), strict=True):
            if place >= 0:
                name = f"{spec.datasets[number].name}/{id_}"
                is_living = not dataset.deleted[place]
                found[text].append(Found(int(starts[number]) + place, is_living, name))
    return found


def united_names(
    spec: EntityMergeSpec, texts: Sequence[str], parts: Iterable[Mapping[str, Sequence[Found]]]
) -> dict[str, list[Found]]:
    """Returns what `names_in` finds, from what it found in parts of the entities."""
    found: dict[str, list[Found]] = {text: [] for text in texts}
    for part in parts:
        for text, some in part.items():
            found[text] += some
    places = {dataset.name: place for place, dataset in enumerate(spec.datasets)}
    for some in found.values():
        # An id that stands as it is comes before one behind the name of its dataset, and is longer.
        some.sort(key=lambda each: (places[each.name.partition("/")[0]], -len(each.name)))
    return found


def _ids_in(spec: EntityMergeSpec, number: int, text: str) -> Iterator[str]:
    yield text
    prefix, _, rest = text.partition("/")
    if rest and prefix in spec.datasets[number]:
        yield rest


def only(found: Sequence[Found], text: str, place: str) -> Found:
    """Returns the entity called so. Raises `UsageError`, naming `place`, unless there is exactly one."""
    if not found:
        raise UsageError(f"{place}: no dataset has an entity {text!r}: write its id, or dataset/id")
    if len(found) > 1:
        both = " or ".join(each.name for each in found)
        raise UsageError(f"{place}: {text!r} is in several datasets: write {both}")
    return found[0]


def resolved(pairs: PairTexts, names: Names) -> Pairs:
    """Returns the pairs of living entities; others cannot become one, and are no error.

    Raises `UsageError` for a text that means several entities, and for a pair of an entity with itself.
    """
    unknown: list[str] = []
    sides = []
    for what, some in ((ALWAYS, pairs.always), (NEVER, pairs.never)):
        numbers = []
        for pair in some:
            missing = [text for text in pair if not names[text]]
            unknown += [f"{what}: no dataset has an entity {text!r}" for text in missing]
            if missing:
                continue
            one, other = (only(names[text], text, what) for text in pair)
            if one.number == other.number:
                raise UsageError(f"{what}: {pair[0]!r} and {pair[1]!r} are one entity: name two")
            if one.is_living and other.is_living:
                numbers.append((one.number, other.number))
        sides.append(tuple(dict.fromkeys(numbers)))
    return Pairs(sides[0], sides[1], tuple(_shortened(unknown)))


def _shortened(lines: Sequence[str]) -> Iterator[str]:
    distinct = list(dict.fromkeys(lines))
    if distinct:
        more = f", and {len(distinct) - 1:,} more are unknown" if len(distinct) > 1 else ""
        yield f"{distinct[0]}{more}; such pairs have no effect"
