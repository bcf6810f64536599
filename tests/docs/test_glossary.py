"""The glossary has each noun once, in alphabetical order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

GLOSSARY: Final = Path(__file__).parents[2] / "docs/reference/glossary.md"


def test_each_noun_stands_once_and_in_order() -> None:
    nouns = re.findall(r"^\| \*\*(.+?)\*\* \|", GLOSSARY.read_text(), re.MULTILINE)
    assert len(nouns) > 40
    assert nouns == sorted(set(nouns))
