"""Parses rule expressions such as `a.x`, `a.address.city` and `["lower", "c.f3"]`, and evaluates them on
whole columns.

An expression yields any number of values per entity, as canonical JSON texts: the elements of a list, and
nothing for null, the empty list and values outside a function's domain.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from compactor.common.counts import counted
from compactor.entities.moments import instants
from compactor.entities.texts import (
    I64,
    TEXT,
    canonical,
    elements,
    is_null,
    is_string,
    members,
    quoted,
    texts_of,
    unquoted,
)
from compactor.files.plain_text import joined, text_scalar
from lsm_fragment import compute as pc
from lsm_fragment.arrays.joining import with_nulls_of

ID: Final = "_id"
IDS: Final = "$ids"
MAX_COMBINATIONS: Final = 1_000_000
"""Maximum results of `concat` per entity."""


class ExpressionError(ValueError):
    """A mistake in an expression, worded for its author."""


class TooManyCombinationsError(ValueError):
    """`concat` of one entity exceeds `MAX_COMBINATIONS`."""

    def __init__(self, count: int) -> None:
        super().__init__(f"{counted(count, 'combination')} of one entity's values")


@dataclass(frozen=True, slots=True)
class PropertyPath:
    """A property, or a path into it."""

    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Literal:
    text: str


@dataclass(frozen=True, slots=True)
class FunctionCall:
    function: str
    arguments: tuple[Expression, ...]


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
    if name == "literal":
        if len(arguments) != 1 or not isinstance(arguments[0], str):
            raise ExpressionError('literal takes one text, as in [literal, "-"]')
        return Literal(arguments[0])
    if name != "concat" and name not in _FUNCTIONS:
        there = ", ".join(sorted([*_FUNCTIONS, "concat", "literal"]))
        raise ExpressionError(f"there is no function {name!r}; there are: {there}")
    wanted = "one argument" if name != "concat" else "two arguments or more"
    if (len(arguments) != 1) if name != "concat" else (len(arguments) < 2):
        raise ExpressionError(f"{name} takes {wanted}, not {len(arguments)}")
    return FunctionCall(name, tuple(_parse(argument, aliases) for argument in arguments))


def shown(operand: Operand) -> str:
    """Returns an operand as it stands in a spec."""

    def text(expression: Expression) -> str:
        match expression:
            case PropertyPath(steps):
                return ".".join((operand.alias, *steps))
            case Literal(literal):
                return f"[literal, {json.dumps(literal, ensure_ascii=False)}]"
            case FunctionCall(function, arguments):
                return f"[{', '.join((function, *map(text, arguments)))}]"
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


def evaluate(expression: Expression, columns: Mapping[str, pa.Array], rows: int) -> Values:
    """Evaluates an expression on `rows` entities, from properties as canonical texts, null if missing."""
    match expression:
        case PropertyPath(steps):
            column = columns.get(steps[0])
            if column is None:
                return _NO_VALUES
            found = _flattened(Values(np.arange(rows), column))
            for name in steps[1:]:
                found = _inside(found, name)
            return found
        case Literal(text):
            return Values(np.arange(rows), pa.repeat(quoted(pa.array([text]))[0], rows))
        case FunctionCall("concat", arguments):
            first, *others = (_called(_text_of, evaluate(a, columns, rows)) for a in arguments)
            return reduce(partial(_concat, rows=rows), others, first)
        case FunctionCall(name, (argument,)):
            return _called(_FUNCTIONS[name], evaluate(argument, columns, rows))
    raise AssertionError(expression)


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
    """Combines each left value of an entity with each right one."""
    per_row = np.bincount(right.rows, minlength=rows)
    starts = np.cumsum(per_row) - per_row
    repeats = per_row[left.rows]
    of_each = np.bincount(left.rows, minlength=rows) * per_row
    if len(of_each) and (count := int(of_each.max())) > MAX_COMBINATIONS:
        raise TooManyCombinationsError(count)
    ends = np.cumsum(repeats)
    within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - repeats, repeats)
    from_left = np.repeat(np.arange(len(left.rows)), repeats)
    from_right = np.repeat(starts[left.rows], repeats) + within
    texts = joined(
        pc.utf8_slice_codeunits(left.texts, 0, -1).take(pa.array(from_left)),
        pc.utf8_slice_codeunits(right.texts, 1).take(pa.array(from_right)),
    )
    return Values(left.rows[from_left], texts, left.dropped + right.dropped)


def _called(function: Callable[[pa.Array], pa.Array], values: Values) -> Values:
    """Applies a function to each distinct value."""
    coded = values.texts.dictionary_encode()
    results = function(coded.dictionary).take(coded.indices)
    found = values._replace(texts=results).kept(results.is_valid())
    return found._replace(dropped=values.dropped + len(values.rows) - len(found.rows))


def _of_strings(change: Callable[[pa.Array], pa.Array]) -> Callable[[pa.Array], pa.Array]:
    """Makes a function of JSON strings and numbers; other values have no result."""

    def function(texts: pa.Array) -> pa.Array:
        return quoted(change(unquoted(_text_of(texts))))

    return function


def _text_of(texts: pa.Array) -> pa.Array:
    """Returns strings as they are, and the shortest text of numbers, without a fraction of zero."""
    if is_string(texts).all():
        return texts
    is_number = pc.match_substring_regex(texts, "^-?[0-9]")
    shortest = pc.replace_substring_regex(texts, r"\.0$", "")
    numbers = pc.if_else(is_number, quoted(shortest), pa.scalar(None, TEXT))
    return pc.if_else(pa.array(is_string(texts)), texts, numbers)


def _string(texts: pa.Array) -> pa.Array:
    """Converts numbers, booleans, lists and objects to their JSON text."""
    return pc.if_else(pa.array(is_string(texts)), texts, quoted(texts))


def _digits(strings: pa.Array) -> pa.Array:
    digits = pc.replace_substring_regex(strings, "[^0-9]+", "")
    return pc.if_else(pc.equal(digits, ""), pa.scalar(None, TEXT), digits)


_raws: Final = msgspec.json.Decoder(list[msgspec.Raw])
_INTEGER: Final = r"^[+-]?[0-9]{1,300}$"
_NUMBER: Final = r"^[+-]?[0-9]{1,300}(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?$"


def _integer(texts: pa.Array) -> pa.Array:
    """Converts integers, texts of integers, and integral floats up to 2^53."""
    found = _numerals(texts, _INTEGER)
    looks = pc.match_substring_regex(texts, r"^-?[0-9]+\.[0-9]+$")
    numbers = pc.if_else(looks, texts, pa.scalar(None, TEXT))
    whole = pc.if_else(_is_whole(numbers.cast(pa.float64())), numbers, pa.scalar(None, TEXT))
    found = pc.coalesce(found, pc.replace_substring_regex(whole, r"\.0*$", ""))
    return canonical(_without_zeros(found))


def _is_whole(numbers: pa.Array) -> pa.Array:
    return pc.and_(
        pc.equal(numbers, pc.trunc(numbers)), pc.less_equal(pc.abs(numbers), float(1 << 53))
    )


def _float(texts: pa.Array) -> pa.Array:
    """Converts numbers and numeric texts to doubles; out-of-range values have no result."""
    numbers = _without_zeros(_numerals(texts, _NUMBER)).cast(pa.float64())
    numbers = pc.add(pc.if_else(pc.is_finite(numbers), numbers, None), 0.0)  # -0.0 becomes 0.0
    found = texts_of(_raws.decode(msgspec.json.encode(numbers.to_pylist())))
    return with_nulls_of(numbers, found)


def _numerals(texts: pa.Array, pattern: str) -> pa.Array:
    """Returns the numbers and strings that match the pattern, else null."""
    plain = pc.if_else(pa.array(is_string(texts)), pc.utf8_trim_whitespace(_inner(texts)), texts)
    return pc.if_else(pc.match_substring_regex(plain, pattern), plain, pa.scalar(None, TEXT))


def _inner(texts: pa.Array) -> pa.Array:
    strings = pc.if_else(pa.array(is_string(texts)), texts, pa.scalar(None, TEXT))
    return unquoted(strings)


def _without_zeros(numerals: pa.Array) -> pa.Array:
    """Strips plus signs and leading zeros, which JSON lacks."""
    return pc.replace_substring_regex(numerals, r"^(?:\+|(-))?0*([0-9])", r"\1\2")


_FUNCTIONS: Final[dict[str, Callable[[pa.Array], pa.Array]]] = {
    "lower": _of_strings(pc.utf8_lower),
    "upper": _of_strings(pc.utf8_upper),
    "trim": _of_strings(pc.utf8_trim_whitespace),
    "normalize": _of_strings(lambda strings: pc.utf8_normalize(strings, "NFKC")),
    "digits": _of_strings(_digits),
    "string": _string,
    "timestamp": _of_strings(instants),
    "integer": _integer,
    "float": _float,
}
