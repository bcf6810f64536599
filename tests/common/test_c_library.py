"""Functions of the C library are reached only together."""

from __future__ import annotations

import os

from compactor.common.c_library import c_library


def test_the_c_library_is_none_if_it_lacks_a_function() -> None:
    library = c_library("getpid")
    assert library is not None
    assert library.getpid() == os.getpid()
    assert c_library("getpid", "no_such_function_of_c") is None
