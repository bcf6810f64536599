"""docs/how-to/operations.md has every error there is, with its exit code."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from typing import TypeVar

import pytest
import yaml

import compactor
import lsm_fragment
from compactor.cli.main import cli
from compactor.errors import CompactorError
from lsm_fragment.errors import FormatError
from tests.deploy.manifests import ROOT, render

Error = TypeVar("Error", CompactorError, FormatError)

RUNBOOK = (ROOT / "docs/how-to/operations.md").read_text()
ROW = re.compile(r"^\| `(\w+)` \| (\d+) \| (.*) \|$", re.MULTILINE)
# Raised and caught within a module's own package: nobody meets them.
INTERNAL = {"PreconditionError", "LostAnswerError", "UploadGoneError"}


def error_classes() -> dict[str, int]:
    """Exit code by name."""
    for package in (compactor, lsm_fragment):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    found = {error.__name__: error.exit_code for error in descendants(CompactorError)}
    found |= {error.__name__: 3 for error in descendants(FormatError)}
    return {name: code for name, code in found.items() if name[0] != "_" and name not in INTERNAL}


def descendants(of: type[Error]) -> Iterator[type[Error]]:
    child: type[Error]
    for child in of.__subclasses__():
        # Tests may have made some of their own.
        if child.__module__.partition(".")[0] in ("compactor", "lsm_fragment"):
            yield child
        yield from descendants(child)


def test_the_runbook_has_every_error_with_its_exit_code() -> None:
    rows = {name: int(code) for name, code, _ in ROW.findall(RUNBOOK)}
    assert rows == error_classes()


@pytest.mark.parametrize("name", [n for n, _, _ in ROW.findall(RUNBOOK) if n != "TableError"])
def test_every_error_has_a_cause_and_something_to_do(name: str) -> None:
    (cells,) = [text.split(" | ") for found, _, text in ROW.findall(RUNBOOK) if found == name]
    assert len(cells) == 3 and all(cells), cells


def test_every_alert_has_a_meaning_and_something_to_do() -> None:
    rules = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yaml").read_text())
    alerts = [rule["alert"] for group in rules["groups"] for rule in group["rules"]]
    (section,) = re.findall(r"## What to watch\n(.*?)\n## ", RUNBOOK, re.DOTALL)
    assert re.findall(r"^\| `(\w+)` \| [^|]+ \| [^|]+ \|$", section, re.MULTILINE) == alerts


@pytest.mark.program
def test_commands_of_first_aid_name_what_the_manifests_have() -> None:
    (commands,) = re.findall(r"## First aid.*?```sh\n(.*?)```", RUNBOOK, re.DOTALL)
    documents = [*render("watch"), *render("cronjob")]
    names = {d["kind"].lower(): set[str]() for d in documents}
    for document in documents:
        names[document["kind"].lower()].add(document["metadata"]["name"])
    controllers = re.findall(r"statefulset (\S+)", commands)
    jobs = re.findall(r"cronjob/(\S+)", commands)
    assert controllers and set(controllers) <= names["statefulset"]
    assert jobs and {*jobs, "compactor-compact"} <= names["cronjob"]
    (namespace,) = names["namespace"]
    assert set(re.findall(r"kubectl -n (\S+)", commands)) == {namespace}
    (fleet,) = names["statefulset"]
    assert set(re.findall(r"\b(?:pod|logs|exec) (\S+)", commands)) == {f"{fleet}-0"}
    for command in re.findall(r"'compactor (\w+) ", commands):
        assert command in cli.commands
