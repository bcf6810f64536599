"""Publishes the metrics of a batch command to node exporter's textfile directory or a Pushgateway."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit, urlunsplit

from prometheus_client import CollectorRegistry, generate_latest, pushadd_to_gateway
from prometheus_client.exposition import basic_auth_handler, default_handler
from prometheus_client.parser import text_string_to_metric_families

from compactor.common.foreign import kind_of
from compactor.common.shortage import OF_THREADS
from compactor.common.threads import started
from compactor.errors import UsageError
from compactor.files.whole import write_whole
from compactor.telemetry.metrics.catalog import LAST_SUCCESS, RUN_LAST_SUCCESS, Change

JOB: Final = "compactor"
_PUSH_SECONDS: Final = 15.0
PASSWORD_VARIABLE: Final = "COMPACTOR_METRICS_PUSH_PASSWORD"
_MAX_PASSWORD_BYTES: Final = 4096


class PushError(Exception):
    """A push failed; the message contains no password."""


def check_textfile(path: str) -> None:
    """Raises `UsageError` for a path that node exporter would ignore or that is not writable."""
    file = Path(path)
    if file.suffix != ".prom":
        raise UsageError(f"--metrics-textfile {path}: node exporter reads files that end in .prom")
    if not file.parent.is_dir():
        raise UsageError(f"--metrics-textfile {path}: create the folder {file.parent} first")
    if file.is_dir():
        raise UsageError(f"--metrics-textfile {path}: it is a folder: name a file")


def check_push(url: str) -> None:
    """Raises `UsageError` for an invalid Pushgateway address or one with a password.

    The message does not quote the address: any part of a malformed one may be the password.
    """
    why = _fault(url)
    if why is not None:
        raise UsageError(
            f"--metrics-push: {why} (it is not shown, since it may contain a password); write "
            "http://host:9091 or https://user@host/path, and percent-encode all but letters and digits in "
            "user"
        )
    if urlsplit(url).password is not None:
        raise UsageError(
            "--metrics-push: the address contains a password, which everybody who lists the processes of "
            f"this machine can read: leave it out, and give it by {PASSWORD_VARIABLE} or "
            "--metrics-push-password-file"
        )


def push_password(url: str, file: str | None) -> str | None:
    """Returns the password for the user in an address that passed `check_push`.

    Reads the file's single line, or else the environment. Raises `UsageError`.
    """
    source, password = PASSWORD_VARIABLE, os.environ.get(PASSWORD_VARIABLE)
    if file is not None:
        source, password = f"--metrics-push-password-file {file}", _read_password(file)
    if password is not None and urlsplit(url).username is None:
        raise UsageError(
            f"{source}: a password is given, but the address of --metrics-push has no user: "
            "write http://user@host:9091"
        )
    return password


def _read_password(file: str) -> str:
    try:
        with Path(file).open("rb") as opened:
            data = opened.read(_MAX_PASSWORD_BYTES + 1)
    except OSError as error:
        raise UsageError(
            f"--metrics-push-password-file {file}: it can't be read ({error.strerror or error})"
        ) from error
    try:
        password = data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        password = ""
    if not password or len(data) > _MAX_PASSWORD_BYTES or not password.isprintable():
        raise UsageError(
            f"--metrics-push-password-file {file}: it is not one line of text of up to "
            f"{_MAX_PASSWORD_BYTES:,} bytes: put the password there, and nothing else"
        )
    return password


def _fault(url: str) -> str | None:
    if not url.isprintable() or " " in url:
        return "the address has blanks or control characters in it"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "the address has no host, or a port that is not a number up to 65535"
    if parts.scheme not in ("http", "https"):
        return "the address does not begin with http:// or https://"
    if not parts.hostname or port == 0:
        return "the address has no host, or port 0"
    if parts.query or parts.fragment or "@" in parts.path:
        return "the address has a '?', '#' or '@' after its host"
    return None


def last_successes(path: str) -> list[Change]:
    """Reads the last success times from a previous run's file; [] if unreadable.

    A failed run publishes them again.
    """
    try:
        families = list(text_string_to_metric_families(Path(path).read_text()))
    except (OSError, ValueError):
        return []
    kept = {metric.name: metric for metric in (LAST_SUCCESS, RUN_LAST_SUCCESS)}
    return [
        Change(metric, sample.value, tuple(sample.labels[name] for name in metric.labels))
        for family in families
        if (metric := kept.get(family.name)) is not None
        for sample in family.samples
        if set(sample.labels) == set(metric.labels)
    ]


def write_textfile(path: str, registry: CollectorRegistry) -> None:
    """Writes the file atomically. Raises as `write_whole`."""
    write_whole(path, generate_latest(registry))


def shown_url(url: str) -> str:
    """Returns the host that metrics are pushed to, without a user or a path."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def push(
    url: str,
    registry: CollectorRegistry,
    grouping: Mapping[str, str],
    password: str | None = None,
    deadline_seconds: float = _PUSH_SECONDS,
) -> None:
    """Pushes metrics to the group `job="compactor"` and `grouping`, replacing only metrics of the same name.

    url: an address that passed `check_push`, possibly with a user. Raises `PushError`, also without a
    complete answer before the deadline.
    """
    parts = urlsplit(url)
    user, password = unquote(parts.username or ""), password or ""
    handler: Callable[..., Callable[[], None]] = default_handler
    if parts.username is not None:

        def handler(**request: Any) -> Callable[[], None]:
            return basic_auth_handler(**request, username=user, password=password)

        parts = parts._replace(netloc=parts.netloc.rpartition("@")[2])
    errors: list[Exception] = []

    def send() -> None:
        try:
            pushadd_to_gateway(
                urlunsplit(parts),
                JOB,
                registry,
                dict(grouping),
                timeout=deadline_seconds,
                handler=handler,
            )
        except Exception as error:  # noqa: BLE001 - Whatever it is, the command's work is done.
            errors.append(error)

    # The client's timeout applies per read. A thread still blocked dies with the process.
    sender = threading.Thread(target=send, name="metrics-push", daemon=True)
    if not started(sender):
        raise PushError(OF_THREADS)
    sender.join(deadline_seconds)
    if sender.is_alive():
        raise PushError(f"no answer in {deadline_seconds:g} s")
    if errors:
        status = errors[0].code if isinstance(errors[0], HTTPError) else None
        raise PushError(f"HTTP status {status}" if status else kind_of(errors[0]))
