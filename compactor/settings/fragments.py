"""Settings of the fragments that writers make."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from compactor.settings.model import Settings
from lsm_fragment.container.writer import WriterOptions

DEFAULT_ROWS_PER_FRAGMENT: Final = 1_000_000
DEFAULT_ROWS_PER_ROW_GROUP: Final = WriterOptions().max_rows
RowsPerFragment = Annotated[
    int, Field(ge=1, lt=2**31, description="Maximum rows of a level-0 fragment.")
]
RowsPerRowGroup = Annotated[int, Field(ge=1, lt=2**31, description="Maximum rows of a row group.")]


class FragmentSettings(Settings):
    """Settings of level-0 fragments."""

    rows_per_fragment: RowsPerFragment = DEFAULT_ROWS_PER_FRAGMENT
    max_rows_per_row_group: RowsPerRowGroup = DEFAULT_ROWS_PER_ROW_GROUP
