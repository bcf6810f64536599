"""Random conditions of fixed seeds, with what they must notice."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from compactor.predicate import numbers, parse, prune, tree
from compactor.predicate.skipping import bloom
from compactor.predicate.tree import Compare, Op
from lsm_fragment.keys import bounds as keys
from tests.generated.condition_cases import CASES, check

_SEED = 1


@pytest.mark.parametrize("case", range(4))
def test_random_conditions_hold_of_the_rows_that_duckdb_finds(case: int) -> None:
    assert check(_SEED * CASES + case) is None


def _finds_not_a_number_unequal(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tree, "differs", pc.not_equal)


def _takes_escapes_for_letters(patch: pytest.MonkeyPatch) -> None:
    def like(texts: pa.Array, pattern: str, *, ignores_case: bool) -> pa.Array:
        return pc.match_like(texts, pattern, ignore_case=ignores_case)

    patch.setattr(tree, "like", like)


def _leaves_decimals_in_their_own_scale(patch: pytest.MonkeyPatch) -> None:
    def comparison(column: str, dtype: pa.DataType, op: Op, units: Decimal) -> Compare:
        found = numbers.comparison(column, dtype, op, units)
        if op is not Op.EQ or found.op is not op or not pa.types.is_decimal(dtype):
            return found
        return Compare(column, op, pa.scalar(found.value.as_py().normalize()))

    patch.setattr(parse, "comparison", comparison)


def _forgets_not_a_number(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(prune, "_may_be_nan", lambda _bounds, _value: False)


def _prunes_by_patterns_as_written(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(prune, "literal_prefix", lambda pattern: pattern.split("%")[0])


def _cuts_upper_bounds(patch: pytest.MonkeyPatch) -> None:
    def cut(text: str, *, down: bool) -> tuple[Any, bool]:
        return text.encode()[: keys.MAX_VALUE_BYTES].decode(errors="ignore"), False

    patch.setattr(keys, "_shorten_text", cut)


def _forgets_a_bit(patch: pytest.MonkeyPatch) -> None:
    build = bloom.build

    def without_a_byte(*args: Any) -> bytes | None:
        data = build(*args)
        return data and bytes(4) + data[4:]

    patch.setattr(bloom, "build", without_a_byte)


@pytest.mark.long
@pytest.mark.parametrize(
    ("breaks", "first_case"),
    [
        (_finds_not_a_number_unequal, 9),
        (_takes_escapes_for_letters, 1),
        (_leaves_decimals_in_their_own_scale, 2),
        (_forgets_not_a_number, 9),
        (_prunes_by_patterns_as_written, 1),
        (_cuts_upper_bounds, 1),
        (_forgets_a_bit, 3),
    ],
)
def test_random_conditions_notice_broken_code(
    breaks: Callable[[pytest.MonkeyPatch], None], first_case: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks(monkeypatch)
    assert any(check(_SEED * CASES + first_case + more) for more in range(20))
