"""Finds users' files: local ones by path, others by address."""

from __future__ import annotations

from pathlib import Path

import pytest

from compactor.errors import CompactorError, InputError, UsageError
from compactor.files.places import exists, matching_paths, place_of
from tests.support.wording import refuses


@pytest.mark.parametrize("address", ["s3a://b/x.csv", "http://user:secret@h/x.csv"])
def test_an_address_of_no_store_is_no_local_path(address: str) -> None:
    for find in (matching_paths, place_of):
        with pytest.raises(UsageError) as refused:
            find(address)
        assert "secret" not in str(refused.value)
    with refuses(UsageError, address.partition(":")[0]):
        matching_paths(address)


def test_a_folder_whose_name_ends_with_a_colon_is_a_local_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c:").mkdir()
    Path("c:/x.csv").touch()
    assert matching_paths("c://*.csv") == ["c:/x.csv"]


def test_a_name_that_the_system_refuses_is_named() -> None:
    with refuses(InputError):
        exists("x" * 300)
    with pytest.raises(CompactorError):
        matching_paths("*" * 300)
