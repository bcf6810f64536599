"""docs/operations.md has every error there is, with its exit code."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from typing import TypeVar

import pytest

import compactor
import format as format_package
from compactor.errors import CompactorError
from format.errors import FormatError
from tests.deploy.manifests import ROOT

Error = TypeVar("Error", CompactorError, FormatError)

RUNBOOK = (ROOT / "docs" / "operations.md").read_text()
ROW = re.compile(r"^\| `(\w+)` \| (\d+) \| (.*) \|$", re.MULTILINE)
# Raised and caught within a module's own package: nobody meets them.
INTERNAL = {"PreconditionError", "LostAnswerError", "UploadGoneError"}


def error_classes() -> dict[str, int]:
    """Exit code by name."""
    for package in (compactor, format_package):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    found = {error.__name__: error.exit_code for error in descendants(CompactorError)}
    found |= {error.__name__: 3 for error in descendants(FormatError)}
    return {name: code for name, code in found.items() if name[0] != "_" and name not in INTERNAL}


def descendants(of: type[Error]) -> Iterator[type[Error]]:
    child: type[Error]
    for child in of.__subclasses__():
        # Tests may have made some of their own.
        if child.__module__.partition(".")[0] in ("compactor", "format"):
            yield child
        yield from descendants(child)


def test_the_runbook_has_every_error_with_its_exit_code() -> None:
    rows = {name: int(code) for name, code, _ in ROW.findall(RUNBOOK)}
    assert rows == error_classes()


@pytest.mark.parametrize("name", [n for n, _, _ in ROW.findall(RUNBOOK) if n != "TableError"])
def test_every_error_has_a_cause_and_something_to_do(name: str) -> None:
    (cells,) = [text.split(" | ") for found, _, text in ROW.findall(RUNBOOK) if found == name]
    assert len(cells) == 3 and all(cells), cells
