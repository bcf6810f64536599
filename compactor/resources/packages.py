"""Requires packages that not every installation has: an error names the extra that a missing one is in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

from compactor.errors import UsageError


class Extra(StrEnum):
    """An extra of pyproject.toml, for one use of this package."""

    AZURE = "azure"
    GCS = "gcs"
    PIPELINES = "pipelines"
    PLOT = "plot"
    PUBLISH = "publish"
    REPORT = "report"
    S3 = "s3"
    SPARK = "spark"
    WORKER = "worker"


@contextmanager
def needing(engine: str, what: str, package: str) -> Iterator[None]:
    """Lets a block import an engine that is in no extra. Raises `UsageError` if it is not installed.

    what: subject of the message. package: what pip installs.
    """
    try:
        yield
    except ImportError as error:
        raise UsageError(f"{what} needs {engine} ({error}): pip install {package}") from None


@contextmanager
def required(extra: Extra, what: str, otherwise: str = "") -> Iterator[None]:
    """Lets a block import packages of an extra. Raises `UsageError` if one is not installed.

    what: subject of the message. otherwise: its end, how to do without.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or str(error)).partition(".")[0]
        if package in ("compactor", "lsm_fragment"):
            raise
        raise UsageError(
            f"{what} needs the package {package}, which is not installed: "
            f"run pip install 'lsm-compactor[{extra}]'{otherwise}"
        ) from error
