"""Some tables of heavy texts; `make test-long` runs hundreds."""

from __future__ import annotations

import pytest

from compactor.merge.groups import column_pieces
from tests.generated.heavy import TIMEOUT_S, check
from tests.generated.pool import run


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_a_merge_of_heavy_texts_is_done_or_refused_before_it_begins() -> None:
    findings = run(check, range(25), processes=2, timeout_s=TIMEOUT_S)
    assert not findings, "\n".join(f"seed {f.seed}: {f.text}" for f in findings)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_merge_that_charges_each_row_for_what_rows_share_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(column_pieces, "used_bytes", lambda pieces: None)
    # Forked, so that the workers are as broken as this process.
    assert run(check, range(40), processes=2, timeout_s=TIMEOUT_S, start_method="fork")
