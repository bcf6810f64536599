"""What all tests of merges have."""

from __future__ import annotations

import pytest

from compactor.merge.inputs import decoding


@pytest.fixture(autouse=True)
def small_chunks_are_decoded_ahead_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets merges of few rows go the way of heavy ones."""
    monkeypatch.setattr(decoding, "_MIN_BYTES", 0)
