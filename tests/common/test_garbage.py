"""What the collector of garbage looks at while work runs."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from threading import Lock

import pytest

from compactor.common import garbage
from compactor.common.garbage import freeze_for_good, older_objects_left_alone


class Cycle:
    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def _nothing_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that tests run in this process leave modules frozen."""
    gc.unfreeze()
    monkeypatch.setattr(garbage, "_claim", Lock())


def test_older_objects_are_left_alone_until_the_work_is_done() -> None:
    gc.collect()
    older = weakref.ref(Cycle())
    with older_objects_left_alone():
        newer = weakref.ref(Cycle())
        gc.collect()
        assert newer() is None
        assert older() is not None
    gc.collect()
    assert older() is None
    assert not gc.get_freeze_count()


def test_work_that_fails_leaves_nothing_frozen() -> None:
    with pytest.raises(RuntimeError), older_objects_left_alone():
        raise RuntimeError
    assert not gc.get_freeze_count()


@pytest.mark.parametrize("freeze", [gc.freeze, freeze_for_good])
def test_what_others_have_frozen_stays_frozen(freeze: Callable[[], None]) -> None:
    frozen = weakref.ref(Cycle())
    freeze()
    try:
        with older_objects_left_alone():
            pass
        gc.collect()
        assert frozen() is not None
    finally:
        gc.unfreeze()


def test_work_beside_other_work_ends_without_it() -> None:
    older = weakref.ref(Cycle())
    with older_objects_left_alone():
        with older_objects_left_alone():
            pass
        gc.collect()
        assert older() is not None
    gc.collect()
    assert older() is None
