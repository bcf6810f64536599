"""A local S3 server (moto) in a subprocess, for the duration of a `with` block."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_START_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 5.0


class ServerError(Exception):
    """The server did not start; the message quotes the end of its log."""


@contextmanager
def local_s3(log_path: Path) -> Iterator[str]:
    """Yields the endpoint URL of a new, empty S3 server on 127.0.0.1; stops it at the end.

    The server runs in its own session, so that Ctrl-C ends its clients first.
    """
    port = _free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with log_path.open("wb") as log:
        server = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait_until_listening(server, port, log_path)
        yield f"http://127.0.0.1:{port}"
    finally:
        _stop(server)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_listening(server: subprocess.Popen[bytes], port: int, log_path: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return
        time.sleep(0.1)
    tail = log_path.read_text(errors="replace")[-2_000:]
    raise ServerError(f"the S3 server did not come up on port {port}:\n{tail}")


def _stop(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        server.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
