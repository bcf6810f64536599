"""The faults themselves: what a caller meets, what took effect, and which calls are hit."""

from __future__ import annotations

from random import Random

import pytest

from compactor.errors import (
    ObjectChangedError,
    ObjectExistsError,
    PermissionDeniedError,
    StoreUnreachableError,
    UnknownOutcomeError,
)
from tests.faults import (
    Crash,
    Damage,
    DeliverTwice,
    Drop,
    IgnoreConditions,
    Kill,
    LoseAnswer,
    Refuse,
    Stall,
    calls,
    flipped,
    worse,
)
from tests.support.memory_store import MemoryStore


@pytest.mark.parametrize("landed", [True, False])
def test_a_creation_without_an_answer_may_have_landed(landed: bool) -> None:
    store = MemoryStore()
    lost = store.faults.add(LoseAnswer(landed=landed), at=calls("create", prefix="a"))
    with pytest.raises(UnknownOutcomeError):
        store.create("a1", b"1")
    store.create("b1", b"1")
    assert lost.hits == [("create", "a1")]
    assert ("a1" in store.objects) is landed


def test_a_deletion_without_an_answer_may_be_repeated_and_is_said_to_be_unreachable() -> None:
    store = MemoryStore({"a": b"1"})
    store.faults.add(LoseAnswer())
    with pytest.raises(StoreUnreachableError):
        store.delete("a")
    assert store.objects == {}


def test_a_second_delivery_finds_what_the_first_one_created() -> None:
    store = MemoryStore()
    seen: list[list[str]] = []
    store.faults.add(DeliverTwice(lambda: seen.append(list(store.objects))))
    with pytest.raises(ObjectExistsError):
        store.create("a", b"1")
    assert seen == [["a"]]


def test_a_connection_breaks_before_the_call_or_within_its_answer() -> None:
    store = MemoryStore({"a": bytes(10)})
    store.faults.add(Drop(), at=calls("read"))
    store.faults.add(Drop(after_bytes=4), at=calls("open_stream"))
    with pytest.raises(StoreUnreachableError):
        store.read("a")
    stream = store.open_stream("a")
    assert stream.read(10) == bytes(4)
    with pytest.raises(StoreUnreachableError):
        stream.read(10)


def test_an_upload_that_is_refused_leaves_nothing() -> None:
    store = MemoryStore()
    store.faults.add(Refuse(PermissionDeniedError), at=calls("complete"))
    with pytest.raises(PermissionDeniedError, match="a"), store.start_upload("a") as upload:
        upload.write(b"1")
        upload.complete()
    assert (store.objects, store.uploads) == ({}, {})


def test_answers_and_stored_bytes_are_damaged() -> None:
    store = MemoryStore({"a": b"abc"})
    store.faults.add(Damage(flipped), at=calls("read").first())
    assert (store.read("a"), store.read("a")) == (b"acc", b"abc")
    assert worse(b"abc", Random(1)) == worse(b"abc", Random(1)) != b"abc"


@pytest.mark.parametrize("answered", [True, False])
def test_others_act_while_a_call_is_stalled(answered: bool) -> None:
    store = MemoryStore({"a": b"old"})
    store.faults.add(Stall(lambda: store.objects.update(a=b"new"), answered=answered))
    assert store.read("a") == (b"old" if answered else b"new")


@pytest.mark.parametrize("after", [True, False])
def test_nothing_takes_effect_after_a_death(after: bool) -> None:
    store = MemoryStore()
    store.faults.add(Kill(after=after), at=calls().nth(2))
    store.create("a", b"1")
    for key in ("b", "c"):
        with pytest.raises(Crash):
            store.create(key, b"1")
    assert list(store.objects) == (["a", "b"] if after else ["a"])


def test_conditions_are_ignored_by_stores_that_do_not_know_them() -> None:
    store = MemoryStore({"a": b"1"})
    with pytest.raises(ObjectChangedError):
        store.open_stream("a", if_match="another")
    store.faults.add(IgnoreConditions())
    store.create("a", b"2")
    assert store.open_stream("a", if_match="another").read(9) == b"2"


def test_calls_are_chosen_by_number_or_by_a_seed() -> None:
    store = MemoryStore({"a": b"1"})

    def dropped(at: object) -> list[int]:
        store.faults.clear()
        store.faults.add(Drop(), at=at)  # type: ignore[arg-type]
        numbers = []
        for number in range(1, 7):
            try:
                store.read("a")
            except StoreUnreachableError:
                numbers.append(number)
        return numbers

    reads = calls("read")
    assert dropped(reads.nth(3)) == [3]
    assert dropped(reads.first(2)) == [1, 2]
    assert dropped(reads.from_nth(5)) == [5, 6]
    chosen = dropped(reads.by_chance(0.5, Random(1)))
    assert 0 < len(chosen) < 6
    assert dropped(reads.by_chance(0.5, Random(1))) == chosen


def test_of_several_faults_the_first_is_outermost() -> None:
    store = MemoryStore()
    store.faults.add(LoseAnswer(), at=calls("create"))
    store.faults.add(Stall(lambda: store.objects.update(b=b"2")), at=calls("create"))
    with pytest.raises(UnknownOutcomeError):
        store.create("a", b"1")
    assert list(store.objects) == ["b", "a"]
