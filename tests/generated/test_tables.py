"""Some hundred generated tables with fixed seeds; `make test-long` runs tens of thousands."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace

from compactor.planner.tree import all_items, components
from compactor.read import row_group_reader, scan
from lsm_fragment.arrays import storage
from lsm_fragment.keys import bounds as keys
from lsm_fragment.keys import normalised as ordering
from lsm_fragment.keys import sort_schema as schema
from lsm_fragment.keys.sort_schema import Nulls
from tests.generated.arrays import Builder
from tests.generated.bits import values_of
from tests.generated.case import TIMEOUT_S, check
from tests.generated.plans import Append, plan_of, smaller
from tests.generated.pool import Progress, run
from tests.generated.types import any_type
from tests.generated.values import Values

TABLES = 120


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_random_tables_say_what_was_written_whatever_is_done_to_them() -> None:
    progress: list[Progress] = []
    findings = run(
        check, range(TABLES), processes=2, timeout_s=TIMEOUT_S, on_progress=progress.append
    )
    assert not findings, "\n".join(f"seed {f.seed}: {f.text}" for f in findings)
    counts = progress[-1].counts
    refused = sum(n for name, n in counts.items() if name.endswith(": refused"))
    asked = sum(n for name, n in counts.items() if ":" not in name)
    assert refused < asked / 5, "too much is refused for the rest to say much"


def test_arrays_of_any_layout_have_the_values_that_were_asked_for() -> None:
    for seed in range(1_500):
        rng = random.Random(seed)
        dtype = any_type(rng, 3)
        values = Values(rng, null_share=rng.choice((0.0, 0.2, 1.0)), extremes=0.1, distinct=5)
        column = values.column(dtype, rng.choice((0, 1, 5, 20)))
        array = Builder(rng, rng.choice((0.0, 0.3, 0.7))).array(dtype, column)
        array.validate(full=True)
        assert values_of(array) == column, (seed, dtype)


def test_a_case_follows_from_its_seed_and_can_be_made_smaller() -> None:
    assert plan_of(7) == plan_of(7)
    for plan in smaller(plan_of(7)):
        assert plan != plan_of(7)
        assert any(isinstance(step, Append) for step in plan.steps)


_fields = ordering._fields
_shorten_text = keys._shorten_text


def _newest_first(snapshot: Any) -> Any:
    for group in components(all_items(snapshot)):
        yield sorted((item.entry for item in group), key=lambda e: e.age, reverse=True)


def _cut_down(text: str, *, down: bool) -> Any:
    return _shorten_text(text, down=True)


def _nulls_last(dtype: Any, column: Any) -> Any:
    return _fields(dtype, replace(column, nulls=Nulls.LAST))


BROKEN = {
    "equal keys in the order in which they came": (
        scan, "overlapping_fragments", _newest_first,
    ),
    "the place of nulls": (ordering, "_fields", _nulls_last),
    "upper bounds of long texts": (keys, "_shorten_text", _cut_down),
    "nulls within types": (storage, "null_mask", lambda array: None),
    "names in quotes": (schema, "split_outside_quotes", lambda text, separator: text.split(separator)),
    "deleted rows in readers": (row_group_reader, "read_deletion", lambda store, entry: None),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("module", "name", "broken"), BROKEN.values(), ids=BROKEN.keys())
def test_a_product_with_a_defect_is_found_out(
    module: Any, name: str, broken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, broken)
    for start in range(0, 200, 20):
        seeds = range(start, start + 20)
        # Forked, so that the workers are as broken as this process.
        if run(check, seeds, processes=2, timeout_s=TIMEOUT_S, start_method="fork"):
            return
    pytest.fail("200 tables did not show it")
