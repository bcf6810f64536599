"""`make audit`: findings fail, silence does not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deploy.lock.audit import judged

FINE = {"name": "click", "version": "8.2", "vulns": []}
SKIPPED = {"name": "ours", "skip_reason": "Dependency not found on PyPI"}
BAD = {
    "name": "pyyaml",
    "version": "5.3",
    "vulns": [{"id": "PYSEC-2021-142", "fix_versions": ["5.4"], "aliases": [], "description": ""}],
}


def judge(*packages: Any) -> tuple[int, str]:
    code, lines = judged(json.dumps({"dependencies": packages, "fixes": []}), "")
    return code, "\n".join(lines)


def test_a_vulnerability_fails_and_is_named_with_its_cure() -> None:
    code, said = judge(FINE, BAD, SKIPPED)
    assert code == 1
    assert "pyyaml 5.3: PYSEC-2021-142, fixed in 5.4" in said
    assert judge({**BAD, "vulns": [{"id": "X", "fix_versions": []}]})[1].startswith(
        "audit: pyyaml 5.3: X, fixed in no version yet"
    )


def test_packages_without_are_counted() -> None:
    assert judge(FINE, SKIPPED) == (
        0,
        "audit: no known vulnerabilities in 1 package, 1 could not be audited",
    )


@pytest.mark.parametrize("output", ["", "Traceback", "[]", "{}", "null"])
def test_who_can_not_be_asked_is_a_warning(output: str) -> None:
    code, lines = judged(output, "a\nConnectionError: no network\n")
    assert code == 0
    assert lines == ["audit: warning: nothing could be audited: ConnectionError: no network"]
    assert "nothing could be audited" in judge(SKIPPED)[1]
