from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.report.browser import Browser, browser, installed


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """One browser for all tests of pages."""
    if installed() is None:
        # CI installs it (deploy/setup/chromium.sh), so there its absence is a fault.
        give_up = pytest.fail if os.environ.get("CI") else pytest.skip
        give_up("no chromium and chromedriver on PATH: sh deploy/setup/chromium.sh")
    with browser() as opened:
        yield opened
