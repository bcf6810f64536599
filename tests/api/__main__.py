"""Writes the public interface as it is now to public_api.txt: `python -m tests.api`."""

from __future__ import annotations

from tests.api.public_api import public_api
from tests.api.test_public_api import SNAPSHOT

SNAPSHOT.write_text(public_api())
print(f"{SNAPSHOT.name} written: add a line to CHANGELOG.md")
