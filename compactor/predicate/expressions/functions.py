"""The table of functions: the kinds of arguments that each takes, and its call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
from msgspec import Struct

from compactor.predicate.expressions import (
    json_paths,
    moments,
    nested,
    numbers,
    texts,
    time_formats,
)
from compactor.predicate.expressions.arithmetic import arithmetic
from compactor.predicate.expressions.bound import Bound, applied, unknown
from compactor.predicate.expressions.kinds import is_of, shown_kind
from compactor.predicate.sql import SqlError
from lsm_fragment import compute as pc

Call = Callable[..., Any]
_MARKS: Final = "[]'."
"""What `Function.takes` writes around a kind."""


class Function(Struct, frozen=True):
    """A function, for one combination of kinds."""

    takes: str
    """Kinds of the arguments: `[integer]` may be left out, `'text'` is a constant, `any...` repeats."""
    call: Call
    takes_null: bool = False
    """Whether the call handles NULL itself; else the result is NULL if an argument is."""

    def bound(self, parts: Sequence[Bound], text: str) -> Bound:
        """Raises `SqlError` if the call refuses a type or a constant."""
        if not self.takes_null and any(part.kind == "null" for part in parts):
            return unknown(parts, text)
        kinds = self.takes.split()
        return applied(
            self.call, parts, text, next(n for n, kind in enumerate(kinds) if "'" not in kind)
        )

    def misfit(self, parts: Sequence[Bound]) -> str | None:
        """Returns the reason why the arguments do not fit; None if they do."""
        kinds = self.takes.split()
        if kinds and kinds[-1].endswith("..."):
            kinds += [kinds[-1]] * max(0, len(parts) - len(kinds))
        needed = sum(not kind.startswith("[") for kind in kinds)
        if not needed <= len(parts) <= len(kinds):
            return f"it takes {self.shown()}"
        for part, kind in zip(parts, kinds, strict=False):
            asked = kind.strip(_MARKS)
            if not is_of(part.kind, asked):
                return f"it takes {self.shown()}, and {part.text!r} is {part.type}"
            if "'" in kind and part.value is None:
                return f"{part.text!r} has to be a constant"
        return None

    def shown(self) -> str:
        shown = [
            f"{'perhaps ' if kind.startswith('[') else ''}{shown_kind(kind.strip(_MARKS))}"
            f"{' ...' if kind.endswith('...') else ''}"
            for kind in self.takes.split()
        ]
        return ", ".join(shown) or "no arguments"


JSON_PATHS: Final = frozenset(("json_extract", "json_extract_string", "json_valid"))
"""Functions that take columns of JSON as they are."""
LIST_CONTAINS: Final = frozenset(("list_contains", "list_has", "array_contains", "array_has"))


def called(name: str, parts: Sequence[Bound], text: str) -> Bound:
    """Binds a call of the table. Raises `SqlError` if the arguments fit none of its functions."""
    reasons = []
    for function in FUNCTIONS[name]:
        reason = function.misfit(parts)
        if reason is None:
            return function.bound(parts, text)
        reasons.append(reason)
    raise SqlError(f"{text!r}: {reasons[0]}")


def _of(takes: str, call: Call) -> tuple[Function, ...]:
    return (Function(takes, call),)


def _arrow(name: str) -> tuple[Function, ...]:
    return _of("text", lambda *values: getattr(pc, name)(*values))


def _each_of(takes: Sequence[str], call: Call) -> tuple[Function, ...]:
    return tuple(Function(each, call) for each in takes)


_PATHS: Final = ("text 'text'", "text 'integer'")
_LENGTH: Final = (
    Function("text", lambda text: pc.cast(pc.utf8_length(text), pa.int64())),
    Function("list", nested.length),
    Function("map", nested.length),
)
_PART: Final = {
    name: _each_of(("moment", "time"), moments.part(of))
    for name, of in (*((p, p) for p in moments.PARTS), *moments.ALIASES.items())
    if name not in ("ms", "us") and not name.endswith("s")
}
_FUNCTIONS: Final[dict[str, tuple[Function, ...]]] = {
    "lower": _arrow("utf8_lower"),
    "upper": _arrow("utf8_upper"),
    "reverse": _arrow("utf8_reverse"),
    "length": _LENGTH,
    "trim": _of("text [text]", texts.trimmed("utf8_trim_whitespace", "utf8_trim")),
    "ltrim": _of("text [text]", texts.trimmed("utf8_ltrim_whitespace", "utf8_ltrim")),
    "rtrim": _of("text [text]", texts.trimmed("utf8_rtrim_whitespace", "utf8_rtrim")),
    "substring": _of("text integer [integer]", texts.substring),
    "left": _of("text integer", texts.left),
    "right": _of("text integer", texts.right),
    "replace": _of("text text text", texts.replace),
    "concat": (Function("any...", texts.concat, takes_null=True),),
    "concat_ws": (Function("text any...", texts.concat_ws, takes_null=True),),
    "string_split": _of("text 'text'", texts.split),
    "split_part": _of("text text integer", texts.split_part),
    "lpad": _of("text integer [text]", texts.padded(is_left=True)),
    "rpad": _of("text integer [text]", texts.padded(is_left=False)),
    "starts_with": _of("text text", texts.starts_with),
    "ends_with": _of("text text", texts.ends_with),
    "contains": (
        Function("text text", texts.contains),
        Function("list any", nested.list_contains),
    ),
    "strpos": _of("text text", texts.strpos),
    "regexp_matches": _of("text 'text' ['text']", texts.regexp_matches),
    "regexp_extract": _of("text 'text' ['integer']", texts.regexp_extract),
    "regexp_replace": _of("text 'text' 'text' ['text']", texts.regexp_replace),
    "abs": _of("number", numbers.absolute),
    "round": _of("number ['integer']", numbers.rounded),
    "floor": _of("number", numbers.unless_whole("floor")),
    "ceil": _of("number", numbers.unless_whole("ceil")),
    "trunc": _of("number", numbers.unless_whole("trunc")),
    "sign": _of("number", numbers.sign),
    "sqrt": _of("number", numbers.of_doubles("sqrt_checked")),
    "ln": _of("number", numbers.of_doubles("ln_checked")),
    "log10": _of("number", numbers.of_doubles("log10_checked")),
    "log2": _of("number", numbers.of_doubles("log2_checked")),
    "exp": _of("number", numbers.of_doubles("exp")),
    "power": _of("number number", numbers.of_doubles("power")),
    "mod": _of("number number", arithmetic("%")),
    "isnan": _of("number", numbers.is_nan),
    "greatest": (Function("any...", numbers.extreme("max_element_wise"), takes_null=True),),
    "least": (Function("any...", numbers.extreme("min_element_wise"), takes_null=True),),
    "date_trunc": _of("'text' moment", moments.date_trunc),
    "date_diff": _of("'text' moment moment", moments.date_diff),
    "epoch_ms": _each_of(("moment", "integer"), moments.epoch_ms),
    "to_timestamp": _of("number", moments.to_timestamp),
    "strftime": _of("moment 'text'", time_formats.strftime),
    "strptime": _of("text 'text'", time_formats.strptime),
    "json_extract": _each_of(_PATHS, json_paths.json_extract),
    "json_extract_string": _each_of(_PATHS, json_paths.json_extract_string),
    "json_valid": _of("text", json_paths.json_valid),
    "timezone": _of("'text' moment", time_formats.at_zone),
    "md5": _of("text", texts.digest("md5")),
    "sha256": _of("text", texts.digest("sha256")),
    "date_part": _each_of(("'text' moment", "'text' time"), moments.date_part),
    "list_contains": _of("list any", nested.list_contains),
    **_PART,
}
_ALIASES: Final = {
    "lcase": "lower", "ucase": "upper", "len": "length", "char_length": "length",
    "character_length": "length", "array_length": "length", "cardinality": "length", "substr": "substring",
    "prefix": "starts_with", "suffix": "ends_with", "startswith": "starts_with", "endswith": "ends_with",
    "position": "strpos", "instr": "strpos", "ceiling": "ceil", "pow": "power", "log": "log10",
    "datetrunc": "date_trunc", "datepart": "date_part", "array_contains": "list_contains",
    "list_has": "list_contains", "array_has": "list_contains", "regexp_like": "regexp_matches",
    "is_nan": "isnan", "datediff": "date_diff", "split": "string_split", "str_split": "string_split",
}  # fmt: skip
FUNCTIONS: Final = {**_FUNCTIONS, **{name: _FUNCTIONS[of] for name, of in _ALIASES.items()}}
"""Functions by name, in lower case."""
