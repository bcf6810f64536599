"""The reference has every property of tables, as it is declared."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from docs.tools.property_table import property_table

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "table.md"


def test_the_reference_has_the_table_of_properties() -> None:
    assert property_table() in PAGE.read_text(), (
        "run `python -m docs.tools.property_table docs/reference/table.md`"
    )
