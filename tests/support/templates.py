"""Strings that become templates whatever the compression level, for tests of what is stored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from format import fitting


@contextmanager
def dividing_at_any_level() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "LEAST_TEMPLATE_LEVEL", 0)
        yield
