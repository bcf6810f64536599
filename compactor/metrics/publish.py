"""Metrics of a command that ends: to a file for node exporter, or to a Pushgateway."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit, urlunsplit

from prometheus_client import CollectorRegistry, pushadd_to_gateway, write_to_textfile
from prometheus_client.exposition import basic_auth_handler, default_handler
from prometheus_client.parser import text_string_to_metric_families

from compactor.errors import UsageError
from compactor.metrics.catalog import LAST_SUCCESS, Change
from compactor.redact import redacted

JOB: Final = "compactor"
_PUSH_SECONDS: Final = 10.0


def check_textfile(path: str) -> None:
    """Raises `UsageError` for what node exporter would not read, or can't be written."""
    file = Path(path)
    if file.suffix != ".prom":
        raise UsageError(f"--metrics-textfile {path}: node exporter reads files that end in .prom")
    if not file.parent.is_dir():
        raise UsageError(f"--metrics-textfile {path}: there is no folder {file.parent}")
    if file.is_dir():
        raise UsageError(f"--metrics-textfile {path}: it is a folder")


def check_push(url: str) -> None:
    """Raises `UsageError` for what is no address of a Pushgateway."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(
            f"--metrics-push {redacted(url)}: write http://host:9091 or https://host/path"
        )


def last_successes(path: str) -> list[Change]:
    """When runs before ended well, by the file that they left: a run that fails keeps it. [] if unread."""
    try:
        families = list(text_string_to_metric_families(Path(path).read_text()))
    except (OSError, ValueError):
        return []
    return [
        Change(LAST_SUCCESS, sample.value, (sample.labels["table"],))
        for family in families
        if family.name == LAST_SUCCESS.name
        for sample in family.samples
        if set(sample.labels) == set(LAST_SUCCESS.labels)
    ]


def write_textfile(path: str, registry: CollectorRegistry) -> None:
    """Atomically: whoever reads finds the old file or the new one. Raises OSError."""
    write_to_textfile(path, registry)


def push(url: str, registry: CollectorRegistry, grouping: Mapping[str, str]) -> None:
    """Adds to the group `job="compactor"` and `grouping`: of what is not pushed, the old value stays there.

    User and password may be in the address. Raises OSError, `http.client.HTTPException`, ValueError.
    """
    parts = urlsplit(url)
    handler: Callable[..., Callable[[], None]] = default_handler
    if parts.username is not None:
        user, password = unquote(parts.username), unquote(parts.password or "")

        def handler(**request: Any) -> Callable[[], None]:
            return basic_auth_handler(**request, username=user, password=password)

        parts = parts._replace(netloc=parts.netloc.rpartition("@")[2])
    pushadd_to_gateway(
        urlunsplit(parts), JOB, registry, dict(grouping), timeout=_PUSH_SECONDS, handler=handler
    )
