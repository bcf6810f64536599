"""Properties of a table: settings that the table stores, so that all who work on it use the same ones.

A **property** is a field of a settings model that describes the table, not one run or machine; its name,
type, unit, bounds and default are those of the field. A table stores only what was set, so that everything
else follows the defaults of the program. What a run is told explicitly overrides the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from compactor.errors import ConfigError
from compactor.settings.compaction import CompactionSettings, Policy
from compactor.settings.fields import text_of
from compactor.settings.fragments import FragmentSettings
from compactor.settings.mistakes import instead_of
from compactor.settings.model import Settings
from compactor.settings.names import as_flag
from compactor.settings.vacuum import VacuumSettings
from compactor.settings.writers import WriterSettings

Value: TypeAlias = bool | int | float | str
Properties: TypeAlias = tuple[tuple[str, Value], ...]
"""The properties that were set, by name, in ascending order of name."""
_Model = TypeVar("_Model", bound=Settings)

_MODELS: Final[tuple[type[Settings], ...]] = (
    Policy,
    FragmentSettings,
    WriterSettings,
    CompactionSettings,
    VacuumSettings,
)
MODEL_OF: Final[Mapping[str, type[Settings]]] = {
    name: model
    for model in reversed(_MODELS)
    for name in model.model_fields
    if name not in model.of_run
}
"""The model that declares each property."""
_NAME_OF_FLAG: Final = {as_flag(name).removeprefix("--"): name for name in MODEL_OF}
_CHOSEN_ONCE: Final = (
    "it is chosen when a table is created, by an option of its own, and stays: create another table"
)
_BY_SKIP_INDEX: Final = (
    "`compactor alter --skip-index COLUMN:KIND --skip-index-bytes SIZE` sets it, or `skips` and `skip_bytes` "
    "of Table.alter"
)
NO_PROPERTIES: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("sort_by", "time_column", "time_window", "row_policy", "sequence"), _CHOSEN_ONCE
    ),
    **dict.fromkeys(("delete_marker", "keep_tombstones", "aggregate", "not_null"), _CHOSEN_ONCE),
    **dict.fromkeys(("ttl", "ttl_column"), _CHOSEN_ONCE),
    **dict.fromkeys(("skip_index", "skip_index_bytes"), _BY_SKIP_INDEX),
    "retention": "it has an option of its own when a table is created, and `compactor alter --set "
    "retention=30d` changes it",
}
"""Other settings of a table, and how each is set."""


class Override(NamedTuple):
    """A property of the table that a run is told to ignore."""

    name: str
    here: str
    """The run's value, as users write it."""
    stored: str


def changed(properties: Properties, changes: Mapping[str, object]) -> Properties:
    """Returns the properties after the changes. Pure. None unsets one, known to this program or not.

    changes: see `told`. Raises what `told` raises, and `ConfigError` for values that contradict defaults.
    """
    result = _changed(properties, changes)
    with _calling_properties():
        for model in _MODELS:
            as_told(model, result).check_together()
    return result


def told(changes: Mapping[str, object]) -> Properties:
    """Returns the properties that a run is told, to be judged with those of its table. Pure.

    changes: values or their textual forms by name, which may be spelled as the flag is. Raises `ConfigError`
    for an unknown name, a bad value, and values that contradict each other.
    """
    return _changed((), changes)


def _changed(properties: Properties, changes: Mapping[str, object]) -> Properties:
    result: dict[str, Any] = dict(properties)
    named: set[str] = set()
    for given, value in changes.items():
        name = given if value is None and given in result else _known(given)
        if name in named:
            raise ConfigError(f"property {name!r} is named twice; name it once")
        named.add(name)
        result[name] = value
    result = {name: value for name, value in result.items() if value is not None}
    for model in _MODELS:
        settings = as_told(model, result.items())
        result.update((name, _plain(getattr(settings, name))) for name in settings.model_fields_set)
    return tuple(sorted(result.items()))


def pairs(given: str | Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Parses `NAME=VALUE`: a comma-separated text, or texts. Raises ValueError with the correct form."""
    values: dict[str, str] = {}
    for text in given.split(",") if isinstance(given, str) else given:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value):
            raise ValueError(f"{text!r} is not of the form NAME=VALUE")
        if name in values:
            raise ValueError(f"{name!r} is given twice; give it once")
        values[name] = value
    return tuple(values.items())


def told_by(properties: Properties) -> tuple[Settings, ...]:
    """Returns the settings of a run for which these properties count, whatever the table has."""
    return tuple(as_told(model, properties) for model in _MODELS)


def as_told(model: type[_Model], properties: Iterable[tuple[str, Any]]) -> _Model:
    """Returns the settings of a run that is told these properties. Raises `ConfigError`."""
    values = {name: value for name, value in properties if _has(model, name)}
    with _calling_properties():
        return model(**values)


@contextmanager
def _calling_properties() -> Iterator[None]:
    """Settings in errors are called by the names of properties, not of flags."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(str(error.message)) from None


def tuned(given: _Model, properties: Properties) -> _Model:
    """Returns the settings of a run: what it was told explicitly, else the table's, else the defaults.

    Raises `ConfigError` if the two contradict each other, or this program does not take a stored value.
    """
    model = type(given)
    stored = {name: value for name, value in properties if _has(model, name)}
    if not stored:
        given.check_together()
        return given
    own = {name: getattr(given, name) for name in given.model_fields_set}
    try:
        settings = model(**{**stored, **own})
        settings.check_together()
    except ConfigError as error:
        raise _beside(error, properties) from None
    return settings


def _beside(error: ConfigError, properties: Properties) -> ConfigError:
    return ConfigError(
        f"{error.message}; the table's properties are: {properties_text(properties)}"
    )


def beside(properties: Properties, told: Properties) -> Properties:
    """Returns a table's properties with those that a run is told in their place.

    Raises `ConfigError` if the two contradict each other.
    """
    try:
        return changed(properties, dict(told))
    except ConfigError as error:
        raise (_beside(error, properties) if properties else error) from None


def overrides(given: Settings, properties: Properties) -> list[Override]:
    """Returns where a run was told another value than the table has."""
    return [
        Override(name, shown(name, getattr(given, name)), shown(name, value))
        for name, value in properties
        if name in given.model_fields_set and getattr(given, name) != value
    ]


def with_sources(properties: Properties) -> dict[str, dict[str, Any]]:
    """Returns all properties with their values and sources, for documents.

    The source is `table`, `default`, or `unknown` for one that a newer program has set.
    """
    values: dict[str, dict[str, Any]] = {
        name: {"value": value, "source": "table" if name in MODEL_OF else "unknown"}
        for name, value in properties
    }
    settings = {model: tuned(model(), properties) for model in _MODELS}
    for name, model in MODEL_OF.items():
        default = {"value": getattr(settings[model], name), "source": "default"}
        values.setdefault(name, default)
    return dict(sorted(values.items()))


def properties_text(properties: Properties) -> str:
    """Writes properties as `--set` takes them, separated by commas."""
    return ", ".join(f"{name}={shown(name, value)}" for name, value in properties)


def shown(name: str, value: Any) -> str:
    """Writes the value of a property as users do."""
    model = MODEL_OF.get(name)
    return str(value) if model is None else text_of(model.model_fields[name], value)


def _has(model: type[Settings], name: str) -> bool:
    return name in model.model_fields and name not in model.of_run


def _known(name: str) -> str:
    if name in MODEL_OF:
        return name
    if name in _NAME_OF_FLAG:
        return _NAME_OF_FLAG[name]
    if (way := NO_PROPERTIES.get(name.replace("-", "_"))) is not None:
        raise ConfigError(f"{name!r} is no property: {way}")
    raise ConfigError(f"no property {name!r}; {instead_of(name, sorted(MODEL_OF))}")


def _plain(value: Any) -> Value:
    return str(value) if isinstance(value, str) else value
