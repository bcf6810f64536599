"""What programs may rely on, pinned."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import compactor
import lsm_fragment
from compactor.cli.main import run
from compactor.table.protocol import PROTOCOL
from lsm_fragment.blocks.layout import VERSION
from tests.api.public_api import public_api

ROOT: Final = Path(__file__).parents[2]
SNAPSHOT: Final = Path(__file__).with_name("public_api.txt")


def test_the_public_interface_is_what_was_agreed() -> None:
    assert public_api() == SNAPSHOT.read_text(), (
        "the public interface changed: if that is meant, run `python -m tests.api`, and add a line to "
        "CHANGELOG.md (docs/reference/versioning.md says which version it takes)"
    )


@pytest.mark.parametrize("module", [compactor, lsm_fragment])
def test_every_public_name_is_there_and_listed_by_dir(module: object) -> None:
    names: list[str] = module.__all__  # type: ignore[attr-defined]
    assert set(names) <= set(dir(module))
    for name in names:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        module.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_importing_the_package_takes_none_of_its_libraries() -> None:
    code = "import compactor, format, sys; print(sorted({'boto3', 'numpy', 'pyarrow'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_explained() -> None:
    for module in (compactor, lsm_fragment):
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isclass(thing) or callable(thing):
                assert inspect.getdoc(thing), name
            for kind in thing.__mro__ if inspect.isclass(thing) else ():
                if kind.__module__.startswith(("compactor.api.", "lsm_fragment.container.open")):
                    for member, value in vars(kind).items():
                        if not member.startswith("_"):
                            assert inspect.getdoc(value), f"{name}.{member}"


def test_the_command_says_all_three_versions(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    said = capsys.readouterr().out.strip()
    assert said == (
        f"compactor {lsm_fragment.__version__} (fragment format {VERSION}, table protocol {PROTOCOL})"
    )
    assert said in (ROOT / "docs/reference/versioning.md").read_text()


def test_the_changelog_agrees_with_the_version() -> None:
    """Unreleased is what the version will be; without it, the newest release is what it is."""
    text = (ROOT / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert headings
    releases = []
    for heading in headings:
        if heading != "[Unreleased]":
            match = re.fullmatch(r"\[(\d+\.\d+\.\d+)\] - \d{4}-\d{2}-\d{2}", heading)
            assert match, heading
            releases.append(tuple(map(int, match[1].split("."))))
    assert releases == sorted(set(releases), reverse=True)
    said = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", lsm_fragment.__version__)
    assert said
    ours = tuple(map(int, said.groups()))
    if headings[0] == "[Unreleased]":
        assert not releases or ours > releases[0]
    else:
        assert ours == releases[0]
    assert headings.count("[Unreleased]") <= 1
    kinds = set(re.findall(r"^### (.*)$", text, re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
