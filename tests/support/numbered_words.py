"""Makes writers store small texts by a vocabulary, which they do only with larger ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lsm_fragment.encodings import template, vocabulary


def number_words(patch: pytest.MonkeyPatch) -> None:
    """Text without a dictionary is stored by its words, however little it is and saves."""
    patch.setattr(vocabulary, "MIN_TEXT_BYTES", 0)
    patch.setattr(vocabulary, "_MAX_DISTINCT", 1)
    patch.setattr(vocabulary, "_MAX_FRACTION", 99)
    patch.setattr(template, "_search", lambda *_: template._Found())
    patch.setattr(vocabulary, "_MAX_FIRST_NUMBERS", 1)


@contextmanager
def numbered_words() -> Iterator[None]:
    """`number_words` for some lines."""
    with pytest.MonkeyPatch.context() as patch:
        number_words(patch)
        yield
