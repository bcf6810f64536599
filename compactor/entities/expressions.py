"""Parses rule expressions such as `a.x`, `a.address.city` and `["lower", "c.f3"]`, and evaluates them on
whole columns.

An expression yields any number of values per entity, as canonical JSON texts: the elements of a list, and
nothing for null, the empty list and values outside a function's domain.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from compactor.common.counts import counted
from compactor.entities.functions import FUNCTIONS, fits_of, text_of
from compactor.entities.texts import I64, TEXT, canonical, elements, is_blank, is_null, members
from lsm_fragment import compute as pc
from lsm_fragment.arrays.json_texts import joined, text_scalar

Mask = npt.NDArray[np.bool_]

ID: Final = "_id"
IDS: Final = "$ids"
MAX_COMBINATIONS: Final = 1_000_000
"""Maximum results of `concat` and `and` per entity."""
_OF_SEVERAL: Final = ("and", "concat", "except", "if", "literal", "matches")
"""Functions of several expressions, of none, or of a condition."""


class ExpressionError(ValueError):
    """A mistake in an expression, worded for its author."""


class TooManyCombinationsError(ValueError):
    """`concat` or `and` of one entity exceeds `MAX_COMBINATIONS`."""

    def __init__(self, count: int) -> None:
        super().__init__(f"{counted(count, 'combination')} of one entity's values")


class PropertyPath(Struct, frozen=True):
    """A property, or a path into it."""

    steps: tuple[str, ...]


class Literal(Struct, frozen=True):
    """Values that every entity has."""

    texts: tuple[str, ...]
    """Canonical texts."""


class FunctionCall(Struct, frozen=True):
    function: str
    arguments: tuple[Expression, ...]
    parameters: tuple[str | int, ...] = ()


Expression = PropertyPath | Literal | FunctionCall


class Operand(NamedTuple):
    """One side of a rule: an expression over one dataset."""

    alias: str
    expression: Expression


class Values(NamedTuple):
    """Values with their entities."""

    rows: I64
    """Entity of each value, ascending."""
    texts: pa.Array
    """Canonical texts without nulls, parallel to `rows`."""
    dropped: int = 0
    """Number of values that functions left out."""

    def kept(self, mask: Any) -> Values:
        mask = np.asarray(mask)
        if mask.all():
            return self
        return self._replace(rows=self.rows[mask], texts=self.texts.filter(pa.array(mask)))


def parse_operand(value: Any) -> Operand:
    """Parses a side of a rule. Raises `ExpressionError`."""
    aliases: set[str] = set()
    expression = _parse(value, aliases)
    if len(aliases) != 1:
        found = f"has {', '.join(sorted(aliases))}" if aliases else "has none"
        raise ExpressionError(
            f"an argument is over exactly one dataset's alias, this one {found}: write one side of a rule "
            "as an expression of its own"
        )
    return Operand(aliases.pop(), expression)


def _parse(value: Any, aliases: set[str]) -> Expression:
    if isinstance(value, str):
        alias, *steps = value.split(".")
        if not alias or not steps or not all(steps):
            raise ExpressionError(
                f"{value!r} is no path: write alias.property, or [literal, {value!r}]"
            )
        aliases.add(alias)
        return PropertyPath(tuple(steps))
    if not isinstance(value, list) or not value or not isinstance(value[0], str):
        raise ExpressionError(
            f"{value!r} is no expression: write a path such as a.x, or a function such as [lower, a.x]"
        )
    name, *arguments = value
    match name:
        case "literal":
            return _literal(arguments)
        case "if":
            if len(arguments) not in (2, 3):
                raise ExpressionError("if takes a condition, and one or two expressions")
            condition = _parse_condition(arguments[0], aliases)
            return FunctionCall(
                "if", (condition, *(_parse(argument, aliases) for argument in arguments[1:]))
            )
        case "matches":
            raise ExpressionError(
                "matches is a condition: write it in [if, [matches, ...], a.x], or compare what [regex, ...] "
                "finds"
            )
        case "concat" | "and" | "except":
            if len(arguments) < 2:
                raise ExpressionError(f"{name} takes two arguments or more, not {len(arguments)}")
            return FunctionCall(name, tuple(_parse(argument, aliases) for argument in arguments))
    if name not in FUNCTIONS:
        there = ", ".join(sorted([*FUNCTIONS, *_OF_SEVERAL]))
        raise ExpressionError(f"there is no function {name!r}; there are: {there}")
    return _function_call(name, arguments, aliases)


def _literal(values: list[Any]) -> Literal:
    if not values or not all(
        isinstance(v, (str, int, float)) and math.isfinite(v if isinstance(v, float) else 0)
        for v in values
    ):
        raise ExpressionError(
            'literal takes texts, numbers, true and false, as in [literal, "-"] or [literal, "n/a", 0]'
        )
    numbers = (v + 0.0 if isinstance(v, float) else v for v in values)  # -0.0 becomes 0.0
    return Literal(tuple(canonical(pa.array([json.dumps(v) for v in numbers])).to_pylist()))


def _function_call(name: str, arguments: list[Any], aliases: set[str]) -> FunctionCall:
    function = FUNCTIONS[name]
    parameters = arguments[:-1]
    count = len(parameters)
    types = function.parameters[:count]
    is_right = function.min_parameters <= count == len(types) and bool(arguments)
    if not is_right or not all(map(_is_of, parameters, types)):
        if function.example:
            raise ExpressionError(
                f"{name} takes other arguments: write it as in {function.example}"
            )
        raise ExpressionError(f"{name} takes one argument, not {len(arguments)}")
    try:
        function.made(*parameters)
    except ValueError as error:
        raise ExpressionError(f"{name}: {error}: write it as in {function.example}") from None
    return FunctionCall(name, (_parse(arguments[-1], aliases),), tuple(parameters))


def _is_of(value: Any, dtype: type) -> bool:
    return isinstance(value, dtype) and not isinstance(value, bool)


def _parse_condition(value: Any, aliases: set[str]) -> Expression:
    match value:
        case ["and", *conditions] if conditions:
            return FunctionCall("and", tuple(_parse_condition(c, aliases) for c in conditions))
        case ["matches", str(pattern), argument]:
            try:
                fits_of(pattern)
            except ValueError as error:
                raise ExpressionError(f"matches: {error}: shorten it") from None
            return FunctionCall("matches", (_parse(argument, aliases),), (pattern,))
        case ["matches", *_]:
            raise ExpressionError(
                'matches takes a pattern and an expression: [matches, "47*", a.x]'
            )
    return _parse(value, aliases)


def shown(operand: Operand) -> str:
    """Returns an operand as it stands in a spec."""

    def text(expression: Expression) -> str:
        match expression:
            case PropertyPath(steps):
                return ".".join((operand.alias, *steps))
            case Literal(texts):
                return f"[literal, {', '.join(texts)}]"
            case FunctionCall(function, arguments, parameters):
                given = (json.dumps(p, ensure_ascii=False) for p in parameters)
                return f"[{', '.join((function, *given, *map(text, arguments)))}]"
        raise AssertionError(expression)

    return text(operand.expression)


def first_steps(expression: Expression) -> Iterator[str]:
    """Yields the properties that an expression reads."""
    match expression:
        case PropertyPath(steps):
            yield steps[0]
        case FunctionCall(_, arguments):
            for argument in arguments:
                yield from first_steps(argument)


class _Rows(NamedTuple):
    """What expressions are evaluated on."""

    columns: Mapping[str, pa.Array]
    rows: int
    keeps_blanks: bool

    def where(self, at: I64) -> _Rows:
        indices = pa.array(at)
        columns = {name: column.take(indices) for name, column in self.columns.items()}
        return self._replace(columns=columns, rows=len(at))


def evaluate(
    expression: Expression,
    columns: Mapping[str, pa.Array],
    rows: int,
    *,
    keeps_blanks: bool = False,
) -> Values:
    """Evaluates an expression on `rows` entities, from properties as canonical texts, null if missing.

    Leaves out blank texts, unless `keeps_blanks`.
    """
    return _filled(expression, _Rows(columns, rows, keeps_blanks))


def _filled(expression: Expression, given: _Rows) -> Values:
    """Evaluates an expression without the blank texts of its result."""
    values = _values(expression, given)
    if given.keeps_blanks:
        return values
    kept = values.kept(~is_blank(values.texts))
    return kept._replace(dropped=values.dropped + len(values.rows) - len(kept.rows))


def _values(expression: Expression, given: _Rows) -> Values:
    match expression:
        case PropertyPath(steps):
            column = given.columns.get(steps[0])
            if column is None:
                return _NO_VALUES
            found = _flattened(Values(np.arange(given.rows), column))
            for name in steps[1:]:
                found = _inside(found, name)
            return found
        case Literal(texts):
            repeated = np.tile(np.arange(len(texts)), given.rows)
            rows = np.repeat(np.arange(given.rows), len(texts))
            return Values(rows, pa.array(texts, TEXT).take(pa.array(repeated)))
        case FunctionCall("concat", arguments):
            first, *others = (_called(text_of, _values(a, given)) for a in arguments)
            return reduce(partial(_concat, rows=given.rows), others, first)
        case FunctionCall("and", arguments):
            first, *others = (_filled(a, given) for a in arguments)
            found = reduce(partial(_listed, rows=given.rows), others, first)
            return found._replace(texts=joined(text_scalar("["), found.texts, text_scalar("]")))
        case FunctionCall("except", (argument, *others)):
            return reduce(_without, (_values(a, given) for a in others), _values(argument, given))
        case FunctionCall("if", (condition, *branches)):
            holds = _holds(condition, given)
            pairs = zip(branches, (holds, ~holds), strict=False)
            return _in_order([_of_branch(branch, given, mask) for branch, mask in pairs])
        case FunctionCall(name, (argument,), parameters):
            return _called(FUNCTIONS[name].made(*parameters), _values(argument, given))
    raise AssertionError(expression)


def _holds(condition: Expression, given: _Rows) -> Mask:
    """Returns for which entities a condition holds: they have values that are not blank, none of them false,
    and all of the form that `matches` asks for."""
    if isinstance(condition, FunctionCall) and condition.function == "and":
        return reduce(np.logical_and, (_holds(c, given) for c in condition.arguments))
    if isinstance(condition, FunctionCall) and condition.function == "matches":
        [argument], [pattern] = condition.arguments, condition.parameters
        values = _filled(argument, given)
        fits = np.asarray(fits_of(str(pattern))(values.texts))
    else:
        values = _filled(condition, given)
        fits = np.asarray(pc.not_equal(values.texts, "false"))
    holds = np.zeros(given.rows, np.bool_)
    holds[values.rows] = True
    holds[values.rows[~fits]] = False
    return holds


def _of_branch(branch: Expression, given: _Rows, mask: Mask) -> Values:
    at = np.flatnonzero(mask)
    found = _values(branch, given.where(at))
    return found._replace(rows=at[found.rows])


def _in_order(parts: Sequence[Values]) -> Values:
    rows = np.concatenate([part.rows for part in parts])
    order = np.argsort(rows, kind="stable")
    texts = pa.concat_arrays([part.texts for part in parts])
    dropped = sum(part.dropped for part in parts)
    return Values(rows[order], texts.take(pa.array(order)), dropped)


def _without(values: Values, others: Values) -> Values:
    """Returns the values that the same entity does not have among the others."""
    coded = pa.chunked_array([values.texts, others.texts]).combine_chunks().dictionary_encode()
    codes = np.asarray(coded.indices).astype(np.int64)
    rows = np.concatenate([values.rows, others.rows])
    pairs = rows * max(1, len(coded.dictionary)) + codes
    count = len(values.rows)
    kept = values.kept(~np.isin(pairs[:count], pairs[count:]))
    return kept._replace(dropped=values.dropped + others.dropped)


_NO_VALUES: Final = Values(np.zeros(0, np.int64), pa.array([], TEXT))


def _flattened(values: Values) -> Values:
    """Replaces lists by their elements; drops null and empty lists, also as elements. Normalises -0.0 to
    0.0."""
    values = values.kept(values.texts.is_valid())
    counts, texts = elements(values.texts)
    texts = pc.if_else(pc.equal(texts, "-0.0"), text_scalar("0.0"), texts)
    values = Values(np.repeat(values.rows, counts), texts)
    return values.kept(~is_null(texts) & np.asarray(pc.not_equal(texts, "[]")))


def _inside(values: Values, name: str) -> Values:
    values = values.kept(pc.starts_with(values.texts, "{"))
    return _flattened(Values(values.rows, members(values.texts, name)))


def _concat(left: Values, right: Values, *, rows: int) -> Values:
    """Concatenates each left string of an entity with each right one."""
    from_left, from_right = _combinations(left, right, rows)
    texts = joined(
        pc.utf8_slice_codeunits(left.texts, 0, -1).take(pa.array(from_left)),
        pc.utf8_slice_codeunits(right.texts, 1).take(pa.array(from_right)),
    )
    return Values(left.rows[from_left], texts, left.dropped + right.dropped)


def _listed(left: Values, right: Values, *, rows: int) -> Values:
    """Puts a comma between each left value of an entity and each right one."""
    from_left, from_right = _combinations(left, right, rows)
    parts = left.texts.take(pa.array(from_left)), right.texts.take(pa.array(from_right))
    texts = joined(parts[0], text_scalar(","), parts[1])
    return Values(left.rows[from_left], texts, left.dropped + right.dropped)


def _combinations(left: Values, right: Values, rows: int) -> tuple[I64, I64]:
    """Returns the positions of all pairs of a left and a right value of one entity."""
    per_row = np.bincount(right.rows, minlength=rows)
    starts = np.cumsum(per_row) - per_row
    repeats = per_row[left.rows]
    of_each = np.bincount(left.rows, minlength=rows) * per_row
    if len(of_each) and (count := int(of_each.max())) > MAX_COMBINATIONS:
        raise TooManyCombinationsError(count)
    ends = np.cumsum(repeats)
    within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - repeats, repeats)
    return np.repeat(np.arange(len(left.rows)), repeats), np.repeat(
        starts[left.rows], repeats
    ) + within


def _called(function: Callable[[pa.Array], pa.Array], values: Values) -> Values:
    """Applies a function to each distinct value."""
    coded = values.texts.dictionary_encode()
    results = function(coded.dictionary).take(coded.indices)
    found = values._replace(texts=results).kept(results.is_valid())
    return found._replace(dropped=values.dropped + len(values.rows) - len(found.rows))
