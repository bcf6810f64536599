"""PyArrow's compute functions, imported on first use.

`pyarrow.compute` writes the documentation of all functions when it is imported. That takes a tenth of the CPU
time of a small command, and many commands call no such function.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    found = globals()[name] = getattr(import_module("pyarrow.compute"), name)
    return found
