"""Azurite, Microsoft's emulator of Azure Blob Storage, a program that deploy/setup/azurite.sh installs."""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Final

import pytest

from tests.support.emulators import emulator

ACCOUNT: Final = "devstoreaccount1"
KEY: Final = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
"""Published by Microsoft for every Azurite."""
_INSTALLED: Final = Path(__file__).parents[2] / ".venv/azurite/node_modules/.bin/azurite-blob"
_API: Final = "2021-08-06"


def program() -> str | None:
    """Returns the program's path; None if it is not installed."""
    return str(_INSTALLED) if _INSTALLED.exists() else shutil.which("azurite-blob")


@contextmanager
def azurite() -> Iterator[str]:
    """Yields the endpoint of a new, empty account in memory."""

    def command(port: str) -> list[str]:
        host = ["--blobHost", "127.0.0.1", "--blobPort", port]
        # obstore may ask for a newer version of the interface than the emulator knows.
        quietly = ["--skipApiVersionCheck", "--disableTelemetry", "--silent"]
        return [str(program()), "--inMemoryPersistence", *host, *quietly]

    with emulator(command) as address:
        yield f"{address}/{ACCOUNT}"


def azure_environment(endpoint: str, environment: pytest.MonkeyPatch) -> None:
    """What makes obstore talk to the emulator."""
    environment.setenv("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT)
    environment.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
    environment.setenv("AZURE_ENDPOINT", endpoint)


def create_container(endpoint: str, name: str) -> str:
    date = formatdate(usegmt=True)
    signed = (
        f"PUT{12 * chr(10)}x-ms-date:{date}\nx-ms-version:{_API}\n"
        f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
    )
    digest = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
    signature = base64.b64encode(digest).decode()
    headers = {
        "x-ms-date": date,
        "x-ms-version": _API,
        "Authorization": f"SharedKey {ACCOUNT}:{signature}",
        "Content-Length": "0",
    }
    address = f"{endpoint}/{name}?restype=container"
    request = urllib.request.Request(address, method="PUT", headers=headers)
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 201
    return name
