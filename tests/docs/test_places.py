"""Files that the documentation names are there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = ("CONTRIBUTING.md", "docs/explanation/architecture.md", "docs/how-to/security.md")
_PLACE: Final = re.compile(r"`((?:bench|compactor|deploy|docs|examples|format|tests)/[\w./-]*)`")


@pytest.mark.parametrize("name", PAGES)
def test_files_and_folders_that_a_page_names_are_there(name: str) -> None:
    places = set(_PLACE.findall((ROOT / name).read_text()))
    assert len(places) > 10
    assert [place for place in sorted(places) if not (ROOT / place).exists()] == []
