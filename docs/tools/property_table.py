"""Writes the table of properties into a page from their declarations.

python -m docs.tools.property_table docs/reference/table.md
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

from compactor.settings.fields import text_of
from compactor.settings.properties import MODEL_OF

_HEAD: Final = "| property | default | meaning |\n|---|---|---|\n"
_TABLE: Final = re.compile(rf"{re.escape(_HEAD)}(?:\|.*\n)*")


def property_table() -> str:
    """Returns the table in Markdown, with a row for each property."""
    return _HEAD + "".join(_row(name) for name in sorted(MODEL_OF))


def with_table(page: str) -> str:
    """Returns the page with its table of properties made anew."""
    page, count = _TABLE.subn(lambda _: property_table(), page)
    assert count == 1, "the page has one table of properties"
    return page


def _row(name: str) -> str:
    field = MODEL_OF[name].model_fields[name]
    has_default = field.default is not None and field.default_factory is None
    default = f"`{text_of(field, field.default)}`" if has_default else "see there"
    return f"| `{name}` | {default} | {field.description} |\n"


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        path.write_text(with_table(path.read_text()))
