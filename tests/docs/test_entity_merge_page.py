"""Samples of docs/reference/entity-merge.md, section by section, as they are printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from compactor.entities.entities import DELETED, REPLACED, RESERVED
from compactor.entities.expressions import ID, IDS
from docs.tools.console_pages import page_as_run

PAGE: Final = Path("docs/reference/entity-merge.md")
SECTIONS: Final = ("### Values that too many share", "### Ids that stay", "### A preview")


def section(text: str, heading: str) -> str:
    """Returns what stands below a heading, to the next one."""
    below = text.split(f"\n{heading}\n")[1]
    return re.split(r"^#+ ", below, maxsplit=1, flags=re.MULTILINE)[0]


@pytest.mark.parametrize("heading", SECTIONS)
def test_the_section_shows_what_its_commands_print(heading: str) -> None:
    shown = section(PAGE.read_text(), heading)
    assert "```console" in shown
    assert page_as_run(shown) == shown


@pytest.mark.parametrize(
    ("sentence", "others"),
    [
        (r"((?:`[$\w]+`,?\s(?:and )?)+)are\snot properties", {ID, IDS}),
        (r"((?:`[$\w]+`,?\s(?:and )?)+)are\signored", {ID, IDS, DELETED, REPLACED}),
    ],
)
def test_the_page_names_every_column_that_is_no_property(sentence: str, others: set[str]) -> None:
    found = re.search(sentence, PAGE.read_text())
    assert found is not None
    assert set(re.findall("`(.+?)`", found[1])) == set(RESERVED) - others
