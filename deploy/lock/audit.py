"""Checks the packages in deploy/lock/dev.lock, which include the image's, for vulnerabilities known to
PyPI: `make audit`.

Exits with 1 if there are any. Only warns if PyPI is unreachable (no network, a mirror without the data),
because a build must not depend on it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Final

from compactor.common.counts import counted

_COMMAND: Final = (
    "-m", "pip_audit", "--vulnerability-service", "pypi", "--format", "json", "--progress-spinner", "off",
    "--requirement", "deploy/lock/dev.lock", "--require-hashes", "--disable-pip",
)  # fmt: skip
_MAX_SECONDS: Final = 300


def judged(output: str, cause: str) -> tuple[int, list[str]]:
    """Returns the exit code and lines to print. output: pip-audit's JSON, if any; cause: its other output."""
    try:
        packages = json.loads(output)["dependencies"]
    except (ValueError, KeyError, TypeError):
        lines = cause.strip().splitlines() or ["no answer"]
        return 0, [f"audit: warning: nothing could be audited: {lines[-1]}"]
    asked = [package for package in packages if "skip_reason" not in package]
    found = [
        f"audit: {package['name']} {package['version']}: {vulnerability['id']}, fixed in "
        f"{', '.join(vulnerability['fix_versions']) or 'no version yet'}"
        for package in asked
        for vulnerability in package["vulns"]
    ]
    if found:
        known = counted(len(found), "known vulnerability", "known vulnerabilities")
        return 1, [*found, f"audit: {known}: raise the versions"]
    unknown = len(packages) - len(asked)
    if not asked:
        return 0, [
            f"audit: warning: nothing could be audited: PyPI knows none of {counted(unknown, 'package')}"
        ]
    rest = f", {unknown} could not be audited" if unknown else ""
    return 0, [f"audit: no known vulnerabilities in {counted(len(asked), 'package')}{rest}"]


def main() -> int:
    try:
        done = subprocess.run(
            [sys.executable, *_COMMAND],
            capture_output=True,
            text=True,
            check=False,
            timeout=_MAX_SECONDS,
        )
        code, lines = judged(done.stdout, done.stderr)
    except subprocess.TimeoutExpired:
        code, lines = judged("", f"no answer within {_MAX_SECONDS} s")
    print("\n".join(lines))
    return code


if __name__ == "__main__":
    sys.exit(main())
