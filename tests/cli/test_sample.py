"""`sample` writes the files with which README and tutorials begin."""

from __future__ import annotations

from pathlib import Path

import pytest

from compactor.cli.main import run
from compactor.cli.sample_files import sample_files
from tests.support.wording import says


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_its_files_are_written_once_and_left_alone_after_that(tmp_path: Path) -> None:
    for _ in range(2):
        assert run(["sample", str(tmp_path / "new")]) == 0
        assert contents(tmp_path / "new") == sample_files()


def test_a_file_of_the_same_name_is_not_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tuesday.ndjson").write_text("mine")
    assert run(["sample", str(tmp_path)]) == 2
    says(capsys.readouterr().err)
    assert contents(tmp_path) == {"tuesday.ndjson": "mine"}


def test_a_folder_that_cannot_be_made_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["sample", str(tmp_path / "a" / "b")]) == 2
    says(capsys.readouterr().err)
