"""Reads and checks entity merge settings; errors name line and field. Pure, except for reading the file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import combinations, pairwise
from os import PathLike
from typing import Any, Final, Literal, NamedTuple

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field

from compactor.entities.entities import RESERVED
from compactor.entities.expressions import (
    ID,
    IDS,
    ExpressionError,
    FunctionCall,
    Operand,
    first_steps,
    parse_operand,
)
from compactor.entities.pipes import merge_settings
from compactor.entities.survivors import Survivor, survivor_of
from compactor.predicate.expressions.types import sql_type
from compactor.settings.document import Document
from compactor.settings.mistakes import Place, instead_of

DEFAULT_MAX_MERGED: Final = 50_000
DEFAULT_MAX_ENDED_PERCENT: Final = 20
DEFAULT_MIN_ENDED: Final = 10
_ALIAS: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_NO_NAME: Final = re.compile(r"[/*?\[\]\x00-\x1f\x7f]|^\.{1,2}$")
_LONGEST_NAME: Final = 200
_DEPRECATED: Final = (
    "version is 1, the default of the reference, where it is deprecated and has no max_merged; here it "
    "merges as version 2 does: write `version: 2`"
)
_NO_SIGNALS: Final = (
    "supports_signalling has no effect: a change of a dataset starts no run; start it when datasets have "
    "changed"
)


class Identity(StrEnum):
    COMPOSITE = "composite"
    """Uses `offset|id|offset|id`, of all members."""
    FIRST = "first"
    """Uses the id of the first member."""
    STABLE = "stable"
    """Keeps the id of the oldest member's cluster; uses `offset|id` of the oldest member for a new one."""


class PropertyStrategy(StrEnum):
    """How several entities' values of a property merge."""

    DEFAULT = "default"
    """One value stays; several become one list, flattening lists."""
    COMPACT = "compact"
    """Distinct values become a list; a single one stays, and none is missing."""
    LIST = "list"
    """Properties do not merge: the result lists the entities."""


class OnNever(StrEnum):
    """What happens if rules tie two entities that must not be one."""

    REFUSE = "refuse"
    """The run fails and writes nothing."""
    CUT = "cut"
    """Their cluster is divided at the weakest rules."""


class OnTooMany(StrEnum):
    """What happens to a value that more than `max_merged` entities share."""

    REFUSE = "refuse"
    """The run fails and writes nothing."""
    IGNORE_VALUE = "ignore_value"
    """The value is put aside: it links nothing, and is counted."""


IdPairs = tuple[tuple[str, str], ...] | str
"""Pairs of entities, or the file that has them."""


class Dataset(NamedTuple):
    name: str
    alias: str


class Rule(NamedTuple):
    """A rule: entities on its two sides are equal if they have a value in common."""

    left: Operand
    right: Operand


class _MergeSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    type: Literal["merge"] = "merge"
    version: int = Field(default=1, ge=1, le=2, strict=True)
    datasets: tuple[str, ...] = Field(min_length=1)
    equality: tuple[Any, ...] = ()
    equality_sets: tuple[Any, ...] = ()
    all_pairs: bool = Field(default=False, strict=True)
    link_blanks: bool = Field(default=False, strict=True)
    identity: Identity = Identity.COMPOSITE
    strategy: PropertyStrategy = PropertyStrategy.DEFAULT
    max_merged: int = Field(default=DEFAULT_MAX_MERGED, ge=1, strict=True)
    on_too_many: OnTooMany = OnTooMany.REFUSE
    max_ended_percent: int = Field(default=DEFAULT_MAX_ENDED_PERCENT, ge=0, le=100, strict=True)
    min_ended: int = Field(default=DEFAULT_MIN_ENDED, ge=1, strict=True)
    initial_datasets: tuple[str, ...] | None = None
    ignore_non_existent_datasets: bool = Field(default=True, strict=True)
    supports_signalling: bool | None = Field(default=None, strict=True)
    sources: dict[str, str] = Field(default_factory=dict)
    types: dict[str, dict[str, str]] = Field(default_factory=dict)
    id: Any = None
    survivors: dict[str, Any] = Field(default_factory=dict)
    always: Any = ()
    never: Any = ()
    on_never: OnNever = OnNever.REFUSE


class EntityMergeSpec(Struct, frozen=True, kw_only=True):
    """Validated settings of an entity merge."""

    datasets: tuple[Dataset, ...]
    """A dataset's index is its offset in composite ids."""
    rules: tuple[Rule, ...] = ()
    link_blanks: bool = False
    """Whether empty and blank texts are values of rules."""
    identity: Identity = Identity.COMPOSITE
    strategy: PropertyStrategy = PropertyStrategy.DEFAULT
    max_merged: int = DEFAULT_MAX_MERGED
    """Maximum entities in a cluster."""
    on_too_many: OnTooMany = OnTooMany.REFUSE
    max_ended_percent: int = DEFAULT_MAX_ENDED_PERCENT
    """Maximum share of the table's living entities that a run may replace or delete."""
    min_ended: int = DEFAULT_MIN_ENDED
    """A run that replaces or deletes fewer living entities is not held to that share."""
    initial_datasets: tuple[str, ...] = ()
    """Datasets that the merge is populated with: all, or those that the settings list."""
    ignore_non_existent_datasets: bool = True
    """Treats a missing dataset as empty, also an initial one."""
    sources: tuple[tuple[str, str], ...] = ()
    """Pairs of dataset name and file or table."""
    types: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()
    """Pairs of dataset name and types by column, in SQL's words."""
    ids: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Pairs of dataset name and the columns of its id, where they are not `_id`."""
    survivors: tuple[tuple[str, Survivor], ...] = ()
    """Pairs of property and how one of its values is chosen, in place of `strategy`."""
    always: IdPairs = ()
    """Pairs of entities that are one, whatever the rules say."""
    never: IdPairs = ()
    """Pairs of entities that must not be one."""
    on_never: OnNever = OnNever.REFUSE
    warnings: tuple[str, ...] = ()

    @property
    def pair_files(self) -> list[str]:
        """The files with pairs."""
        return [pairs for pairs in (self.always, self.never) if isinstance(pairs, str)]


def load_spec(path: str | PathLike[str]) -> EntityMergeSpec:
    """Reads a YAML or JSON file. Raises `ConfigError` naming file, line and field."""
    return spec_of(Document.read(path))


def spec_of(document: Document) -> EntityMergeSpec:
    """Validates a document. Raises `ConfigError` naming file, line and field."""
    document = merge_settings(document)
    settings = document.as_model(_MergeSettings)
    datasets = tuple(_datasets(document, settings))
    names = {dataset.name for dataset in datasets}
    initial = settings.initial_datasets
    for index, name in enumerate(initial or ()):
        if name not in names:
            raise document.fail_at(("initial_datasets", index), _unknown(name, names))
    for name in settings.sources:
        if name not in names:
            raise document.fail_at(("sources", name), _unknown(name, names))
        if not settings.sources[name] or "\0" in settings.sources[name]:
            raise document.fail_at(
                ("sources", name), "write a file, a folder or s3://bucket/prefix"
            )
    aliases = {dataset.alias for dataset in datasets}
    return EntityMergeSpec(
        datasets=datasets,
        rules=tuple(dict.fromkeys(_rules(document, settings, aliases))),
        link_blanks=settings.link_blanks,
        identity=settings.identity,
        strategy=settings.strategy,
        max_merged=settings.max_merged,
        on_too_many=settings.on_too_many,
        max_ended_percent=settings.max_ended_percent,
        min_ended=settings.min_ended,
        initial_datasets=tuple(d.name for d in datasets) if initial is None else initial,
        ignore_non_existent_datasets=settings.ignore_non_existent_datasets,
        sources=tuple(settings.sources.items()),
        types=tuple(_types(document, settings, names)),
        ids=tuple(_ids(document, settings.id, datasets)),
        survivors=tuple(_survivors(document, settings)),
        always=_id_pairs(document, "always", settings.always),
        never=_id_pairs(document, "never", settings.never),
        on_never=settings.on_never,
        warnings=tuple(_warnings(settings)),
    )


def _warnings(settings: _MergeSettings) -> Iterator[str]:
    if settings.version == 1:
        yield _DEPRECATED
    if settings.supports_signalling is not None:
        yield _NO_SIGNALS


def _types(
    document: Document, settings: _MergeSettings, names: set[str]
) -> Iterator[tuple[str, tuple[tuple[str, str], ...]]]:
    for name, types in settings.types.items():
        if name not in names:
            raise document.fail_at(("types", name), _unknown(name, names))
        for column, dtype in types.items():
            place = ("types", name, column)
            if column in RESERVED:
                raise document.fail_at(place, "only properties have types; leave it out")
            try:
                sql_type(dtype)
            except ValueError as error:
                raise document.fail_at(place, str(error)) from None
        yield name, tuple(types.items())


def _ids(
    document: Document, given: Any, datasets: Sequence[Dataset]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields the columns of ids, from a column, a list of columns, or a mapping of datasets to these."""
    names = {dataset.name for dataset in datasets}
    is_mapping = isinstance(given, dict)
    by_name = given if is_mapping else {} if given is None else dict.fromkeys(names, given)
    for name, columns in by_name.items():
        place: Place = ("id", name) if is_mapping else ("id",)
        if name not in names:
            raise document.fail_at(place, _unknown(str(name), names))
        listed = [columns] if isinstance(columns, str) else columns
        if not (isinstance(listed, list) and listed and all(map(_is_column, listed))):
            raise document.fail_at(place, "write a column, or a list of columns, with the id")
        if len(set(listed)) < len(listed):
            raise document.fail_at(place, "a column comes twice: each once")
        yield name, tuple(listed)


def _is_column(name: Any) -> bool:
    return isinstance(name, str) and name != "" and (name == ID or name not in RESERVED)


def _survivors(document: Document, settings: _MergeSettings) -> Iterator[tuple[str, Survivor]]:
    for name, value in settings.survivors.items():
        place = ("survivors", name)
        try:
            survivor = survivor_of(value)
        except ValueError as error:
            raise document.fail_at(place, str(error)) from None
        for each in (name, survivor.column):
            if each in RESERVED:
                raise document.fail_at(place, f"{each} is not a property; leave it out")
        yield name, survivor


def _id_pairs(document: Document, name: str, value: Any) -> IdPairs:
    if isinstance(value, str) and value and "\0" not in value:
        return value
    wanted = "write a list of pairs of ids, as in [[a1, b7], [crm/5, shop/5]], or a file"
    if not isinstance(value, (list, tuple)):
        raise document.fail_at((name,), wanted)
    for index, pair in enumerate(value):
        if not isinstance(pair, list) or len(pair) != 2 or not all(map(_is_id, pair)):
            raise document.fail_at((name, index), wanted)
    return tuple((str(one), str(other)) for one, other in value)


def _is_id(value: Any) -> bool:
    return isinstance(value, (str, int)) and not isinstance(value, bool) and value != ""


def _unknown(name: str, names: set[str]) -> str:
    return f"no dataset {name!r}; {instead_of(name, sorted(names))}"


def _short(name: str) -> str:
    return repr(name if len(name) <= 40 else f"{name[:40]}...")


def _datasets(document: Document, settings: _MergeSettings) -> Iterator[Dataset]:
    seen: set[str] = set()
    for index, text in enumerate(settings.datasets):
        place = ("datasets", index)
        parts = text.split()
        if len(parts) != 2:
            raise document.fail_at(place, f"{text!r}: write the dataset's name and an alias")
        dataset = Dataset(*parts)
        if _NO_NAME.search(dataset.name) or len(dataset.name) > _LONGEST_NAME:
            raise document.fail_at(
                place,
                f"name {_short(dataset.name)}: {_LONGEST_NAME} characters at most, no / * ? [ ] "
                "and no control characters; where a dataset is says `sources`",
            )
        if not _ALIAS.fullmatch(dataset.alias):
            raise document.fail_at(
                place, f"alias {dataset.alias!r}: letters, digits, _ and -, a letter first"
            )
        for what, value in (("dataset", f"{dataset.name} "), ("alias", f" {dataset.alias}")):
            if value in seen:
                raise document.fail_at(place, f"{what} {value.strip()!r} comes twice: each once")
            seen.add(value)
        yield dataset


def _rules(document: Document, settings: _MergeSettings, aliases: set[str]) -> Iterator[Rule]:
    def operand(value: Any, *place: str | int) -> Operand:
        try:
            parsed = parse_operand(value)
        except ExpressionError as error:
            raise document.fail_at(place, str(error)) from None
        if parsed.alias not in aliases:
            instead = instead_of(parsed.alias, sorted(aliases))
            raise document.fail_at(place, f"no dataset has the alias {parsed.alias!r}; {instead}")
        for name in first_steps(parsed.expression):
            if name in RESERVED and name not in (ID, IDS):
                raise document.fail_at(
                    place,
                    f"{parsed.alias}.{name} is not a property: an entity merge writes it; rules "
                    "compare properties, `_id` and `$ids`",
                )
        return parsed

    def eq(value: Any, *place: str | int) -> Rule:
        if not isinstance(value, list) or len(value) != 3 or value[0] != "eq":
            raise document.fail_at(
                place, "write [eq, a.x, b.y], or [and, [eq, a.x, b.y], [eq, ...]]"
            )
        return Rule(*(operand(v, *place, n + 1) for n, v in enumerate(value[1:])))

    for index, value in enumerate(settings.equality):
        place: Place = ("equality", index)
        if isinstance(value, list) and value[:1] == ["and"] and len(value) > 1:
            parts = [eq(v, *place, n + 1) for n, v in enumerate(value[1:])]
            yield _all_of(document, parts, place)
        else:
            yield eq(value, *place)
    for index, value in enumerate(settings.equality_sets):
        place = ("equality_sets", index)
        if not isinstance(value, list) or not value:
            raise document.fail_at(place, "a list of at least one expression")
        operands = [operand(v, *place, n) for n, v in enumerate(value)]
        yield from _pairs(operands, all_pairs=settings.all_pairs)


def _all_of(document: Document, parts: Sequence[Rule], place: Place) -> Rule:
    """Returns the rule that holds where all parts hold."""
    left, right = parts[0].left.alias, parts[0].right.alias
    turned = [Rule(p.right, p.left) if p.left.alias == right != left else p for p in parts]
    for number, part in enumerate(turned):
        if (part.left.alias, part.right.alias) != (left, right):
            raise document.fail_at(
                (*place, number + 1), f"not of {left!r} and {right!r} as the part before it"
            )
    if len(turned) == 1:
        return turned[0]
    sides = zip(*turned, strict=True)
    return Rule(
        *(
            Operand(side[0].alias, FunctionCall("and", tuple(o.expression for o in side)))
            for side in sides
        )
    )


def _pairs(operands: Sequence[Operand], *, all_pairs: bool) -> Iterator[Rule]:
    """Yields the rules of an equality set; none for a single expression."""
    for one, other in combinations(operands, 2) if all_pairs else pairwise(operands):
        if not all_pairs or one.alias != other.alias:
            yield Rule(one, other)
