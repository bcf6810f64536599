"""Short ids of fragments, by which people name them."""

from __future__ import annotations

import pytest

from compactor.errors import UsageError
from compactor.table.fragment_ids import compaction_of, key_of, short_ids
from compactor.table.object_names import fragment_key
from tests.support.wording import refuses

A, B = "0ef486bc1c69482b8112dd5cc2a8b3c2", "0ef486bc1c69ffff8112dd5cc2a8b3c2"


def test_ids_are_as_short_as_they_can_be_told_apart() -> None:
    keys = [fragment_key(0, A, 0), fragment_key(0, A, 12)]
    assert short_ids(keys) == dict(zip(keys, ("0ef486bc-0", "0ef486bc-12"), strict=True))
    keys += [fragment_key(7, B, 0), "data/made-elsewhere.frag"]
    assert list(short_ids(keys).values()) == [
        "0ef486bc1c69482b-0",
        "0ef486bc1c69482b-12",
        "0ef486bc1c69ffff-0",
        "data/made-elsewhere.frag",
    ]
    assert short_ids([]) == {}


@pytest.mark.parametrize("key", [fragment_key(3, A, 0), fragment_key(3, B, 100_000)])
def test_every_short_id_and_every_name_of_the_object_mean_the_fragment(key: str) -> None:
    keys = [fragment_key(3, A, 0), fragment_key(3, A, 10), fragment_key(3, B, 100_000)]
    for name in (key, key.removeprefix("data/"), short_ids(keys)[key]):
        assert key_of(keys, name) == key


def test_a_beginning_of_four_characters_is_enough_if_one_fragment_has_it() -> None:
    keys = [fragment_key(3, A, 0), fragment_key(3, B, 1)]
    assert key_of(keys, "0ef4-1") == keys[1]
    assert key_of(keys, "0ef-1") == "0ef-1"
    assert key_of(keys, "0ef4-2") == "0ef4-2"
    with refuses(UsageError, "'0ef4-0'", "2 fragments"):
        key_of([*keys, fragment_key(3, B, 0)], "0ef4-0")


def test_a_compaction_is_meant_by_the_beginning_of_its_id_or_by_a_fragment_that_it_wrote() -> None:
    run = "5f0c2a9e4b1d"
    key = fragment_key(7, f"{run}-121b3548", 3)
    ids = {key: run, "data/a.frag": "5f0c77777777", "data/b.frag": "abcd"}
    for name in (
        "5f0c2",
        run,
        key,
        key.removeprefix("data/"),
        "5f0c2a9e-3",
        "5f0c2a9e4b1d-121b3548-00003",
    ):
        assert compaction_of(ids, name) == run
    assert compaction_of(ids, "5f0c2a9e-4") == "5f0c2a9e-4", "it wrote no such fragment"
    assert compaction_of(ids, "abcd") == "abcd"
    assert [compaction_of(ids, name) for name in ("", "abc", "9999", "data")] == [
        "",
        "abc",
        "9999",
        "data",
    ]
    with refuses(UsageError, "5f0c"):
        compaction_of(ids, "5f0c")
